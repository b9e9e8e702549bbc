//! `reqtrace classes`: the table of wait classes, held against the running kernel.
//!
//! Out: one line per name of the table: class, name, and how many functions of this kernel it
//! matches. Modules that are not loaded have none. For tests and for whoever extends the table.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use super::profiles::print;
use reqtrace_analysis::classify::table;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::names::without_suffix;

const KALLSYMS: &str = "/proc/kallsyms";

/// Runs it.
///
/// # Errors
///
/// When the kernel's names cannot be read.
pub(super) fn run() -> Result<()> {
    let text = fs::read_to_string(KALLSYMS).map_err(|error| {
        Error::unsupported(format!("{KALLSYMS} cannot be read"))
            .because(error)
            .next("run it as root")
    })?;
    let functions = functions(&text);
    let mut out = String::new();
    for (class, name) in table::names() {
        let count = functions
            .iter()
            .filter(|function| table::is(name, function))
            .count();
        writeln!(out, "{} {name} {count}", class.name())
            .map_err(|error| Error::failed("cannot format").because(error))?;
    }
    print(&out)
}

/// Names of functions without what the compiler appends.
fn functions(kallsyms: &str) -> BTreeSet<&str> {
    let mut functions = BTreeSet::new();
    for line in kallsyms.lines() {
        let mut words = line.split_ascii_whitespace().skip(1);
        if let (Some("t" | "T" | "w" | "W"), Some(name)) = (words.next(), words.next()) {
            functions.insert(without_suffix(name));
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_count_and_without_their_suffix() {
        let text = "ffffffff81000000 T do_wait\nffffffff81000010 t finish.isra.0\n\
                    ffffffff82000000 D some_data\n0000000000000000 t in_module\t[ext4]\n";
        let wanted: BTreeSet<_> = ["do_wait", "finish", "in_module"].into_iter().collect();
        assert_eq!(functions(text), wanted);
    }
}
