//! Tasks of tokio in a proposed profile: what was found in, the requests that are tasks, and what is no request, out.
//!
//! The body of an asynchronous function is called at each poll. So what fits a pattern is a request as a task, or not at all.

use std::collections::BTreeSet;

use reqtrace_base::text::{glob_matches, is_glob};
use reqtrace_common::limits::MAX_REQUEST_TYPES;
use reqtrace_resolve::search::Match;
use reqtrace_resolve::task_types;

use super::Search;
use super::find::Findings;
use super::starter::{comment, quoted, unique};

/// A program on tokio.
pub(super) struct Tasks {
    /// Types of tasks that fit the pattern.
    fitting: Vec<String>,
}

impl Tasks {
    /// Looks whether a program has tasks.
    pub(super) fn of(search: &Search, findings: &Findings) -> Option<Self> {
        let executable = findings.objects.iter().find(|found| found.is_executable)?;
        let all = task_types(&executable.object);
        if all.is_empty() {
            return None;
        }
        let pattern = &search.pattern;
        let fits = |name: &&String| match is_glob(pattern) {
            true => glob_matches(pattern, name),
            false => name.contains(pattern.as_str()),
        };
        let mut fitting: Vec<String> = all.iter().filter(fits).cloned().collect();
        fitting.truncate(MAX_REQUEST_TYPES);
        Some(Self { fitting })
    }

    /// Why a function is no request by itself; `None` if it may be.
    pub(super) fn refuses(&self, function: &Match) -> Option<String> {
        let signature = &function.signature;
        if signature.contains("drop_in_place") {
            return Some(format!("{signature}: drops a value"));
        }
        let last = function.path.rsplit("::").next().unwrap_or_default();
        if last.starts_with("{{closure") || last.starts_with("{closure") {
            return Some(format!(
                "{signature}: may be polled many times a request; mark functions that it calls, with [runtime] kind = \"tokio\" and \
                 key = \"unit\""
            ));
        }
        (!self.fitting.is_empty()).then(|| {
            format!("{signature}: is no task, and requests of a profile are all tasks, or none is")
        })
    }

    /// The requests, and their runtime; empty where no type of task fits.
    pub(super) fn text(&self, names: &mut BTreeSet<String>) -> String {
        if self.fitting.is_empty() {
            return String::new();
        }
        let mut text =
            "\n# A request is a task of tokio, from its spawn to its end.\n[runtime]\nkind = \"tokio\"\n"
                .to_owned();
        for of_type in &self.fitting {
            text.push_str(&format!(
                "\n# {}\n[[request]]\nname  = {}\nunit  = {}\n",
                comment(of_type),
                quoted(&unique(&short(of_type), names)),
                quoted(&as_glob(of_type)),
            ));
        }
        text
    }

    /// How many requests these are.
    pub(super) fn count(&self) -> usize {
        self.fitting.len()
    }
}

/// The function that a future is of, or the last word of its type.
fn short(of_type: &str) -> String {
    let is_word = |word: &&str| !word.is_empty() && !word.starts_with("closure");
    let words = of_type.split(|c: char| !c.is_alphanumeric() && c != '_');
    let last = words
        .filter(is_word)
        .rfind(|word| word.parse::<u64>().is_err());
    last.unwrap_or("task").to_owned()
}

/// A glob that fits this name: what would mean something in one is any character.
fn as_glob(name: &str) -> String {
    name.replace(['{', '}', '[', ']', '*', '\\'], "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_a_short_name_and_a_glob_that_fits_it() {
        for (of_type, name) in [
            ("app::jobs::handle::{{closure}}", "handle"),
            ("app::jobs::handle::{closure#0}", "handle"),
            ("app::Measured<app::sleeps::{{closure}}>", "sleeps"),
            ("app::Connection", "Connection"),
        ] {
            assert_eq!(short(of_type), name);
            assert!(glob_matches(&as_glob(of_type), of_type), "{of_type}");
        }
    }
}
