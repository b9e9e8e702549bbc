//! `cargo xtask lines`: the product's source files in, a table of its crates' lines out.
//!
//! The product is what users run: not xtask, benchmarks, tests, fuzzing and examples. Unit tests do not count: files
//! and folders named `tests`, and what stands behind `#[cfg(test)]` at the end of a file.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::workspace::root;

/// Folders at the top that are no product.
const OTHERS: [&str; 5] = ["xtask", "reqtrace-bench", "tests", "fuzz", "examples"];

/// `cargo xtask lines`.
pub(crate) fn run() -> Result<()> {
    let files = process::output(
        Command::new("git")
            .args(["ls-files", "*.rs"])
            .current_dir(root()),
    );
    let files = files.context("`git ls-files` failed")?;
    let mut crates: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for path in files.lines() {
        let name = path.split('/').next().unwrap_or_default();
        let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
        if OTHERS.contains(&name) || is_test {
            continue;
        }
        let text = fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
        let of_crate = crates.entry(name).or_default();
        of_crate.0 += 1;
        of_crate.1 += lines(&text);
    }
    let all: usize = crates.values().map(|(_, lines)| lines).sum();
    println!("| crate | files | lines | share |\n| --- | ---: | ---: | ---: |");
    for (name, (files, lines)) in &crates {
        let share = *lines as f64 * 100.0 / all as f64;
        println!("| {name} | {files} | {lines} | {share:.1} % |");
    }
    println!(
        "| all | {} | {all} | |",
        crates.values().map(|(files, _)| files).sum::<usize>()
    );
    Ok(())
}

/// Lines of a file before its unit tests.
fn lines(text: &str) -> usize {
    let tests = text.find("\n#[cfg(test)]\nmod tests {");
    text[..tests.unwrap_or(text.len())].lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_do_not_count() {
        assert_eq!(lines("a\n\nb\n"), 3);
        assert_eq!(lines("a\n\n#[cfg(test)]\nmod tests {\n    b\n}\n"), 1);
        assert_eq!(lines("#[cfg(test)]\nmod tests;\na\n"), 3);
    }
}
