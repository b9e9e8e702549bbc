//! `cargo xtask bench circles`: the product's source files in; circles of files that take items from each other out.
//!
//! A file takes an item when a path in it leads to where that is defined, by whatever re-exports. Methods are not seen:
//! who has a type has them. Unit tests do not count, nor does what a module takes of those that it is in: with its parent it
//! is one room.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Result, ensure};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use xtask::workspace::root;

use source::Source;

/// Arguments of `circles`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only of these crates
    #[arg(value_name = "CRATE")]
    crates: Vec<String>,
    /// Fail when there are more
    #[arg(long, value_name = "N")]
    most: Option<usize>,
}

/// Crates of the product: what users run.
const PRODUCT: [&str; 13] = [
    "reqtrace",
    "reqtrace-agent",
    "reqtrace-analysis",
    "reqtrace-base",
    "reqtrace-binary",
    "reqtrace-capture",
    "reqtrace-common",
    "reqtrace-compare",
    "reqtrace-ebpf",
    "reqtrace-output",
    "reqtrace-profile",
    "reqtrace-recording",
    "reqtrace-resolve",
];

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let known = fs::read_dir(root())?.flatten();
    let known: BTreeSet<String> = known
        .filter(|folder| folder.path().join("src").is_dir())
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    let mut wanted: Vec<&str> = args.crates.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        wanted = PRODUCT.to_vec();
    }
    let mut count = 0;
    for name in wanted {
        ensure!(known.contains(name), "there is no crate {name}");
        let source = Source::read(&root().join(name).join("src"))?;
        for circle in circles(&source.taken()) {
            count += 1;
            let files: BTreeSet<&String> = circle.iter().map(|(from, ..)| from).collect();
            println!("{name}, {} files:", files.len());
            for (from, to, names) in circle {
                println!("  {from} takes {} of {to}", names.join(", "));
            }
        }
    }
    println!("{count} circles");
    let most = args.most.unwrap_or(usize::MAX);
    ensure!(count <= most, "{count} circles, where {most} are allowed");
    Ok(())
}

/// Which items a file takes of which other one.
type Taken = BTreeMap<(String, String), BTreeSet<String>>;

type Arrow = (String, String, Vec<String>);

/// The arrows of each circle.
fn circles(taken: &Taken) -> Vec<Vec<Arrow>> {
    let arrows = taken.keys().map(|(from, to)| (from.as_str(), to.as_str()));
    let graph: DiGraphMap<&str, ()> = DiGraphMap::from_edges(arrows);
    let groups = tarjan_scc(&graph).into_iter();
    let groups = groups.filter(|group| group.len() > 1);
    let of_group = |group: Vec<&str>| {
        let is_in = |file: &String| group.contains(&file.as_str());
        let arrows = taken
            .iter()
            .filter(|((from, to), _)| is_in(from) && is_in(to));
        arrows
            .map(|((from, to), names)| (from.clone(), to.clone(), names.iter().cloned().collect()))
            .collect()
    };
    groups.map(of_group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(files: &[(&str, &str)]) -> Vec<Vec<Arrow>> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        circles(&Source::read(folder.path()).unwrap().taken())
    }

    #[test]
    fn what_is_named_by_a_re_export_is_taken_of_the_file_that_has_it() {
        let found = taken(&[
            ("lib.rs", "mod a; mod b; pub use b::B;"),
            (
                "a/mod.rs",
                "mod deep; use crate::B; pub struct A(B); pub fn f() { deep::g() }",
            ),
            ("a/deep.rs", "use super::A; pub fn g(a: A) { super::f() }"),
            ("b.rs", "pub struct B; impl B { fn h() { crate::a::f() } }"),
        ]);
        let [circle] = &found[..] else {
            panic!("{found:?}");
        };
        let arrows: Vec<String> = circle
            .iter()
            .map(|(from, to, names)| format!("{from} {to} {}", names.join(" ")))
            .collect();
        assert_eq!(arrows, ["a/mod.rs b.rs B", "b.rs a/mod.rs f"]);
    }

    #[test]
    fn tests_and_what_is_only_passed_on_are_no_arrows() {
        let found = taken(&[
            ("lib.rs", "mod a; pub use a::A; pub struct L;"),
            (
                "a.rs",
                "use crate::L; pub struct A(L); #[cfg(test)] mod tests { use super::*; }",
            ),
            ("tests.rs", "use crate::A;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
