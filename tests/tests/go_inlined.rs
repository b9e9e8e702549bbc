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

/// A name without what a generic is made for, and which convention of calls a function of assembly has; DWARF has dots for what is no letter.
fn short(name: &str) -> String {
    let name = name.split('[').next().unwrap_or_default();
    name.strip_suffix(".abi0").unwrap_or(name).replace('·', ".")
}

/// The names at places of the program's code, the innermost first.
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
    let named = places.filter_map(|place| {
        let frames = symbols.frame(space, place, false);
        let names: Vec<String> = frames.iter().map(|frame| short(&frame.name)).collect();
        // Between functions.
        let is_code = names.iter().all(|name| !name.is_empty());
        is_code.then_some((place, names))
    });
    named.collect()
}

#[test]
fn a_program_without_dwarf_has_the_inlined_frames_of_one_with_it() {
    let with = names(&["-ldflags=-compressdwarf=false"], "dwarf");
    // Without any symbols; and with symbols, but with DWARF that is compressed, which is not read.
    for (name, options) in [("no-symbols", "-ldflags=-s -w"), ("no-dwarf", "-ldflags=")] {
        let without = names(&[options], name);
        let has_inlined = with.values().filter(|names| names.len() > 1).count();
        assert!(has_inlined * 20 > with.len(), "{has_inlined}");
        // DWARF leaves out what was inlined into functions that the compiler has generated.
        let mut more = 0;
        for (place, names) in &with {
            let found = &without[place];
            assert!(
                found.ends_with(names),
                "{name}: {place:#x} {names:?} {found:?}"
            );
            more += usize::from(found.len() > names.len());
        }
        assert!(more * 100 <= has_inlined, "{name}: {more} of {has_inlined}");
    }
}
