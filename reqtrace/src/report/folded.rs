//! `stacks.folded`: a report in, one line a stack out.
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

/// The lines: text without the number, and microseconds; sorted.
#[must_use]
pub fn lines(report: &Report, options: FoldedOptions) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let with_request = report.requests.len() > 1;
    for line in &report.stacks {
        if options.blocked_only && line.kind != StackKind::Blocked {
            continue;
        }
        *sums.entry(text(line, with_request, options)).or_default() += line.ns;
    }
    let micros = |ns: u64| (ns.saturating_add(500) / 1_000).max(1);
    sums.into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|(text, ns)| (text, micros(ns)))
        .collect()
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

/// Writes `stacks.folded`.
pub struct FoldedExporter {
    out: Box<dyn Write>,
    name: String,
    options: FoldedOptions,
}

impl FoldedExporter {
    /// `name` is what errors call the output.
    #[must_use]
    pub fn new(out: Box<dyn Write>, name: &str, options: FoldedOptions) -> Self {
        Self {
            out,
            name: name.to_owned(),
            options,
        }
    }
}

impl Exporter for FoldedExporter {
    fn finish(&mut self, report: &Report) -> Result<()> {
        let mut text = String::new();
        for (stack, micros) in lines(report, self.options) {
            text.push_str(&format!("{stack} {micros}\n"));
        }
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|error| {
                Error::failed(format!("{} could not be written", self.name)).because(error)
            })
    }
}
