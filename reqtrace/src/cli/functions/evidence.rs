//! What was counted of functions that no proposal has: what was watched in, comments out.

use std::collections::BTreeSet;

use super::find::Findings;
use super::proposal::{Part, Slot};
use super::watch::{Watched, WatchedFunction};
use super::written::comment;
use reqtrace_base::figures::number;

/// Functions that are printed; those with most calls.
const MAX_FUNCTIONS: usize = 20;

/// A table of the functions that are not `shown` elsewhere; nothing, if all are.
pub(super) fn of(findings: &Findings, watched: &Watched, shown: &BTreeSet<usize>) -> String {
    let others = watched.functions.iter();
    let mut others: Vec<&WatchedFunction> =
        others.filter(|one| !shown.contains(&one.number)).collect();
    others.sort_by_key(|one| std::cmp::Reverse(one.calls));
    if others.is_empty() {
        return String::new();
    }
    let what = match shown.is_empty() {
        true => "What was counted",
        false => "The other functions",
    };
    let mut text = format!(
        "\n# {what}:\n#\n#        CALLS     VALUES  AFTER OTHERS  OTHER THREAD  FUNCTION\n"
    );
    for function in others.iter().take(MAX_FUNCTIONS) {
        let name = findings.objects[function.object]
            .functions
            .get(function.index)
            .map_or("?", |found| &found.signature);
        let name = comment(name);
        let parts = watched.found.others.iter();
        let parts: Vec<_> = parts
            .filter(|(part, _)| part.source.function == function.number)
            .collect();
        if parts.is_empty() {
            let calls = number(function.calls);
            let why = match function.calls {
                0 => "not called",
                _ => "no pointer, or one value only",
            };
            text.push_str(&format!(
                "# {calls:>12} {:>10} {:>13} {:>13}  {name}: {why}\n",
                "-", "-", "-"
            ));
        }
        for (part, values) in parts {
            text.push_str(&format!(
                "# {:>12} {:>10} {:>13} {:>13}  {name}: {}\n",
                number(part.calls),
                number(*values),
                number(part.turns),
                number(part.moves),
                slot(part)
            ));
        }
    }
    let more = others.len().saturating_sub(MAX_FUNCTIONS);
    if more > 0 {
        text.push_str(&format!(
            "#   and {more} more, which are called less often\n"
        ));
    }
    text
}

/// Where a function has the pointer.
pub(super) fn slot(part: &Part) -> String {
    let slot = match part.source.slot {
        Slot::Argument(at) => format!("argument {at}"),
        Slot::Result => "result".to_owned(),
    };
    match part.offset {
        0 => slot,
        offset => format!("{slot} - {offset:#x}"),
    }
}
