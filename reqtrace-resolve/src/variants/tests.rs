use crate::fixtures::Fixture;
use crate::symbols::find;

const PROGRAM: &str = r#"
    #include <cstdio>
    struct Base { Base(); virtual ~Base(); int x; };
    struct Part : virtual Base { Part(int); virtual ~Part(); long y; };
    struct Inlined { virtual ~Inlined(); int x; };
    __attribute__((noinline)) Base::Base() { asm volatile(""); }
    __attribute__((noinline)) Base::~Base() {
        x = 1; puts("a"); puts("b"); puts("c"); puts("d"); puts("e"); puts("f"); puts("g"); puts("h");
    }
    __attribute__((noinline)) Part::Part(int a) { y = a; puts("part"); }
    __attribute__((noinline)) Part::~Part() { y = 2; puts("gone"); }
    Inlined::~Inlined() { x = 1; asm volatile("" ::: "memory"); }
    int main(int c, char **) { Base *b = new Part(c); delete b; b = new Base; delete b; delete new Inlined; }
"#;

/// Entries of a function, and of all its symbols.
fn entries(fixture: &Fixture, pattern: &str, symbols: &[&str]) -> (Vec<u64>, Vec<u64>) {
    let object = fixture.object();
    let found = find(&object, pattern).unwrap().unwrap();
    let of_symbols = symbols
        .iter()
        .map(|name| object.address_of_symbol(name).unwrap());
    let mut all: Vec<u64> = of_symbols.collect();
    all.sort_unstable();
    all.dedup();
    (found.bodies.iter().map(|body| body.start).collect(), all)
}

#[test]
fn a_destructor_that_frees_by_calling_the_other_is_left_out() {
    for flags in [
        &["-O1"][..],
        &["-O2"],
        &["-O2", "-shared", "-fPIC"],
        &["-O2", "-shared", "-fPIC", "-fno-plt"],
    ] {
        let fixture = Fixture::cpp(PROGRAM, flags);
        let (probed, all) = entries(
            &fixture,
            "Base::~Base",
            &["_ZN4BaseD0Ev", "_ZN4BaseD1Ev", "_ZN4BaseD2Ev"],
        );
        let object = fixture.object();
        let whole = object.address_of_symbol("_ZN4BaseD1Ev").unwrap();
        assert_eq!(all.len(), 2, "{flags:?}: {all:x?}");
        assert_eq!(probed, [whole], "{flags:?}");
    }
}

#[test]
fn variants_that_do_the_work_themselves_stay() {
    // At -O2 the whole object's variants have the work of the part's in them.
    let fixture = Fixture::cpp(PROGRAM, &["-O2", "-fno-ipa-icf"]);
    let (probed, all) = entries(&fixture, "Part::Part", &["_ZN4PartC1Ei", "_ZN4PartC2Ei"]);
    assert_eq!(probed, all);
    assert_eq!(all.len(), 2);
    let names = ["_ZN7InlinedD0Ev", "_ZN7InlinedD1Ev", "_ZN7InlinedD2Ev"];
    let (mut probed, all) = entries(&fixture, "Inlined::~Inlined", &names);
    probed.sort_unstable();
    assert_eq!(probed, all);
    assert_eq!(all.len(), 2);
}
