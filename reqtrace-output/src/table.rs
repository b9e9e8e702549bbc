//! The report on the terminal: a report in, text of at most 100 columns out, or of as many as the
//! terminal has.

mod blamed;
mod files;
mod histogram;
mod labels;
mod markers;
mod on_cpu;
mod overhead;
mod page;
mod requests;
mod slow;

use std::io::Write;

pub(crate) use blamed::disk_lines;
use page::{Page, frames};
use requests::{ledger, requests};

use super::verdict;
use crate::words::NAME;
use reqtrace_analysis::report::{Exporter, Filtered, OpenRequest, Report, TypeReport};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::figures::{cut, duration, number, share};
use reqtrace_base::names::clean;
use reqtrace_base::plain::Plain;

/// Widest line.
pub const WIDTH: usize = 100;
/// Below this width tables leave columns and bars out.
pub(super) const NARROW: usize = 90;
/// Terminals that claim to be narrower get lines of this length.
const NARROWEST: usize = 40;
/// Cells of a share bar.
const BAR: u64 = 8;
/// Open requests that are listed.
const OPEN: usize = 5;

/// Prints the report.
pub struct TableExporter {
    out: Box<dyn Write>,
    verbose: bool,
    width: usize,
}

impl TableExporter {
    /// `verbose` adds what the kernel programs cost. `columns` is what the terminal has, `None` where
    /// it is none.
    #[must_use]
    pub fn new(out: Box<dyn Write>, verbose: bool, columns: Option<u16>) -> Self {
        let width = columns.map_or(WIDTH, |columns| {
            usize::from(columns).clamp(NARROWEST, WIDTH)
        });
        Self {
            out,
            verbose,
            width,
        }
    }
}

impl Exporter for TableExporter {
    fn finish(&mut self, report: &Report) -> Result<()> {
        self.out
            .write_all(Plain::lines(&render(report, self.verbose, self.width)).as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|error| Error::failed("the report could not be written").because(error))
    }
}

/// The report as text, in lines of at most `width` characters.
#[must_use]
pub fn render(report: &Report, verbose: bool, width: usize) -> String {
    let mut page = Page::new(width);
    headline(&mut page, report);
    if let Some(filtered) = &report.filtered {
        let text = filter(filtered);
        page.wrapped("Filter: ", &text);
    }
    page.line("");
    for warning in &report.warnings {
        page.wrapped("WARNING: ", warning);
        page.line("");
    }
    for finding in &report.verdict {
        page.wrapped("Verdict: ", &verdict::sentence(finding));
        page.line("");
    }
    requests(&mut page, report);
    for (index, request) in report.requests.iter().enumerate() {
        if request.count > 0 {
            ledger(&mut page, report, request);
            on_cpu::draw(&mut page, report, index);
            files::draw(&mut page, request);
            blamed::draw(&mut page, report, request);
            slow::draw(&mut page, report, request);
        }
        histogram::draw(&mut page, request);
    }
    if !report.trace.stack_filter.is_empty() {
        page.line("");
        page.wrapped(
            "Stacks: ",
            &format!(
                "only blocks {}; everything else covers all",
                report.trace.stack_filter
            ),
        );
    }
    for line in labels::lines(report, width) {
        page.line(&line);
    }
    incomplete(&mut page, report);
    open(&mut page, report);
    losses(&mut page, report);
    overhead::draw(&mut page, report);
    hints(&mut page, report);
    if verbose {
        markers::draw(&mut page, report);
        unwinding(&mut page, report);
        programs(&mut page, report);
    }
    page.text
}

/// What a report of some requests is of, and what it cannot have.
fn filter(filtered: &Filtered) -> String {
    format!(
        "{}: {} of {} requests that were recorded. Stacks are those of these requests, by their own \
         records; {} that they were on the run queue or preempted is in no stack",
        filtered.which,
        number(filtered.kept),
        number(filtered.kept + filtered.left_out),
        duration(filtered.without_stack_ns),
    )
}

fn headline(page: &mut Page, report: &Report) {
    let trace = &report.trace;
    let processes = match trace.processes.as_slice() {
        [] => "no process".to_owned(),
        [(pid, name)] => format!("{} (pid {pid})", clean(name)),
        [(pid, name), rest @ ..] => {
            format!(
                "{} (pid {pid}) and {} more",
                clean(name),
                number(rest.len() as u64 + trace.unlisted_processes)
            )
        }
    };
    let ended = match trace.ended_by.as_str() {
        "" | "duration" => String::new(),
        other => format!(" ({other})"),
    };
    let requests = report.requests.iter();
    let count: u64 = requests.map(TypeReport::best_count).sum();
    let lost = if report.losses.is_empty() {
        "nothing lost"
    } else {
        "losses: see below"
    };
    let plural = if count == 1 { "" } else { "s" };
    let (profile, count) = (&trace.profile, number(count));
    let length = duration(trace.duration_ns);
    let kernel = format!(" · kernel {}", trace.kernel);
    let line = |kernel: &str| {
        format!(
            "{profile} · {processes} · {length}{ended}{kernel} · {count} request{plural} · {lost}"
        )
    };
    // The kernel's release, which the summary has too, is the first that may go.
    let whole = line(&kernel);
    if whole.chars().count() <= page.width {
        page.line(&whole);
    } else {
        page.wrapped("", &line(""));
    }
}

fn incomplete(page: &mut Page, report: &Report) {
    for request in &report.requests {
        let total: u64 = request.incomplete.iter().map(|(_, count)| count).sum();
        if total == 0 {
            continue;
        }
        let reasons: Vec<_> = request
            .incomplete
            .iter()
            .map(|(reason, count)| format!("{} {}", number(*count), reason.reason()))
            .collect();
        page.line("");
        page.wrapped(
            "Incomplete: ",
            &format!(
                "{} of `{}` ({}), in none of the numbers above",
                number(total),
                request.name,
                reasons.join(", ")
            ),
        );
    }
}

fn open(page: &mut Page, report: &Report) {
    // The others are what any moment of a busy server has; they are counted as incomplete.
    let long: Vec<_> = report
        .open
        .iter()
        .filter(|request| is_long(report, request))
        .collect();
    if long.is_empty() {
        return;
    }
    page.line("");
    page.line("Still open when tracing stopped");
    for request in long.iter().take(OPEN) {
        page.wrapped("  ", &open_line(request));
        if let Some(block) = &request.blocked {
            let user = block.user.iter().map(String::as_str);
            let kernel = block.kernel.iter().map(String::as_str);
            let stack = frames(user, kernel, page.width - 6);
            if !stack.is_empty() {
                page.line(&format!("      {stack}"));
            }
        }
    }
    if long.len() > OPEN {
        let more = number((long.len() - OPEN) as u64);
        page.line(&format!("  and {more} more, in --csv and --json"));
    }
}

/// Whether a request has run for longer than nearly all complete ones of its type took.
fn is_long(report: &Report, request: &OpenRequest) -> bool {
    let of_type = report
        .requests
        .iter()
        .find(|of_type| of_type.name == request.request);
    of_type
        .and_then(|of_type| of_type.latency.as_ref())
        .is_none_or(|latency| request.running_ns > latency.p99_ns)
}

fn open_line(request: &OpenRequest) -> String {
    let what = match (&request.blocked, &request.place) {
        (Some(block), _) => format!("blocked for {} in {}", duration(block.for_ns), block.class),
        (None, Some((place, for_ns))) => format!("{place}, for {}", duration(*for_ns)),
        (None, None) => "running".to_owned(),
    };
    format!(
        "{} in thread {} ({}): for {}, {what}",
        cut(&request.request, NAME),
        request.tid,
        clean(&request.comm),
        duration(request.running_ns),
    )
}

fn losses(page: &mut Page, report: &Report) {
    if report.losses.is_empty() {
        return;
    }
    page.line("");
    page.line("Losses");
    for loss in &report.losses {
        page.wrapped(
            &format!("  {} {}: ", number(loss.count), loss.name),
            &loss.advice,
        );
    }
}

fn hints(page: &mut Page, report: &Report) {
    for hint in &report.hints {
        page.line("");
        page.wrapped("Hint: ", hint);
    }
}

fn unwinding(page: &mut Page, report: &Report) {
    let unwinding = &report.unwinding;
    let all_ns = unwinding.all_ns();
    if all_ns == 0 {
        return;
    }
    page.line("");
    let mut part = |name: &str, ns: u64| {
        if ns > 0 {
            page.line(&format!("{name:<44} {:>8}", share(ns, all_ns)));
        }
    };
    part(
        "user stacks unwound to the outermost function",
        unwinding.whole_ns,
    );
    part(
        "user stacks walked by frame pointers",
        unwinding.frame_pointers_ns,
    );
    for (reason, ns) in &unwinding.truncated {
        part(&format!("user stacks truncated: {reason}"), *ns);
    }
    if let Some(walks) = &unwinding.walks {
        page.line(&format!(
            "{} walks of user stacks: {} each for {:.1} frames, 99.9 % below {}, the longest {}",
            number(walks.walks),
            duration(walks.run_ns / walks.walks.max(1)),
            walks.frames as f64 / walks.walks.max(1) as f64,
            duration(walks.p999_ns),
            duration(walks.max_ns),
        ));
    }
}

fn programs(page: &mut Page, report: &Report) {
    if report.programs.is_empty() {
        return;
    }
    page.line("");
    page.line(&format!(
        "{:<28} {:>14} {:>12} {:>10} {:>8}",
        "KERNEL PROGRAM", "RUNS", "TOTAL", "EACH", "MISSED"
    ));
    for program in &report.programs {
        let each = program.run_ns.checked_div(program.runs);
        page.line(&format!(
            "{:<28} {:>14} {:>12} {:>10} {:>8}",
            cut(&program.name, 28),
            number(program.runs),
            duration(program.run_ns),
            each.map_or_else(|| "-".to_owned(), duration),
            number(program.recursion_misses),
        ));
    }
}
