//! Requests that are open, when a trace stops and while it runs: the threads' states in, requests out.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use log::{debug, warn};
use reqtrace_common::keyed::{Job, KeyEntry, KeyId, Where, Word};
use reqtrace_common::record::{
    BlockSite, FILE_UNKNOWN, FileId, RequestRecord, STACK_LOST, STACK_NONE, StackId, reason,
};
use reqtrace_common::thread::{RequestState, Thread, phase, status};
use reqtrace_recording::{Holder, Open};
use rustc_hash::FxHashMap;

use super::batch;
use super::decode::{Stamp, Still, holder, still_open, still_parked};
use super::maps::map_error;
use reqtrace_base::error::Result;

/// How long a program that was switched out in the middle of a change is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long to wait before a state is read again.
const PAUSE: Duration = Duration::from_millis(5);

/// A request that is open while a trace runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// The request as if it ended now, with where it is blocked and since when.
    pub open: Open,
    /// What its texts are found by.
    pub(crate) stamp: Stamp,
    /// What its thread does.
    pub state: RunState,
    /// With blame, who has the lock that its thread waits for.
    pub holder: Holder,
}

/// What the thread of an open request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It has a CPU, as far as is known.
    OnCpu,
    /// It waits since then, `CLOCK_MONOTONIC` ns; the place is in [`Open::blocked_in`].
    Blocked(u64),
    /// It was woken then, and waits for a CPU.
    RunQueue(u64),
    /// It was preempted then, and waits for a CPU.
    Preempted(u64),
    /// No thread runs it since then; the place is in [`reqtrace_recording::Open::away_in`].
    Away(u64),
}

/// The requests that are open in these states, of all processes or of one, as if they ended at `stop_ns`. A thread may have been
/// switched out in the middle of a program that changes its state: such a state is read again until
/// it is whole. Threads that leave meanwhile change nothing for the others: each is looked at once.
///
/// # Errors
///
/// When the map cannot be read.
pub(super) fn requests(map: &Map, of: Option<u32>, stop_ns: u64) -> Result<Vec<Still>> {
    let mut open = Vec::new();
    let mut unfinished = Vec::new();
    batch::entries(map, |tid: &u32, thread: &Thread| {
        if of.is_some_and(|tgid| thread.state.tgid != tgid) {
            return;
        }
        match request(thread, stop_ns) {
            Some(found) => open.extend(found),
            None => unfinished.push(*tid),
        }
    })?;
    let threads: HashMap<&MapData, u32, Thread> = HashMap::try_from(map).map_err(map_error)?;
    let deadline = Instant::now() + PATIENCE;
    while !unfinished.is_empty() && Instant::now() < deadline {
        thread::sleep(PAUSE);
        // A state that is gone had no request.
        unfinished.retain(|tid| {
            let found = threads.get(tid, 0).map(|state| request(&state, stop_ns));
            match found {
                Ok(Some(found)) => open.extend(found),
                Ok(None) => return true,
                Err(_) => {}
            }
            false
        });
    }
    if !unfinished.is_empty() {
        warn!(
            "the states of {} threads could not be read: requests that they have open are missing",
            unfinished.len()
        );
    }
    Ok(open)
}

/// Requests that are meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// All, which stay.
    Everybodys,
    /// All, which are taken out.
    NoLongerTraced,
    /// Those of a process.
    Process(u32),
    /// Those of a process that began before the exec of this number: since then it may have begun others.
    Before(u32, u32),
}

impl Whose {
    fn has(self, tgid: u32, exec_generation: u32) -> bool {
        match self {
            Self::Everybodys | Self::NoLongerTraced => true,
            Self::Process(process) => process == tgid,
            // Execs are counted round and round.
            Self::Before(process, generation) => {
                process == tgid && exec_generation.wrapping_sub(generation) > u32::MAX / 2
            }
        }
    }
}

/// What is called for each entry that is taken out of the kernel's tables.
pub(super) trait TakenOut {
    /// Of the table of keys.
    fn key(&mut self, id: &KeyId);
    /// Of the table of requests that no thread runs.
    fn parked(&mut self);
}

/// Requests that no thread runs, as if they ended at `stop_ns`.
///
/// # Errors
///
/// When the maps cannot be used.
pub(super) fn parked(
    keys: &Map,
    parked: &Map,
    whose: Whose,
    stop_ns: u64,
    why: u32,
    taken_out: &mut impl TakenOut,
) -> Result<Vec<Still>> {
    let ready = ready(keys)?;
    let mut stills = Vec::new();
    let mut gone = BTreeSet::new();
    batch::entries(parked, |ticket: &u64, request: &RequestState| {
        if whose.has(request.keyed.id.tgid, request.record.exec_generation) {
            gone.insert(*ticket);
            match still_parked(&settled(request, &ready, *ticket), stop_ns, why) {
                Ok(still) => stills.extend(still),
                Err(malformed) => debug!("a parked request could not be read: {malformed}"),
            }
        }
    })?;
    if matches!(whose, Whose::Everybodys) {
        return Ok(stills);
    }
    let tickets: Vec<u64> = gone.iter().copied().collect();
    batch::delete_each::<u64, RequestState>(parked, &tickets, |_| taken_out.parked())?;
    let mut left = Vec::new();
    batch::entries(keys, |id: &KeyId, entry: &KeyEntry| {
        // Those that a thread runs end with the thread. One that is not recorded may be the new program's.
        let is_left = match whose {
            Whose::Before(..) => gone.contains(&Word::decode(entry.word).ticket),
            Whose::Process(process) => process == id.tgid,
            Whose::Everybodys | Whose::NoLongerTraced => true,
        };
        if is_left {
            left.push(*id);
        }
    })?;
    batch::delete_each::<KeyId, KeyEntry>(keys, &left, |id| taken_out.key(id))?;
    Ok(stills)
}

/// Requests that were made ready since they were left, by their tickets: where they are queued, and since when.
type Ready = FxHashMap<u64, (u32, u64, Job)>;

fn ready(keys: &Map) -> Result<Ready> {
    let mut ready = Ready::default();
    batch::entries(keys, |_: &KeyId, entry: &KeyEntry| {
        let word = Word::decode(entry.word);
        if let (Where::Away, Some(place)) = (word.at, word.ready) {
            ready.insert(word.ticket, (place, entry.ready_ns, entry.job));
        }
    })?;
    Ok(ready)
}

/// A request that no thread runs, with what its entry says.
fn settled(request: &RequestState, ready: &Ready, ticket: u64) -> RequestState {
    let mut request = *request;
    if let Some(&(place, ready_ns, job)) = ready.get(&ticket) {
        request.keyed.settle(Some(place), ready_ns, job);
    }
    request
}

/// Requests that are open while a trace runs, those that began first: at most `most` of them, and how many
/// there are. A state may be read in the middle of a change: it counts when it reads the same twice, and
/// otherwise all that is known of its thread is that it runs.
///
/// # Errors
///
/// When the map cannot be read.
pub(super) fn running(
    map: &Map,
    keys: &Map,
    away: &Map,
    now_ns: u64,
    most: usize,
) -> Result<(Vec<Running>, usize)> {
    let ready = ready(keys)?;
    let mut parked = Vec::new();
    batch::entries(away, |ticket: &u64, request: &RequestState| {
        let request = settled(request, &ready, *ticket);
        // What cannot be decoded was read in the middle of a change.
        if let Ok(Some(still)) = still_parked(&request, now_ns, reason::PARKED_AT_STOP) {
            parked.push(Running {
                open: still.open,
                stamp: still.stamp,
                state: RunState::Away(request.keyed.since_ns),
                holder: Holder::NoFutex,
            });
        }
    })?;
    let mut open = Vec::new();
    batch::entries(map, |tid: &u32, thread: &Thread| {
        if runs(thread) && thread.request.is_sampled() {
            open.push((thread.request.record.begin_ns, *tid));
        }
    })?;
    let all = open.len() + parked.len();
    open.sort_unstable();
    open.truncate(most);
    let threads: HashMap<&MapData, u32, Thread> = HashMap::try_from(map).map_err(map_error)?;
    let mut running = Vec::with_capacity(open.len());
    for (begin_ns, tid) in open {
        // Those that have ended meanwhile are no longer of interest.
        let (Ok(one), Ok(two)) = (threads.get(&tid, 0), threads.get(&tid, 0)) else {
            continue;
        };
        let is_it = |thread: &Thread| runs(thread) && thread.request.record.begin_ns == begin_ns;
        if is_it(&one) && is_it(&two) {
            let is_stable = steady(&one) == steady(&two);
            running.extend(running_one(two, is_stable, now_ns));
        }
    }
    running.append(&mut parked);
    running.sort_by_key(|running| running.open.request.begin_ns);
    running.truncate(most);
    Ok((running, all))
}

/// What has to stay for a state to be whole.
fn steady(thread: &Thread) -> ([u32; 4], [u64; 2], BlockSite) {
    let state = &thread.state;
    (
        [state.phase, state.switches, state.holder_is, state.holder],
        [state.out_ns, state.wake_ns],
        state.open_site,
    )
}

fn running_one(mut thread: Thread, is_stable: bool, now_ns: u64) -> Option<Running> {
    let state = &thread.state;
    let is_woken = state.wake_ns > state.out_ns && state.wake_ns < now_ns;
    let state = match state.phase {
        _ if !is_stable => RunState::OnCpu,
        phase::BLOCKED if is_woken => RunState::RunQueue(state.wake_ns),
        phase::BLOCKED => RunState::Blocked(state.out_ns),
        phase::PREEMPTED => RunState::Preempted(state.out_ns),
        _ => RunState::OnCpu,
    };
    let holder = match state {
        RunState::Blocked(_) => {
            holder(thread.state.holder_is, thread.state.holder).unwrap_or_default()
        }
        _ => Holder::NoFutex,
    };
    if !is_stable {
        thread.state.phase = phase::ON_CPU;
    }
    // What cannot be decoded was read in the middle of a change.
    let Still { open, stamp } = still_open(&thread, now_ns).ok()??;
    Some(Running {
        open,
        stamp,
        state,
        holder,
    })
}

/// The stacks that open requests refer to, each maybe more than once.
///
/// # Errors
///
/// When a map cannot be read.
pub(super) fn stacks(threads: &Map, parked: &Map) -> Result<Vec<StackId>> {
    let mut ids = Vec::new();
    places(threads, parked, |site, waker| {
        ids.extend([site.kernel_stack, site.user_stack, waker]);
    })?;
    batch::entries(threads, |_: &u32, thread: &Thread| {
        of_parks(&thread.request, &mut ids);
    })?;
    batch::entries(parked, |_: &u64, request: &RequestState| {
        of_parks(request, &mut ids);
    })?;
    ids.retain(|id| *id != STACK_LOST && *id != STACK_NONE);
    Ok(ids)
}

/// Stacks at which a request was parked, and those at which it may be: at which of them, is known when it goes on.
fn of_parks(request: &RequestState, ids: &mut Vec<StackId>) {
    let keyed = &request.keyed;
    if keyed.has_extra != 0 {
        let used = keyed.extra.parks.iter();
        let used = used.take(keyed.extra.parks_used as usize);
        ids.extend(used.map(|park| park.stack));
    }
    if keyed.may_be_at() != 0 {
        ids.extend(keyed.noted_stacks);
    }
}

/// The files that open requests refer to, each maybe more than once.
///
/// # Errors
///
/// When a map cannot be read.
pub(super) fn files(threads: &Map, parked: &Map) -> Result<Vec<FileId>> {
    let mut ids = Vec::new();
    places(threads, parked, |site, _| ids.push(site.file))?;
    ids.retain(|id| *id > FILE_UNKNOWN);
    Ok(ids)
}

/// Where open requests blocked; where they are blocked, with the stack of the waker.
fn places(threads: &Map, parked: &Map, mut take: impl FnMut(&BlockSite, StackId)) -> Result<()> {
    batch::entries(threads, |_: &u32, thread: &Thread| {
        of_record(&thread.request.record, &mut take);
        take(&thread.state.open_site, thread.state.waker.stack);
    })?;
    batch::entries(parked, |_: &u64, request: &RequestState| {
        of_record(&request.record, &mut take);
    })
}

fn of_record(record: &RequestRecord, mut take: impl FnMut(&BlockSite, StackId)) {
    for slot in &record.slots {
        take(&slot.site, STACK_NONE);
    }
    for block in &record.longest {
        take(&block.site, STACK_NONE);
    }
}

/// Whether a thread runs a request that no other one has taken.
fn runs(thread: &Thread) -> bool {
    thread.request.status == status::OPEN && !thread.request.keyed.is_taken()
}

/// `None` when the state is not whole.
fn request(thread: &Thread, stop_ns: u64) -> Option<Option<Still>> {
    if thread.request.keyed.is_taken() {
        return Some(None);
    }
    still_open(thread, stop_ns).ok()
}
