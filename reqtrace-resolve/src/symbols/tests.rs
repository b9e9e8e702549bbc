use super::*;
use crate::fixtures::Fixture;
use crate::missing::missing;

const NAMES: &str = r#"
namespace shop {
namespace service { __attribute__((noinline)) int handle_request(int a) { asm(""); return a + 1; } }
struct Cart {
    int total;
    Cart(int start);
    virtual ~Cart();
    __attribute__((noinline)) int add(int a);
    __attribute__((noinline)) int add(const char *name, int count);
    int operator[](int index);
};
Cart::Cart(int start) : total(start) { asm(""); }
Cart::~Cart() { asm(""); }
int Cart::add(int a) { asm(""); return total += a; }
int Cart::add(const char *name, int count) { asm(""); return total += count + *name; }
int Cart::operator[](int index) { return index + total; }
template <class T> __attribute__((noinline)) T twice(T value) { asm(""); return value + value; }
template int twice<int>(int);
}
namespace other { __attribute__((noinline)) int only_here(int a) { asm(""); return a + 2; } }
extern "C" __attribute__((noinline)) int plain_c(int a) { asm(""); return a + 3; }
extern "C" int plain_alias(int a) __attribute__((alias("plain_c")));
__attribute__((noinline)) int dispatch_command(int command, void *thd, char *, unsigned, bool) {
    asm(""); return command + (thd != nullptr);
}
extern "C" int puts(const char *);
int main(int argc, char **argv) {
    shop::Cart cart(argc);
    puts(argv[0]);
    return cart.add(argc) + cart.add(argv[0], 1) + cart[1] + shop::service::handle_request(argc)
        + other::only_here(argc) + plain_c(argc) + shop::twice(argc)
        + dispatch_command(argc, argv, argv[0], 1, true);
}
"#;

#[test]
fn a_function_of_a_type_of_rust_is_found_by_its_path_and_as_it_is_printed() {
    let base = "_RNvMNtCs1234_4http6methodNtB2_6Method10from_bytes";
    let name = demangle(base);
    let rank = |pattern: &str| rank(pattern, base, &name);
    for pattern in [
        "http::method::Method::from_bytes",
        "<http::method::Method>::from_bytes",
    ] {
        assert_eq!(rank(pattern), Some(2), "{pattern}");
    }
    assert_eq!(rank("Method::from_bytes"), Some(3));
    assert_eq!(rank("Method::from"), None);
}

fn found(object: &Object, pattern: &str) -> Function {
    find(object, pattern).unwrap().unwrap_or_else(|| {
        panic!(
            "{pattern}: {}",
            missing(object, &[pattern.to_owned()], None, &[])
        )
    })
}

#[test]
fn names_are_found_in_every_way_they_are_written() {
    let fixture = Fixture::cpp(NAMES, &["-O1"]);
    let object = fixture.object();
    let dispatch = "dispatch_command(int, void*, char*, unsigned int, bool)";
    for pattern in [
        "dispatch_command",
        dispatch,
        "dispatch_command(int,void *,char *,unsigned int,bool)",
        "dispatch_comm*",
        "_Z16dispatch_commandiPvPcjb",
    ] {
        assert_eq!(found(&object, pattern).name, dispatch, "{pattern}");
    }
    for pattern in [
        "handle_request",
        "service::handle_request",
        "shop::service::handle_request",
        "shop::*::handle_request",
    ] {
        let function = found(&object, pattern);
        assert_eq!(function.name, "shop::service::handle_request(int)");
    }
    assert_eq!(
        found(&object, "Cart::operator[]").name,
        "shop::Cart::operator[](int)"
    );
    assert_eq!(
        found(&object, "Cart::add(int)").name,
        "shop::Cart::add(int)"
    );
    assert_eq!(found(&object, "shop::twice").bodies.len(), 1);
    assert_eq!(found(&object, "twice<int>").bodies.len(), 1);
    // A part of a component is no component.
    assert_eq!(find(&object, "request").unwrap(), None);
}

#[test]
fn aliases_and_variants_are_one_function() {
    let fixture = Fixture::cpp(NAMES, &["-O1"]);
    let object = fixture.object();
    let plain = found(&object, "plain_c");
    assert_eq!(plain.bodies, found(&object, "plain_alias").bodies);
    assert_eq!(found(&object, "plain_*").bodies, plain.bodies);
    assert_eq!(found(&object, "Cart::Cart").bodies.len(), 1);
    // The deleting destructor is code of its own, and calls the other.
    assert_eq!(found(&object, "Cart::~Cart").bodies.len(), 1);
}

fn group(addresses: &[u64]) -> Group {
    let member = |address: &u64| Member {
        symbol: 0,
        address: *address,
        copy: Copy::Main,
    };
    Group {
        name: demangle("serve"),
        members: addresses.iter().map(member).collect(),
        distinct_names: true,
    }
}

#[test]
fn aliases_join_the_first_function_that_has_their_address() {
    let mut groups: Vec<Group> = [&[1][..], &[2], &[1, 2], &[2], &[3]].map(group).into();
    merge_aliases(&mut groups);
    let addresses = |group: &Group| -> Vec<u64> { group.addresses(Copy::Main).collect() };
    let found: Vec<Vec<u64>> = groups.iter().map(addresses).collect();
    assert_eq!(found, [vec![1, 1, 2, 2], vec![2], vec![3]]);
}

/// Each of so many was compared with all before it: that took minutes.
#[test]
fn as_many_functions_as_a_server_has_are_merged_at_once() {
    let mut groups: Vec<Group> = (0..200_000).map(|address| group(&[address])).collect();
    merge_aliases(&mut groups);
    assert_eq!(groups.len(), 200_000);
}

#[test]
fn overloads_are_listed() {
    let fixture = Fixture::cpp(NAMES, &["-O1"]);
    let error = find(&fixture.object(), "Cart::add").unwrap_err();
    let text = error.to_string();
    assert_eq!(error.exit_code(), 2);
    assert!(text.contains("2 functions match"), "{text}");
    assert!(text.contains("shop::Cart::add(int) (offset 0x"), "{text}");
    assert!(text.contains("shop::Cart::add(char const*, int)"), "{text}");
}

#[test]
fn static_functions_of_one_name_are_told_apart_by_offset() {
    let source = r#"
        asm(".type twin, @function\ntwin: ret\n.size twin, 1\n");
        int main(void) { return 0; }
    "#;
    let fixture = Fixture::c(source, &["-O1"]);
    assert!(find(&fixture.object(), "twin").unwrap().is_some());
    let other = fixture.folder().join("other.c");
    std::fs::write(
        &other,
        "asm(\".type twin, @function\\ntwin: ret\\n.size twin, 1\\n\");",
    )
    .unwrap();
    let fixture = Fixture::c(source, &["-O1", other.to_str().unwrap()]);
    let text = find(&fixture.object(), "twin").unwrap_err().to_string();
    assert_eq!(text.matches("twin (offset 0x").count(), 2, "{text}");
}

#[test]
fn a_missing_function_is_explained() {
    let fixture = Fixture::cpp(NAMES, &["-O1"]);
    let object = fixture.object();
    let why = |pattern: &str| {
        let error = missing(&object, &[pattern.to_owned()], None, &[]);
        format!("{error} / {}", error.advice().unwrap_or_default())
    };
    let text = why("dispatch_comand");
    assert!(
        text.contains("no function `dispatch_comand` in program"),
        "{text}"
    );
    assert!(text.contains("near to it: `dispatch_command`"), "{text}");
    assert!(text.contains("inlined"), "{text}");
    let text = why("puts");
    assert!(text.contains("imported from another object"), "{text}");
    assert!(text.contains("object = "), "{text}");
}

#[test]
fn what_is_exported_survives_strip() {
    let fixture = Fixture::cpp(NAMES, &["-O1", "-rdynamic"]).stripped();
    let object = fixture.object();
    assert!(!object.has_symtab());
    assert_eq!(
        found(&object, "dispatch_command").name,
        "dispatch_command(int, void*, char*, unsigned int, bool)"
    );
    let fixture = Fixture::cpp(NAMES, &["-O1"]).stripped();
    let object = fixture.object();
    assert_eq!(find(&object, "dispatch_command").unwrap(), None);
    let error = missing(&object, &["dispatch_command".to_owned()], None, &[]);
    assert!(
        error
            .advice()
            .unwrap()
            .contains("no function symbols at all")
    );
}

#[test]
fn pieces_and_clones_are_one_function() {
    let source = r#"
        asm(".text\n"
            ".type work, @function\nwork: ret\n.size work, 1\n"
            ".type work.constprop.0, @function\nwork.constprop.0: ret\n.size work.constprop.0, 1\n"
            ".type work.part.0, @function\nwork.part.0: ret\n.size work.part.0, 1\n"
            ".type work.cold, @function\nwork.cold: ret\n.size work.cold, 1\n"
            ".type gone.part.0, @function\ngone.part.0: ret\n.size gone.part.0, 1\n");
        int main(void) { return 0; }
    "#;
    let fixture = Fixture::c(source, &[]);
    let object = fixture.object();
    let function = found(&object, "work");
    assert_eq!(function.bodies.len(), 2);
    assert_eq!(function.bodies[0].end - function.bodies[0].start, 1);
    assert_eq!(function.partly_inlined.as_deref(), Some("work.part.0"));
    assert_eq!(find(&object, "gone").unwrap(), None);
    let text = missing(&object, &["gone".to_owned()], None, &[]).to_string();
    assert!(text.contains("only pieces of `gone` are left"), "{text}");
}

#[test]
fn rust_is_found_in_both_manglings() {
    let source = r#"
        mod service {
            pub struct Shop;
            pub trait Handle { fn handle(&self, n: u64) -> u64; }
            impl Handle for Shop { #[inline(never)] fn handle(&self, n: u64) -> u64 { std::hint::black_box(n) + 1 } }
            #[inline(never)] pub fn handle_request(n: u64) -> u64 { std::hint::black_box(n) + 2 }
            #[inline(never)] pub fn generic<T: std::fmt::Debug>(n: T) { std::hint::black_box(&n); }
        }
        fn main() {
            use service::Handle;
            println!("{}", service::Shop.handle(1) + service::handle_request(2));
            service::generic(1u8);
            service::generic("x");
        }
    "#;
    for mangling in ["v0", "legacy"] {
        let mut flags = vec!["-O", "-C"];
        let version = format!("symbol-mangling-version={mangling}");
        flags.push(&version);
        if mangling == "legacy" {
            // Stable compilers take it as a developer's option only.
            flags.truncate(1);
        }
        let fixture = Fixture::rust(source, &flags);
        let object = fixture.object();
        let function = found(&object, "service::handle_request");
        assert_eq!(
            function.name,
            "program::service::handle_request".replace("program", "source")
        );
        assert_eq!(function.bodies, found(&object, "handle_request").bodies);
        let handle = found(&object, "*service::Shop*::handle");
        assert_eq!(handle.bodies.len(), 1, "{mangling}");
        let error = find(&object, "service::generic").unwrap_err();
        assert!(error.to_string().contains("2 functions match"), "{error}");
    }
}

#[test]
fn a_word_of_a_pattern_spares_demangling() {
    for (pattern, word) in [
        ("dispatch_command", Some("dispatch_command")),
        ("*pthread_cond_wait*", Some("pthread_cond_wait")),
        ("log_t::*", Some("log_t")),
        ("shop::Cart::add(int)", Some("add")),
        // The mangled name has `St` for it.
        ("std::*", None),
        ("shop::operator==", None),
        ("*", None),
    ] {
        assert_eq!(word_in(pattern), word, "{pattern}");
    }
}

#[test]
fn all_copies_of_a_generic_are_found_where_they_are_asked_for() {
    let source = r#"
        mod service {
            #[inline(never)]
            pub fn poll<T: std::fmt::Display>(value: T) -> usize { format!("{value}").len() }
            #[inline(never)]
            pub fn other(value: usize) -> usize { std::hint::black_box(value) }
        }
        fn main() {
            let n = std::env::args().count();
            println!("{}", service::poll(n) + service::poll("a") + service::poll(n as f64) + service::other(n));
        }
    "#;
    for flags in [&["-O"][..], &["-O", "-Csymbol-mangling-version=v0"]] {
        let fixture = Fixture::rust(source, flags);
        let object = fixture.object();
        let error = find(&object, "service::poll").unwrap_err();
        assert!(error.advice().unwrap().contains("all = true"), "{error}");
        let all = find_all(&object, "service::poll").unwrap().unwrap();
        assert_eq!(all.bodies.len(), 3, "{all:?}");
        assert!(all.name.ends_with("service::poll"), "{}", all.name);
        // What is one function is the same with it.
        let one = find_all(&object, "service::other").unwrap();
        assert_eq!(one, find(&object, "service::other").unwrap());
        assert_eq!(find_all(&object, "service::none").unwrap(), None);
        // Different functions are not copies of one.
        let error = find_all(&object, "*service::*").unwrap_err();
        assert!(!error.advice().unwrap().contains("all = true"), "{error}");
    }
    let fixture = Fixture::cpp(NAMES, &["-O1"]);
    let all = find_all(&fixture.object(), "shop::Cart::add")
        .unwrap()
        .unwrap();
    assert_eq!(all.bodies.len(), 2);
}
