//! Outputs of a comparison: a [`Comparison`] in, a table and files out.

mod folded;
mod html;
mod pprof;
mod table;

use std::io::{self, Write};

use reqtrace_analysis::report::{Report, StackKind, StackLine};
use reqtrace_base::names::clean;
use reqtrace_compare::Comparison;
use serde::Serialize;

use crate::folded::{FoldedOptions, frames};

pub use table::render;

/// A format of comparisons.
#[derive(Debug)]
pub struct CompareFormat {
    /// Its option, without `--`.
    pub option: &'static str,
    /// A name for its file, in advice.
    pub file_name: &'static str,
    /// What its option does.
    pub help: &'static str,
    /// Writes it.
    pub write: fn(&Comparison, &mut dyn Write) -> io::Result<()>,
}

/// Version of the JSON. It grows when a key changes its meaning or goes; new keys do not count.
const SCHEMA_VERSION: u32 = 1;

/// All formats of comparisons.
pub static FORMATS: &[CompareFormat] = &[
    CompareFormat {
        option: "html",
        file_name: "diff.html",
        help: "Write a page to look at: waterfalls, heatmaps of both sides on one scale, a differential flame graph, tables that \
               sort and search; - is standard output",
        write: html::write,
    },
    CompareFormat {
        option: "json",
        file_name: "diff.json",
        help: "Write the comparison as JSON; - is standard output",
        write: json,
    },
    CompareFormat {
        option: "folded",
        file_name: "diff.folded",
        help: "Write folded stacks with the µs of A and of B, A's as if it had as many requests as B; - is standard output",
        write: folded::write,
    },
    CompareFormat {
        option: "flamegraph",
        file_name: "diff.svg",
        help: "Write a differential flame graph (SVG): as wide as B, red where it grew, blue where it shrank; - is standard \
               output",
        write: folded::draw,
    },
    CompareFormat {
        option: "pprof",
        file_name: "diff.pb.gz",
        help: "Write a gzipped profile in which A's samples have the label pprof::base, so that pprof shows B less A; - is \
               standard output",
        write: pprof::write,
    },
];

/// What the JSON has, and the page too.
#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    reqtrace: &'static str,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

impl<'a> Document<'a> {
    fn of(comparison: &'a Comparison) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            reqtrace: env!("CARGO_PKG_VERSION"),
            comparison,
        }
    }
}

fn json(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let document = Document::of(comparison);
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    serde_json::to_writer_pretty(&mut out, &document)?;
    writeln!(out)?;
    out.flush()
}

/// A frame between those of the program and the kernel's, which outputs leave out.
const DELIMITER: &str = "-";

/// Stacks of a report as comparisons name them: request type, process and frames with `;` between, and ns.
pub fn stack_names(report: &Report) -> impl Iterator<Item = (String, String, u64)> + '_ {
    let on_cpu = report.on_cpu.iter().flat_map(|on_cpu| &on_cpu.stacks);
    let all = report.stacks.iter().chain(&report.away).chain(on_cpu);
    all.map(|line| (line.request.clone(), name(line), line.ns))
}

fn name(line: &StackLine) -> String {
    let options = FoldedOptions {
        delimiter: true,
        ..FoldedOptions::default()
    };
    let frames = frames(line, options).into_iter().map(clean);
    let top = (line.kind == StackKind::OnCpu).then(|| "[on CPU]".to_owned());
    let names: Vec<String> = [clean(&line.comm)]
        .into_iter()
        .chain(frames)
        .chain(top)
        .collect();
    names.join(";")
}
