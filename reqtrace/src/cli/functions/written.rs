//! What a profile that is written is made of: findings, names and numbers in; TOML, and words of comments, out.

use std::collections::BTreeSet;

use super::find::Finding;
use reqtrace_base::figures::number;
use reqtrace_resolve::ObjectFile;
use reqtrace_resolve::search::Match;

/// A marker there, as TOML.
pub(super) fn marker(found: &Finding, place: &str) -> String {
    if found.is_executable {
        format!("{{ {place} }}")
    } else {
        format!(
            "{{ {place}, object = {} }}",
            quoted(in_profile(&found.file))
        )
    }
}

/// How a profile names an object: by its file name.
fn in_profile(file: &ObjectFile) -> &str {
    file.file_name()
}

/// Where a function begins in its file.
pub(super) fn offset(found: &Finding, function: &Match) -> u64 {
    let entry = function.bodies.first().map_or(0, |body| body.start);
    found.object.file_offset(entry).unwrap_or(entry)
}

/// So many calls.
pub(super) fn of_calls(calls: u64) -> String {
    let s = if calls == 1 { "" } else { "s" };
    format!("{} call{s}", number(calls))
}

/// So many times.
pub(super) fn of_times(times: u64) -> String {
    let s = if times == 1 { "" } else { "s" };
    format!("{} time{s}", number(times))
}

/// The name, or one like it that is not taken.
pub(super) fn unique(name: &str, names: &mut BTreeSet<String>) -> String {
    let mut tried = name.to_owned();
    let mut number = 2;
    while !names.insert(tried.clone()) {
        tried = format!("{name} {number}");
        number += 1;
    }
    tried
}

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Text for one line of a comment.
pub(super) fn comment(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_each_once_and_quoted() {
        let mut names = BTreeSet::new();
        assert_eq!(unique("add", &mut names), "add");
        assert_eq!(unique("add", &mut names), "add 2");
        assert_eq!(unique("add", &mut names), "add 3");
        for name in ["operator\"\"_s", "a\\b", "f<'a'>"] {
            let text = format!("x = {}", quoted(name));
            let value: toml::Table = text.parse().unwrap();
            assert_eq!(value["x"].as_str(), Some(name));
        }
    }
}
