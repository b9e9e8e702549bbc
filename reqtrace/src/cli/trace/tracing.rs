//! A trace that runs: probes that are attached in; events followed to the end, then the report and the
//! files, out.

use std::time::Instant;

use log::info;

use super::follow::{Follower, Outcome, Signals};
use super::guarding::{Guarding, Watched};
use super::progress;
use crate::attach::Session;
use crate::cli::args::TraceOptions;
use crate::cli::show;
use crate::error::Result;
use crate::profile::Profile;

/// Processes named at the start before the rest is only counted.
const MAX_NAMED: usize = 3;

/// A trace with everything attached.
pub(super) struct Tracing {
    pub(super) options: TraceOptions,
    pub(super) profile: Profile,
    pub(super) session: Session,
    /// The processes that were chosen: id and name.
    pub(super) processes: Vec<(u32, String)>,
}

impl Tracing {
    /// Says what is traced.
    pub(super) fn announce(&self, is_started: bool) {
        if self.options.outputs.quiet {
            return;
        }
        let how_long = match self.options.duration {
            Some(duration) => format!("for {} s", duration.as_secs_f64()),
            None if is_started => "until it ends".to_owned(),
            None => "until Ctrl-C".to_owned(),
        };
        crate::say!(
            "tracing {} with {} {how_long}",
            named(&self.processes),
            self.profile.name
        );
    }

    /// Follows until the end, then reports, and says how it ended; the probes are still in.
    pub(super) async fn follow(
        &mut self,
        mut follower: Follower,
        signals: &mut Signals,
    ) -> Result<Outcome> {
        let (quiet, limit) = (self.options.outputs.quiet, self.options.max_overhead);
        let duration = self.options.duration;
        let mut watched = Watched {
            progress: progress::Progress::new(quiet, duration),
            guarding: Guarding::new(limit, follower.alive(), quiet),
        };
        let outcome = follower
            .run(&mut self.session, duration, signals, &mut watched)
            .await?;
        watched.progress.finish();
        let reporting = Instant::now();
        let stop_ns = self.session.stop()?;
        // What is read from now on is in the kernel's tables and in ours.
        self.session.begin_detach()?;
        let took = watched.guarding.finish(&self.session, follower.alive())?;
        follower.drain(&mut self.session)?;
        let stream = follower.end(&mut self.session, stop_ns, outcome, took)?;
        let finished = stream.finish()?;
        let shown = show::table(&finished.report, &self.options.outputs);
        if finished.outputs.is_ok() {
            show::written(&self.options.outputs);
        }
        info!(
            "reported in {:.0?}; user memory at most {} KiB",
            reporting.elapsed(),
            peak_memory()
        );
        finished.outputs.and(shown).and(finished.recording)?;
        Ok(outcome)
    }
}

/// Peak of this process's resident memory in KiB.
fn peak_memory() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().trim_end_matches("kB").trim().parse().ok()
        })
        .unwrap_or(0)
}

/// Processes by name and PID; of a server with a process for each connection not all.
fn named(processes: &[(u32, String)]) -> String {
    let shown = processes.iter().take(MAX_NAMED);
    let mut words: Vec<String> = shown
        .map(|(pid, comm)| format!("{comm} (pid {pid})"))
        .collect();
    let more = processes.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}
