//! Processes and threads that come, change their program, and go.

use core::ffi::c_void;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_probe_read_kernel_str};
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;

use reqtrace_common::config::{Process, follow, tid_flag as flag};
use reqtrace_common::limits::COMM_LEN;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{ProcessRecord, kind, process_event, reason};
use reqtrace_common::thread::status;

use crate::maps::{
    MAPPINGS, PROCESSES, THREADS, WATCHED, lose, set_tid_flag, stopped, tid_flag, tracing,
};
use crate::request::close;
use crate::task::{self, Task};
use crate::{assembly, before, blame, emit, file, keyed, maps, passed, units, watch};

/// How often at most user space is asked to look at the mappings of a process.
const MAPPED_PAUSE_NS: u64 = 100_000_000;

/// `sched_process_fork(parent, child)`: every new thread and process.
#[inline(always)]
pub(crate) fn fork(ctx: &BtfTracePointContext) -> i32 {
    let parent: Task = ctx.arg(0);
    let child: Task = ctx.arg(1);
    let tid = task::tid(child);
    let tgid = task::tgid(child);
    before::born(tid);
    if tid_flag(tid) != flag::NONE {
        // The exit of the thread that had this id before was missed.
        set_tid_flag(tid, flag::NONE);
        watch::remove(tid);
    }
    passed::free(tid);
    units::free(tid);
    if stopped() {
        return 0;
    }
    if tid != tgid {
        // SAFETY: points into the map.
        let bits = PROCESSES
            .get_ptr(tgid)
            .map(|process| unsafe { (*process).follow });
        if let Some(bits) = bits {
            born(child, tid, bits & follow::WAS_LATE == 0);
        }
        return 0;
    }
    let parent_tgid = task::tgid(parent);
    // SAFETY: copied at once.
    let known = unsafe { PROCESSES.get(parent_tgid) }.copied();
    let Some(known) = known.filter(|known| known.follow & follow::CHILDREN != 0) else {
        // A traced process with this id left long ago; this one is somebody else.
        if PROCESSES.get_ptr(tgid).is_some() {
            let _ = PROCESSES.remove(tgid);
        }
        if PROCESSES.get_ptr(parent_tgid).is_some() {
            born(child, tid, false);
        }
        return 0;
    };
    // A child begins with its parent's mappings; a parent without tables of its own passes on
    // what it has itself inherited.
    let own = u64::from(parent_tgid) << 32 | u64::from(known.exec_generation);
    let inherited = if MAPPINGS.get_ptr(own).is_some() {
        own
    } else {
        known.inherited
    };
    let late = known.follow & follow::LATE != 0;
    let new = Process {
        exec_generation: 0,
        follow: known.follow | if late { follow::WAS_LATE } else { 0 },
        inherited,
        asked_ns: 0,
        ended_ns: 0,
    };
    if PROCESSES.insert(tgid, new, 0).is_err() {
        lose(Loss::ProcessTableFull);
        return 0;
    }
    born(child, tid, !late);
    debug!(
        ctx,
        "process {} forked {}, which is followed", parent_tgid, tgid
    );
    announce(process_event::FORK, tgid, parent_tgid, 0);
    0
}

/// A traced process has a new thread, or a child. With blame it is watched. No marker of one that has all probes goes unseen;
/// before all of them are set, one may.
#[inline(always)]
fn born(child: Task, tid: u32, has_probes: bool) {
    if tracing() {
        // SAFETY: no precondition.
        let now = unsafe { bpf_ktime_get_ns() };
        set_tid_flag(
            tid,
            flag_of(has_probes, blame::wanted() && watch::born(child, now)),
        );
    }
}

#[inline(always)]
fn flag_of(has_probes: bool, is_helper: bool) -> u8 {
    match (has_probes, is_helper) {
        (true, true) => flag::BORN_HELPER,
        (true, false) => flag::BORN,
        (false, true) => flag::HELPER,
        (false, false) => flag::NONE,
    }
}

/// `sched_process_exec(task, old_pid, bprm)`: a thread that is not the leader takes over the
/// leader's id.
#[inline(always)]
pub(crate) fn exec(ctx: &BtfTracePointContext) -> i32 {
    let (tgid, tid) = task::current_ids();
    let is_new = PROCESSES.get_ptr(tgid).is_none();
    if stopped() || is_new && !adopt(ctx.arg(2), tgid) {
        return 0;
    }
    let Some(process) = PROCESSES.get_ptr_mut(tgid) else {
        return 0;
    };
    // SAFETY: all other threads of the process are gone by now.
    let generation = unsafe {
        if !is_new {
            (*process).exec_generation = (*process).exec_generation.wrapping_add(1);
        }
        (*process).inherited = 0;
        (*process).exec_generation
    };
    let old_tid: u32 = ctx.arg(1);
    let stays = old_tid == tid && watch::runs_another_program(tid, generation);
    if !stays {
        forget(old_tid, reason::EXEC);
        if old_tid != tid {
            forget(tid, reason::EXEC);
        }
    }
    debug!(ctx, "process {} called exec", tgid);
    if tracing() {
        // SAFETY: points into the map.
        let has_probes = is_new && unsafe { (*process).follow } & follow::WAS_LATE == 0;
        // SAFETY: no precondition.
        let now = unsafe { bpf_ktime_get_ns() };
        let is_helper = stays || blame::wanted() && blame::introduce(tgid, tid, now);
        set_tid_flag(tid, flag_of(has_probes, is_helper));
    }
    let event = match is_new {
        true => process_event::PROGRAM,
        false => process_event::EXEC,
    };
    announce(event, tgid, 0, generation);
    0
}

/// Traces a process that was not traced, if the program that it begins to run is watched.
#[inline(always)]
fn adopt(binprm: *const c_void, tgid: u32) -> bool {
    let number = file::number_of_program(binprm);
    // SAFETY: copied at once.
    let Some(follow) = number.and_then(|number| unsafe { WATCHED.get(number) }.copied()) else {
        return false;
    };
    let new = Process {
        exec_generation: 0,
        follow,
        inherited: 0,
        asked_ns: 0,
        ended_ns: 0,
    };
    let is_stored = PROCESSES.insert(tgid, new, 0).is_ok();
    if !is_stored {
        lose(Loss::ProcessTableFull);
    }
    is_stored
}

/// `sched_process_exit`: runs in the thread that leaves.
#[inline(always)]
pub(crate) fn exit(ctx: &BtfTracePointContext) -> i32 {
    let (tgid, tid) = task::current_ids();
    let byte = tid_flag(tid);
    units::free(tid);
    // A helper may wake who waits for its end: it is watched until it leaves its last CPU. With blame, a thread that
    // was a helper once has an entry.
    if !blame::is_helper(byte) && (byte != flag::NONE || blame::wanted()) && !stopped() {
        forget(tid, reason::THREAD_DIED);
    } else {
        passed::free(tid);
    }
    let Some(process) = PROCESSES.get_ptr_mut(tgid).filter(|_| !stopped()) else {
        return 0;
    };
    // SAFETY: points into the map, whose values are aligned to 8; threads end on several CPUs at once.
    unsafe {
        assembly::add(&raw mut (*process).ended_ns, task::ran_ns(ctx.arg(0)));
    }
    if tid == tgid {
        debug!(ctx, "the main thread of process {} left", tgid);
        // The table keeps the entry: other threads may live on without their leader.
        announce(process_event::EXIT, tgid, 0, 0);
    }
    0
}

/// `task_rename(task, comm)`: a thread that serves requests gets another name, which it has from its next
/// request on, or from the one that it serves.
#[inline(always)]
pub(crate) fn rename(ctx: &BtfTracePointContext) -> i32 {
    let task: Task = ctx.arg(0);
    let tid = task::tid(task);
    let byte = tid_flag(tid);
    let is_helper = blame::is_helper(byte);
    if !is_helper && !maps::has_state(byte) {
        return 0;
    }
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        return 0;
    };
    let name: *const u8 = ctx.arg(1);
    // SAFETY: the helper writes at most the size it is given; nothing else writes a name.
    unsafe {
        let comm = &mut (*thread).request.record.comm;
        comm.fill(0);
        let _ = bpf_probe_read_kernel_str(comm.as_mut_ptr().cast(), comm.len() as u32, name.cast());
        if is_helper {
            blame::name((*thread).state.tgid, tid, comm);
        }
    }
    0
}

/// A stack went through code that is in no known mapping: user space is asked to look, once in a
/// while.
#[inline(always)]
pub(crate) fn mapped(space: u64) {
    let tgid = (space >> 32) as u32;
    let Some(process) = PROCESSES.get_ptr_mut(tgid) else {
        return;
    };
    // SAFETY: points into the map; two CPUs may both ask, which does no harm.
    unsafe {
        let now = bpf_ktime_get_ns();
        if now.wrapping_sub((*process).asked_ns) < MAPPED_PAUSE_NS {
            return;
        }
        (*process).asked_ns = now;
        announce(process_event::MAPPED, tgid, 0, (*process).exec_generation);
    }
}

/// Closes what a thread has open and forgets it.
#[inline(always)]
fn forget(tid: u32, why: u32) {
    if tid_flag(tid) == flag::PASSED {
        passed::unpack(tid);
    }
    passed::free(tid);
    units::free(tid);
    set_tid_flag(tid, flag::NONE);
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        return;
    };
    // SAFETY: the flag is down and the thread is the current one.
    let thread = unsafe { &mut *thread };
    let status = thread.request.status;
    if status != status::NONE {
        let abandoned = status == status::ABANDONED;
        // SAFETY: no precondition.
        let now = unsafe { bpf_ktime_get_ns() };
        if keyed::gives_up(thread) {
            close(thread, now, if abandoned { reason::NO_END } else { why });
        }
    }
    watch::remove(tid);
}

#[inline(always)]
fn announce(event: u32, tgid: u32, parent: u32, exec_generation: u32) {
    let mut comm = [0; COMM_LEN];
    // SAFETY: it has as many bytes.
    unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast(), comm.len() as u32) };
    emit::process(&ProcessRecord {
        comm,
        kind: kind::PROCESS,
        event,
        tgid,
        parent,
        exec_generation,
        pad: 0,
        // SAFETY: no precondition.
        time_ns: unsafe { bpf_ktime_get_ns() },
    });
}
