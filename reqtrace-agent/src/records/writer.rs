//! The writer: batches of records in; files in the spool, handed over when they are old or large enough, out. It has a thread
//! of its own: a disk that stands still holds up nobody else. Records are in the [journal](super::journal) of their file before
//! they are in the file.

mod again;
mod open;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::{debug, info, warn};
use reqtrace_base::error::{Error, Result};

use self::open::Open;
use super::journal::{Head, Journal};
use super::{Batch, Dropped, Message, Of, Record, Table};
use crate::config::Rows;
use crate::ids::Machine;
use crate::metrics::Metrics;
use crate::spool::Spool;
use crate::spool::paths::hour;

/// How often it looks for files that are old enough, and for room.
const LOOK: Duration = Duration::from_secs(1);
/// How often it looks which files readers have taken.
const LOOK_AT_ALL: Duration = Duration::from_secs(30);
/// After a file could not be written.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer<R> {
    thread: JoinHandle<()>,
    of: PhantomData<fn(R)>,
}

struct Thread<R: Record> {
    config: Rows,
    spool: Spool,
    metrics: Arc<Metrics>,
    /// By service.
    open: BTreeMap<String, Open<R>>,
    /// Nothing is tried before.
    not_before: Option<Instant>,
    /// A line in the log for the first failure of several.
    has_failed: bool,
    /// Files of an agent that was killed.
    left: Vec<String>,
}

impl<R: Record> Writer<R> {
    /// Begins with these folders, and files that are named by this machine; records come from there.
    ///
    /// # Errors
    ///
    /// What is wrong with the folders.
    pub(crate) fn start(
        config: &Rows,
        machine: &Machine,
        metrics: &Arc<Metrics>,
        from: Receiver<Message<R>>,
    ) -> Result<Self> {
        let (spool, half_made) = Spool::open(R::KIND, config.folders(), machine)?;
        if half_made > 0 {
            warn!(
                "{}: half-made files of an agent that was killed were removed: {half_made}",
                R::KIND.start
            );
        }
        R::count(metrics, |of| {
            of.half_made += half_made;
            of.kept_bytes = spool.kept_bytes();
        });
        let left = spool.journals().map_err(|error| {
            Error::failed("[rows]: the journals of the spool cannot be read").because(error)
        })?;
        let (config, metrics) = (config.clone(), Arc::clone(metrics));
        let thread = Builder::new()
            .name(format!("reqtrace-{}", R::KIND.start))
            .spawn(move || {
                let mut thread = Thread::<R> {
                    config,
                    spool,
                    metrics,
                    open: BTreeMap::new(),
                    not_before: None,
                    has_failed: false,
                    left,
                };
                thread.run(&from);
            })
            .map_err(|error| {
                let what = format!("the writer of {} could not begin", R::KIND.start);
                Error::failed(what).because(error)
            })?;
        Ok(Self {
            thread,
            of: PhantomData,
        })
    }

    /// Waits until all that has come before the stop is handed over.
    pub(crate) fn wait(self) {
        if self.thread.join().is_err() {
            warn!(
                "the writer of {} panicked: please report this as a bug",
                R::KIND.start
            );
        }
    }
}

impl<R: Record> Thread<R> {
    fn run(&mut self, from: &Receiver<Message<R>>) {
        self.make_again();
        let (mut looked, mut looked_at_all) = (Instant::now(), Instant::now());
        loop {
            let wait = LOOK.saturating_sub(looked.elapsed());
            match from.recv_timeout(wait) {
                Ok(Message::Records(batch)) => self.records(&batch),
                Ok(Message::Ended(of)) => {
                    let is_own = self.open.get(&of.service);
                    if is_own.is_some_and(|open| Arc::ptr_eq(&open.of, &of)) {
                        self.close(&of.service);
                    }
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if looked_at_all.elapsed() >= LOOK_AT_ALL {
                looked_at_all = Instant::now();
                self.spool.look();
                self.make_again();
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look();
            }
        }
        self.close_all(|_| true);
        self.figures();
    }

    /// Closes files that are old enough, and makes room.
    fn look(&mut self) {
        let every = self.config.every + R::PATIENCE;
        self.close_all(|open| open.since.elapsed() >= every);
        if !self.open.is_empty() && !self.make_room(0) {
            // They go while there is as much room as there was for them.
            self.close_all(|_| true);
        }
        self.sync();
        self.figures();
    }

    /// Lets all records so far outlast a crash of the machine.
    fn sync(&mut self) {
        let synced = self.open.iter_mut().filter_map(|(service, open)| {
            let failed = open.journal.sync().err()?;
            Some((service.clone(), failed))
        });
        let failed: Vec<_> = synced.collect();
        for (service, error) in failed {
            self.fail(&service, &journal_failed(error));
        }
    }

    /// A journal that is of no use, and what there is of its file.
    fn forget(&self, name: &str) {
        self.spool.abandon(name);
        let _ = std::fs::remove_file(self.spool.journal(name));
    }

    fn figures(&self) {
        let (spool_bytes, kept_bytes) = (self.open_bytes(), self.spool.kept_bytes());
        R::count(&self.metrics, |of| {
            (of.spool_bytes, of.kept_bytes) = (spool_bytes, kept_bytes);
        });
    }

    fn open_bytes(&self) -> u64 {
        let bytes = |open: &Open<R>| open.table.size() + open.journal.bytes();
        self.open.values().map(bytes).sum()
    }

    fn close_all(&mut self, which: impl Fn(&Open<R>) -> bool) {
        let those = self.open.iter().filter(|(_, open)| which(open));
        let those: Vec<String> = those.map(|(service, _)| service.clone()).collect();
        those.iter().for_each(|service| self.close(service));
    }

    /// Whether there is room for files that are being made and so many bytes more; the oldest files went for it.
    fn make_room(&mut self, more: u64) -> bool {
        let (has_room, gone) = self.spool.make_room(self.open_bytes() + more);
        if !gone.is_empty() {
            info!(
                "{}: the oldest files were removed to make room: {}",
                R::KIND.start,
                gone.len()
            );
        }
        for gone in gone {
            R::count(&self.metrics, |of| {
                of.dropped(Dropped::Oldest, gone.count, gone.span_ns);
            });
        }
        has_room
    }

    fn records(&mut self, batch: &Batch<R>) {
        let dropped = self.write(batch);
        if dropped > 0 {
            let span_ns = batch.span_ns();
            R::count(&self.metrics, |of| {
                of.dropped(Dropped::Disk, dropped, span_ns);
            });
        }
    }

    /// Writes a batch; how many of its records there was no file for. What was in a file that fails is counted with that.
    fn write(&mut self, batch: &Batch<R>) -> u64 {
        let service = &batch.of.service;
        // All files have room in `max` together, and one more.
        let share = self.config.max / (self.open.len() as u64 + 1).max(2);
        let most = self.config.bytes.min(share);
        let mut dropped = 0;
        // Of those that are not in the journal.
        let mut first = 0;
        for (at, record) in batch.records.iter().enumerate() {
            let is_over = |open: &Open<R>| {
                !Arc::ptr_eq(&open.of, &batch.of)
                    || open.slow_ns != batch.slow_ns
                    || open.is_over(record, self.config.every)
                    || open.table.size() >= most
            };
            if self.open.get(service).is_some_and(is_over) {
                self.note(service, batch.records.get(first..at));
                self.close(service);
                first = at;
            }
            if !self.open.contains_key(service) {
                first = at;
                if !self.begin(batch, record, most) {
                    dropped += 1;
                    continue;
                }
            }
            let Some(open) = self.open.get_mut(service) else {
                continue;
            };
            if let Err(error) = open.add(record, &self.spool.host) {
                self.fail(service, &error);
            }
        }
        self.note(service, batch.records.get(first..));
        dropped
    }

    /// Notes records that a file has got in its journal. If that fails the file may still be handed over.
    fn note(&mut self, service: &str, records: Option<&[R]>) {
        let Some((open, records)) = self.open.get_mut(service).zip(records) else {
            return;
        };
        if !records.is_empty() && open.journal.add(records).is_err() {
            self.close(service);
        }
    }

    /// Begins a file with this record, if there is room for one of `most` bytes.
    fn begin(&mut self, batch: &Batch<R>, record: &R, most: u64) -> bool {
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            return false;
        }
        self.not_before = None;
        if !self.make_room(most) {
            self.pause(&"no room: less than keep-free is free, or files are above max");
            return false;
        }
        let of = &batch.of;
        let head = Head {
            of: Of::clone(of),
            slow_ns: batch.slow_ns,
            one_in: self.config.one_in,
            hour: hour(record.end_unix_ns()),
        };
        let begun = self.spool.begin("").and_then(|(name, file)| {
            let begun = Journal::begin(self.spool.journal(&name), &head)
                .and_then(|journal| Open::begin(head, &name, file, journal, record));
            begun.inspect_err(|_| self.forget(&name))
        });
        let mut open = match begun {
            Ok(begun) => begun,
            Err(error) => {
                self.pause(&error);
                return false;
            }
        };
        // Of the same session, by which files are distinguished.
        open.of = Arc::clone(of);
        self.open.insert(of.service.clone(), open);
        true
    }

    fn pause(&mut self, why: &dyn std::fmt::Display) {
        self.not_before = Some(Instant::now() + PAUSE);
        if !std::mem::replace(&mut self.has_failed, true) {
            let kind = R::KIND.start;
            warn!("{kind} are dropped, and counted in reqtrace_{kind}_dropped_total: {why}");
        }
    }

    /// Hands a file over.
    fn close(&mut self, service: &str) {
        if let Some(open) = self.open.remove(service) {
            self.close_it(service, open);
        }
    }

    fn close_it(&mut self, service: &str, mut open: Open<R>) {
        match self.hand_over(service, &mut open) {
            Ok(bytes) => {
                open.journal.remove();
                if std::mem::take(&mut self.has_failed) {
                    info!("{} are written again", R::KIND.start);
                }
                debug!(
                    "{service}: {} has {} {}, {bytes} bytes",
                    open.name,
                    open.table.rows(),
                    R::KIND.start
                );
                R::count(&self.metrics, |of| {
                    of.written += open.table.rows();
                    of.files += 1;
                    of.bytes += bytes;
                });
            }
            Err(error) => self.fail_it(service, open, &error),
        }
    }

    fn hand_over(&mut self, service: &str, open: &mut Open<R>) -> Result<u64> {
        open.table.finish(&self.spool.host, open.last_end_ns)?;
        let synced = open.file.sync_all();
        let whole = synced.and_then(|()| open.journal.note_whole());
        let handed = whole.and_then(|()| {
            self.spool
                .hand_over(&open.name, &open.file, service, open.hour)
        });
        handed.map_err(|error| {
            Error::failed(format!("{} could not be handed over", open.name)).because(error)
        })
    }

    /// Nothing becomes of a file, and its records are lost.
    fn fail(&mut self, service: &str, error: &Error) {
        if let Some(open) = self.open.remove(service) {
            self.fail_it(service, open, error);
        }
    }

    fn fail_it(&mut self, service: &str, open: Open<R>, error: &Error) {
        self.forget(&open.name);
        let because = std::error::Error::source(error)
            .map_or_else(String::new, |cause| format!(", because {cause}"));
        self.pause(&format_args!("{service}: {error}{because}"));
        let span_ns = open.last_end_ns - open.first_end_ns;
        R::count(&self.metrics, |of| {
            of.dropped(Dropped::Disk, open.table.rows(), span_ns);
        });
    }
}

fn journal_failed(error: std::io::Error) -> Error {
    Error::failed("a journal could not be written").because(error)
}
