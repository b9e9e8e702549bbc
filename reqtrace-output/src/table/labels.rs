//! Requests by label: what `--group-by label` adds to the report. Groups in, lines out.

use std::collections::BTreeMap;

use super::NARROW;
use reqtrace_analysis::report::{Grouping, LabelGroup, Places, Report};
use reqtrace_base::figures::{cut, duration, number, share};
use reqtrace_base::names::clean;

/// Widest name of a wait class in a row.
const CLASS: usize = 16;
/// Columns before the label.
const BEFORE_LABEL: usize = CLASS + 48;
/// The same without maximum, blocked time and class, where the line is short.
const BEFORE_LABEL_NARROW: usize = 29;
/// Characters at the end of a long label that are shown.
const TAIL: usize = 14;

/// What most of the time was, by its name in the ledger.
fn mostly(group: &LabelGroup, classes: &[String], places: &Places) -> String {
    let parts = [
        ("on CPU", group.ledger.on_cpu_ns),
        ("run queue", group.ledger.run_queue_ns),
        ("preempted", group.ledger.preempted_ns),
        ("unattributed", group.ledger.unattributed_ns),
    ];
    let parts = parts.into_iter().map(|(name, ns)| (name.to_owned(), ns));
    let blocked = classes.iter().cloned();
    let blocked = blocked.zip(group.ledger.classes.iter().copied());
    // The first of equals.
    let all = parts.chain(blocked).chain(places.times(&group.ledger));
    let none = (String::new(), 0);
    all.fold(none, |most, part| if part.1 > most.1 { part } else { most })
        .0
}

fn row(group: &LabelGroup, label: &str, all_ns: u64, report: &Report, width: usize) -> String {
    let mean = group
        .ledger
        .latency_ns
        .checked_div(group.count)
        .unwrap_or(0);
    let (count, time) = (number(group.count), share(group.ledger.latency_ns, all_ns));
    let mean = duration(mean);
    if width < NARROW {
        let label = shortened(label, room(width));
        return format!("{count:>9} {time:>8} {mean:>8}  {label}");
    }
    let mostly = clean(&mostly(group, &report.classes, &report.places));
    let mostly = cut(&mostly, CLASS);
    format!(
        "{count:>9} {time:>8} {mean:>8} {:>8} {:>8}  {mostly:CLASS$} {label}",
        duration(group.max_ns),
        share(group.ledger.blocked_ns(), group.ledger.latency_ns),
        label = shortened(label, room(width)),
    )
}

/// Characters that a label may have in a line.
fn room(width: usize) -> usize {
    match width < NARROW {
        true => width - BEFORE_LABEL_NARROW,
        false => width - BEFORE_LABEL,
    }
}

/// A label of at most `room` characters: statements that begin alike are distinguished by their end.
fn shortened(label: &str, room: usize) -> String {
    let length = label.chars().count();
    if length <= room {
        return label.to_owned();
    }
    if room <= 2 * TAIL {
        return cut(label, room);
    }
    let head: String = label.chars().take(room - TAIL - 1).collect();
    let tail: String = label.chars().skip(length - TAIL).collect();
    format!("{head}…{tail}")
}

/// Labels of at most `room` characters each. Those that would look alike, such as types in one module, begin where they
/// differ.
fn told_apart(labels: &[&str], room: usize) -> Vec<String> {
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for label in labels {
        let short = shortened(label, room);
        alike.entry(short).or_default().push(label);
    }
    let one = |label: &&str| {
        let short = shortened(label, room);
        match alike.get(&short).map_or(0, |all| differ_at(all)) {
            0 => short,
            from => cut(&format!("…{}", &label[from..]), room),
        }
    };
    labels.iter().map(one).collect()
}

/// Where the first word begins in which some texts differ; 0 of one alone.
fn differ_at(texts: &[&str]) -> usize {
    let [first, others @ ..] = texts else {
        return 0;
    };
    let common = |other: &&str| {
        let both = first.bytes().zip(other.bytes());
        both.take_while(|(one, two)| one == two).count()
    };
    let at = others.iter().map(common).min().unwrap_or_default();
    let before = &first[..first.floor_char_boundary(at)];
    before
        .trim_end_matches(|c: char| c.is_alphanumeric() || c == '_')
        .len()
}

/// What the groups are: in the title, above their column, and of several that are not shown.
fn words(by: &Grouping) -> (String, String, &str) {
    let (title, column, others) = match by {
        Grouping::Label => ("Labels".to_owned(), "LABEL".to_owned(), "labels"),
        Grouping::Fingerprint => (
            "Fingerprints".to_owned(),
            "FINGERPRINT OF THE LABEL".to_owned(),
            "fingerprints",
        ),
        Grouping::Attribute(name) => (format!("`{name}`"), name.to_uppercase(), "values"),
        Grouping::FingerprintOf(name) => (
            format!("Fingerprints of `{name}`"),
            format!("FINGERPRINT OF {}", name.to_uppercase()),
            "fingerprints",
        ),
    };
    (clean(&title), clean(&column), others)
}

/// The lines of the table, for each request type that has requests; none without `--group-by`.
pub(super) fn lines(report: &Report, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (request, groups) in report.requests.iter().zip(&report.labels) {
        if groups.shown.is_empty() {
            continue;
        }
        let all_ns = groups.rest.ledger.latency_ns
            + groups
                .shown
                .iter()
                .map(|group| group.ledger.latency_ns)
                .sum::<u64>();
        lines.push(String::new());
        let (title, column, others) = words(&groups.by);
        lines.push(format!("{title} of `{}`", clean(&request.name)));
        lines.push(if width < NARROW {
            format!("{:>9} {:>8} {:>8}  {column}", "COUNT", "TIME", "MEAN")
        } else {
            format!(
                "{:>9} {:>8} {:>8} {:>8} {:>8}  {:CLASS$} {column}",
                "COUNT", "TIME", "MEAN", "MAX", "BLOCKED", "MOSTLY"
            )
        });
        let labels = groups.shown.iter().map(|group| match &*group.label {
            "" => "(none)",
            label => label,
        });
        let labels = told_apart(&labels.collect::<Vec<_>>(), room(width));
        for (group, label) in groups.shown.iter().zip(labels) {
            lines.push(row(group, &label, all_ns, report, width));
        }
        if groups.rest.count > 0 {
            let more = if groups.table_full { "or more " } else { "" };
            let label = format!("({} {more}other {others})", number(groups.rest_labels));
            lines.push(row(&groups.rest, &label, all_ns, report, width));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;
    use reqtrace_analysis::report::Ledger;

    #[test]
    fn labels_that_would_look_alike_begin_where_they_differ() {
        let job =
            |name: &str| format!("tasks::measured::Measured<tasks::jobs::{name}::{{{{closure}}}}>");
        let (sleeps, syncs) = (job("alone::sleeps"), job("alone::syncs"));
        let long = "SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c";
        let labels = [&*sleeps, "(none)", &*syncs, long];
        assert_eq!(
            told_apart(&labels, 36),
            [
                "…sleeps::{{closure}}>",
                "(none)",
                "…syncs::{{closure}}>",
                "SELECT c FROM sbtest1…D ? ORDER BY c"
            ]
        );
        let (one, two) = (job("größer::a") + &"x".repeat(40), job("größer::ä"));
        let both = told_apart(&[&*one, &*two], 20);
        assert_eq!(both, ["…a::{{closure}}>xxx…", "…ä::{{closure}}>"]);
    }

    #[test]
    fn a_group_says_what_most_of_its_time_was() {
        let report = Report {
            classes: vec!["redo log".to_owned(), "lock".to_owned()],
            ..Report::default()
        };
        let mostly = |group: &LabelGroup| mostly(group, &report.classes, &report.places);
        let mut group = LabelGroup::new("update t", 2);
        group.add(
            4,
            3_000_000,
            &Ledger {
                latency_ns: 8_000_000,
                on_cpu_ns: 3_000_000,
                classes: vec![1_000_000, 4_000_000],
                ..Ledger::default()
            },
        );
        assert_eq!(mostly(&group), "lock");
        assert_eq!(
            row(&group, "update t", 10_000_000, &report, WIDTH),
            "        4   80.0 %  2.00 ms  3.00 ms   62.5 %  lock             update t"
        );
        assert_eq!(mostly(&LabelGroup::new("", 2)), "");
        let long = row(
            &group,
            "SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c",
            10_000_000,
            &report,
            WIDTH,
        );
        assert!(
            long.ends_with("lock             SELECT c FROM sbtest1…D ? ORDER BY c"),
            "{long}"
        );
        assert_eq!(long.chars().count(), WIDTH);
    }
}
