//! Columns of `requests.csv`, the fixed ones and those of the wait classes: a class's name in, its
//! column out.

use crate::blame::Cause;
use crate::error::{Error, Result};

/// Columns before those of the wait classes.
pub const BEFORE: [&str; 13] = [
    "id",
    "start_unix_ns",
    "request",
    "pid",
    "tid",
    "comm",
    "label",
    "latency_ns",
    "on_cpu_ns",
    "run_queue_ns",
    "preempted_ns",
    "blocked_ns",
    "unattributed_ns",
];

/// Columns after those of the wait classes.
pub const AFTER: [&str; 5] = ["blocks", "preemptions", "complete", "reason", "weight"];

/// Columns between those, of a trace with blame: one for each root cause.
pub fn causes() -> impl Iterator<Item = String> {
    let causes = Cause::ALL.into_iter();
    causes.map(|cause| format!("cause_{}_ns", cause.name()))
}

/// The CSV column of a class.
#[must_use]
pub fn column(class: &str) -> String {
    format!("{}_ns", class.replace(' ', "_"))
}

/// Checks that each class has a column of its own.
pub(super) fn check(names: &[String]) -> Result<()> {
    for (index, name) in names.iter().enumerate() {
        let wanted = column(name);
        let is_fixed = BEFORE.contains(&wanted.as_str()) || AFTER.contains(&wanted.as_str());
        if is_fixed || causes().any(|column| column == wanted) {
            return Err(Error::usage(format!(
                "the wait `{name}` would hide the CSV column `{wanted}`"
            ))
            .next("give the wait another name"));
        }
        if let Some(other) = names[..index].iter().find(|other| column(other) == wanted) {
            return Err(Error::usage(format!(
                "the waits `{other}` and `{name}` would both be the CSV column `{wanted}`"
            ))
            .next("give one of them another name"));
        }
    }
    Ok(())
}
