//! Requests that are open when a trace stops: the threads' states in, requests out.

use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use log::warn;
use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::thread::Thread;
use reqtrace_recording::Open;

use super::batch;
use super::decode::still_open;
use super::loader::map_error;
use crate::error::Result;

/// How long a program that was switched out in the middle of a change is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long to wait before a state is read again.
const PAUSE: Duration = Duration::from_millis(5);

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
