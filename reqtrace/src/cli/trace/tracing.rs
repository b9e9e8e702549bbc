//! A trace that runs: probes that are attached in; events followed to the end, then the report and the
//! files, out.

use std::time::Instant;

use log::info;

use super::follow::{Follower, Outcome, Signals};
use super::guarding::{Guarding, Watched};
use super::{progress, targets};
use crate::attach::{Session, StackTable};
use crate::cli::args::TraceOptions;
use crate::decode::recording::Recorder;
use crate::error::Result;
use crate::profile::Profile;
use crate::report::outputs::UntilClosed;
use crate::report::table::TableExporter;
use crate::report::{Exporter, TraceInfo};

/// Processes named at the start before the rest is only counted.
const MAX_NAMED: usize = 3;

/// A trace with everything attached.
pub(super) struct Tracing {
    pub(super) options: TraceOptions,
    pub(super) profile: Profile,
    pub(super) session: Session,
    pub(super) exporters: Vec<Box<dyn Exporter>>,
    pub(super) trace: TraceInfo,
    pub(super) recorder: Option<Recorder>,
}

impl Tracing {
    /// Says what is traced.
    pub(super) fn announce(&self, is_started: bool) {
        if self.options.quiet {
            return;
        }
        let how_long = match self.options.duration {
            Some(duration) => format!("for {} s", duration.as_secs_f64()),
            None if is_started => "until it ends".to_owned(),
            None => "until Ctrl-C".to_owned(),
        };
        eprintln!(
            "tracing {} with {} {how_long}",
            named(&self.trace.processes),
            self.profile.name
        );
    }

    /// Follows until the end, then reports, and says how it ended; the probes are still in.
    pub(super) async fn follow(
        &mut self,
        mut follower: Follower<StackTable>,
        signals: &mut Signals,
        recording: Option<std::fs::File>,
    ) -> Result<Outcome> {
        let start_ns = self.session.start_ns();
        let (quiet, limit) = (self.options.quiet, self.options.max_overhead);
        let mut watched = Watched {
            progress: progress::Progress::new(quiet, self.options.duration),
            guarding: Guarding::new(limit, follower.alive(), quiet),
        };
        let outcome = follower
            .run(
                &mut self.session,
                &mut self.exporters,
                self.recorder.as_mut(),
                self.options.duration,
                signals,
                &mut watched,
            )
            .await?;
        watched.progress.finish();
        let reporting = Instant::now();
        let stop_ns = self.session.stop()?;
        let (overhead, shed) = watched.guarding.finish(&self.session, follower.alive())?;
        follower.drain(
            &mut self.session,
            &mut self.exporters,
            self.recorder.as_mut(),
        )?;
        self.trace.processes = follower.processes();
        let mut aggregator = follower.into_aggregator();
        let snapshot =
            self.session
                .snapshot(aggregator.sources().0, stop_ns, self.profile.requests.len())?;
        let mut trace = self.trace.clone();
        trace.start_unix_ns = unix(start_ns, trace.monotonic_to_unix_ns);
        trace.duration_ns = stop_ns.saturating_sub(start_ns);
        outcome.name().clone_into(&mut trace.ended_by);
        trace.overhead = Some(overhead);
        trace.shed = shed;
        trace.late_children = self.session.late_children();
        if let (Some(recorder), Some(file)) = (self.recorder.take(), recording) {
            let (stacks, symbols) = aggregator.sources();
            let text = targets::profile_text(&self.profile)?;
            let recording = recorder.finish(text, trace.clone(), &snapshot, stacks, symbols);
            targets::write(file, &recording.to_json()?)?;
        }
        let report = aggregator.finish(snapshot, &trace, &mut self.exporters)?;
        for exporter in &mut self.exporters {
            exporter.finish(&report)?;
        }
        self.print_table(&report)?;
        info!(
            "reported in {:.0?}; user memory at most {} KiB",
            reporting.elapsed(),
            peak_memory()
        );
        Ok(outcome)
    }

    /// The table goes to standard output, or to standard error when an output has taken that.
    fn print_table(&self, report: &crate::report::Report) -> Result<()> {
        let verbose = self.options.verbose > 0;
        if self.options.quiet {
            for warning in &report.warnings {
                eprintln!("reqtrace: warning: {warning}");
            }
            for loss in &report.losses {
                eprintln!("reqtrace: {} × {}: {}", loss.count, loss.name, loss.advice);
            }
            return Ok(());
        }
        let (out, columns): (Box<dyn std::io::Write>, _) = if self.options.takes_stdout() {
            let err = std::io::stderr();
            let columns = progress::columns(&err);
            (Box::new(err), columns)
        } else {
            let out = std::io::stdout();
            let columns = progress::columns(&out);
            (Box::new(out), columns)
        };
        TableExporter::new(Box::new(UntilClosed::new(out)), verbose, columns).finish(report)?;
        if let Some(out) = &self.options.out {
            eprintln!(
                "wrote {0}/summary.json, {0}/requests.csv, {0}/stacks.folded, {0}/flamegraph.svg",
                out.display()
            );
        }
        Ok(())
    }
}

fn unix(monotonic_ns: u64, offset: i64) -> u64 {
    monotonic_ns.saturating_add_signed(offset)
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
