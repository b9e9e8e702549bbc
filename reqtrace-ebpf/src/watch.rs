//! Threads of traced processes that have woken nobody yet: all that there are when tracing starts, those that are born, and
//! their switches in; with blame, helpers out. Others need the table's room more, so these have a share of it only.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_NOEXIST};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::record::{BlockSite, FILE_NONE, STACK_NONE};
use reqtrace_common::thread::{Thread, ThreadState};

use crate::assembly::add;
use crate::blame::{HELPS_NS, identify, is_helper, name, needed};
use crate::globals::MOST_WATCHED;
use crate::maps::{PROCESSES, THREADS, Tids, insert_new, tracing};
use crate::task::{self, Task};

/// How many entries of the table of threads were made here. User space takes some out, too.
#[map]
static WATCHING: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// How often a thread may switch in half of the time for which a helper is watched, to be watched on without waking anybody: 1,000 times a
/// second, a millisecond of CPU time.
const FEW_SWITCHES: u32 = 5_000;

/// A helper is about to leave a CPU, or to come to one: from then on it is known when it ran, if it was not before. One of a traced
/// process is watched on.
#[inline(always)]
pub(crate) fn switches(state: &mut ThreadState, now: u64) {
    if state.helper_ns == 0 {
        state.helper_ns = now;
    }
    if now.wrapping_sub(state.needed_ns) > HELPS_NS / 2
        && state.sequence.wrapping_sub(state.needed_sequence) <= FEW_SWITCHES
        && PROCESSES.get_ptr(state.tgid).is_some()
    {
        needed(state, now);
    }
}

/// A helper leaves a CPU in this state: one that has ended is forgotten.
#[inline(always)]
pub(crate) fn leaves(tids: Tids, tid: u32, prev_state: u32) {
    if prev_state & TASK_DEAD != 0 {
        tids.set(tid, flag::NONE);
        remove(tid);
    }
}

/// The current thread runs another program. Whether it is a helper, and stays one.
#[inline(always)]
pub(crate) fn runs_another_program(tid: u32, exec_generation: u32) -> bool {
    let is_helper = Tids::table().is_some_and(|tids| is_helper(tids.get(tid)));
    if is_helper && let Some(thread) = THREADS.get_ptr_mut(tid) {
        // SAFETY: the current thread's own entry.
        unsafe { (*thread).state.exec_generation = exec_generation }
        return true;
    }
    false
}

/// A thread is born, and has not run yet. Whether it is watched: without room it is not, and nothing is lost by that but
/// what is known of it.
#[inline(always)]
pub(crate) fn born(child: Task, now: u64) -> bool {
    let (tgid, tid) = (task::tgid(child), task::tid(child));
    let Some(thread) = new_thread(tid) else {
        return false;
    };
    // SAFETY: it does not run yet, and nobody looks at it.
    unsafe {
        let state = &mut (*thread).state;
        identify(state, tgid, tid, now);
        // It waits for a CPU from now on, and for nothing else.
        state.switch_out(now, false, TASK_NEW, NOWHERE);
        state.wake_ns = now;
    }
    name(tgid, tid, &task::comm(child));
    true
}

/// What a child's state has in it until it runs.
const TASK_NEW: u32 = 0x800;
/// What that of a thread has in it that leaves its last CPU.
const TASK_DEAD: u32 = 0x80;

/// No stack, and no system call.
const NOWHERE: BlockSite = BlockSite {
    kernel_stack: STACK_NONE,
    user_stack: STACK_NONE,
    syscall: -1,
    file: FILE_NONE,
};

/// A thread of the machine: it is watched if its process is traced and it has met no marker.
#[inline(always)]
pub(crate) fn watch(task: Task) {
    let (tgid, tid) = (task::tgid(task), task::tid(task));
    if PROCESSES.get_ptr(tgid).is_none() || !tracing() {
        return;
    }
    let Some(tids) = Tids::table() else { return };
    if tids.get(tid) != flag::NONE {
        return;
    }
    let Some(thread) = new_thread(tid) else {
        return;
    };
    // SAFETY: no precondition; only what its own first marker writes as well is written.
    unsafe {
        let state = &mut (*thread).state;
        identify(state, tgid, tid, bpf_ktime_get_ns());
        // What it does is known from its next switch on.
        state.helper_ns = 0;
    }
    if tids.replace(tid, flag::NONE, flag::HELPER) {
        name(tgid, tid, &task::comm(task));
    }
}

/// A new entry; none where there is one, or where these threads have their share of the table.
#[inline(always)]
fn new_thread(tid: u32) -> Option<*mut Thread> {
    let count = WATCHING.get_ptr_mut(0)?;
    // SAFETY: points to the map's only entry. Some CPUs at once may pass the bound by one each.
    unsafe {
        if count.read_volatile() >= u64::from(MOST_WATCHED.load()) {
            return None;
        }
    }
    insert_new(tid, BPF_NOEXIST.into()).ok()?;
    let thread = THREADS.get_ptr_mut(tid)?;
    // SAFETY: both point into maps.
    unsafe {
        (*thread).state.is_counted = 1;
        add(count, 1);
    }
    Some(thread)
}

/// Takes a thread out of the table.
#[inline(always)]
pub(crate) fn remove(tid: u32) {
    if let (Some(thread), Some(count)) = (THREADS.get_ptr(tid), WATCHING.get_ptr_mut(0)) {
        // SAFETY: both point into maps.
        unsafe {
            if (*thread).state.is_counted != 0 {
                add(count, u64::MAX);
            }
        }
    }
    let _ = THREADS.remove(tid);
}
