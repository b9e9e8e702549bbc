//! What one screen shows: plain data, made by the thread that reads the ring, drawn by another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqtrace_analysis::aggregate::Aggregator;

use super::Title;
use reqtrace_analysis::report::blame::CulpritKind;
use reqtrace_analysis::report::page::Holding;
use reqtrace_analysis::report::{OpenBlock, OpenRequest};
use reqtrace_base::figures::duration;
use reqtrace_base::plain::Plain;
use reqtrace_capture::attach::{RunState, Running};
use reqtrace_recording::Holder;
use rustc_hash::FxHashMap;

/// All that is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) title: Arc<Title>,
    /// Since the start.
    pub(super) elapsed: Duration,
    /// Share of the processes' CPU time that tracing took in the last second, 0 to 1: at least, and at most.
    pub(super) overhead: Option<[f64; 2]>,
    pub(super) losses: Vec<(String, u64)>,
    /// Messages since the start, the last ones.
    pub(super) notices: Vec<String>,
    /// Why slow requests since the start were slow: a sentence each.
    pub(super) verdict: Vec<String>,
    /// Who holds up whom.
    pub(super) held: Option<String>,
    /// In profile order.
    pub(super) types: Vec<TypeLine>,
    /// Those that began first.
    pub(super) running: Vec<RunningRequest>,
    /// How many there are.
    pub(super) all_running: usize,
    /// Those that ended in the last second, the slowest first.
    pub(super) ended: Vec<SlowRequest>,
    /// Of the last minute, those with the most time first.
    pub(super) statements: Vec<StatementLine>,
    /// Of the last minute, the slowest first.
    pub(super) slowest: Vec<SlowRequest>,
    /// Once they are asked for.
    pub(super) stacks: Option<Arc<Stacks>>,
}

/// A request type. Times and rates are of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeLine {
    pub(super) name: String,
    /// Complete requests since the start.
    pub(super) complete: u64,
    pub(super) per_second: f64,
    /// Median, 99th percentile and maximum, ns.
    pub(super) latency: Option<[u64; 3]>,
    pub(super) running: usize,
    /// Requests in each of the last seconds, the newest last.
    pub(super) rates: Vec<u64>,
    /// Sum of the latencies, ns.
    pub(super) latency_ns: u64,
    /// Where that went, the most first, ns.
    pub(super) ledger: Vec<(String, u64)>,
    /// What its blocked time comes down to, the most first, ns; `None` without blame.
    pub(super) causes: Option<Vec<(&'static str, u64)>>,
}

/// A request that is open.
#[derive(Clone, Debug)]
pub(super) struct RunningRequest {
    pub(super) request: OpenRequest,
    /// What it does, in words: the wait class, `run queue`, `preempted` or `on CPU`.
    pub(super) does: String,
    /// For how long, ns; `None` when it has a CPU.
    pub(super) for_ns: Option<u64>,
    /// The thread that has the lock for which it waits, as far as the lock says so.
    pub(super) held_by: Option<HeldBy>,
}

/// A thread that has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldBy {
    pub(super) tid: u32,
    /// The label of its request, if it is in one.
    pub(super) label: Plain,
}

impl HeldBy {
    /// `thread 4711, in select 1`.
    pub(super) fn words(&self) -> String {
        match self.label.is_empty() {
            true => format!("thread {}", self.tid),
            false => format!("thread {}, in {}", self.tid, self.label),
        }
    }
}

/// Complete requests of one statement.
#[derive(Clone, Debug)]
pub(super) struct StatementLine {
    /// Request type.
    pub(super) request: String,
    /// A label without its numbers and strings; empty without labels.
    pub(super) statement: Plain,
    pub(super) count: u64,
    /// Sum of the latencies, ns.
    pub(super) latency_ns: u64,
    /// The longest latency, ns.
    pub(super) max_ns: u64,
    /// Where the time went, the most first, ns.
    pub(super) parts: Vec<(String, u64)>,
}

/// A request that has ended.
#[derive(Clone, Debug)]
pub(super) struct SlowRequest {
    pub(super) request: String,
    pub(super) tid: u32,
    pub(super) label: Plain,
    pub(super) latency_ns: u64,
    /// The greatest part of its ledger, ns.
    pub(super) mostly: Option<(String, u64)>,
    /// Where its longest block was, if that is a part of it: the frames that say most.
    pub(super) place: String,
    /// How long ago it ended.
    pub(super) ago: Duration,
}

/// Stacks of one request type since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Stacks {
    /// Index of the type.
    pub(super) of: usize,
    /// All of its time that has a stack, ns.
    pub(super) all_ns: u64,
    /// Those with the most time.
    pub(super) lines: Vec<StackShown>,
}

/// A stack.
#[derive(Clone, Debug)]
pub(super) struct StackShown {
    /// The wait class, `run queue` or `preempted`.
    pub(super) what: String,
    pub(super) ns: u64,
    pub(super) count: u64,
    pub(super) longest_ns: u64,
    /// The frames that say most, innermost first.
    pub(super) short: String,
    /// All frames, innermost first.
    pub(super) frames: Vec<String>,
}

/// The requests that are open, with names.
pub(super) fn running(
    requests: &[Running],
    now_ns: u64,
    model: &Aggregator,
) -> Vec<RunningRequest> {
    let named = requests.iter().filter_map(|running| {
        let request = model.open_now(&running.open, now_ns)?;
        let held_by = match running.holder {
            Holder::Thread(tid) => Some(HeldBy {
                tid,
                label: Plain::default(),
            }),
            _ => None,
        };
        let since = |at: u64| Some(now_ns.saturating_sub(at));
        let (does, for_ns) = match running.state {
            RunState::Blocked(at) => (class(request.blocked.as_ref()), since(at)),
            RunState::RunQueue(at) => ("run queue".to_owned(), since(at)),
            RunState::Preempted(at) => ("preempted".to_owned(), since(at)),
            RunState::OnCpu => ("on CPU".to_owned(), None),
            RunState::Away(at) => (place(&request), since(at)),
        };
        Some(RunningRequest {
            request,
            does,
            for_ns,
            held_by,
        })
    });
    let mut all: Vec<RunningRequest> = named.collect();
    let labels = all.iter().map(|open| &open.request);
    let labels: FxHashMap<u32, Plain> = labels.map(|of| (of.tid, of.label.clone())).collect();
    for held_by in all.iter_mut().filter_map(|open| open.held_by.as_mut()) {
        if let Some(label) = labels.get(&held_by.tid) {
            held_by.label = label.clone();
        }
    }
    all
}

/// Who has the locks that requests still wait for most, in a sentence, and for how long these have waited together, ns.
pub(super) fn holds(running: &[RunningRequest]) -> Option<(String, u64)> {
    let mut by_holder: BTreeMap<u32, (usize, u64, u64, &HeldBy)> = BTreeMap::new();
    for open in running {
        if let (Some(held_by), Some(ns)) = (&open.held_by, open.for_ns) {
            let (count, sum_ns, longest_ns, _) =
                by_holder.entry(held_by.tid).or_insert((0, 0, 0, held_by));
            *count += 1;
            *sum_ns += ns;
            *longest_ns = ns.max(*longest_ns);
        }
    }
    let most = by_holder
        .into_values()
        .max_by_key(|(_, sum_ns, ..)| *sum_ns)?;
    let (count, sum_ns, longest_ns, held_by) = most;
    let (who, longest) = (held_by.words(), duration(longest_ns));
    let sentence = match count {
        1 => format!("a request has waited {longest} so far, for a lock of {who}"),
        _ => format!("{count} requests have waited up to {longest} so far, for a lock of {who}"),
    };
    Some((sentence, sum_ns))
}

/// Who holds up whom, in a sentence.
pub(super) fn held((holding, ns): &(Holding, u64), classes: &[String]) -> String {
    let victim = match holding.victim.is_empty() {
        true => "requests".to_owned(),
        false => holding.victim.to_string(),
    };
    let culprit = &holding.culprit;
    let after = match (culprit.label.is_empty(), culprit.kind) {
        (true, _) => String::new(),
        (false, CulpritKind::Thread) => format!(" after {}", culprit.label),
        (false, _) => format!(" {}", culprit.label),
    };
    let class = holding.class.and_then(|class| classes.get(class as usize));
    let class = class.map_or_else(String::new, |class| format!(", {class}"));
    let (whom, cause) = (culprit.words(), holding.cause.words());
    format!(
        "{victim} waited {}{class}, for {whom}{after} ({cause})",
        duration(*ns)
    )
}

fn place(request: &OpenRequest) -> String {
    let place = request.place.as_ref();
    place.map_or_else(|| "parked".to_owned(), |(place, _)| place.clone())
}

fn class(block: Option<&OpenBlock>) -> String {
    block.map_or_else(|| "blocked".to_owned(), |block| block.class.clone())
}
