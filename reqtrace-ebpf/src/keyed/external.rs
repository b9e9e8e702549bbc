//! Steps of [`super::kernel`] as functions with external names: the verifier goes over each of them once, and not once for each way
//! that leads there. Keys, words and times in; changed maps out.

use reqtrace_common::keyed::{self, Job, KeyEntry, KeyId, Look};
use reqtrace_common::marker::count;

use super::kernel::current;
use crate::assembly::compare_exchange;
use crate::maps::{KEYS, PARKED, insert_key, remove_key};
use crate::{origin, plan};

static NEW_ENTRY: KeyEntry = KeyEntry::NEW;

/// Makes the entry of a key; what the kernel answers.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_insert(of: u64, first: u64, second: u64) -> i32 {
    let new: &KeyEntry = &NEW_ENTRY;
    match insert_key(&key_of(of, first, second), new) {
        Ok(()) => 0,
        Err(error) => error,
    }
}

/// Takes the entry of a key out.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_remove(of: u64, first: u64, second: u64) -> u32 {
    remove_key(&key_of(of, first, second));
    0
}

#[inline(always)]
pub(super) fn key_of(of: u64, first: u64, second: u64) -> KeyId {
    KeyId {
        tgid: (of >> 32) as u32,
        request_type: of as u32,
        key: [first, second],
    }
}

/// Exchanges the word of a key.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_exchange(
    of: u64,
    first: u64,
    second: u64,
    from: u64,
    to: u64,
) -> u32 {
    let id = key_of(of, first, second);
    let Some(entry) = KEYS.get_ptr_mut(id) else {
        return 0;
    };
    // SAFETY: points into the map.
    u32::from(unsafe { compare_exchange(&raw mut (*entry).word, from, to) } == from)
}

/// Counts a resume at the marker of a plan, by the word of its request until then.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_count_resume(plan: u32, word: u64) -> u32 {
    let (was_away, was_ready) = keyed::was_away(word);
    if was_away {
        plan::count(plan, count::RESUMED);
        if !was_ready {
            plan::count(plan, count::NOT_READY);
        }
    }
    0
}

/// [`keyed::part`].
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_part(how: u64) -> u64 {
    match current() {
        // SAFETY: the current thread's own entry.
        Some((thread, mut kernel)) => keyed::part(&mut kernel, unsafe { &mut *thread }, how),
        None => 0,
    }
}

/// [`origin::goes_on`].
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_goes_on(since_ns: u64, until_ns: u64) -> u32 {
    if let Some((thread, _)) = current() {
        // SAFETY: the current thread's own entry.
        origin::goes_on(unsafe { &mut *thread }, since_ns, until_ns);
    }
    0
}

/// In place of a ticket: what the current thread runs.
pub(super) const RUNNING: u64 = u64::MAX;

/// [`origin::over`], of the request that is stored by a ticket, or [`RUNNING`].
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_over(ticket: u64) -> u32 {
    if !origin::wanted() {
        return 0;
    }
    let request = if ticket == RUNNING {
        // SAFETY: points into the map.
        current().map(|(thread, _)| unsafe { &raw mut (*thread).request })
    } else {
        PARKED.get_ptr_mut(ticket)
    };
    if let Some(request) = request {
        // SAFETY: points into the map. The request is the caller's.
        origin::over(unsafe { &mut *request });
    }
    0
}

/// [`keyed::close_taken`].
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn keyed_close(
    stored: u64,
    how: u64,
    word: u64,
    ready_ns: u64,
    job: u64,
) -> u32 {
    if let Some((thread, mut kernel)) = current() {
        let found = Look {
            word,
            ready_ns,
            job: Job::decode(job),
            weight: 1,
        };
        // SAFETY: the current thread's own entry.
        keyed::close_taken(&mut kernel, unsafe { &*thread }, stored, how, &found);
    }
    0
}
