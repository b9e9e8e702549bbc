//! `--perfetto`: requests and their intervals in as they come, packets of a Perfetto trace out, for
//! <https://ui.perfetto.dev> and all that reads its format.
//!
//! Each thread is a track, and each request with a key, which changes threads. A request is a slice of its thread; when it was blocked, waited for a CPU or was
//! preempted is a slice in it. An arrow goes from the thread that ended a wait to the one that waited.

mod packets;
mod wire;

use std::collections::HashMap;
use std::io::Write;

use self::packets::{Arrow, Shown, Track, group, number, text};
use self::wire::{DebugAnnotation, Trace, TracePacket};
use super::chunks::Chunks;
use super::chunks::Limits;
use prost::Message as _;
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::{
    Exporter, IntervalKind, IntervalRow, IntervalWaker, LossLine, Report, RequestRow,
};
use reqtrace_base::error::Result;

/// Threads whose tracks are known to be sent; beyond it all are sent again.
const MAX_TRACKS: usize = 1 << 16;

/// Writes a Perfetto trace.
pub struct PerfettoExporter {
    records: Chunks,
    has_begun: bool,
    /// Tracks that were sent, and whether with a name.
    sent: HashMap<Track, bool>,
    /// What `records` had lost when they were sent.
    unread: u64,
    /// What is in the request that comes next.
    inside: Vec<TracePacket>,
    /// Threads that it names: process, thread and name.
    others: Vec<(u32, u32, String)>,
    /// Ids of arrows so far.
    arrows: u64,
    /// Names of wait classes, places and attributes, in the order of every row.
    columns: Columns,
}

impl PerfettoExporter {
    /// `name` is what errors call the output, `columns` are those of the trace. It takes a chunk of records with each write, or refuses it with [`std::io::ErrorKind::WouldBlock`].
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, name: &str, columns: &Columns, limits: Limits) -> Self {
        Self {
            records: Chunks::new(out, name, limits),
            has_begun: false,
            sent: HashMap::new(),
            unread: 0,
            inside: Vec::new(),
            others: Vec::new(),
            arrows: 0,
            columns: columns.clone(),
        }
    }

    /// The clock comes before everything else.
    fn begin(&mut self, now_ns: u64) -> Result<()> {
        if self.has_begun {
            return Ok(());
        }
        self.has_begun = true;
        self.add(vec![packets::clock(now_ns)]);
        self.records.end_frame()
    }

    fn add(&mut self, packet: Vec<TracePacket>) {
        let trace = Trace { packet };
        self.records.bytes().extend(trace.encode_to_vec());
    }

    /// Sends that a thread has a track, unless that was sent.
    fn track(&mut self, pid: u32, tid: u32, comm: &str, packets: &mut Vec<TracePacket>) -> Track {
        let track = Track::thread(pid, tid);
        let has_name = !comm.is_empty();
        if self.sent.get(&track).is_none_or(|named| has_name && !named) {
            self.sent.insert(track, has_name);
            packets.push(packets::thread(pid, tid, comm));
        }
        track
    }

    /// What was sent may have been left out.
    fn say_again(&mut self) {
        let unread = self.records.unread();
        if self.sent.len() >= MAX_TRACKS || self.unread != unread {
            self.unread = unread;
            self.sent.clear();
        }
    }

    fn ledger(&self, row: &RequestRow<'_>) -> DebugAnnotation {
        let ledger = row.ledger;
        let classes = self.columns.classes.iter().zip(&ledger.classes);
        let classes = classes.map(|(name, ns)| (name.as_str(), *ns));
        let places: Vec<(String, u64)> = self.columns.places.times(ledger).collect();
        let places = places.iter().map(|(name, ns)| (name.as_str(), *ns));
        let fixed = [
            ("on CPU", ledger.on_cpu_ns),
            ("run queue", ledger.run_queue_ns),
            ("preempted", ledger.preempted_ns),
            ("unattributed", ledger.unattributed_ns),
        ];
        times("ledger_ns", fixed.into_iter().chain(classes).chain(places))
    }
}

/// Times that are not 0.
fn times<'a>(name: &str, all: impl Iterator<Item = (&'a str, u64)>) -> DebugAnnotation {
    let there = all.filter(|(_, ns)| *ns > 0);
    group(name, there.map(|(name, ns)| number(name, ns)).collect())
}

/// What a request that no thread ran waited in: `parked: upstream`.
fn words(what: &str, place: &str) -> String {
    match place {
        "" => what.to_owned(),
        place => format!("{what}: {place}"),
    }
}

/// The end of a wait, as the slices around it show it.
fn waker(row: &IntervalRow<'_>) -> Vec<DebugAnnotation> {
    let kind = match row.waker {
        None => return Vec::new(),
        Some(IntervalWaker::Unknown) => "unknown",
        Some(IntervalWaker::Interrupt(cause)) => cause.name(),
        Some(IntervalWaker::Thread { in_request, .. }) => match in_request {
            true => "request",
            false => "thread",
        },
    };
    let mut notes = vec![text("waker_kind", kind)];
    if let Some(IntervalWaker::Thread {
        pid,
        tid,
        request_id,
        ..
    }) = row.waker
    {
        notes.push(number("waker_pid", pid.into()));
        notes.push(number("waker_tid", tid.into()));
        if request_id > 0 {
            notes.push(number("waker_request_id", request_id));
        }
    }
    notes
}

/// Where a thread was blocked, and on what.
fn place(row: &IntervalRow<'_>) -> Vec<DebugAnnotation> {
    let mut notes = vec![number("request_id", row.request_id)];
    if !row.place.is_empty() {
        notes.push(text("place", row.place));
    }
    if row.futex != 0 {
        notes.push(text("futex", &format!("{:#x}", row.futex)));
    }
    if row.holder_tid != 0 {
        notes.push(number("holder_tid", row.holder_tid.into()));
    }
    if row.holder_request_id != 0 {
        notes.push(number("holder_request_id", row.holder_request_id));
    }
    notes
}

impl Exporter for PerfettoExporter {
    fn interval(&mut self, row: &IntervalRow<'_>) -> Result<()> {
        if !self.records.is_slow_enough(row.latency_ns) {
            return Ok(());
        }
        let own = match row.is_keyed {
            true => Track::request(row.request_id),
            false => Track::thread(row.pid, row.tid),
        };
        let Some(by) = row.waker else {
            let (category, name, ns) = match row.kind {
                IntervalKind::Queued => ("queued", words("queued", row.class), row.run_queue_ns),
                _ => ("preempted", "preempted".to_owned(), row.off_ns),
            };
            let shown = Shown {
                category,
                name,
                notes: vec![number("request_id", row.request_id)],
                arrow: None,
            };
            let slice = packets::slice(own, row.start_unix_ns, ns, shown);
            self.inside.extend(slice);
            return Ok(());
        };
        let woken_ns = row.start_unix_ns.saturating_add(row.off_ns);
        let mut notes = place(row);
        notes.extend(waker(row));
        if row.off_ns > 0 {
            let (category, name) = match (row.kind, row.class) {
                (IntervalKind::Parked, class) => ("parked", words("parked", class)),
                (_, "") => ("blocked", "unattributed".to_owned()),
                (_, class) => ("blocked", class.to_owned()),
            };
            let shown = Shown {
                category,
                name,
                notes: notes.clone(),
                arrow: None,
            };
            let slice = packets::slice(own, row.start_unix_ns, row.off_ns, shown);
            self.inside.extend(slice);
        }
        let mut arrow = None;
        if let IntervalWaker::Thread { pid, tid, .. } = by
            && (tid != row.tid || row.kind == IntervalKind::Parked)
        {
            self.others.push((pid, tid, row.waker_comm.to_owned()));
            self.arrows += 1;
            arrow = Some(Arrow::To(self.arrows));
            let shown = Shown {
                category: "wakeup",
                name: "wakes".to_owned(),
                notes: vec![
                    number("woken_tid", row.tid.into()),
                    number("woken_request_id", row.request_id),
                ],
                arrow: Some(Arrow::From(self.arrows)),
            };
            let from = Track::thread(pid, tid);
            self.inside.push(packets::moment(from, woken_ns, shown));
        }
        if row.run_queue_ns > 0 || arrow.is_some() {
            let shown = Shown {
                category: "run queue",
                name: "run queue".to_owned(),
                notes,
                arrow,
            };
            let slice = packets::slice(own, woken_ns, row.run_queue_ns, shown);
            self.inside.extend(slice);
        }
        Ok(())
    }

    fn wants_intervals(&self) -> bool {
        true
    }

    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        let inside = std::mem::take(&mut self.inside);
        let others = std::mem::take(&mut self.others);
        if !self.records.takes(row.ledger.latency_ns) {
            return Ok(());
        }
        self.begin(row.start_unix_ns)?;
        self.say_again();
        let mut packets = Vec::with_capacity(inside.len() + 3);
        let thread = self.track(row.pid, row.tid, row.comm, &mut packets);
        let track = match row.is_keyed {
            true => {
                packets.push(packets::request(row.pid, row.id, row.request));
                Track::request(row.id)
            }
            false => thread,
        };
        for (pid, tid, comm) in others {
            self.track(pid, tid, &comm, &mut packets);
        }
        let mut notes = vec![
            number("request_id", row.id),
            number("latency_ns", row.ledger.latency_ns),
            self.ledger(row),
        ];
        if !row.label.is_empty() {
            notes.push(text("label", row.label));
        }
        for (name, value) in self.columns.attributes.iter().zip(row.attributes) {
            if !value.is_empty() {
                notes.push(text(name, value));
            }
        }
        if let Some(causes) = &row.causes {
            let causes = Cause::ALL.map(|cause| (cause.words(), causes.get(cause)));
            if causes.iter().any(|(_, ns)| *ns > 0) {
                notes.push(times("root_causes_ns", causes.into_iter()));
            }
        }
        if let Some(incomplete) = row.incomplete {
            notes.push(text("incomplete", incomplete.reason()));
        }
        if row.weight > 1 {
            notes.push(number("weight", row.weight.into()));
        }
        let shown = Shown {
            category: "request",
            name: row.request.to_owned(),
            notes,
            arrow: None,
        };
        let [begin, end] = packets::slice(track, row.start_unix_ns, row.ledger.latency_ns, shown);
        packets.push(begin);
        packets.extend(inside);
        packets.push(end);
        self.add(packets);
        let ended_ns = row.start_unix_ns.saturating_add(row.ledger.latency_ns);
        self.records.end_record(ended_ns)
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn left_out(&self) -> Vec<LossLine> {
        self.records.left_out(
            [
                "perfetto_beyond_limit",
                "requests that are not in the file of --perfetto because of --max-rows or --max-bytes",
            ],
            [
                "perfetto_not_taken",
                "requests that are not in the file of --perfetto because its reader or its disk stood still",
            ],
        )
    }

    /// Names of processes are known at the end.
    fn finish(&mut self, report: &Report) -> Result<()> {
        self.begin(report.trace.start_unix_ns)?;
        self.records.hand_over()?;
        let processes = report.trace.processes.iter();
        self.add(
            processes
                .map(|(pid, comm)| packets::process(*pid, comm))
                .collect(),
        );
        self.records.end_frame()
    }
}
