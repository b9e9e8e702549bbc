//! Progress on a terminal: elapsed time, requests so far, rate, p99. Nothing elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::aggregate::Aggregator;
use crate::report::text;

/// A line on standard error that is redrawn, or nothing.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    duration: Option<Duration>,
}

impl Progress {
    pub(super) fn new(quiet: bool, duration: Option<Duration>) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            started: Instant::now(),
            duration,
        }
    }

    pub(super) fn update(&self, analysis: &Aggregator) {
        let Some(bar) = &self.bar else { return };
        let (complete, incomplete) = analysis.requests();
        let (requests, p99_ns) = (complete + incomplete, analysis.p99_ns());
        let elapsed = self.started.elapsed();
        let total = self
            .duration
            .map_or_else(String::new, |total| format!("/{:.0}", total.as_secs_f64()));
        let rate = requests as f64 / elapsed.as_secs_f64().max(0.001);
        let p99 = p99_ns.map_or_else(String::new, |p99| format!(" · p99 {}", text::duration(p99)));
        bar.set_message(format!(
            "{:.0}{total} s · {} requests · {rate:.0}/s{p99} · Ctrl-C ends and reports",
            elapsed.as_secs_f64(),
            text::number(requests),
        ));
        bar.tick();
    }

    /// Takes the line away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Compiling unwind tables takes long for very large programs only: said after a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// A line on standard error while unwind tables are compiled.
pub(super) struct Compiling {
    wanted: bool,
    started: Instant,
}

impl Compiling {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            wanted: !quiet && std::io::stderr().is_terminal(),
            started: Instant::now(),
        }
    }

    pub(super) fn update(&self, now: crate::unwind::Progress) {
        if self.wanted && self.started.elapsed() > PATIENCE {
            let end = if now.done == now.objects { "\n" } else { "" };
            eprint!(
                "\rcompiling unwind tables: {} of {} objects, {} of {} KiB{end}",
                now.done,
                now.objects,
                now.done_bytes / 1024,
                now.bytes / 1024
            );
        }
    }
}
