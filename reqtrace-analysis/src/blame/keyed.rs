//! Requests with a key: where they were parked and queued, and which threads ran them when, in; their whole
//! story, whatever threads it is on, out.
//!
//! Such a request runs on one thread at a time, and on any. Among those of a process the time of their begin
//! is unique.

use reqtrace_recording::RequestOf;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::fitting::Fitting;
use super::kept::{Away, Kept, Source, ThreadId, WentOn};

/// Bytes of a request without its label: it has run on a thread, and a table has up to as much room again.
pub(super) const REQUEST_BYTES: usize =
    2 * size_of::<(KeyedId, Keyed)>() + 4 * size_of::<Run>() + size_of::<KeyedId>();
/// Bytes of a time in which no thread ran one, and of the part that follows.
const AWAY_BYTES: usize =
    size_of::<Kept>() + size_of::<WentOn>() + 2 * size_of::<Run>() + size_of::<KeyedId>();

/// A request with a key: its process, and its begin.
pub(super) type KeyedId = (u32, u64);

/// The id of a request that runs on a thread.
pub(super) fn id_of(thread: ThreadId, of: RequestOf) -> KeyedId {
    (thread.tgid, of.begin_ns)
}

/// A part of a request that ran on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) thread: ThreadId,
    pub(super) from_ns: u64,
    /// It ran until then at least.
    pub(super) until_ns: u64,
}

/// What is known of a request with a key.
#[derive(Debug)]
pub(super) struct Keyed {
    /// Its id; 0 until its record has come.
    pub(super) id: u64,
    /// As the program had it.
    pub(super) label: Box<[u8]>,
    /// Where it was while no thread ran it, by time.
    pub(super) aways: Fitting<Kept>,
    /// By time; most have one.
    runs: SmallVec<[Run; 1]>,
    /// What was before is forgotten.
    pub(super) forgotten_ns: u64,
}

impl Keyed {
    /// When the part began that it was in at that time.
    fn resumed_ns(&self, begin_ns: u64, at_ns: u64) -> u64 {
        let mut before = self.aways.iter().rev();
        let last = before.find(|away| away.in_ns <= at_ns);
        last.map_or(begin_ns.max(self.forgotten_ns), |away| away.in_ns)
    }

    /// It ran then, on this thread. Returns the part, if it has any length.
    fn ran(&mut self, thread: ThreadId, begin_ns: u64, at_ns: u64, until_ns: u64) -> Option<Run> {
        let from_ns = self.resumed_ns(begin_ns, at_ns);
        if until_ns <= from_ns {
            return None;
        }
        let last = self.runs.iter_mut().rev();
        let mut last = last.take_while(|run| run.from_ns >= from_ns);
        let same = |run: &&mut Run| run.from_ns == from_ns && run.thread == thread;
        if let Some(known) = last.find(same) {
            known.until_ns = known.until_ns.max(until_ns);
            return Some(*known);
        }
        let run = Run {
            thread,
            from_ns,
            until_ns,
        };
        let at = self.runs.partition_point(|run| run.from_ns <= from_ns);
        self.runs.insert(at, run);
        Some(run)
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Those that end after a time, and begin before another. Of parts that follow each other only the last ones that
    /// began before the time can go on after it.
    pub(super) fn runs_between(&self, from_ns: u64, end_ns: u64) -> &[Run] {
        let began = self.runs.partition_point(|run| run.from_ns < from_ns);
        let before = self.runs[..began].iter().rev();
        let going_on = before.take_while(|run| run.until_ns > from_ns).count();
        let until = self.runs.partition_point(|run| run.from_ns < end_ns);
        self.runs.get(began - going_on..until).unwrap_or_default()
    }
}

/// All that are known. Memory is bounded: what came first is forgotten first.
#[derive(Debug, Default)]
pub(super) struct AllKeyed {
    /// Which request types have a key.
    types: Vec<bool>,
    requests: FxHashMap<KeyedId, Keyed>,
    /// Each once for itself, and once for each time that it was parked or queued.
    order: Fitting<KeyedId>,
    /// What all of them take.
    bytes: usize,
    most_bytes: usize,
    /// Requests that began before were forgotten.
    forgotten_ns: u64,
}

impl AllKeyed {
    pub(super) fn new(types: Vec<bool>, most_bytes: usize) -> Self {
        Self {
            types,
            most_bytes,
            ..Self::default()
        }
    }

    pub(super) fn is_one(&self, of: RequestOf) -> bool {
        self.types.get(of.request_type as usize) == Some(&true)
    }

    pub(super) fn get(&self, id: KeyedId) -> Option<&Keyed> {
        self.requests.get(&id)
    }

    /// Whether a part of it was forgotten.
    pub(super) fn has_forgotten(&self, id: KeyedId) -> bool {
        match self.get(id) {
            Some(keyed) => keyed.forgotten_ns > 0,
            None => id.1 <= self.forgotten_ns,
        }
    }

    fn entry(&mut self, id: KeyedId) -> &mut Keyed {
        self.requests.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            self.bytes += REQUEST_BYTES;
            Keyed {
                id: 0,
                label: Box::default(),
                aways: Fitting::default(),
                runs: SmallVec::new(),
                forgotten_ns: 0,
            }
        })
    }

    /// A thread ran it at that time, and until then. Returns the part.
    pub(super) fn ran(
        &mut self,
        thread: ThreadId,
        of: RequestOf,
        at_ns: u64,
        until_ns: u64,
    ) -> Option<Run> {
        let keyed = self.entry(id_of(thread, of));
        let run = keyed.ran(thread, of.begin_ns, at_ns, until_ns);
        self.forget();
        run
    }

    /// It was parked or queued. Returns false when that does not follow what came before, so that it was left
    /// out.
    pub(super) fn away(&mut self, of: RequestOf, away: Kept) -> bool {
        let id = id_of(away.thread, of);
        let keyed = self.entry(id);
        let last_ns = keyed.aways.back().map_or(of.begin_ns, |last| last.in_ns);
        if away.out_ns < last_ns || away.in_ns < away.out_ns {
            return false;
        }
        keyed.aways.push_back(away);
        self.order.push_back(id);
        self.bytes += AWAY_BYTES;
        self.forget();
        true
    }

    /// What it went on with that was parked until then. Returns false when it was not.
    pub(super) fn source(&mut self, id: KeyedId, until_ns: u64, source: Source) -> bool {
        let keyed = self.requests.get_mut(&id).into_iter();
        let mut aways = keyed.flat_map(|keyed| keyed.aways.iter_mut().rev());
        let away = aways.find(|away| away.in_ns == until_ns && away.away == Some(Away::Parked));
        let went_on = away.and_then(|away| away.went_on.as_deref_mut());
        match went_on {
            Some(went_on) => {
                went_on.source = source;
                true
            }
            None => false,
        }
    }

    /// Its record has come.
    pub(super) fn ended(&mut self, thread: ThreadId, of: RequestOf, id: u64, label: &[u8]) {
        let keyed = self.entry(id_of(thread, of));
        keyed.id = id;
        let before = std::mem::replace(&mut keyed.label, label.into());
        self.bytes = self.bytes + label.len() - before.len();
    }

    fn forget(&mut self) {
        while self.bytes > self.most_bytes
            && let Some(oldest) = self.order.pop_front()
        {
            let Some(keyed) = self.requests.get_mut(&oldest) else {
                continue;
            };
            if let Some(gone) = keyed.aways.pop_front() {
                keyed.forgotten_ns = gone.in_ns;
                keyed.runs.retain(|run| run.until_ns > gone.in_ns);
                self.bytes -= AWAY_BYTES;
            } else {
                self.bytes -= REQUEST_BYTES + keyed.label.len();
                self.requests.remove(&oldest);
                self.forgotten_ns = self.forgotten_ns.max(oldest.1);
            }
        }
    }

    /// How many requests are kept, and how often they were away.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let aways = self.requests.values().map(|keyed| keyed.aways.len());
        (self.requests.len(), aways.sum())
    }
}
