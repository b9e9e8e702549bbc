//! Who makes a request ready: the request and a marker of the current thread in; what it has waited for out.
//!
//! Functions with external names: the verifier goes over each once, and not once for each way that leads there.

use reqtrace_common::keyed::{self, BY_TASK, Job, Where, Word};
use reqtrace_common::marker::{ParkPlan, TABLE_SCHEDULE, UNIT_TABLE, park_kind};
use reqtrace_common::record::{LastRun, STACK_NONE};
use reqtrace_common::thread::Thread;

use aya_ebpf::helpers::bpf_probe_read_user;

use super::external::key_of;
use crate::maps::{KEYS, MARKER_PLANS, THREADS};
use crate::task::current_ids;
use crate::{blame, units};

/// Whether the stack of the current thread is to tell who makes the request of a key ready, by the plan with this index: that
/// index, or 0, and in the upper half where the request may be parked, if it is at one of several places.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn wanted(of: u64, first: u64, second: u64, index: u32) -> u64 {
    let (_, tid) = current_ids();
    let (Some(thread), Some(plan)) = (THREADS.get_ptr_mut(tid), MARKER_PLANS.get_ptr(index)) else {
        return 0;
    };
    // SAFETY: points into maps; the thread is the current one, and the plan is not changed.
    let is_waker = unsafe {
        (*thread).state.wakes_from = STACK_NONE;
        (*plan).park.kind == park_kind::WAKER
    };
    let Some(entry) = KEYS.get_ptr(key_of(of, first, second)) else {
        return 0;
    };
    // SAFETY: points into the map.
    let (word, weight, may_be_at) = unsafe {
        (
            (&raw const (*entry).word).read_volatile(),
            (&raw const (*entry).weight).read_volatile(),
            (&raw const (*entry).may_be_at).read_volatile(),
        )
    };
    let is_parked = Word::decode(word).at == Where::Away;
    let is_told = may_be_at != 0 || blame::wanted();
    if is_waker && is_parked && weight != 0 && is_told {
        u64::from(may_be_at) << 32 | u64::from(index)
    } else {
        0
    }
}

/// What the request whose key begins so has waited for that is made ready by who is named so, and may have been at one of these
/// places: an encoded [`Job`]. `code` is the address of the probed instruction.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn waited_for(
    may_be_at: u32,
    by: u32,
    index: u32,
    key: u64,
    code: u64,
) -> u64 {
    let (_, tid) = current_ids();
    let (Some(thread), Some(plan)) = (THREADS.get_ptr_mut(tid), MARKER_PLANS.get_ptr(index)) else {
        return Job::NONE.encode();
    };
    // SAFETY: points into maps; the thread is the current one, and the plan is not changed.
    let (thread, park) = unsafe { (&mut *thread, &(*plan).park) };
    let drivers = park.drivers;
    // A driver may be run within a task.
    let by_task = by & BY_TASK != 0 && by & drivers == 0;
    let (job, left) = done_by(thread, tid, by_task, park, code);
    // The thread queues the unit that it leaves: who has made that ready is not known.
    if left == key {
        return Job::NONE.encode();
    }
    if job.since_ns() != 0 || may_be_at == 0 {
        return job.encode();
    }
    let by = if left != 0 {
        keyed::by_done(by, may_be_at, park.joins, park.dropped)
    } else {
        by
    };
    keyed::waits_at(may_be_at, by, drivers).encode()
}

/// The job that the thread has just done, and the task that it has just left and is still in, as its stack says: if that is done it wakes
/// who waits for it.
#[inline(always)]
fn done_by(thread: &mut Thread, tid: u32, by_task: bool, park: &ParkPlan, code: u64) -> (Job, u64) {
    let Some(units) = units::of(tid) else {
        return (Job::NONE, 0);
    };
    // SAFETY: the current thread's own.
    let units = unsafe { &*units };
    // A worker is a job of the pool itself, and what it runs is within that if it was seen to begin.
    let is_within = by_task && units.only() != 0 && is_job(units.only(), park, code);
    let ran = &mut thread.state.ran;
    if ran.is_done != 0 {
        ran.is_done = if by_task && units.is_none_since(ran.until_ns, is_within) {
            LastRun::WAKES
        } else {
            LastRun::DONE
        };
    }
    let left = if by_task { units.left(is_within) } else { 0 };
    (units.job(), left)
}

/// Whether a unit that the current thread runs is a job of the pool.
#[inline(always)]
fn is_job(unit: u64, park: &ParkPlan, code: u64) -> bool {
    let at = |address: u64, offset: i32| {
        let word = address.wrapping_add(offset as i64 as u64);
        // SAFETY: the helper checks where it reads.
        unsafe { bpf_probe_read_user(word as *const u64) }
    };
    let Ok(schedule) = at(unit, UNIT_TABLE).and_then(|table| at(table, TABLE_SCHEDULE)) else {
        return false;
    };
    let from = schedule.wrapping_sub(code) as i64;
    from != 0 && (from == park.jobs[0] || from == park.jobs[1])
}
