//! A row on its way from a session to the writer: a request of the analysis in, the same without borrowed parts out.

use std::mem::size_of;

use reqtrace_analysis::report::blame::Causes;
use reqtrace_analysis::report::{Ledger, Origin, RequestRow};
use reqtrace_base::plain::Plain;
use reqtrace_recording::Incomplete;
use serde::{Deserialize, Serialize};

use crate::choice::Kept;
use crate::ids::Machine;
use crate::metrics::Exemplar;

/// A request that is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    id: u64,
    build_id: Option<String>,
    pub(crate) start_unix_ns: u64,
    pub(crate) since_start_ns: i64,
    request: String,
    pid: u32,
    tid: u32,
    comm: Plain,
    label: Plain,
    attributes: Vec<Plain>,
    ledger: Ledger,
    blocks: u32,
    preemptions: u32,
    incomplete: Option<Incomplete>,
    kept: Kept,
    waited_before_ns: Option<u64>,
    is_keyed: bool,
    causes: Option<Causes>,
}

impl Row {
    /// It is kept for another reason.
    pub(super) fn kept_for(self, kept: Kept) -> Self {
        Self { kept, ..self }
    }

    /// Texts that are not wanted do not leave the session.
    pub(super) fn of(row: &RequestRow<'_>, kept: Kept, texts: bool) -> Self {
        Self {
            id: row.id,
            build_id: row.origin.build_id.map(str::to_owned),
            start_unix_ns: row.start_unix_ns,
            since_start_ns: row.since_start_ns,
            request: row.request.to_owned(),
            pid: row.pid,
            tid: row.tid,
            comm: row.comm.clone(),
            label: row.label.clone(),
            attributes: row.attributes.to_vec(),
            ledger: row.ledger.clone(),
            blocks: row.blocks,
            preemptions: row.preemptions,
            incomplete: row.incomplete,
            kept,
            waited_before_ns: row.waited_before_ns,
            is_keyed: row.is_keyed,
            causes: row.causes,
        }
        .with_texts(texts)
    }

    fn with_texts(self, texts: bool) -> Self {
        match texts {
            true => self,
            false => Self {
                label: Plain::default(),
                attributes: Vec::new(),
                ..self
            },
        }
    }

    /// Its type, and what the histogram of durations shows of it; nothing of one that is not in there. `traces`: slow ones
    /// of this service have a span.
    pub(super) fn exemplar(&self, traces: Option<(&Machine, &str)>) -> Option<(&str, Exemplar)> {
        let traces = traces.filter(|_| self.kept.is_slow == Some(true));
        let ids =
            traces.map(|(machine, service)| machine.ids(service, self.id, self.start_unix_ns));
        let exemplar = Exemplar {
            id: self.id,
            start_unix_ns: self.start_unix_ns,
            latency_ns: self.ledger.latency_ns,
            trace: ids.map(|ids| ids.trace),
        };
        let is_complete = self.incomplete.is_none();
        is_complete.then_some((&self.request, exemplar))
    }

    /// As an output takes it.
    #[cfg_attr(
        not(feature = "parquet"),
        allow(dead_code, reason = "the writer is not there")
    )]
    pub(super) fn lend<'a>(
        &'a self,
        host: &'a str,
        service: &'a str,
        start_ns: i64,
    ) -> RequestRow<'a> {
        RequestRow {
            id: self.id,
            origin: Origin {
                host,
                service,
                build_id: self.build_id.as_deref(),
            },
            start_unix_ns: self.start_unix_ns,
            since_start_ns: self.since_start_ns - start_ns,
            request: &self.request,
            pid: self.pid,
            tid: self.tid,
            comm: &self.comm,
            label: &self.label,
            attributes: &self.attributes,
            ledger: &self.ledger,
            blocks: self.blocks,
            preemptions: self.preemptions,
            incomplete: self.incomplete,
            weight: self.kept.weight,
            slow: self.kept.is_slow,
            waited_before_ns: self.waited_before_ns,
            lost: None,
            is_keyed: self.is_keyed,
            causes: self.causes,
            blames: &[],
            kept: Some(self.kept.why),
        }
    }
    /// When the request ended, ns since the Unix epoch.
    pub(super) fn end_unix_ns(&self) -> u64 {
        self.start_unix_ns.saturating_add(self.ledger.latency_ns)
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let ledger = &self.ledger;
        let times = ledger.classes.len() + ledger.parked.len() + ledger.queued.len();
        let texts = self.attributes.iter();
        let texts: usize = texts.map(|text| text.len() + size_of::<Plain>()).sum();
        size_of::<Self>() + 8 * times + texts + self.label.len() + self.request.len() + 64
    }
}
