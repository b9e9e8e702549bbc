//! The way from sessions to the worker, whose writer it is for: batches of records in; the same out, or counted where there is no
//! room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use reqtrace_analysis::classify::columns::Columns;
use serde::{Deserialize, Serialize};

use super::{Dropped, Record};
use crate::metrics::Metrics;

/// Bytes of records of a kind that wait for the writer, of all sessions together.
const MOST_WAITING: usize = 32 << 20;

/// What the records of a session have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Of {
    pub(crate) service: String,
    pub(crate) profile: String,
    pub(crate) kernel: String,
    pub(crate) columns: Columns,
    pub(crate) has_causes: bool,
    pub(crate) texts: bool,
    /// How many groups are distinguished; `None`: requests are in none.
    pub(crate) most_groups: Option<u32>,
}

/// Records of a session.
#[derive(Debug)]
pub(crate) struct Batch<R> {
    pub(crate) of: Arc<Of>,
    pub(crate) records: Vec<R>,
    /// The latency above which requests are slow.
    pub(crate) slow_ns: Option<u64>,
    /// What they take while they wait.
    pub(crate) room: Room,
}

/// Bytes of records that wait, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What the writer gets.
#[derive(Debug)]
pub(crate) enum Message<R> {
    Records(Batch<R>),
    /// The session of a service has ended.
    Ended(Arc<Of>),
    Stop,
}

/// Where sessions hand over records.
#[derive(Debug)]
pub(crate) struct Way<R> {
    to: Sender<Message<R>>,
    waiting: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

impl<R> Clone for Way<R> {
    fn clone(&self) -> Self {
        Self {
            to: self.to.clone(),
            waiting: Arc::clone(&self.waiting),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

impl<R: Record> Batch<R> {
    /// The time between the ends of the first and the last, ns.
    pub(super) fn span_ns(&self) -> u64 {
        let ends = || self.records.iter().map(R::end_unix_ns);
        let last = ends().max().unwrap_or(0);
        last - ends().min().unwrap_or(last)
    }
}

impl<R: Record> Way<R> {
    /// Begins. The writer takes from the other end.
    pub(crate) fn new(metrics: &Arc<Metrics>) -> (Self, Receiver<Message<R>>) {
        let (to, from) = mpsc::channel();
        let way = Self {
            to,
            waiting: Arc::default(),
            metrics: Arc::clone(metrics),
        };
        (way, from)
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Bytes of records that the writer has not taken.
    #[cfg(feature = "simulated")]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Never waits; `taken` is called with the records if there is room for them.
    pub(crate) fn offer(
        &self,
        of: &Arc<Of>,
        records: Vec<R>,
        slow_ns: Option<u64>,
        taken: impl FnOnce(&[R]),
    ) {
        let bytes = records.iter().map(R::bytes).sum();
        let mut batch = Batch {
            of: Arc::clone(of),
            records,
            slow_ns,
            room: Room::default(),
        };
        let (count, span_ns) = (batch.records.len() as u64, batch.span_ns());
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        batch.room = Room {
            all: Arc::clone(&self.waiting),
            bytes,
        };
        let has_room = before + bytes <= MOST_WAITING;
        if has_room {
            taken(&batch.records);
        }
        let is_taken = has_room && self.to.send(Message::Records(batch)).is_ok();
        if !is_taken {
            R::count(&self.metrics, |of| {
                of.dropped(Dropped::Queue, count, span_ns);
            });
        }
    }

    /// A session has ended.
    pub(crate) fn ended(&self, of: &Arc<Of>) {
        // When the writer has ended the agent ends.
        let _ = self.to.send(Message::Ended(Arc::clone(of)));
    }

    /// No more come, of no session.
    pub(crate) fn stop(&self) {
        // It may have ended by itself.
        let _ = self.to.send(Message::Stop);
    }
}
