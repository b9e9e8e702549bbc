//! `stacks.folded` and `chains.folded`: a report in, one line a stack or chain out.
//!
//! Times are summed in nanoseconds per line and then rounded to microseconds, but never to 0: a
//! stack that is there stays there.

use std::collections::BTreeMap;
use std::io::Write;

use super::{Exporter, Report, StackKind, StackLine};
use crate::error::{Error, Result};
use crate::names::clean;

/// What a folded line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedOptions {
    /// Put a frame `-` between user and kernel frames (`-d`).
    pub delimiter: bool,
    /// Keep user frames; off with `-K`.
    pub user: bool,
    /// Keep kernel frames; off with `-U`.
    pub kernel: bool,
    /// Leave out run queue and preempted time (`--blocked-only`).
    pub blocked_only: bool,
}

impl Default for FoldedOptions {
    fn default() -> Self {
        Self {
            delimiter: false,
            user: true,
            kernel: true,
            blocked_only: false,
        }
    }
}

/// What is folded, and drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Where requests were off the CPU.
    Stacks(FoldedOptions),
    /// Where they were blocked, who held them up, and where that one was blocked.
    Chains,
}

impl Shows {
    /// The lines: text without the number, and microseconds; sorted.
    #[must_use]
    pub fn lines(self, report: &Report) -> Vec<(String, u64)> {
        let sums = match self {
            Self::Stacks(options) => stacks(report, options),
            Self::Chains => chains(report),
        };
        let micros = |ns: u64| (ns.saturating_add(500) / 1_000).max(1);
        sums.into_iter()
            .filter(|(_, ns)| *ns > 0)
            .map(|(text, ns)| (text, micros(ns)))
            .collect()
    }
}

fn chains(report: &Report) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for chain in report.blame.iter().flat_map(|blame| &blame.chains) {
        let frames: Vec<String> = chain.frames.iter().map(|name| clean(name)).collect();
        *sums.entry(frames.join(";")).or_default() += chain.ns;
    }
    sums
}

fn stacks(report: &Report, options: FoldedOptions) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let with_request = report.requests.len() > 1;
    for line in &report.stacks {
        if options.blocked_only && line.kind != StackKind::Blocked {
            continue;
        }
        *sums.entry(text(line, with_request, options)).or_default() += line.ns;
    }
    sums
}

fn text(line: &StackLine, with_request: bool, options: FoldedOptions) -> String {
    let mut frames = vec![clean(&line.comm)];
    if with_request {
        frames.push(clean(&line.request));
    }
    if options.user {
        frames.extend(line.user.iter().map(|name| clean(name)));
    }
    let has_stacks = !(line.user.is_empty() && line.kernel.is_empty());
    if options.delimiter && options.user && options.kernel && has_stacks {
        frames.push("-".to_owned());
    }
    if options.kernel {
        frames.extend(line.kernel.iter().map(|name| clean(name)));
    }
    match line.kind {
        StackKind::Blocked => {}
        StackKind::RunQueue => frames.push("[run queue]".to_owned()),
        StackKind::Preempted => frames.push("[preempted]".to_owned()),
    }
    frames.join(";")
}

/// Writes `stacks.folded`, or `chains.folded`.
pub struct FoldedExporter {
    out: Box<dyn Write>,
    name: String,
    shows: Shows,
}

impl FoldedExporter {
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

impl Exporter for FoldedExporter {
    fn finish(&mut self, report: &Report) -> Result<()> {
        let lines = self.shows.lines(report);
        let lines = lines
            .iter()
            .map(|(stack, micros)| format!("{stack} {micros}\n"));
        let text: String = lines.collect();
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|error| {
                Error::failed(format!("{} could not be written", self.name)).because(error)
            })
    }
}
