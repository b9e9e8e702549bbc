//! Requests that are open, when a trace stops and while it runs: the threads' states in, requests out.

use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use log::warn;
use reqtrace_common::record::{BlockSite, STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::thread::{Thread, phase, status};
use reqtrace_recording::Open;

use super::batch;
use super::decode::still_open;
use super::loader::map_error;
use crate::error::Result;

/// How long a program that was switched out in the middle of a change is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long to wait before a state is read again.
const PAUSE: Duration = Duration::from_millis(5);

/// A request that is open while a trace runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// The request as if it ended now, with where it is blocked and since when.
    pub open: Open,
    /// What its thread does.
    pub state: RunState,
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
}

/// The requests that are open in these states, as if they ended at `stop_ns`. A thread may have been
/// switched out in the middle of a program that changes its state: such a state is read again until
/// it is whole.
///
/// # Errors
///
/// When the map cannot be read.
pub(super) fn requests(
    threads: &HashMap<&MapData, u32, Thread>,
    stop_ns: u64,
) -> Result<Vec<Open>> {
    let mut open = Vec::new();
    let mut unfinished = Vec::new();
    for entry in threads {
        let (tid, state) = entry.map_err(map_error)?;
        match request(&state, stop_ns) {
            Some(found) => open.extend(found),
            None => unfinished.push(tid),
        }
    }
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

/// Requests that are open while a trace runs, those that began first: at most `most` of them, and how many
/// there are. A state may be read in the middle of a change: it counts when it reads the same twice, and
/// otherwise nothing is told of its thread but that it runs.
///
/// # Errors
///
/// When the map cannot be read.
pub(super) fn running(map: &Map, now_ns: u64, most: usize) -> Result<(Vec<Running>, usize)> {
    let mut open = Vec::new();
    batch::entries(map, |tid: &u32, thread: &Thread| {
        if thread.request.status == status::OPEN && thread.request.is_sampled() {
            open.push((thread.request.record.begin_ns, *tid));
        }
    })?;
    let all = open.len();
    open.sort_unstable();
    open.truncate(most);
    let threads: HashMap<&MapData, u32, Thread> = HashMap::try_from(map).map_err(map_error)?;
    let mut running = Vec::with_capacity(open.len());
    for (begin_ns, tid) in open {
        // Those that have ended meanwhile are no longer of interest.
        let (Ok(one), Ok(two)) = (threads.get(&tid, 0), threads.get(&tid, 0)) else {
            continue;
        };
        let is_it = |thread: &Thread| {
            let request = &thread.request;
            request.status == status::OPEN && request.record.begin_ns == begin_ns
        };
        if is_it(&one) && is_it(&two) {
            let is_stable = steady(&one) == steady(&two);
            running.extend(running_one(two, is_stable, now_ns));
        }
    }
    Ok((running, all))
}

/// What has to stay for a state to be whole.
fn steady(thread: &Thread) -> (u32, u32, u64, u64, BlockSite) {
    let state = &thread.state;
    let (phase, switches) = (state.phase, state.switches);
    (
        phase,
        switches,
        state.out_ns,
        state.wake_ns,
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
    if !is_stable {
        thread.state.phase = phase::ON_CPU;
    }
    // What cannot be decoded was read in the middle of a change.
    let open = still_open(&thread, now_ns).ok()??;
    Some(Running { open, state })
}

/// The stacks that open requests refer to, each maybe more than once.
///
/// # Errors
///
/// When the map cannot be read.
pub(super) fn stacks(threads: &Map) -> Result<Vec<StackId>> {
    let mut ids = Vec::new();
    batch::entries(threads, |_: &u32, thread: &Thread| {
        let record = &thread.request.record;
        let slots = record.slots.iter().map(|slot| slot.site);
        let longest = record.longest.iter().map(|block| block.site);
        for site in slots.chain(longest).chain([thread.state.open_site]) {
            ids.extend([site.kernel_stack, site.user_stack]);
        }
        ids.push(thread.state.waker.stack);
    })?;
    ids.retain(|id| *id != STACK_LOST && *id != STACK_NONE);
    Ok(ids)
}

/// `None` when the state is not whole.
fn request(thread: &Thread, stop_ns: u64) -> Option<Option<Open>> {
    still_open(thread, stop_ns).ok()
}
