//! Stacks of one request type, for who looks closer: the model in, the greatest of its lines out. Making
//! them takes long when there are many, so they are made seldom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_base::names::telling;
use reqtrace_recording::Ending;

use super::snapshot::{StackShown, Stacks};
use reqtrace_analysis::report::palette::Time;
use reqtrace_analysis::report::{Report, StackLine};

/// Stacks that are shown.
const MAX_SHOWN: usize = 100;
/// How old they may be: what they are made of comes every five seconds.
const PAUSE: Duration = Duration::from_secs(5);
/// The pause is so many times as long as making them takes, so that it costs 2 % of a CPU at most.
const PAUSE_PER_LOOK: u32 = 50;

/// The last ones.
#[derive(Default)]
pub(super) struct StackCache {
    made: Option<Arc<Stacks>>,
    next: Option<Instant>,
}

impl StackCache {
    /// Those of the wanted type, if one is wanted.
    pub(super) fn of(&mut self, wanted: Option<usize>, model: &Aggregator) -> Option<Arc<Stacks>> {
        let index = wanted?;
        let is_other = self.made.as_ref().is_none_or(|made| made.of != index);
        let begun = Instant::now();
        if is_other || self.next.is_none_or(|next| begun >= next) {
            let report = model.view(&Ending::default());
            self.made = Some(Arc::new(stacks(&report, index)));
            self.next = Some(begun + PAUSE.max(begun.elapsed() * PAUSE_PER_LOOK));
        }
        self.made.clone()
    }
}

fn stacks(report: &Report, index: usize) -> Stacks {
    let name = report.requests.get(index).map(|request| &request.name);
    let of_type = |line: &&StackLine| Some(&line.request) == name;
    let on_cpu = report.on_cpu.iter().flat_map(|on_cpu| &on_cpu.stacks);
    let mut lines: Vec<&StackLine> = report
        .stacks
        .iter()
        .chain(&report.away)
        .chain(on_cpu)
        .filter(of_type)
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.ns));
    let shown = lines.iter().take(MAX_SHOWN);
    Stacks {
        of: index,
        all_ns: lines.iter().map(|line| line.ns).sum(),
        lines: shown.map(|line| self::shown(report, line)).collect(),
    }
}

fn shown(report: &Report, line: &StackLine) -> StackShown {
    let what = Time::of(line).name(report).into_owned();
    let innermost = |frames: &[String]| -> Vec<String> { frames.iter().rev().cloned().collect() };
    let (user, kernel) = (innermost(&line.user), innermost(&line.kernel));
    let short = telling(
        user.iter().map(String::as_str),
        kernel.iter().map(String::as_str),
    );
    StackShown {
        what,
        ns: line.ns,
        count: line.count,
        longest_ns: line.longest_ns,
        short: short.join(" ← "),
        frames: kernel.into_iter().chain(user).collect(),
    }
}
