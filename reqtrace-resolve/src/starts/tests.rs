use std::collections::BTreeSet;
use std::process::Command;

use super::*;
use crate::fixtures::Fixture;

/// A switch that becomes a table, a long constant, a cold part, a loop, an exception, a lock.
const PROGRAM: &str = r#"
    #include <cstdio>
    #include <cstdlib>
    #include <atomic>
    #define KEEP __attribute__((noinline, noclone))
    std::atomic<long> hits;
    KEEP long constant(long a) { return a * 0x1122334455667788 + 0x90c3909090c39090; }
    KEEP int table(int a) {
        switch (a) {
        case 0: return rand();
        case 1: puts("one"); return 7;
        case 2: return abs(a - 9);
        case 3: puts("three"); return 1 + rand();
        case 4: return 44;
        case 5: puts("five"); return rand() % 3;
        default: return -1;
        }
    }
    KEEP int cold(int a) { if (__builtin_expect(a > 77, 0)) { puts("cold"); abort(); } return a * 3; }
    KEEP int loop(int a) { int s = 0; for (int i = 0; i < a; i++) s += rand() ^ i; return s; }
    KEEP int thrower(int a) { try { if (a > 3) throw a; puts("no"); } catch (int b) { return b; } return 0; }
    KEEP long locked(long a) { hits += a; return hits.exchange(a); }
    KEEP double real(double a) { return a * 3.25 + 1e9; }
    KEEP int calls(int a) { return cold(a) + loop(a) + table(a); }
    KEEP void stores(long *a, long b) { a[0] = 0x7fffffff; a[9] = b; a[500] = 0x1234; }
    KEEP int tail(int a) { puts("tail"); return calls(a + 1); }
    int main(int c, char **v) {
        long a[501];
        stores(a, c);
        printf("%ld %d %ld %f %d\n", constant(c), tail(c), locked(a[0]), real(c), thrower(c));
    }
"#;

/// First bytes of the instructions between two addresses, as objdump has them.
fn listed(fixture: &Fixture, range: &Range<u64>) -> BTreeSet<u64> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(format!("--start-address=0x{:x}", range.start))
        .arg(format!("--stop-address=0x{:x}", range.end))
        .arg(fixture.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let addresses = text.lines().filter_map(|line| line.split_once(":\t"));
    addresses
        .map(|(address, _)| u64::from_str_radix(address.trim(), 16).unwrap())
        .collect()
}

fn accepted(object: &Object, range: &Range<u64>) -> BTreeSet<u64> {
    let all = range.clone();
    all.filter(|address| begins(object, *address) == Begins::Proven)
        .collect()
}

#[test]
fn of_a_stripped_program_exactly_the_first_bytes_are_accepted() {
    for flags in [&["-O2"][..], &["-O0"], &["-O3", "-march=haswell"]] {
        let twin = Fixture::cpp(PROGRAM, flags);
        let stripped = Fixture::cpp(PROGRAM, flags).stripped();
        let (named, object) = (twin.object(), stripped.object());
        assert!(object.symbols().is_empty());
        let functions = [
            "constant", "table", "cold", "loop", "thrower", "locked", "real", "calls", "stores",
            "tail",
        ];
        let mut ranges = Vec::new();
        for name in functions {
            let symbols = named.symbols().iter();
            // With its cold part.
            let of_name = symbols.filter(|symbol| {
                named
                    .name(symbol)
                    .contains(&format!("{}{name}", name.len()))
            });
            ranges.extend(of_name.map(|symbol| symbol.address..symbol.address + symbol.size));
        }
        assert!(ranges.len() >= functions.len(), "{ranges:x?}");
        let mut inside = 0;
        for range in ranges {
            let listed = listed(&twin, &range);
            assert_eq!(accepted(&object, &range), listed, "{flags:?} {range:x?}");
            inside += range.end - range.start - listed.len() as u64;
        }
        assert!(inside > 300, "{inside}");
    }
}

#[test]
fn the_instruction_that_an_address_is_inside_of_is_named() {
    let fixture = Fixture::cpp(PROGRAM, &["-O2"]);
    let object = fixture.object();
    let constant = symbols::find(&object, "constant").unwrap().unwrap();
    let mut code = decoder(&object, constant.bodies[0].clone());
    let start = code.find(|code| code.len() == 10).unwrap().ip();
    assert_eq!(
        begins(&object, start + 2),
        Begins::Inside(start, "mov".to_owned())
    );
}

#[test]
fn data_among_the_code_makes_a_function_doubtful() {
    // The two bytes behind the jump begin a constant of eight bytes, which hides what is jumped to.
    let fixture = Fixture::assembly(
        ".text\n.globl mixed\n.type mixed, @function\nmixed: nop\njmp 1f\n.byte 0x48, 0xb8\n\
         1: nop\nnop\nret\n.fill 16, 1, 0x90\n.size mixed, .-mixed\n\
         .globl broken\n.type broken, @function\nbroken: nop\n.byte 0x06\nnop\nret\n.size broken, .-broken\n",
    );
    let object = fixture.object();
    let at = |name: &str| symbols::find(&object, name).unwrap().unwrap().bodies[0].start;
    let doubtful = |address| match begins(&object, address) {
        Begins::Doubtful(why) => why,
        other => panic!("{address:x}: {other:?}"),
    };
    let mixed = at("mixed");
    for address in mixed..mixed + 24 {
        assert!(doubtful(address).contains("data may be among the code"));
    }
    let broken = at("broken");
    assert_eq!(begins(&object, broken), Begins::Proven);
    assert!(doubtful(broken + 2).contains("is no instruction"));
}

#[test]
fn a_jump_over_a_lock_prefix_is_no_doubt() {
    let fixture = Fixture::assembly(
        ".text\n.globl guarded\n.type guarded, @function\nguarded: cmpl $0, %fs:24\nje 1f\nlock\n\
         1: cmpxchgl %esi, (%rdi)\nret\n.size guarded, .-guarded\n",
    );
    let object = fixture.object();
    let body = symbols::find(&object, "guarded").unwrap().unwrap().bodies[0].clone();
    let last = body.end - 1;
    assert_eq!(begins(&object, last), Begins::Proven);
    let starts: Vec<u64> = accepted(&object, &body).into_iter().collect();
    assert_eq!(starts.len(), 4, "{starts:x?}");
}

#[test]
fn nothing_tells_without_symbols_and_frames() {
    let fixture = Fixture::assembly(".text\nnop\nnop\nret\n").stripped();
    let object = fixture.object();
    let code = (0..0x3000).find(|address| object.code(*address).starts_with(&[0x90, 0x90, 0xc3]));
    assert_eq!(begins(&object, code.unwrap()), Begins::Unknown);
}
