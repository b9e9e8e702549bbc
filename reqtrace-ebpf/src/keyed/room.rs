//! Room in the tables of requests with keys: tables that are full in; without those requests that were left for
//! longest out. They are closed as incomplete, and counted.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_for_each_map_elem;
use reqtrace_common::keyed::{Job, KeyEntry, KeyId, Look, Where, Word, close_stored};
use reqtrace_common::record::reason;

use super::external::keyed_over;
use crate::assembly::compare_exchange;
use crate::maps::{KEYS, PARKED, remove_key, remove_parked};
use crate::request::{self, bpf_now};

/// Requests that are closed at once, at most: the table is gone through for each so many begins, and the ring has
/// room for their records.
const AT_ONCE: u32 = 1024;

/// What a walk over the table looks for.
struct Walk {
    /// Only requests that are recorded.
    recorded: u32,
    /// So many more are closed.
    left: u32,
    /// Requests that were left later stay. While the oldest is looked for: since when that is.
    until_ns: u64,
    now: u64,
}

/// Closes some of those that no thread runs, of the half of the time that the oldest was left for. Whether there
/// were any.
///
/// A function with an external name: the verifier goes over it once, and not once for each call and each way that
/// leads there.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn make_room(recorded: u32) -> u32 {
    let now = bpf_now();
    let mut walk = Walk {
        recorded,
        left: AT_ONCE,
        until_ns: now,
        now,
    };
    over_keys(oldest as *mut c_void, &mut walk);
    walk.until_ns += now.wrapping_sub(walk.until_ns) / 2;
    over_keys(close as *mut c_void, &mut walk);
    u32::from(walk.left < AT_ONCE)
}

#[inline(always)]
fn over_keys(each: *mut c_void, walk: &mut Walk) {
    // SAFETY: the callback's context is the walk, which outlives the loop.
    unsafe {
        bpf_for_each_map_elem(
            (&raw const KEYS).cast_mut().cast(),
            each,
            (&raw mut *walk).cast(),
            0,
        );
    }
}

/// Since when the request of an entry was left, if it may be closed.
#[inline(always)]
unsafe fn left_since(entry: *const KeyEntry, recorded: u32) -> Option<(u64, u64)> {
    // SAFETY: by the caller.
    unsafe {
        let word = (&raw const (*entry).word).read_volatile();
        let since_ns = (&raw const (*entry).since_ns).read_volatile();
        let weight = (&raw const (*entry).weight).read_volatile();
        let is_away = matches!(Word::decode(word).at, Where::Away);
        (is_away && (recorded == 0 || weight != 0)).then_some((word, since_ns))
    }
}

extern "C" fn oldest(
    _: *mut c_void,
    _: *const KeyId,
    entry: *mut KeyEntry,
    walk: *mut Walk,
) -> i64 {
    // SAFETY: what the kernel calls it with: a value of the map, and the context.
    unsafe {
        if let Some((_, since_ns)) = left_since(entry, (*walk).recorded)
            && since_ns < (*walk).until_ns
        {
            (*walk).until_ns = since_ns;
        }
    }
    0
}

extern "C" fn close(
    _: *mut c_void,
    id: *const KeyId,
    entry: *mut KeyEntry,
    walk: *mut Walk,
) -> i64 {
    // SAFETY: as above.
    unsafe {
        let Some((word, since_ns)) = left_since(entry, (*walk).recorded) else {
            return 0;
        };
        if since_ns > (*walk).until_ns {
            return 0;
        }
        let ticket = Word::decode(word).ticket;
        if compare_exchange(&raw mut (*entry).word, word, Word::busy(ticket).encode()) != word {
            return 0;
        }
        if (&raw const (*entry).weight).read_volatile() == 0 {
            request::count_unrecorded((*id).request_type, reason::NO_ROOM);
        } else {
            let ready_ns = (&raw const (*entry).ready_ns).read_volatile();
            let job = (&raw const (*entry).job).read_volatile();
            keyed_over(ticket);
            close_away(ticket, word, ready_ns, job.encode(), (*walk).now);
        }
        remove_key(&*id);
        (*walk).left -= 1;
        i64::from((*walk).left == 0)
    }
}

/// Closes what is stored by a ticket, with what stood in its entry. A function with an external name: the verifier goes over what is
/// called for each element again and again.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn close_away(ticket: u64, word: u64, ready_ns: u64, job: u64, now: u64) -> u32 {
    let Some(stored) = PARKED.get_ptr_mut(ticket) else {
        return 0;
    };
    let found = Look {
        word,
        ready_ns,
        job: Job::decode(job),
        weight: 1,
    };
    // SAFETY: points into the map; who has made the word busy has the request.
    unsafe {
        close_stored(&mut *stored, &found, now, reason::NO_ROOM);
        request::send_closed(&mut *stored);
    }
    remove_parked(ticket);
    1
}
