//! `flamegraph.svg` and `chains.svg`: a report in, a picture of its folded stacks or chains out. It needs no
//! network.

use std::io::Write;

use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Palette};
use inferno::flamegraph::{Options, from_lines};

use super::folded::Shows;
use super::text::duration;
use super::{Exporter, Report};
use crate::error::{Error, Result};

/// Writes `flamegraph.svg`, or `chains.svg`.
pub struct FlamegraphExporter {
    out: Box<dyn Write>,
    name: String,
    shows: Shows,
}

impl FlamegraphExporter {
    /// `name` is what errors call the output.
    #[must_use]
    pub fn new(out: Box<dyn Write>, name: &str, shows: Shows) -> Self {
        Self {
            out,
            name: name.to_owned(),
            shows,
        }
    }
}

impl Exporter for FlamegraphExporter {
    fn finish(&mut self, report: &Report) -> Result<()> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::failed(format!("{} could not be written", self.name)).because(error)
        };
        let svg = draw(report, self.shows).map_err(|error| failed(error.into()))?;
        self.out
            .write_all(&svg)
            .and_then(|()| self.out.flush())
            .map_err(|error| failed(error.into()))
    }
}

fn draw(report: &Report, shows: Shows) -> Result<Vec<u8>, String> {
    let (title, holds) = match shows {
        Shows::Stacks(options) if options.blocked_only => {
            ("Off-CPU time in requests", "blocked in requests only")
        }
        Shows::Stacks(_) if report.trace.preempted_stacks => (
            "Off-CPU time in requests",
            "blocked, run queue and preempted in requests only",
        ),
        Shows::Stacks(_) => (
            "Off-CPU time in requests",
            "blocked, run queue and preempted (without its stacks) in requests only",
        ),
        Shows::Chains => (
            "Because of whom requests were blocked",
            "from below: where a request was blocked, -- who held it up, where that one was blocked, \
             and what it came down to",
        ),
    };
    let mut subtitle = format!(
        "{} · {} · {holds}",
        report.trace.profile,
        duration(report.trace.duration_ns),
    );
    if shows != Shows::Chains && !report.trace.stack_filter.is_empty() {
        subtitle.push_str(&format!(" · only blocks {}", report.trace.stack_filter));
    }
    let stacks: Vec<_> = shows
        .lines(report)
        .into_iter()
        .map(|(stack, micros)| format!("{stack} {micros}"))
        .collect();
    if stacks.is_empty() {
        return Ok(empty(title, &subtitle).into_bytes());
    }
    let mut drawing = Options::default();
    drawing.title = title.to_owned();
    drawing.subtitle = Some(subtitle);
    drawing.colors = Palette::Basic(BasicPalette::Io);
    drawing.bgcolors = Some(BackgroundColor::Blue);
    drawing.count_name = "µs".to_owned();
    // The same report gives the same picture.
    drawing.hash = true;
    drawing.deterministic = true;
    let mut svg = Vec::new();
    from_lines(&mut drawing, stacks.iter().map(String::as_str), &mut svg)
        .map_err(|error| error.to_string())?;
    Ok(svg)
}

/// A picture that says that there is nothing to see.
fn empty(title: &str, subtitle: &str) -> String {
    let escape = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"120\" \
         viewBox=\"0 0 1200 120\" font-family=\"monospace\" text-anchor=\"middle\">\n\
         <rect width=\"1200\" height=\"120\" fill=\"#eeeeff\"/>\n\
         <text x=\"600\" y=\"30\" font-size=\"17\">{}</text>\n\
         <text x=\"600\" y=\"55\" font-size=\"12\">{}</text>\n\
         <text x=\"600\" y=\"90\" font-size=\"14\">No off-CPU time in requests was recorded.</text>\n\
         </svg>\n",
        escape(title),
        escape(subtitle)
    )
}
