//! `intervals.csv`: when requests were off the CPU, and who ended that, one line each.

use std::io::Write;

use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};

use super::tray::Tray;
use crate::chunks::Limits;
use reqtrace_analysis::report::{
    Exporter, IntervalKind, IntervalRow, IntervalWaker, LossLine, Report,
};
use reqtrace_base::error::Result;

/// The columns.
const COLUMNS: [&str; 19] = [
    "request_id",
    "request",
    "pid",
    "tid",
    "kind",
    "class",
    "start_unix_ns",
    "off_ns",
    "run_queue_ns",
    "waker_kind",
    "waker_pid",
    "waker_tid",
    "waker_request_id",
    "futex",
    "holder_tid",
    "holder_request_id",
    "user_stack_id",
    "kernel_stack_id",
    "place",
];

/// Writes `intervals.csv`.
pub struct IntervalsExporter {
    rows: Tray,
    has_header: bool,
}

impl IntervalsExporter {
    /// `name` is what errors call the output. It takes a chunk of rows with each write, or refuses it
    /// with [`std::io::ErrorKind::WouldBlock`].
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, name: &str, limits: Limits) -> Self {
        Self {
            rows: Tray::new(out, name, limits),
            has_header: false,
        }
    }

    /// The header comes before the first row: a trace that comes to nothing writes nothing.
    fn begin(&mut self) -> Result<()> {
        if self.has_header {
            return Ok(());
        }
        self.has_header = true;
        self.rows.header(COLUMNS)
    }

    /// A number, or nothing for 0: it is not known, or there is none.
    fn known(&mut self, number: u64) {
        if number == 0 {
            self.rows.text("");
        } else {
            self.rows.number(number);
        }
    }

    fn hexadecimal(&mut self, number: u64) {
        if number == 0 {
            self.rows.text("");
        } else {
            self.rows.text(&format!("{number:#x}"));
        }
    }

    /// The id of a stack; nothing where there is none.
    fn stack(&mut self, id: StackId) {
        match id {
            STACK_NONE | STACK_LOST => self.rows.text(""),
            id => self.hexadecimal(id),
        }
    }

    fn waker(&mut self, waker: Option<IntervalWaker>) {
        let (kind, numbers) = match waker {
            None => ("", [0; 3]),
            Some(IntervalWaker::Unknown) => ("unknown", [0; 3]),
            Some(IntervalWaker::Interrupt(cause)) => (cause.name(), [0; 3]),
            Some(IntervalWaker::Thread {
                pid,
                tid,
                in_request,
                request_id,
            }) => (
                if in_request { "request" } else { "thread" },
                [pid.into(), tid.into(), request_id],
            ),
        };
        self.rows.text(kind);
        numbers.into_iter().for_each(|number| self.known(number));
    }
}

impl Exporter for IntervalsExporter {
    fn interval(&mut self, row: &IntervalRow<'_>) -> Result<()> {
        if !self.rows.takes(row.latency_ns) {
            return Ok(());
        }
        self.begin()?;
        self.rows.number(row.request_id);
        self.rows.text(row.request);
        self.rows.number(row.pid.into());
        self.rows.number(row.tid.into());
        let kind = match row.kind {
            IntervalKind::Blocked => "blocked",
            IntervalKind::Preempted => "preempted",
            IntervalKind::Parked => "parked",
            IntervalKind::Queued => "queued",
        };
        self.rows.text(kind);
        self.rows.text(row.class);
        self.rows.number(row.start_unix_ns);
        self.rows.number(row.off_ns);
        self.rows.number(row.run_queue_ns);
        self.waker(row.waker);
        self.hexadecimal(row.futex);
        self.known(row.holder_tid.into());
        self.known(row.holder_request_id);
        self.stack(row.user_stack);
        self.stack(row.kernel_stack);
        self.rows.text(row.place);
        self.rows.end(row.start_unix_ns.saturating_add(row.off_ns))
    }

    fn wants_intervals(&self) -> bool {
        true
    }

    fn left_out(&self) -> Vec<LossLine> {
        self.rows.left_out(
            [
                "intervals_beyond_limit",
                "intervals that are not in the file of --intervals because of --max-rows or --max-bytes",
            ],
            [
                "intervals_not_taken",
                "intervals that are not in the file of --intervals because its reader or its disk stood still",
            ],
        )
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        self.begin()?;
        self.rows.hand_over()
    }
}
