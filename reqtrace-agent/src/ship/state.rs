//! What the shipper remembers: files that were sent or refused in; whether one was sent before, also after `kill -9`, out.
//!
//! ```text
//! STATE/lock               one shipper has the folder
//! STATE/sent               names of files that were sent and are still in the agent's folder, a line each
//! STATE/refused/NAME       a file that was refused for ever, and NAME.why, the answer
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use reqtrace_base::error::{Error, Result};

use super::config::Config;
use crate::spool::lock_it;
use crate::spool::paths::{file, make, sync};

const SENT: &str = "sent";
/// Lines of files that have gone, before the list is written again.
const MOST_OLD: usize = 1_000;
const PARQUET: &str = "parquet";

/// The folder of this shipper.
#[derive(Debug)]
pub(super) struct State {
    dir: PathBuf,
    /// Held as long as the shipper lives.
    _lock: File,
    sent: BTreeSet<String>,
    list: File,
    refused_max: u64,
}

impl State {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    ///
    /// Usage errors: it cannot be written, or another shipper has it.
    pub(super) fn open(config: &Config) -> Result<Self> {
        let dir = &config.state;
        let cannot = |error: io::Error| {
            Error::usage(format!(
                "the shipper's state {} cannot be written",
                dir.display()
            ))
            .because(error)
            .next(
                "give a folder that this user may write: [ship] state = \"/var/lib/reqtrace-ship\"",
            )
        };
        make(&dir.join("refused")).map_err(cannot)?;
        let lock = file(&dir.join("lock"), false).map_err(cannot)?;
        lock_it(&lock).map_err(|error| {
            Error::usage(format!("another shipper has the state {}", dir.display()))
                .because(error)
                .next("end it, or give each a state of its own")
        })?;
        let sent = sent(dir).map_err(cannot)?;
        let list = written(dir, &sent).map_err(cannot)?;
        Ok(Self {
            dir: dir.clone(),
            _lock: lock,
            sent,
            list,
            refused_max: config.refused_max,
        })
    }

    /// Whether this file was sent, or refused for ever.
    pub(super) fn is_sent(&self, name: &str) -> bool {
        self.sent.contains(name)
    }

    /// It was: on disk, when this returns.
    pub(super) fn remember(&mut self, name: &str) -> io::Result<()> {
        writeln!(self.list, "{name}")?;
        self.list.sync_data()?;
        self.sent.insert(name.to_owned());
        Ok(())
    }

    /// These are in the agent's folder: others need not be remembered, for no name is used twice.
    pub(super) fn forget_all_but(&mut self, there: &BTreeSet<&str>) -> io::Result<()> {
        let old = self
            .sent
            .iter()
            .filter(|name| !there.contains(name.as_str()));
        if old.count() <= MOST_OLD {
            return Ok(());
        }
        let mut sent = self.sent.clone();
        sent.retain(|name| there.contains(name.as_str()));
        self.list = written(&self.dir, &sent)?;
        self.sent = sent;
        Ok(())
    }

    /// Keeps a file that was refused, and why; the oldest go when they are too many. How many went.
    pub(super) fn set_aside(&self, from: &mut File, name: &str, why: &str) -> io::Result<u64> {
        let folder = self.dir.join("refused");
        let part = folder.join("part");
        let mut to = file(&part, true)?;
        from.rewind()?;
        io::copy(from, &mut to)?;
        to.sync_all()?;
        let mut reason = file(&folder.join(format!("{name}.why")), true)?;
        writeln!(reason, "{why}")?;
        reason.sync_all()?;
        fs::rename(&part, folder.join(name))?;
        sync(&folder)?;
        self.bound(&folder)
    }

    fn bound(&self, folder: &Path) -> io::Result<u64> {
        let mut all = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|end| end == PARQUET) {
                let metadata = entry.metadata()?;
                all.push((metadata.modified()?, path, metadata.len()));
            }
        }
        all.sort();
        let mut bytes: u64 = all.iter().map(|(.., bytes)| bytes).sum();
        let mut gone = 0;
        for (_, path, of_file) in all {
            if bytes <= self.refused_max {
                break;
            }
            fs::remove_file(&path)?;
            // Without its file it is of no use.
            let _ = fs::remove_file(path.with_extension("parquet.why"));
            bytes -= of_file;
            gone += 1;
        }
        Ok(gone)
    }
}

/// Names of the files that a shipper with this state has sent, and that need not be sent again.
///
/// # Errors
///
/// When the list is there and cannot be read.
pub(super) fn sent(dir: &Path) -> io::Result<BTreeSet<String>> {
    let text = match fs::read(dir.join(SENT)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    // A line without its end is of a shipper that was killed: that file is sent again.
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let whole = lines.filter_map(|line| std::str::from_utf8(line).ok()?.strip_suffix('\n'));
    Ok(whole.map(str::to_owned).collect())
}

/// Writes the list, whole or not at all, and gives it open behind its last line.
fn written(dir: &Path, sent: &BTreeSet<String>) -> io::Result<File> {
    let new = dir.join("sent.new");
    let mut to = file(&new, true)?;
    let lines: String = sent.iter().map(|name| format!("{name}\n")).collect();
    to.write_all(lines.as_bytes())?;
    to.sync_all()?;
    fs::rename(&new, dir.join(SENT))?;
    sync(dir)?;
    Ok(to)
}
