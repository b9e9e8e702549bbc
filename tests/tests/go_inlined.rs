//! Functions that Go's compiler has inlined: a program without DWARF has the same frames as one with it.
//!
//! Needs Go.

use std::collections::BTreeMap;

use reqtrace_binary::maps;
use reqtrace_binary::symbolize::AddressSpace;
use reqtrace_binary::symbolize::user::UserSymbols;
use reqtrace_tests::goroutines;

/// Every so many bytes of the code are looked at.
const STEP: usize = 101;

/// The names at places of the program's code, the innermost first, without what generics are made for.
fn names(options: &[&str], name: &str) -> BTreeMap<u64, Vec<String>> {
    let program = goroutines::build(name, options).unwrap();
    let (server, _) = goroutines::server(&program).unwrap();
    let space = AddressSpace {
        tgid: server.pid(),
        exec_generation: 0,
    };
    let mut symbols = UserSymbols::new();
    assert!(symbols.remember(space));
    let mapped = maps::executable(server.pid()).unwrap();
    let code = mapped
        .iter()
        .find(|mapping| mapping.path().ends_with("/goroutines"))
        .unwrap();
    let places = (code.start..code.end).step_by(STEP);
    let named = places.map(|place| {
        let frames = symbols.frame(space, place, false);
        let of_generic = |name: &str| name.split('[').next().unwrap_or_default().to_owned();
        let names = frames.iter().map(|frame| of_generic(&frame.name));
        (place, names.collect())
    });
    named.collect()
}

#[test]
fn a_program_without_dwarf_has_the_inlined_frames_of_one_with_it() {
    let with = names(
        &["-buildvcs=false", "-ldflags=-compressdwarf=false"],
        "dwarf",
    );
    // Without any symbols; and with symbols, but with DWARF that is compressed, which is not read.
    for (name, options) in [("no-symbols", "-ldflags=-s -w"), ("no-dwarf", "-ldflags=")] {
        let without = names(&["-buildvcs=false", options], name);
        assert_eq!(with.len(), without.len());
        let has_inlined = with.values().filter(|names| names.len() > 1).count();
        assert!(has_inlined * 20 > with.len(), "{has_inlined}");
        // What the compiler itself has generated is not in DWARF.
        let differ: Vec<_> = with
            .iter()
            .filter(|(place, names)| without[place] != **names)
            .map(|(place, names)| (place, names, &without[place]))
            .collect();
        assert!(
            differ.len() * 1000 <= has_inlined,
            "{name}: {} of {has_inlined} differ: {:#?}",
            differ.len(),
            &differ[..differ.len().min(10)]
        );
    }
}
