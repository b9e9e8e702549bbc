//! Licences of what is linked: cargo's metadata in; one text with every crate, its licence expression,
//! and the texts that lie in its source, out.
//!
//! Crates of macros and build scripts are left out: they run while building and are not linked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{
    process,
    workspace::{cargo, root},
};

/// What is linked into the program, and into the kernel programs inside it.
const LINKED: [&str; 2] = ["reqtrace", "reqtrace-ebpf"];
/// How the names of files with licences begin, in capitals.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];
/// Licences whose text this workspace has itself, for crates that come without one.
const OWN_TEXTS: [(&str, &str); 2] = [("MIT", "LICENSE-MIT"), ("Apache-2.0", "LICENSE-APACHE")];

/// A crate that is linked.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
}

/// The text for all crates that are linked for this target.
///
/// # Errors
///
/// When a crate has no licence, or no text of it is to be had.
pub(super) fn notices(target: &str) -> Result<String> {
    let mut command = cargo();
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--filter-platform",
        target,
    ]);
    let text = process::output(&mut command).context("`cargo metadata` fails")?;
    let metadata: Value = serde_json::from_str(&text)?;
    let crates = linked(&metadata)?;
    let mut out = String::from(
        "What is linked into reqtrace besides its own code. Each crate of Rust stands here with its\n\
         licence; the texts follow, each with the crates that it came with.\n\n",
    );
    // The same text lies in many crates.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in &crates {
        let name = format!("{} {}", one.name, one.version);
        out.push_str(&format!("{name}: {}\n", one.licence));
        for text in texts_of(one)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    out.push_str(&standard_library(&mut texts)?);
    for (text, names) in texts {
        let line = "=".repeat(78);
        out.push_str(&format!(
            "\n{line}\n{}\n{line}\n\n{text}\n",
            names.join(", ")
        ));
    }
    Ok(out)
}

/// The crates that are linked, those of the workspace left out.
fn linked(metadata: &Value) -> Result<BTreeSet<Crate>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let members: BTreeSet<String> = list(&metadata["workspace_members"])
        .iter()
        .map(text)
        .collect();
    let mut open: Vec<String> = members
        .iter()
        .filter(|id| {
            packages
                .get(*id)
                .is_some_and(|one| LINKED.contains(&&*text(&one["name"])))
        })
        .cloned()
        .collect();
    ensure!(
        open.len() == LINKED.len(),
        "the workspace has not all of {LINKED:?}"
    );
    let mut seen = BTreeSet::new();
    let mut crates = BTreeSet::new();
    while let Some(id) = open.pop() {
        let package = packages
            .get(&id)
            .with_context(|| format!("no package {id}"))?;
        let is_macro = list(&package["targets"]).iter().any(|target| {
            list(&target["kind"])
                .iter()
                .any(|kind| kind == "proc-macro")
        });
        if is_macro || !seen.insert(id.clone()) {
            continue;
        }
        let node = nodes
            .get(&id)
            .with_context(|| format!("{id} is not resolved"))?;
        for dependency in list(&node["deps"]) {
            // No kind: an ordinary dependency, neither of tests nor of the build script.
            if list(&dependency["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
            {
                open.push(text(&dependency["pkg"]));
            }
        }
        if members.contains(&id) {
            continue;
        }
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        crates.insert(Crate {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]),
            folder: manifest.parent().map(Path::to_owned).unwrap_or_default(),
        });
    }
    Ok(crates)
}

/// The texts of a crate's licences, from its source, or those that everybody knows.
fn texts_of(one: &Crate) -> Result<Vec<String>> {
    let (name, licence) = (&one.name, &one.licence);
    ensure!(!licence.is_empty(), "the crate {name} names no licence");
    let mut files: Vec<PathBuf> = fs::read_dir(&one.folder)?
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.is_file() && is_licence(path))
        .collect();
    if files.is_empty() {
        let own = OWN_TEXTS
            .iter()
            .filter(|(short, _)| licence.contains(short));
        files.extend(own.map(|(_, file)| root().join(file)));
    }
    if files.is_empty() {
        bail!("the crate {name} comes without the text of its licence, {licence}");
    }
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

fn is_licence(path: &Path) -> bool {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_uppercase();
    NAMES.iter().any(|start| name.starts_with(start))
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Rust's own library and the C library, which the program is linked with too.
fn standard_library(texts: &mut BTreeMap<String, Vec<String>>) -> Result<String> {
    let rust = process::output(Command::new("rustc").arg("--version")).context("no rustc")?;
    let rust = format!("Rust's standard library ({})", rust.trim());
    for (_, file) in OWN_TEXTS {
        texts
            .entry(read(&root().join(file))?)
            .or_default()
            .push(rust.clone());
    }
    let libc = "The GNU C library";
    let file = Path::new("/usr/share/doc/libc6/copyright");
    ensure!(
        file.exists(),
        "{} is not there: it is linked in",
        file.display()
    );
    texts.entry(read(file)?).or_default().push(libc.to_owned());
    let licence = Path::new("/usr/share/common-licenses/LGPL-2.1");
    texts
        .entry(read(licence)?)
        .or_default()
        .push(libc.to_owned());
    Ok(format!(
        "{rust}: MIT OR Apache-2.0\n{libc}: LGPL-2.1-or-later. It is linked statically; with reqtrace's \
         source\nanybody can link it with another version: cargo xtask dist\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linked_crate_has_its_licence() {
        let text = notices("x86_64-unknown-linux-gnu").unwrap();
        for linked in [
            "\naya ",
            "\naya-ebpf ",
            "\nclap_builder ",
            "\nlibc ",
            "\nThe GNU C library: ",
        ] {
            assert!(text.contains(linked), "{linked}");
        }
        for other in [
            "\nclap_derive ",
            "\ntempfile ",
            "\nproptest ",
            "\nreqtrace-common ",
        ] {
            assert!(!text.contains(other), "{other}");
        }
        assert!(text.contains("Permission is hereby granted, free of charge"));
        assert!(text.contains("GNU LESSER GENERAL PUBLIC LICENSE"));
    }
}
