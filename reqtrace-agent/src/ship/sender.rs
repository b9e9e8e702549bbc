//! The sender: the files of the folders in, one after the other; each accepted, tried again, or set aside, out.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{ErrorKind, Seek as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use log::{debug, info, warn};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::say;
use reqtrace_output::parquet::{FileColumn, ParquetFile, RollupsFile};
use ureq::Agent;

use super::Stop;
use super::config::{Config, Target};
use super::figures::Figures;
use super::folder::{Found, Queue, What, found};
use super::state::{State, sent};
use super::{clickhouse, s3};
use crate::http::{Failure, Outcome, client};

/// Sends files.
pub(super) struct Sender {
    config: Config,
    state: State,
    client: Agent,
    queue: Queue,
    figures: Arc<Figures>,
    /// A line in the log for the first failure of several.
    has_failed: bool,
}

/// What a file turned out to be when it was opened.
enum Opened {
    Whole(File, u64, Vec<FileColumn>),
    /// The agent has removed it.
    Gone,
    /// It has not what it is called by.
    Other(File, String),
    /// For now.
    Unreadable(std::io::Error),
}

impl Sender {
    /// Opens the state.
    ///
    /// # Errors
    ///
    /// Usage errors: the state cannot be written, or a secret or certificate not be read.
    pub(super) fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            client: to(config)?,
            state: State::open(config)?,
            config: config.clone(),
            queue: Queue::default(),
            figures: Arc::default(),
            has_failed: false,
        })
    }

    pub(super) fn figures(&self) -> Arc<Figures> {
        Arc::clone(&self.figures)
    }

    /// Sends until it is to end.
    pub(super) fn run(&mut self, stop: &Stop) {
        let mut wait = Duration::ZERO;
        while !stop.wait(wait) {
            if let Err(error) = self.look() {
                self.figures.change(|counts| counts.failed(Failure::File));
                self.warn_once(&error);
            }
            let looked = Instant::now();
            while looked.elapsed() < self.config.every
                && let Some(file) = self.queue.next(Instant::now())
            {
                self.send(&file);
                if stop.wait(Duration::ZERO) {
                    return;
                }
            }
            let next = self.queue.wait(Instant::now()).unwrap_or(self.config.every);
            wait = next.min(self.config.every.saturating_sub(looked.elapsed()));
        }
    }

    /// Sends each file that is there once.
    ///
    /// # Errors
    ///
    /// When one could not be sent.
    pub(super) fn once(mut self) -> Result<()> {
        self.look()?;
        let mut failed = 0;
        for file in waiting(&self.config, |name| self.state.is_sent(name))? {
            failed += u64::from(!self.send(&file));
        }
        let (files, rows, refused) = self
            .figures
            .change(|counts| (counts.files, counts.rows, counts.refused));
        say!(
            "reqtrace ship: sent {files} files with {rows} rows; refused: {refused}; failed: {failed}"
        );
        match failed {
            0 => Ok(()),
            failed => Err(
                Error::failed(format!("{failed} files could not be sent, and stay")).next(
                    "see the lines above; `reqtrace ship` without --once tries again by itself",
                ),
            ),
        }
    }

    /// Looks which files are there.
    fn look(&mut self) -> Result<()> {
        let all = all(&self.config).map_err(|(dir, error)| {
            Error::failed(format!("the folder {} cannot be read", dir.display())).because(error)
        })?;
        let there: BTreeSet<&str> = all.iter().map(|file| file.name.as_str()).collect();
        if let Err(error) = self.state.forget_all_but(&there) {
            self.warn_once(&error);
        }
        let (sent, new): (Vec<Found>, Vec<Found>) = all
            .into_iter()
            .partition(|file| self.state.is_sent(&file.name));
        if !self.config.keep {
            // They could not be taken away when they were sent.
            for file in sent {
                let _ = fs::remove_file(&file.path);
            }
        }
        self.queue.look(new.into_iter());
        self.show();
        Ok(())
    }

    fn show(&self) {
        let (files, bytes, oldest) = self.queue.figures();
        self.figures.change(|counts| {
            (counts.waiting, counts.waiting_bytes, counts.oldest) = (files, bytes, oldest);
        });
    }

    /// Sends a file; whether nothing is left to be done with it.
    fn send(&mut self, found: &Found) -> bool {
        let name = &found.name;
        let (mut file, rows, columns) = match open(found) {
            Opened::Whole(file, rows, columns) => (file, rows, columns),
            Opened::Gone => {
                debug!("{name} has gone: the agent has removed it");
                self.figures.change(|counts| counts.gone += 1);
                self.queue.done(name, false);
                self.show();
                return true;
            }
            Opened::Other(mut file, why) => return self.refused(found, &mut file, &why),
            Opened::Unreadable(error) => {
                return self.failed(found, None, Failure::File, &error.to_string());
            }
        };
        let outcome = match &self.config.to {
            Target::ClickHouse(to) => clickhouse::send(to, &self.client, &file, found, &columns),
            Target::S3(to) => s3::send(to, &self.client, &file, found),
        };
        match outcome {
            Outcome::Accepted => {
                self.figures.change(|counts| {
                    counts.files += 1;
                    counts.rows += rows;
                    counts.bytes += found.bytes;
                    counts.accepted_at = Some(SystemTime::now());
                });
                debug!("{name} was accepted: {rows} rows, {} bytes", found.bytes);
                if std::mem::take(&mut self.has_failed) {
                    info!("files are sent again");
                }
                self.let_go(found, true)
            }
            Outcome::Refused(why) => self.refused(found, &mut file, &why),
            Outcome::Failed(cause, why) => self.failed(found, Some(&mut file), cause, &why),
        }
    }

    /// It is to be sent no more: it leaves the folder, or is remembered.
    fn let_go(&mut self, found: &Found, is_accepted: bool) -> bool {
        let name = &found.name;
        let mut is_known = false;
        if !self.config.keep {
            match fs::remove_file(&found.path) {
                Ok(()) => is_known = true,
                // The agent was faster.
                Err(error) if error.kind() == ErrorKind::NotFound => is_known = true,
                Err(error) => {
                    self.figures.change(|counts| counts.failed(Failure::File));
                    let folder = found.path.parent().unwrap_or(&found.path).display();
                    self.warn_once(&format_args!(
                        "{name} was sent and cannot be removed: {error}; let the shipper's group write {folder}, or set keep = true"
                    ));
                }
            }
        }
        if !is_known && let Err(error) = self.state.remember(name) {
            self.figures.change(|counts| counts.failed(Failure::File));
            self.warn_once(&format_args!(
                "{name} was sent, and is sent again: the state cannot be written: {error}"
            ));
        }
        self.queue.done(name, is_accepted);
        self.show();
        true
    }

    /// Sets it aside.
    fn refused(&mut self, found: &Found, file: &mut File, why: &str) -> bool {
        let name = &found.name;
        self.figures
            .change(|counts| counts.failed(Failure::Refused));
        match self.state.set_aside(file, name, why) {
            Ok(removed) => {
                self.figures.change(|counts| {
                    counts.refused += 1;
                    counts.refused_removed += removed;
                });
                let folder = self.config.state.join("refused");
                warn!(
                    "{name} was refused, and is in {} now: {why}",
                    folder.display()
                );
                self.let_go(found, false)
            }
            Err(error) => self.failed(
                found,
                None,
                Failure::File,
                &format!("it was refused, and cannot be set aside: {error}"),
            ),
        }
    }

    /// It is tried again later, if others are not accepted while it fails.
    fn failed(
        &mut self,
        found: &Found,
        file: Option<&mut File>,
        cause: Failure,
        why: &str,
    ) -> bool {
        let name = &found.name;
        self.figures.change(|counts| counts.failed(cause));
        self.warn_once(&format_args!(
            "{name} could not be sent, and is tried again: {}: {why}",
            cause.name()
        ));
        debug!("{name}: {}: {why}", cause.name());
        let draw = RandomState::new().hash_one(name) as f64 / u64::MAX as f64;
        let is_given_up = self
            .queue
            .failed(name, self.config.retry, Instant::now(), draw);
        match file.filter(|_| is_given_up) {
            Some(file) => self.refused(
                found,
                file,
                &format!("it failed each time, while others were accepted: {why}"),
            ),
            None => false,
        }
    }

    fn warn_once(&mut self, what: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.has_failed, true) {
            warn!("{what}");
        }
    }
}

/// Who sends, if secrets and certificates can be read.
fn to(config: &Config) -> Result<Agent> {
    let ca = match &config.to {
        Target::ClickHouse(to) => {
            clickhouse::check(to)?;
            to.ca.as_deref()
        }
        Target::S3(to) => {
            s3::check(to)?;
            to.ca.as_deref()
        }
    };
    client(config.timeout, ca)
}

/// Says what would be sent, also while another shipper does it.
///
/// # Errors
///
/// Usage errors: what cannot be read.
pub(super) fn check(config: &Config) -> Result<()> {
    to(config)?;
    let sent = sent(&config.state).map_err(|error| {
        Error::usage(format!(
            "the shipper's state {} cannot be read",
            config.state.display()
        ))
        .because(error)
        .next("check as root, or as the shipper's user")
    })?;
    let all = waiting(config, |name| sent.contains(name))?;
    let bytes: u64 = all.iter().map(|file| file.bytes).sum();
    say!("reqtrace ship: {} files wait, {bytes} bytes", all.len());
    let unreadable = |file: &Found| Some((file.path.clone(), File::open(&file.path).err()?));
    match all.iter().find_map(unreadable) {
        Some((path, error)) => Err(Error::usage(format!("{} cannot be read", path.display()))
            .because(error)
            .next("run the shipper as a user of the group that the files have")),
        None => Ok(()),
    }
}

/// Files of both folders; of one that cannot be read, which.
fn all(config: &Config) -> Result<Vec<Found>, (&Path, std::io::Error)> {
    let dir = config.dir.as_path();
    let mut all = found(dir, What::Rows).map_err(|error| (dir, error))?;
    if let Some(dir) = config.rollups.as_deref() {
        all.extend(found(dir, What::Rollups).map_err(|error| (dir, error))?);
        all.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    }
    Ok(all)
}

/// Files that were not sent.
fn waiting(config: &Config, is_sent: impl Fn(&str) -> bool) -> Result<Vec<Found>> {
    let mut all = all(config).map_err(|(dir, error)| {
        Error::usage(format!(
            "[ship]: the folder {} cannot be read",
            dir.display()
        ))
        .because(error)
        .next("give the agent's [rows] dir, and the dir of its rollups, and run the shipper as a user of its group")
    })?;
    all.retain(|file| !is_sent(&file.name));
    Ok(all)
}

/// Opens a file, to be read from its begin.
fn open(found: &Found) -> Opened {
    let opened = File::open(&found.path).and_then(|file| Ok((file.try_clone()?, file)));
    let (copy, mut file) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Opened::Gone,
        Err(error) => return Opened::Unreadable(error),
    };
    let name = &found.name;
    let whole = match found.what {
        What::Rows => ParquetFile::of(copy, name).map(|file| (file.rows(), file.columns())),
        What::Rollups => RollupsFile::of(&copy, name).map(|file| (file.rows(), file.columns())),
    };
    // Both have one position.
    if let Err(error) = file.rewind() {
        return Opened::Unreadable(error);
    }
    match whole {
        Ok((rows, columns)) => Opened::Whole(file, rows, columns),
        Err(error) => Opened::Other(file, error.to_string()),
    }
}
