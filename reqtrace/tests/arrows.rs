//! Which part of the crate `reqtrace` may use which: between crates the compiler keeps the arrows,
//! inside this one this test does.
//!
//! A part is a module at the top of `src/`. An arrow goes from the part that names another one to the
//! part that is named, as `crate::PART` or, in a file of the first level, as `super::PART`.

#![allow(clippy::unwrap_used, reason = "a failure of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each part, and what it may use. What is not listed is a failure, a new part too.
const ARROWS: &[(&str, &[&str])] = &[
    // What reqtrace knows of the running kernel.
    ("kernel", &["base", "common", "symbolize"]),
    // Names of a live trace, for the analysis.
    ("symbolize", &["binary"]),
    // Capture: what to probe, and the probes. It knows no output and no command line.
    (
        "attach",
        &[
            "analysis",
            "base",
            "binary",
            "common",
            "kernel",
            "profile",
            "recording",
            "resolve",
            "symbolize",
        ],
    ),
    // What is captured as a stream of events, to the analysis, the outputs and the recording.
    (
        "capture",
        &[
            "analysis",
            "attach",
            "base",
            "binary",
            "common",
            "recording",
            "output",
            "symbolize",
        ],
    ),
    // All of it as a library.
    (
        "tracer",
        &[
            "analysis",
            "attach",
            "base",
            "binary",
            "capture",
            "common",
            "kernel",
            "profile",
            "recording",
            "output",
            "resolve",
            "symbolize",
        ],
    ),
    // The screen that is shown while a trace runs.
    (
        "live",
        &[
            "analysis",
            "base",
            "common",
            "recording",
            "output",
            "tracer",
        ],
    ),
    // The command line is around all.
    (
        "cli",
        &[
            "analysis",
            "attach",
            "base",
            "binary",
            "capture",
            "common",
            "kernel",
            "live",
            "profile",
            "recording",
            "output",
            "resolve",
            "symbolize",
            "tracer",
        ],
    ),
    ("main", &["base", "cli"]),
    // What the fuzz targets call.
    ("fuzz", &["attach", "common"]),
];

/// Other crates, under each name by which they can be reached.
const CRATES: &[(&str, &str)] = &[
    ("aggregate", "analysis"),
    ("classify", "analysis"),
    ("reqtrace_analysis", "analysis"),
    ("error", "base"),
    ("names", "base"),
    ("plain", "base"),
    ("text", "base"),
    ("reqtrace_base", "base"),
    ("debuginfo", "binary"),
    ("unwind", "binary"),
    ("reqtrace_binary", "binary"),
    ("reqtrace_common", "common"),
    ("reqtrace_output", "output"),
    ("reqtrace_profile", "profile"),
    ("reqtrace_recording", "recording"),
    ("reqtrace_resolve", "resolve"),
];

type Arrows = BTreeMap<(String, String), BTreeSet<PathBuf>>;

/// All arrows below a folder, each with the files that draw it.
fn arrows(src: &Path) -> Arrows {
    let mut arrows = Arrows::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(src).unwrap();
            let part = part_of(inside);
            if part == "lib" {
                continue;
            }
            for named in named(&fs::read_to_string(&path).unwrap(), inside) {
                if named != part {
                    let files = arrows.entry((part.clone(), named)).or_default();
                    files.insert(inside.to_owned());
                }
            }
        }
    }
    arrows
}

fn part_of(inside: &Path) -> String {
    let first = inside.components().next().unwrap().as_os_str();
    let first = first.to_str().unwrap();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

/// The parts that a file names.
fn named(text: &str, inside: &Path) -> BTreeSet<String> {
    // `super::` that leads to the top of the crate, from this depth. In a module inside the file it
    // leads to the file itself, so that there only names of parts count.
    let is_mod = inside.ends_with("mod.rs");
    let depth = inside.components().count() - usize::from(is_mod);
    let up = "super::".repeat(depth);
    let roots = ["crate::", "reqtrace::", up.as_str()];
    let is_part = |name: &str| ARROWS.iter().any(|(part, _)| *part == name);
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("//") {
            continue;
        }
        for root in roots {
            for (at, _) in line.match_indices(root) {
                let before = line[..at].chars().next_back();
                let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                let name = word(&line[at + root.len()..]);
                if !before.is_some_and(is_path) && (root != up || is_part(&name)) {
                    found.insert(name);
                }
            }
        }
        for (name, _) in CRATES.iter().filter(|(name, _)| name.contains('_')) {
            if line.contains(&format!("{name}::")) {
                found.insert((*name).to_owned());
            }
        }
    }
    let renamed = |name: String| {
        let part = CRATES.iter().find(|(other, _)| *other == name);
        part.map_or(name, |(_, part)| (*part).to_owned())
    };
    found.into_iter().map(renamed).collect()
}

/// The first word; for a list in braces the brace, which is no part and so is not allowed.
fn word(text: &str) -> String {
    if text.starts_with('{') {
        return "{".to_owned();
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Arrows that are not allowed.
fn faults(arrows: &Arrows, allowed: &[(&str, &[&str])]) -> Vec<String> {
    let mut faults = Vec::new();
    for ((from, to), files) in arrows {
        let is_allowed = allowed
            .iter()
            .any(|(part, uses)| part == from && uses.contains(&to.as_str()));
        if !is_allowed {
            faults.push(format!("{from} must not use {to}: {files:?}"));
        }
    }
    faults
}

#[test]
fn no_arrow_is_turned_around() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let faults = faults(&arrows(&src), ARROWS);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Of two parts of which each may use the other, neither is below.
#[test]
fn the_list_has_no_circle() {
    let mut left: Vec<_> = ARROWS.iter().collect();
    loop {
        let parts: Vec<&str> = left.iter().map(|(part, _)| *part).collect();
        let before = left.len();
        left.retain(|(_, uses)| uses.iter().any(|part| parts.contains(part)));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_turned_arrow_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let allowed: &[(&str, &[&str])] = &[("live", &["binary"]), ("attach", &[])];
    write("lib.rs", "pub mod live;\npub mod attach;\n");
    write("live.rs", "use crate::debuginfo::Root;\n");
    write("attach/mod.rs", "// crate::live is only talked about\n");
    assert_eq!(
        faults(&arrows(folder.path()), allowed),
        Vec::<String>::new()
    );
    for (file, line) in [
        ("attach/mod.rs", "use crate::live::Report;"),
        ("attach/mod.rs", "use super::live::Report;"),
        ("attach/probes.rs", "fn f() { super::super::live::open() }"),
        ("attach/probes.rs", "use reqtrace::live::open;"),
        ("attach/probes.rs", "use crate::{error, live};"),
    ] {
        write(file, line);
        let found = faults(&arrows(folder.path()), allowed);
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].starts_with("attach must not use"), "{line}");
        fs::remove_file(folder.path().join(file)).unwrap();
    }
}
