//! Tasks of tokio in a proposed profile: what was found in, the requests that are tasks, and what is no request, out.
//!
//! The body of an asynchronous function is called at each poll. So what fits a pattern is a request as a task, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_base::text::{glob_matches, is_glob};
use reqtrace_common::limits::MAX_REQUEST_TYPES;
use reqtrace_resolve::search::Match;
use reqtrace_resolve::task_types;

use super::Search;
use super::find::Findings;
use super::written::{comment, quoted, unique};

const NO_TASK: &str = "\
\n# The program has tasks of tokio, and none of these requests is one: where a task begins a request and may go on in
# another thread, add [runtime] with kind = \"tokio\", and key = \"unit\" to the request.
";

/// A program on tokio.
pub(super) struct Tasks {
    /// Types of tasks that fit the pattern.
    fitting: BTreeSet<String>,
    /// Those that fit too and are none, and why.
    others: BTreeMap<String, String>,
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
        let mut fitting: BTreeSet<String> = all.iter().flatten().filter(fits).cloned().collect();
        let mut others = BTreeMap::new();
        for names in all.iter().filter(|names| names.len() > 1) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for name in &names {
                if fitting.remove(*name) {
                    let why = format!(
                        "cannot be distinguished, as the linker has made one function of what polls {}",
                        names.join(" and ")
                    );
                    others.insert((*name).to_owned(), why);
                }
            }
        }
        if let Some(first) = fitting.iter().nth(MAX_REQUEST_TYPES).cloned() {
            let rest = fitting.split_off(&first);
            let why = format!("a profile has at most {MAX_REQUEST_TYPES} request types");
            others.extend(rest.into_iter().map(|name| (name, why.clone())));
        }
        Some(Self { fitting, others })
    }

    /// Tasks that fit the pattern and are no requests, with the reasons.
    pub(super) fn left_out(&self) -> Vec<String> {
        let others = self.others.iter();
        others.map(|(name, why)| format!("{name}: {why}")).collect()
    }

    /// Whether a function is of a task that is named already, or drops a value: neither is worth a word.
    pub(super) fn has(&self, function: &Match) -> bool {
        let path = &function.path;
        let is_named = self.fitting.contains(path) || self.others.contains_key(path);
        is_named || function.signature.contains("drop_in_place")
    }

    /// Why a function is no request by itself; `None` if it may be.
    pub(super) fn refuses(&self, function: &Match) -> Option<String> {
        let signature = &function.signature;
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

    /// The requests, and their runtime; where no type of task fits, what to think of.
    pub(super) fn text(&self, names: &mut BTreeSet<String>) -> String {
        if self.fitting.is_empty() {
            return NO_TASK.to_owned();
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
pub(super) fn as_glob(name: &str) -> String {
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
