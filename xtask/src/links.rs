//! The links of the manual: every page and every heading that one names is there.
//!
//! In: the Markdown files of the workspace. Out: a failed test that names each dead link.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

/// Where Markdown files are looked for.
const FOLDERS: [&str; 4] = ["docs", "examples", "tests", "profiles"];

/// A file without its fenced and indented blocks: code links to nothing.
fn prose(text: &str) -> Vec<&str> {
    let mut in_fence = false;
    text.lines()
        .filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            in_fence ^= is_fence;
            !in_fence && !is_fence && !line.starts_with("    ")
        })
        .collect()
}

/// What the links of a line point to: the text in the brackets behind `](`.
fn targets(line: &str) -> Vec<&str> {
    let behind = line.split("](").skip(1);
    behind.filter_map(|rest| rest.split(')').next()).collect()
}

/// The anchors that GitHub gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let plain: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = plain.replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

/// Markdown files, searched through folders.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // What npm has put there is not ours.
            if !path.ends_with("node_modules") {
                pages(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// What is wrong with a link in a page.
fn fault(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() {
        page.to_path_buf()
    } else {
        page.parent().unwrap().join(path)
    };
    if !file.exists() {
        return Some(format!("{}: no file {target}", page.display()));
    }
    let is_there =
        anchor.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor);
    (!is_there).then(|| format!("{}: no heading {target}", page.display()))
}

#[test]
fn every_link_leads_somewhere() {
    let root = workspace::root();
    let mut all = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for folder in FOLDERS {
        pages(&root.join(folder), &mut all);
    }
    let mut faults = Vec::new();
    for page in &all {
        let text = fs::read_to_string(page).unwrap();
        let targets = prose(&text).into_iter().flat_map(targets);
        faults.extend(targets.filter_map(|target| fault(page, target)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_index_has_every_page() {
    let docs = workspace::root().join("docs");
    let index = fs::read_to_string(docs.join("README.md")).unwrap();
    let mut all = Vec::new();
    pages(&docs, &mut all);
    for page in all {
        let name = page.strip_prefix(&docs).unwrap().display().to_string();
        // A page that only a measurement writes may be named before it is there.
        let names = [format!("({name})"), format!("`{name}`")];
        let is_there = name == "README.md" || names.iter().any(|name| index.contains(name));
        assert!(is_there, "docs/README.md does not name {name}");
    }
}

#[test]
fn links_and_headings_are_found() {
    let text =
        "# `a b` is, C++!\n    # code\n```\n# code\n```\n## x\n## x\n[a](b.md) and [c](d#e)\n";
    let names: Vec<String> = anchors(text).into_iter().collect();
    assert_eq!(names, ["a-b-is-c", "x", "x-1"]);
    assert_eq!(targets("[a](b.md) and [c](d#e)"), ["b.md", "d#e"]);
    assert_eq!(prose("a\n```\nb\n```\n    c\nd"), ["a", "d"]);
}
