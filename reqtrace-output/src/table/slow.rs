//! Typical and slow requests side by side, and the longest blocks of the slow ones: numbers in, lines
//! out.

use std::cmp::Reverse;

use super::BAR;
use super::page::{Page, bar, frames};
use crate::words::NAME;
use reqtrace_analysis::report::slow::{SlowBlock, SlowRequests};
use reqtrace_analysis::report::{Ledger, Report, TypeReport};
use reqtrace_base::figures::{cut, duration, number, share};
use reqtrace_base::names::clean;

/// Rows below this share, in percent, of both bands and of the difference are drawn as one.
const LEAST: i64 = 1;
/// Long blocks that are shown; summary.json has more.
const BLOCKS: usize = 3;

/// Slow requests that take less than this many times as long as typical ones are not drawn.
const NOTABLE: (u64, u64) = (5, 4);

/// One row: its name and its mean in either band, ns.
struct Row {
    name: String,
    typical: u64,
    slowest: u64,
}

impl Row {
    fn difference(&self) -> i64 {
        self.slowest as i64 - self.typical as i64
    }
}

pub(super) fn draw(page: &mut Page, report: &Report, request: &TypeReport) {
    let Some(slow) = &request.slow else { return };
    let typical = slow.typical.mean(slow.typical.ledger.latency_ns);
    let slowest = slow.slowest.mean(slow.slowest.ledger.latency_ns);
    if slowest < typical.saturating_mul(NOTABLE.0) / NOTABLE.1 {
        return;
    }
    page.line("");
    head(page, request, slow);
    let difference = slowest as i64 - typical as i64;
    let percent = |part: i64, whole: i64| part.saturating_mul(100) / whole.max(1);
    let (shown, rest): (Vec<Row>, Vec<Row>) = rows(report, slow).into_iter().partition(|row| {
        percent(row.typical as i64, typical as i64) >= LEAST
            || percent(row.slowest as i64, slowest as i64) >= LEAST
            || percent(row.difference(), difference).abs() >= LEAST
    });
    let narrow = page.is_narrow();
    let mut draw = |row: &Row| {
        if narrow {
            page.line(&format!(
                "  {:<18} {:>11} {:>11} {:>13}",
                cut(&row.name, 18),
                time(row.typical),
                time(row.slowest),
                signed_share(row.difference(), difference),
            ));
            return;
        }
        page.line(&format!(
            "  {:<27} {:>11} {:width$} {:>11} {:width$} {:>13}",
            cut(&row.name, NAME),
            time(row.typical),
            bar(row.typical, typical),
            time(row.slowest),
            bar(row.slowest, slowest),
            signed_share(row.difference(), difference),
            width = BAR as usize,
        ));
    };
    shown.iter().for_each(&mut draw);
    let rest = Row {
        name: "all else".to_owned(),
        typical: rest.iter().map(|row| row.typical).sum(),
        slowest: rest.iter().map(|row| row.slowest).sum(),
    };
    if rest.typical + rest.slowest > 0 {
        draw(&rest);
    }
    blocks(page, slow);
}

fn head(page: &mut Page, request: &TypeReport, slow: &SlowRequests) {
    let (typical, slowest) = (&slow.typical, &slow.slowest);
    let narrow = page.is_narrow();
    // Without room there are no bars.
    let (before, width) = if narrow {
        (20, 11)
    } else {
        (29, 12 + BAR as usize)
    };
    let value = |text: String| format!("{text:>11}");
    let mut line = |name: &str, typical: &str, slowest: &str, last: &str| {
        page.line(&format!(
            "{name:<before$} {typical:<width$} {slowest:<width$} {last:>13}"
        ));
    };
    line(
        &format!("Slow `{}`", cut(&request.name, before - 11)),
        &value("typical".to_owned()),
        &if narrow {
            value("slowest".to_owned())
        } else {
            format!("slowest {}", share(slowest.count, slow.of))
        },
        "of difference",
    );
    line(
        "  requests",
        &value(number(typical.count)),
        &value(number(slowest.count)),
        "",
    );
    let range = |from: u64, to: u64| {
        if narrow {
            return value(duration(from));
        }
        format!("{:>11} … {}", duration(from), duration(to))
    };
    line(
        if narrow {
            "  latency from"
        } else {
            "  latency"
        },
        &range(typical.from_ns, typical.to_ns),
        &range(slowest.from_ns, slowest.to_ns),
        "",
    );
    let mean = |band: &reqtrace_analysis::report::slow::Band| {
        value(duration(band.mean(band.ledger.latency_ns)))
    };
    line("  mean", &mean(typical), &mean(slowest), "");
}

/// What the slow ones have more of comes first.
fn rows(report: &Report, slow: &SlowRequests) -> Vec<Row> {
    let mean = |name: &str, of: &dyn Fn(&Ledger) -> u64| Row {
        name: name.to_owned(),
        typical: slow.typical.mean(of(&slow.typical.ledger)),
        slowest: slow.slowest.mean(of(&slow.slowest.ledger)),
    };
    let mut rows = vec![
        mean("on CPU", &|ledger| ledger.on_cpu_ns),
        mean("run queue", &|ledger| ledger.run_queue_ns),
        mean("preempted", &|ledger| ledger.preempted_ns),
        mean("unattributed", &|ledger| ledger.unattributed_ns),
    ];
    rows.extend(report.classes.iter().enumerate().map(|(class, name)| {
        mean(name, &|ledger| {
            ledger.classes.get(class).copied().unwrap_or(0)
        })
    }));
    let places = &report.places;
    rows.extend((0..places.parked.len()).map(|place| {
        mean(&places.parked_words(place), &|ledger| {
            ledger.parked.get(place).copied().unwrap_or(0)
        })
    }));
    rows.extend((0..places.queued.len()).map(|place| {
        mean(&places.queued_words(place), &|ledger| {
            ledger.queued.get(place).copied().unwrap_or(0)
        })
    }));
    rows.retain(|row| row.typical + row.slowest > 0);
    rows.sort_by_key(|row| (Reverse(row.difference()), row.name.clone()));
    rows
}

fn blocks(page: &mut Page, slow: &SlowRequests) {
    let mut shown: Vec<(&str, String)> = Vec::new();
    for block in &slow.blocks {
        let stack = stack(block, page.width - 8);
        // Places that read alike are one to the reader.
        if shown.contains(&(&block.class, stack.clone())) {
            continue;
        }
        if shown.is_empty() {
            page.line("  Longest blocks of the slow ones");
        }
        let waker = block.waker.as_ref().map_or_else(
            || "unknown (interrupt)".to_owned(),
            |waker| format!("{} (tid {})", clean(&waker.comm), waker.tid),
        );
        let thread = block.tid.map_or_else(String::new, |tid| {
            format!(", thread {tid} ({})", clean(&block.comm))
        });
        let queued = match block.run_queue_ns {
            0 => String::new(),
            ns => format!(", then {} run queue", duration(ns)),
        };
        page.wrapped(
            "    ",
            &format!(
                "{} {}{queued}{thread}, woken by {waker}",
                duration(block.blocked_ns),
                cut(&block.class, NAME),
            ),
        );
        if !stack.is_empty() {
            page.line(&format!("        {stack}"));
        }
        shown.push((&block.class, stack));
        if shown.len() == BLOCKS {
            break;
        }
    }
}

fn stack(block: &SlowBlock, width: usize) -> String {
    let user = block.user.iter().map(String::as_str);
    let kernel = block.kernel.iter().map(String::as_str);
    frames(user, kernel, width)
}

/// A mean; `-` for nothing.
fn time(ns: u64) -> String {
    if ns == 0 {
        "-".to_owned()
    } else {
        duration(ns)
    }
}

/// A share that may be negative: what slow requests have less of.
fn signed_share(part: i64, whole: i64) -> String {
    let text = share(part.unsigned_abs(), whole.unsigned_abs());
    if part < 0 { format!("−{text}") } else { text }
}
