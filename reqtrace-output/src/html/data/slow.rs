//! The slowest requests of the page, and what happened in them: requests and timelines in, columns of numbers out.

use serde::Serialize;

use super::cells::causes;
use reqtrace_analysis::report::Ledger;
use reqtrace_analysis::report::page::{EndedBy, SlowRequest, Timeline};

/// A slow request.
#[derive(Serialize)]
pub(super) struct Slow<'a> {
    id: u64,
    request: u32,
    pid: u32,
    tid: u32,
    comm: &'a str,
    label: &'a str,
    statement: u32,
    begin: u64,
    latency: u64,
    on_cpu: u64,
    run_queue: u64,
    preempted: u64,
    unattributed: u64,
    classes: &'a [u64],
    parked: &'a [u64],
    queued: &'a [u64],
    causes: Option<Vec<u64>>,
    timeline: Option<Line<'a>>,
}

impl<'a> Slow<'a> {
    pub(super) fn of(slow: &'a SlowRequest) -> Self {
        let Ledger {
            latency_ns,
            on_cpu_ns,
            run_queue_ns,
            preempted_ns,
            unattributed_ns,
            ref classes,
            ref parked,
            ref queued,
        } = slow.ledger;
        Self {
            id: slow.id,
            request: slow.request,
            pid: slow.pid,
            tid: slow.tid,
            comm: &slow.comm,
            label: &slow.label,
            statement: slow.statement,
            begin: slow.begin_ns,
            latency: latency_ns,
            on_cpu: on_cpu_ns,
            run_queue: run_queue_ns,
            preempted: preempted_ns,
            unattributed: unattributed_ns,
            classes,
            parked,
            queued,
            causes: slow.causes.as_ref().map(|of| causes(of).collect()),
            timeline: slow.timeline.as_ref().map(Line::of),
        }
    }
}

/// A timeline; its segments by column.
#[derive(Serialize)]
struct Line<'a> {
    /// Process, thread, name.
    lanes: Vec<(u32, u32, &'a str)>,
    /// Id, request type, label, whether it had ended.
    others: Vec<(u64, u32, &'a str, bool)>,
    lane: Vec<u32>,
    from: Vec<u64>,
    ns: Vec<u64>,
    did: Vec<usize>,
    stack: Vec<i64>,
    woken_from: Vec<i64>,
    class: Vec<i64>,
    by: Vec<i64>,
    other: Vec<i64>,
    left_out: [(u64, u64); 2],
    lanes_left_out: u64,
    missing: u64,
}

impl<'a> Line<'a> {
    fn of(timeline: &'a Timeline) -> Self {
        let lanes = timeline.lanes.iter();
        let others = timeline.others.iter();
        let mut line = Self {
            lanes: lanes
                .map(|lane| (lane.pid, lane.tid, lane.comm.as_str()))
                .collect(),
            others: others
                .map(|other| {
                    let label = other.label.as_str();
                    (other.id, other.request, label, other.has_ended)
                })
                .collect(),
            lane: Vec::new(),
            from: Vec::new(),
            ns: Vec::new(),
            did: Vec::new(),
            stack: Vec::new(),
            woken_from: Vec::new(),
            class: Vec::new(),
            by: Vec::new(),
            other: Vec::new(),
            left_out: timeline.left_out,
            lanes_left_out: timeline.lanes_left_out,
            missing: timeline.missing_ns,
        };
        let number = |number: Option<u32>| number.map_or(-1, i64::from);
        for segment in &timeline.segments {
            line.lane.push(segment.lane);
            line.from.push(segment.from_ns);
            line.ns.push(segment.ns);
            line.did.push(segment.did as usize);
            line.stack.push(number(segment.stack));
            line.woken_from.push(number(segment.woken_from));
            line.class.push(number(segment.class));
            line.by.push(segment.ended_by.map_or(-1, by));
            line.other.push(number(segment.other));
        }
        line
    }
}

/// A lane from 0 on; -1 is nobody, -2 a thread without a lane; interrupts are from -10 downwards, and reasons
/// why it is not known from -30.
fn by(ended_by: EndedBy) -> i64 {
    match ended_by {
        EndedBy::Lane(lane) => i64::from(lane),
        EndedBy::Thread => -2,
        EndedBy::Interrupt(cause) => -10 - cause as i64,
        EndedBy::Unknown(reason) => -30 - reason as i64,
    }
}
