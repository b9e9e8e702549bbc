//! Tasks that are no request: what a marker of a runtime takes that is hit by one.
//!
//! In: a tracer. Out: nanoseconds of a hit while the example `tasks` does jobs, none of which is of the profile's request
//! type.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::{tasks, workspace};
use tempfile::TempDir;

use super::{Cost, Runs, empty_beside};
use crate::cost::empty::EmptyPrograms;
use crate::cost::programs::Holdings;

/// Jobs of each kind.
const JOBS: u64 = 2_000;

/// A type of task that the example has and does not run here. No other one is so much like it that the linker makes one of both.
const PROFILE: &str = r#"[profile]
name = "unrelated"

[runtime]
kind = "tokio"

[[request]]
name = "rare"
unit = "*http::connection*"
"#;

/// What is measured.
pub(super) struct Units {
    profile: PathBuf,
    _folder: TempDir,
    _empty: EmptyPrograms,
}

impl Units {
    pub(super) fn new() -> Result<Self> {
        let folder = workspace::scratch()?;
        let profile = folder.path().join("unrelated.toml");
        std::fs::write(&profile, PROFILE)?;
        let running = tasks::start("multi", JOBS)?;
        Ok(Self {
            _empty: empty_beside(b"empty_unit\0", &profile, running.pid(), "")?,
            profile,
            _folder: folder,
        })
    }

    /// What a hit takes, beside the empty program.
    pub(super) fn turn(&self, program: &Path, options: &[&str]) -> Result<Cost> {
        let mut running = tasks::start("multi", JOBS)?;
        let trace = Trace::start_by(program, &self.profile, running.pid(), options)?;
        let own = std::process::id();
        let before = [Holdings::of(trace.pid())?, Holdings::of(own)?];
        running.carry_out()?;
        let [ours, empty] = [Holdings::of(trace.pid())?, Holdings::of(own)?];
        let cost = Cost {
            ours: Runs::of(&ours.since(&before[0]).programs(1)?, "marker"),
            empty: Runs::of(&empty.since(&before[1]).programs(1)?, "empty_unit"),
        };
        let outcome = trace.finish()?;
        ensure!(outcome.code == Some(0), "{}", outcome.printed());
        ensure!(cost.ours.count > 0, "no marker was hit");
        Ok(cost)
    }
}
