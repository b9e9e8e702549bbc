//! A shipper beside the agent, and an engine that is away for a while: the folder of rows in; whether the engine has all files
//! in the end out.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::scraped::metrics_at;
use reqtrace_tests::workspace;

use super::kept;
use super::report::Claim;

const LIMIT: Duration = Duration::from_secs(60);

/// A shipper, and an engine that is away for a sixth of the run.
pub(super) struct Shipping {
    engine: Engine,
    process: Child,
    address: String,
    is_away: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
}

impl Shipping {
    pub(super) fn start(dir: &Path, all: Duration) -> Result<Self> {
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let engine = Engine::start(move |_, _| match away.load(Ordering::Relaxed) {
            true => Reply::Refuse(503, "away"),
            false => Reply::Accept,
        })?;
        let folder = workspace::scratch()?;
        let config = folder.path().join("ship.toml");
        fs::write(
            &config,
            format!(
                "[ship]\ndir = \"{}\"\nstate = \"{}\"\nkeep = true\nevery = \"1s\"\nretry = {{ first = \"1s\", longest = \"5s\" }}\n\
                 [metrics]\nlisten = \"127.0.0.1:0\"\n[clickhouse]\nurl = \"{}\"\n",
                dir.display(),
                folder.path().join("state").display(),
                engine.url()
            ),
        )?;
        let config = config.display().to_string();
        let command = reqtrace_tests::reqtrace::command(["ship", "--config", &config])?;
        let mut process = Child::start(command, folder.path(), "ship")?;
        let line = process.wait_for_line(Stream::Err, "reqtrace ship: metrics", LIMIT)?;
        let (_, address) = line.split_once("http://").context(line.clone())?;
        let address = address.split('/').next().unwrap_or(address).to_owned();
        let away = Arc::clone(&is_away);
        thread::spawn(move || {
            thread::sleep(all / 3);
            away.store(true, Ordering::Relaxed);
            thread::sleep(all / 6);
            away.store(false, Ordering::Relaxed);
        });
        Ok(Self {
            engine,
            process,
            address,
            is_away,
            _folder: folder,
        })
    }

    /// Waits until it has all files.
    pub(super) fn claim(&mut self, dir: &Path) -> Result<Claim> {
        self.is_away.store(false, Ordering::Relaxed);
        let there = kept::files(dir)?;
        let wanted = there.len() as f64;
        let seen = until(2 * LIMIT, "the files to be shipped", || {
            let seen = metrics_at(&self.address)?;
            Ok((seen["reqtrace_ship_waiting_files"] == 0.0
                && seen["reqtrace_ship_files_total"] >= wanted)
                .then_some(seen))
        })
        .with_context(|| self.process.output(Stream::Err))?;
        let taken = self.engine.taken()?;
        let is_taken = |(name, path): &(&String, &PathBuf)| {
            taken
                .get(name.as_str())
                .is_some_and(|body| fs::read(path).is_ok_and(|file| file == *body))
        };
        let missing = there.iter().filter(|one| !is_taken(one)).count();
        let refused: f64 = seen
            .iter()
            .filter(|(name, _)| name.starts_with("reqtrace_ship_failures_total"))
            .map(|(_, value)| value)
            .sum();
        Ok(Claim::new(
            "an engine that is away for a sixth of the run has each file in the end",
            missing == 0 && refused > 0.0,
            format!(
                "{} files, {missing} missing or different; {refused} attempts failed",
                there.len()
            ),
        ))
    }
}
