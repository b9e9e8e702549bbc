//! Types of tasks: an object in; the functions that poll a task, with the types of the futures that each polls, out.
//!
//! Names of Rust's mangling of today have the type in them. In a legacy name it is missing, but what drops a value is
//! named by the value's type there, too: it is the one type whose stage is dropped in a `poll` and what that calls
//! of tokio's tasks, or else in the other functions of its table. Where no name is left, the address of the `poll` is
//! one.

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_binary::demangle::{demangle, split_suffix};
use reqtrace_binary::elf::Object;

use super::tables::Table;
use crate::instructions::{branch_target, decoder};
use crate::symbols::body;

/// What polls a task.
#[derive(Clone, Debug)]
pub(super) struct Poll {
    pub(super) address: u64,
    /// The types of its futures: one, or several where the linker has folded equal code; where they are not known, its own
    /// address.
    pub(super) names: BTreeSet<String>,
}

/// What the name of such a function begins with.
const POLL: &str = "tokio::runtime::task::raw::poll";

/// What functions of tasks have in their names.
const TASK: &str = "tokio::runtime::task::";

/// What drops the future of a task, in one of its stages or with the rest.
const DROPS: [&str; 2] = [
    "core::ptr::drop_in_place<tokio::runtime::task::core::Stage<",
    "core::ptr::drop_in_place<tokio::runtime::task::core::Cell<",
];

/// The future of a job of the blocking pool, which is no unit: a thread runs it from begin to end.
const BLOCKING: &str = "tokio::runtime::blocking::task::BlockingTask<";

/// How many calls lie between a `poll` and what drops its future, at most.
const MAX_CALLS: u32 = 4;

/// All of them but those of the blocking pool.
pub(super) fn polls<'a>(object: &Object, tables: impl Iterator<Item = &'a Table>) -> Vec<Poll> {
    let mut names: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for symbol in object.symbols() {
        let raw = object.name(symbol);
        if raw.contains("tokio") && raw.contains("task") {
            let path = demangle(split_suffix(raw).0).path;
            names.entry(symbol.address).or_default().insert(path);
        }
    }
    let mut all = Vec::new();
    let none = BTreeSet::new();
    let tables: BTreeMap<u64, &Table> = tables.map(|one| (one.poll(), one)).collect();
    let named = names
        .iter()
        .filter(|(_, paths)| rests(paths).next().is_some());
    let addresses: BTreeSet<u64> = named
        .map(|(at, _)| *at)
        .chain(tables.keys().copied())
        .collect();
    for address in addresses {
        let paths = names.get(&address).unwrap_or(&none);
        let types = rests(paths).filter_map(|rest| rest.strip_prefix("::<")?.strip_suffix('>'));
        let mut futures: BTreeSet<String> = types.map(|types| first_of(types).to_owned()).collect();
        // Where polling one does not drop it, what frees it does.
        let functions = tables
            .get(&address)
            .into_iter()
            .flat_map(|one| one.of_future());
        for function in [address].into_iter().chain(functions) {
            if futures.is_empty() {
                let mut seen = BTreeSet::new();
                dropped(object, &names, function, MAX_CALLS, &mut seen, &mut futures);
            }
        }
        if !futures.is_empty() && futures.iter().all(|name| name.starts_with(BLOCKING)) {
            continue;
        }
        if futures.is_empty() {
            futures.insert(format!("{address:#x}"));
        }
        all.push(Poll {
            address,
            names: futures,
        });
    }
    all
}

/// What follows the path of what polls tasks in these names of one function: nothing, or types.
fn rests(paths: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    let rests = paths.iter().filter_map(|path| path.strip_prefix(POLL));
    rests.filter(|rest| rest.is_empty() || rest.starts_with("::<"))
}

/// The types of futures that are dropped in a function, and in what it calls of tasks.
fn dropped(
    object: &Object,
    names: &BTreeMap<u64, BTreeSet<String>>,
    address: u64,
    calls: u32,
    seen: &mut BTreeSet<u64>,
    futures: &mut BTreeSet<String>,
) {
    if calls == 0 || !seen.insert(address) {
        return;
    }
    for instruction in decoder(object, body(object, address)) {
        let target = branch_target(object, &instruction);
        let Some((target, called)) = target.and_then(|target| Some((target, names.get(&target)?)))
        else {
            continue;
        };
        for name in called {
            let types = DROPS.iter().find_map(|drops| name.strip_prefix(drops));
            match types.and_then(|types| types.strip_suffix(">>")) {
                Some(types) => _ = futures.insert(first_of(types).to_owned()),
                None if name.starts_with(TASK) => {
                    dropped(object, names, target, calls - 1, seen, futures);
                }
                None => {}
            }
        }
    }
}

/// The first of several types.
fn first_of(types: &str) -> &str {
    let mut depth = 0_i32;
    let bytes = types.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' => depth -= 1,
            b',' if depth == 0 => return &types[..at],
            _ => {}
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_parted_where_no_bracket_is_open() {
        assert_eq!(first_of("a::b<c, d>, e<f>"), "a::b<c, d>");
        assert_eq!(first_of("(a, b), c"), "(a, b)");
        assert_eq!(first_of("fn(a, b) -> c<d, e>, f"), "fn(a, b) -> c<d, e>");
        assert_eq!(first_of("a"), "a");
    }
}
