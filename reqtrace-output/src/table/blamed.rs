//! Who held requests up: blame of a request type in, lines out.

mod chains;
mod cpu;
mod disk;
mod locks;
mod queue;
mod shares;

pub(crate) use disk::lines as disk_lines;

use super::page::Page;
use crate::words::NAME;
use reqtrace_analysis::report::blame::{Cause, CulpritKind, CulpritName, Holder, TypeBlame};
use reqtrace_analysis::report::{Report, TypeReport};
use reqtrace_base::figures::{cut, duration, number, share};
use reqtrace_base::names::clean;

/// Lines of holders; summary.json and blame.csv have more.
const HOLDERS: usize = 8;
/// Columns of a line before its numbers.
const WHO: usize = 46;
/// The same where lines are short.
const WHO_NARROW: usize = 30;

pub(super) fn draw(page: &mut Page, report: &Report, request: &TypeReport) {
    let types = report.blame.iter().flat_map(|blame| &blame.types);
    let Some(blame) = types
        .into_iter()
        .find(|blame| blame.request == request.name)
    else {
        return;
    };
    let all_ns = blame.causes.sum();
    if all_ns == 0 {
        cpu::draw(page, blame);
        return queue::draw(page, blame);
    }
    let narrow = page.is_narrow();
    let who = if narrow { WHO_NARROW } else { WHO };
    let mut line = |name: &str, columns: [&str; 4]| {
        let [part, each, requests, class] = columns;
        let name = cut(name, who);
        if narrow {
            page.line(&format!("{name:<who$} {part:>10} {requests:>10}"));
        } else {
            page.line(&format!(
                "{name:<who$} {part:>10} {each:>11} {requests:>10}  {class}"
            ));
        }
    };
    line("", [""; 4]);
    line(
        &format!("Who held `{}` up", cut(&request.name, 18)),
        [
            if request.is_keyed {
                "of waiting"
            } else {
                "of blocked"
            },
            "per request",
            "requests",
            "mostly in",
        ],
    );
    let per_request = |ns: u64| match ns.checked_div(blame.requests).unwrap_or(0) {
        0 if ns > 0 => "<1 ns".to_owned(),
        mean => duration(mean),
    };
    for holder in blame.holders.iter().take(HOLDERS) {
        line(
            &format!("  {}", words(holder, &request.name)),
            [
                &share(holder.ns, all_ns),
                &per_request(holder.ns),
                &number(holder.requests),
                &cut(&holder.wait_class, NAME),
            ],
        );
    }
    let rest = blame.holders.get(HOLDERS..).unwrap_or_default();
    if !rest.is_empty() {
        let ns = rest.iter().map(|holder| holder.ns).sum();
        let name = format!("  {} more", number(rest.len() as u64));
        line(&name, [&share(ns, all_ns), &per_request(ns), "", ""]);
    }
    unknown(page, blame);
    chains::draw(page, blame);
    locks::draw(page, blame);
    disk::draw(page, blame);
    cpu::draw(page, blame);
    queue::draw(page, blame);
}

/// `disk, in another `command``.
fn words(holder: &Holder, victim: &str) -> String {
    let culprit = &holder.culprit;
    format!("{}, {}", holder.cause.words(), who(culprit, victim))
}

/// `another `command` UPDATE …`, `thread walwriter`.
fn who(culprit: &CulpritName, victim: &str) -> String {
    match culprit.kind {
        CulpritKind::Request => {
            let another = if culprit.request == victim {
                "another "
            } else {
                ""
            };
            let label = clean(&culprit.label);
            let text = format!("{another}`{}` {label}", cut(&culprit.request, 18));
            text.trim_end().to_owned()
        }
        CulpritKind::Thread if !culprit.label.is_empty() => {
            format!(
                "{} after {}",
                clean(&culprit.words()),
                clean(&culprit.label)
            )
        }
        _ => clean(&culprit.words()),
    }
}

/// What is not known, and why, in one paragraph.
fn unknown(page: &mut Page, blame: &TypeBlame) {
    let all_ns = blame.causes.sum();
    let unknown_ns = blame.causes.get(Cause::Unknown);
    if unknown_ns == 0 {
        return;
    }
    let reasons = blame.unknown.iter();
    let reasons: Vec<_> = reasons
        .map(|(reason, ns)| format!("{} {}", reason.words(), share(*ns, all_ns)))
        .collect();
    page.wrapped(
        "  not known: ",
        &format!("{} ({})", share(unknown_ns, all_ns), reasons.join(", ")),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_analysis::report::blame::{Blame, Causes, CulpritName, Reason};
    use reqtrace_base::plain::Plain;

    fn holder(cause: Cause, kind: CulpritKind, [request, comm]: [&str; 2], ns: u64) -> Holder {
        Holder {
            cause,
            culprit: CulpritName {
                kind,
                request: request.to_owned(),
                label: Plain::default(),
                comm: Plain::of(comm),
            },
            ns,
            requests: ns / 1_000,
            wait_class: "redo log".to_owned(),
        }
    }

    fn report(holders: Vec<Holder>, unknown: Vec<(Reason, u64)>) -> (Report, TypeReport) {
        let mut causes = Causes::default();
        for holder in &holders {
            causes.add(holder.cause, holder.ns);
        }
        for (_, ns) in &unknown {
            causes.add(Cause::Unknown, *ns);
        }
        let of_type = TypeBlame {
            request: "command".to_owned(),
            requests: 1_000,
            causes,
            holders,
            unknown,
            ..TypeBlame::default()
        };
        let report = Report {
            blame: Some(Blame {
                types: vec![of_type],
                ..Blame::default()
            }),
            ..Report::default()
        };
        let request = TypeReport {
            name: "command".to_owned(),
            ..TypeReport::default()
        };
        (report, request)
    }

    fn drawn(width: usize, holders: Vec<Holder>, unknown: Vec<(Reason, u64)>) -> String {
        let (report, request) = report(holders, unknown);
        let mut page = Page::new(width);
        draw(&mut page, &report, &request);
        page.text
    }

    #[test]
    fn who_held_a_request_up() {
        let holders = || {
            vec![
                holder(
                    Cause::Disk,
                    CulpritKind::Request,
                    ["command", ""],
                    6_000_000,
                ),
                holder(Cause::Disk, CulpritKind::Interrupt, ["", ""], 2_000_000),
                holder(
                    Cause::BetweenRequests,
                    CulpritKind::Thread,
                    ["", "one_connection"],
                    1_000_000,
                ),
                holder(
                    Cause::RunQueue,
                    CulpritKind::Request,
                    ["login", ""],
                    500_000,
                ),
                holder(Cause::OnCpu, CulpritKind::Itself, ["", ""], 200_000),
            ]
        };
        let unknown = || vec![(Reason::NotYetWatched, 200_000), (Reason::Lost, 100_000)];
        assert_eq!(
            drawn(100, holders(), unknown()),
            "
Who held `command` up                          of blocked per request   requests  mostly in
  disk, another `command`                          60.0 %     6.00 µs      6,000  redo log
  disk, own                                        20.0 %     2.00 µs      2,000  redo log
  between requests, thread one_connection          10.0 %     1.00 µs      1,000  redo log
  run queue, `login`                                5.0 %      500 ns        500  redo log
  on CPU, itself                                    2.0 %      200 ns        200  redo log
  not known: 3.0 % (waker not yet watched 2.0 %, intervals lost 1.0 %)
"
        );
        let narrow = drawn(60, holders(), unknown());
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 60),
            "{narrow}"
        );
        assert!(narrow.contains("disk, own") && narrow.contains("20.0 %"));
    }

    #[test]
    fn many_are_added_up_and_nobody_is_nothing() {
        let many = (1..=20).map(|number| {
            holder(
                Cause::OnCpu,
                CulpritKind::Thread,
                ["", &format!("t{number}")],
                1_000,
            )
        });
        let text = drawn(100, many.collect(), Vec::new());
        assert_eq!(text.lines().count(), 2 + HOLDERS + 1);
        assert!(
            text.contains("  12 more                                          60.0 %"),
            "{text}"
        );
        assert_eq!(drawn(100, Vec::new(), Vec::new()), "");
    }
}
