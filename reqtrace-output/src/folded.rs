//! `stacks.folded` and `chains.folded`: a report in, one line a stack or chain out, each with the kinds of
//! time that it is, for pictures.
//!
//! Times are summed in nanoseconds per line and then rounded to microseconds, but never to 0: a
//! stack that is there stays there.

use std::collections::BTreeMap;
use std::io::{self, Write};

use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::palette::{self, Colour, Time};
use reqtrace_analysis::report::{NOT_SAMPLED, OnCpu, Report, StackKind, StackLine};
use reqtrace_base::names::clean;

/// Which time of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Blocked, on the run queue, preempted; parked and queued.
    #[default]
    OffCpu,
    /// On a CPU, by samples, scaled to the exact time.
    OnCpu,
    /// The whole latency: both.
    All,
}

impl Part {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OffCpu => "off-cpu",
            Self::OnCpu => "on-cpu",
            Self::All => "all",
        }
    }
}

/// What a folded line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedOptions {
    /// Put a frame `-` between user and kernel frames (`-d`).
    pub delimiter: bool,
    /// Keep user frames; off with `-K`.
    pub user: bool,
    /// Keep kernel frames; off with `-U`.
    pub kernel: bool,
    /// Leave out run queue, preempted, parked and queued time (`--blocked-only`).
    pub blocked_only: bool,
    /// Which time (`--stacks`).
    pub part: Part,
}

impl Default for FoldedOptions {
    fn default() -> Self {
        Self {
            delimiter: false,
            user: true,
            kernel: true,
            blocked_only: false,
            part: Part::OffCpu,
        }
    }
}

/// What is folded, and drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Where the time of requests went.
    Stacks(FoldedOptions),
    /// Where they were blocked, who held them up, and where that one was blocked.
    Chains,
}

/// A kind of time in a picture: its name in the legend, and its colour.
pub(super) type Hue = (String, Colour);

/// Time of one folded line.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) ns: u64,
    /// What it is, the same time by kind: frames that read alike may be of several.
    pub(super) hues: BTreeMap<Hue, u64>,
}

/// Sums by frames, with `;` between.
pub(super) type Sums = BTreeMap<String, Sum>;

impl Shows {
    /// The lines: text without the number, and microseconds. Stacks are sorted by their text, chains by time, the
    /// longest first.
    #[must_use]
    pub fn lines(self, report: &Report) -> Vec<(String, u64)> {
        let sums = self.sums(report).into_iter();
        let mut lines: Vec<_> = sums.map(|(text, sum)| (text, micros(sum.ns))).collect();
        if matches!(self, Self::Chains) {
            lines.sort_by_key(|(_, micros)| std::cmp::Reverse(*micros));
        }
        lines
    }

    /// The lines with what they are.
    pub(super) fn sums(self, report: &Report) -> Sums {
        let mut sums = match self {
            Self::Stacks(options) => stacks(report, options),
            Self::Chains => chains(report),
        };
        sums.retain(|_, sum| sum.ns > 0);
        sums
    }
}

/// To the nearest microsecond, but never to 0.
pub(super) fn micros(ns: u64) -> u64 {
    (ns.saturating_add(500) / 1_000).max(1)
}

fn add(sums: &mut Sums, text: String, hue: Hue, ns: u64) {
    let sum = sums.entry(text).or_default();
    sum.ns += ns;
    *sum.hues.entry(hue).or_default() += ns;
}

fn chains(report: &Report) -> Sums {
    let mut sums = Sums::new();
    for chain in report.blame.iter().flat_map(|blame| &blame.chains) {
        let frames: Vec<String> = chain.frames.iter().map(|name| clean(name)).collect();
        let last = chain.frames.last().map_or("", String::as_str);
        let is_its = |cause: &Cause| last == format!("[{}]", cause.words());
        let cause = Cause::ALL.into_iter().find(is_its);
        let cause = cause.unwrap_or(Cause::Unknown);
        let hue = (cause.words().to_owned(), palette::of_cause(cause));
        add(&mut sums, frames.join(";"), hue, chain.ns);
    }
    sums
}

fn stacks(report: &Report, options: FoldedOptions) -> Sums {
    let mut sums = Sums::new();
    let with_request = report.requests.len() > 1;
    for line in lines(report, options) {
        let time = Time::of(line);
        let hue = (clean(&time.name(report)), time.colour(report));
        add(&mut sums, text(line, with_request, options), hue, line.ns);
    }
    sums
}

/// The stacks of the part that is wanted.
pub(super) fn lines(report: &Report, options: FoldedOptions) -> impl Iterator<Item = &StackLine> {
    let on_cpu = report.on_cpu.as_ref();
    let none: &[StackLine] = &[];
    let of = |lines: fn(&OnCpu) -> &[StackLine]| on_cpu.map_or(none, lines);
    let (stacks, away) = (report.stacks.as_slice(), report.away.as_slice());
    let (off, away, on, beside) = match options.part {
        Part::OffCpu => (stacks, away, none, none),
        Part::OnCpu => (none, none, of(|on_cpu| &on_cpu.stacks), none),
        Part::All => (
            stacks,
            away,
            of(|on_cpu| &on_cpu.stacks),
            of(|on_cpu| &on_cpu.beside),
        ),
    };
    let all = off.iter().chain(away).chain(on).chain(beside);
    all.filter(move |line| !options.blocked_only || line.kind == StackKind::Blocked)
}

fn text(line: &StackLine, with_request: bool, options: FoldedOptions) -> String {
    let mut frames = vec![clean(&line.comm)];
    if with_request {
        frames.push(clean(&line.request));
    }
    frames.extend(self::frames(line, options).into_iter().map(clean));
    frames.join(";")
}

/// The frames of a stack, outermost first; the last one says what its time is, unless that is blocked.
pub(super) fn frames(line: &StackLine, options: FoldedOptions) -> Vec<&str> {
    let mut frames: Vec<&str> = Vec::new();
    let is_away = matches!(line.kind, StackKind::Parked | StackKind::Queued);
    // The frame of a request that no thread runs is nobody's.
    if options.user || is_away {
        frames.extend(line.user.iter().map(String::as_str));
    }
    let has_stacks = !(line.user.is_empty() && line.kernel.is_empty());
    if options.delimiter && options.user && options.kernel && has_stacks && !is_away {
        frames.push("-");
    }
    if options.kernel {
        frames.extend(line.kernel.iter().map(String::as_str));
    }
    let top = match line.kind {
        StackKind::Blocked | StackKind::Parked | StackKind::Queued => None,
        StackKind::RunQueue => Some("[run queue]"),
        StackKind::Preempted => Some("[preempted]"),
        StackKind::OnCpu if line.user.last().is_some_and(|name| name == NOT_SAMPLED) => None,
        // A function that computes may be on the way to others that block.
        StackKind::OnCpu => (options.part == Part::All).then_some("[on CPU]"),
    };
    frames.extend(top);
    frames
}

/// Writes `stacks.folded`, or `chains.folded`.
pub(crate) fn write(report: &Report, shows: Shows, out: &mut dyn Write) -> io::Result<()> {
    let lines = shows.lines(report);
    let lines = lines
        .iter()
        .map(|(stack, micros)| format!("{stack} {micros}\n"));
    let text: String = lines.collect();
    out.write_all(text.as_bytes())?;
    out.flush()
}
