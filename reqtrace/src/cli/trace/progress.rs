//! Progress on a terminal: elapsed time, requests so far, rate, p99, what tracing takes. Nothing elsewhere, or where a
//! line cannot be redrawn.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::analysed::{Seen, Watcher};
use reqtrace_base::figures;

/// The rate is that of so long: short enough to follow the load, long enough to be read.
const RECENT: Duration = Duration::from_secs(2);

/// A line on standard error that is redrawn, or nothing.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// The same while the report is made.
    reporting: Option<ProgressBar>,
    started: Instant,
    duration: Option<Duration>,
    recent: Recent,
}

/// Whether standard error is a terminal on which a line can be redrawn.
pub(super) fn can_redraw() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && std::io::stderr().is_terminal()
}

/// Counts of the last moments: a rate out.
struct Recent(VecDeque<(Instant, u64)>);

impl Recent {
    fn new(now: Instant) -> Self {
        Self(VecDeque::from([(now, 0)]))
    }

    /// Takes a count, and gives the rate per second since the newest count that is old enough, or
    /// since the first.
    fn rate(&mut self, now: Instant, count: u64) -> f64 {
        while self
            .0
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= RECENT)
        {
            self.0.pop_front();
        }
        self.0.push_back((now, count));
        let (at, before) = self.0.front().copied().unwrap_or((now, count));
        let seconds = now.duration_since(at).as_secs_f64().max(0.001);
        count.saturating_sub(before) as f64 / seconds
    }
}

impl Progress {
    pub(super) fn new(quiet: bool, duration: Option<Duration>) -> Self {
        let bar = (!quiet && can_redraw()).then(line);
        let started = Instant::now();
        Self {
            bar,
            reporting: None,
            started,
            duration,
            recent: Recent::new(started),
        }
    }

    fn update(&mut self, seen: &Seen, overhead: Option<[f64; 2]>) {
        let Some(bar) = &self.bar else { return };
        let (requests, p99_ns) = (seen.requests, seen.p99_ns());
        let now = Instant::now();
        let elapsed = now.duration_since(self.started);
        let total = self
            .duration
            .map_or_else(String::new, |total| format!("/{:.0}", total.as_secs_f64()));
        let rate = self.recent.rate(now, requests);
        let p99 = p99_ns.map_or_else(String::new, |p99| {
            format!(" · p99 {}", figures::duration(p99))
        });
        let overhead = overhead.map_or_else(String::new, |shares| {
            format!(" · tracing takes {}", figures::range(shares))
        });
        bar.set_message(format!(
            "{:.0}{total} s · {} requests · {rate:.0}/s{p99}{overhead} · Ctrl-C ends and reports",
            elapsed.as_secs_f64(),
            figures::number(requests),
        ));
        bar.tick();
    }
}

fn line() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    // What does not fit is cut: a line that breaks cannot be redrawn.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.reporting {
            bar.finish_and_clear();
        }
    }
}

impl Watcher for Progress {
    fn wants_latencies(&self) -> bool {
        self.bar.is_some()
    }

    fn look(&mut self, seen: &Seen, overhead: Option<[f64; 2]>) {
        self.update(seen, overhead);
    }

    /// Takes the line away.
    fn ended(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn reporting(&mut self, share: f64) {
        if self.bar.is_some() {
            let bar = self.reporting.get_or_insert_with(line);
            bar.set_message(format!(
                "tracing is over; {:.0} % of what waited is in the report",
                100.0 * share
            ));
            bar.tick();
        }
    }
}

/// Compiling unwind tables takes long for very large programs only: shown after a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// A line on standard error while unwind tables are compiled.
pub(super) struct Compiling {
    wanted: bool,
    started: Instant,
}

impl Compiling {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            wanted: !quiet && can_redraw(),
            started: Instant::now(),
        }
    }

    pub(super) fn update(&self, now: reqtrace_binary::unwind::Progress) {
        if self.wanted && self.started.elapsed() > PATIENCE {
            let end = if now.done == now.objects { "\n" } else { "" };
            let _ = write!(
                std::io::stderr(),
                "\rcompiling unwind tables: {} of {} objects, {} of {} KiB{end}",
                now.done,
                now.objects,
                now.done_bytes / 1024,
                now.bytes / 1024
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_load() {
        let start = Instant::now();
        let mut recent = Recent::new(start);
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        assert!((recent.rate(at(10), 1000) - 1000.0).abs() < 1.0);
        // The load ends: two seconds later the rate is nothing, not an average.
        for tenths in 11..=40 {
            recent.rate(at(tenths), 1000);
        }
        assert!(recent.rate(at(41), 1000) < 1.0);
        // It comes back.
        assert!((recent.rate(at(51), 2000) - 500.0).abs() < 60.0);
    }
}
