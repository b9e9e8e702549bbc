//! `flamegraph.svg` and `chains.svg`: a report in, a picture of its folded stacks or chains out. It needs no
//! network.
//!
//! A frame has the colour of the time that is above it. inferno gives colours to names only, and a function may be
//! on the way to waits of several kinds. So each frame's name gets a mark of its colour, which is taken out of
//! the finished picture.

mod legend;
mod marks;

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use super::folded::{FoldedOptions, Part, Shows};
use reqtrace_analysis::report::Report;
use reqtrace_base::figures::{duration, number, share};
use reqtrace_base::names::clean;

/// Losses that make a picture less than it says.
const LOSSES: [&str; 9] = [
    "kernel_stack_unreadable",
    "user_stack_unreadable",
    "stack_table_full",
    "stack_collision",
    "stack_sum_full",
    "stacks_unknown",
    "stacks_merged",
    "samples_lost",
    "samples_forgotten",
];
/// Request types that a title names.
const NAMED_TYPES: usize = 3;

/// Writes `flamegraph.svg`, or `chains.svg`.
pub(crate) fn write(report: &Report, shows: Shows, out: &mut dyn Write) -> io::Result<()> {
    let svg = draw(report, shows).map_err(io::Error::other)?;
    out.write_all(svg.as_bytes())?;
    out.flush()
}

fn draw(report: &Report, shows: Shows) -> Result<String, String> {
    let title = title(report, shows);
    let subtitle = subtitle(report, shows);
    let sums = shows.sums(report);
    if sums.is_empty() {
        return Ok(empty(&title, &subtitle, shows));
    }
    let marked = marks::mark(&sums);
    let mut colours = PaletteMap::default();
    for (name, colour) in &marked.colours {
        let colour = Color {
            r: colour.red,
            g: colour.green,
            b: colour.blue,
        };
        colours.insert(name, colour);
    }
    let mut drawing = Options::default();
    drawing.title = title;
    drawing.subtitle = Some(subtitle);
    drawing.bgcolors = Some(BackgroundColor::Flat(Color {
        r: 250,
        g: 250,
        b: 250,
    }));
    drawing.palette_map = Some(&mut colours);
    drawing.count_name = "µs".to_owned();
    // What a name ends with is often the same for all that is above one frame.
    drawing.text_truncate_direction = TextTruncateDirection::Right;
    // The same report gives the same picture.
    drawing.hash = true;
    drawing.deterministic = true;
    let mut svg = Vec::new();
    from_lines(
        &mut drawing,
        marked.lines.iter().map(String::as_str),
        &mut svg,
    )
    .map_err(|error| error.to_string())?;
    let svg = String::from_utf8(svg).map_err(|error| error.to_string())?;
    Ok(legend::add(&marks::strip(&svg), &sums))
}

/// What the picture is of, and of which requests.
fn title(report: &Report, shows: Shows) -> String {
    let with_time = report.requests.iter().filter(|request| request.count > 0);
    let names: Vec<String> = with_time
        .map(|request| format!("`{}`", clean(&request.name)))
        .collect();
    let requests = match names.len() {
        0 => "requests".to_owned(),
        1..=NAMED_TYPES => names.join(", "),
        more => format!("requests of {more} types"),
    };
    match shows {
        Shows::Stacks(options) if options.blocked_only => format!("Blocked time of {requests}"),
        Shows::Stacks(options) => match options.part {
            Part::OffCpu => format!("Off-CPU time of {requests}"),
            Part::OnCpu => format!("On-CPU time of {requests}"),
            Part::All => format!("Latency of {requests}, on and off the CPU"),
        },
        Shows::Chains => format!("Because of whom {requests} had to wait"),
    }
}

/// What it holds, how much that is, and what is missing.
fn subtitle(report: &Report, shows: Shows) -> String {
    let trace = &report.trace;
    let mut parts = vec![trace.profile.clone(), duration(trace.duration_ns)];
    match shows {
        Shows::Chains => parts.push(
            "from below: where a request was blocked, -- who held it up, where that one was blocked, \
             and what it came down to"
                .to_owned(),
        ),
        Shows::Stacks(options) => {
            parts.push(share_of_latency(report, options));
            if options.part != Part::OnCpu && !trace.preempted_stacks && !options.blocked_only {
                parts.push("preemptions without stacks".to_owned());
            }
            if options.part != Part::OffCpu
                && let Some(on_cpu) = &report.on_cpu
            {
                let samples = on_cpu.types.iter().map(|of| of.samples).sum();
                parts.push(format!(
                    "{} samples by {} at {} Hz, scaled to the exact time",
                    number(samples),
                    on_cpu.engine,
                    on_cpu.rate_hz
                ));
            }
            if !trace.stack_filter.is_empty() {
                parts.push(format!("only blocks {}", trace.stack_filter));
            }
        }
    }
    let lost = report
        .losses
        .iter()
        .filter(|loss| LOSSES.contains(&loss.name.as_str()) || loss.name.starts_with("recording_"));
    let lost: Vec<String> = lost
        .map(|loss| format!("{} {}", number(loss.count), loss.name))
        .collect();
    parts.push(match lost.as_slice() {
        [] => "nothing lost".to_owned(),
        lost => format!("lost: {}", lost.join(", ")),
    });
    parts.join(" · ")
}

/// How much of the latency of complete requests it is.
fn share_of_latency(report: &Report, options: FoldedOptions) -> String {
    let sum = |of: fn(&reqtrace_analysis::report::Ledger) -> u64| -> u64 {
        let ledgers = report.requests.iter().map(|request| &request.ledger);
        ledgers.map(of).sum()
    };
    let latency = sum(|ledger| ledger.latency_ns);
    let off_cpu = || latency.saturating_sub(sum(|ledger| ledger.on_cpu_ns));
    let (ns, what) = match options.part {
        _ if options.blocked_only => (
            sum(|ledger| ledger.blocked_ns() + ledger.unattributed_ns),
            "blocked",
        ),
        Part::OffCpu => (off_cpu(), "off the CPU"),
        Part::OnCpu => (sum(|ledger| ledger.on_cpu_ns), "on the CPU"),
        Part::All => return format!("{} in all", duration(latency)),
    };
    format!(
        "{what} {} of {} of latency",
        share(ns, latency),
        duration(latency)
    )
}

/// A picture that says that there is nothing to see.
fn empty(title: &str, subtitle: &str, shows: Shows) -> String {
    let nothing = match shows {
        Shows::Stacks(options) if options.part == Part::OnCpu => {
            "No on-CPU time in requests was recorded."
        }
        Shows::Stacks(options) if options.part == Part::All => "No time of requests was recorded.",
        _ => "No off-CPU time in requests was recorded.",
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"120\" \
         viewBox=\"0 0 1200 120\" font-family=\"monospace\" text-anchor=\"middle\">\n\
         <rect width=\"1200\" height=\"120\" fill=\"#fafafa\"/>\n\
         <text x=\"600\" y=\"30\" font-size=\"17\">{}</text>\n\
         <text x=\"600\" y=\"55\" font-size=\"12\">{}</text>\n\
         <text x=\"600\" y=\"90\" font-size=\"14\">{nothing}</text>\n\
         </svg>\n",
        legend::escape(title),
        legend::escape(subtitle)
    )
}
