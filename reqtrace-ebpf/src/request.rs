//! Begin and end of requests. These run in the traced thread and can be preempted at any
//! instruction, by the scheduler programs too: nothing here is per CPU, begin publishes its flag
//! last, and end reads a switch counter around its clock.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{bpf_get_attach_cookie, bpf_get_current_comm};
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};

use reqtrace_common::config::{Process, tid_flag as flag};
use reqtrace_common::cookie::{Cookie, Frame, condition_holds};
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{RequestRecord, kind, reason};
use reqtrace_common::thread::{Begin, BeginAction, EndAction, ThreadState};

use crate::emit;
use crate::globals::LABELS_WANTED;
use crate::label;
use crate::maps::THREADS;
use crate::maps::{
    PROCESSES, Tids, draw_weight, lose, set_tid_flag, thread_or_new, tid_flag, tracing,
};
use crate::task::current_ids;
use crate::totals::{self, Counter};

/// How often end is tried again when the thread was switched out in the middle of it.
const END_TRIES: usize = 8;

/// A marker that was hit in a traced process.
struct Hit {
    cookie: Cookie,
    tgid: u32,
    tid: u32,
    /// Where the return address of the marked function stands.
    sp: u64,
}

/// A request may begin here.
#[inline(always)]
pub(crate) fn begin<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(hit) = hit(ctx, regs) else { return 0 };
    let request_type = u32::from(hit.cookie.request_type);
    let Some(tids) = Tids::table() else { return 0 };
    let state = match known(&hit, tids) {
        Some(state) => {
            totals::count(request_type, Counter::Begins);
            state
        }
        None => {
            let Some(process) = traced(hit.tgid) else {
                return 0;
            };
            totals::count(request_type, Counter::Begins);
            let Some(state) = introduce(&hit, &process) else {
                return 0;
            };
            state
        }
    };
    // SAFETY: the entry is this thread's own; it is removed only by this thread, at its exit.
    let state = unsafe { &mut *state };
    let sp = if matches!(hit.cookie.frame, Frame::Unrelated) {
        0
    } else {
        hit.sp
    };
    let begin = Begin {
        now: 0,
        request_type,
        reentry: hit.cookie.reentry,
        sp,
        return_address: 0,
        weight: 0,
    };
    match state.on_begin(&begin) {
        BeginAction::Open => {}
        BeginAction::CloseThenOpen => {
            tids.set(hit.tid, flag::KNOWN);
            close(state, bpf_now(), reason::NO_END);
        }
        BeginAction::Nested | BeginAction::Ignored => {
            totals::count(request_type, Counter::Nested);
            return 0;
        }
        BeginAction::OtherType => {
            totals::count(request_type, Counter::OtherType);
            return 0;
        }
    }
    let weight = draw_weight();
    if weight == 0 {
        state.open_unsampled(&begin);
        tids.set(hit.tid, flag::UNSAMPLED);
        return 0;
    }
    let return_address = if matches!(hit.cookie.frame, Frame::Same) {
        return_address(sp)
    } else {
        0
    };
    let label_len = if LABELS_WANTED.load() != 0 {
        label::read(regs, hit.cookie.label, &mut state.record)
    } else {
        0
    };
    let begin = Begin {
        now: bpf_now(),
        return_address,
        weight,
        ..begin
    };
    let exec_generation = state.record.exec_generation;
    state.open(&begin, hit.tgid, hit.tid, exec_generation);
    state.record.label_len = label_len;
    tids.set(hit.tid, flag::IN_REQUEST);
    0
}

/// The state of a thread that has met a marker before. Its process need not be looked up: an exec
/// and the thread's exit make it unknown.
#[inline(always)]
fn known(hit: &Hit, tids: Tids) -> Option<*mut ThreadState> {
    match tids.get(hit.tid) {
        flag::KNOWN | flag::IN_REQUEST | flag::UNSAMPLED => THREADS.get_ptr_mut(hit.tid),
        _ => None,
    }
}

/// The state of a thread of a traced process that meets its first marker.
#[inline(always)]
fn introduce(hit: &Hit, process: &Process) -> Option<*mut ThreadState> {
    let state = thread_or_new(hit.tid)?;
    // SAFETY: as in begin.
    unsafe {
        (*state).record.tgid = hit.tgid;
        (*state).record.tid = hit.tid;
        (*state).record.exec_generation = process.exec_generation;
        (*state).inherited = process.inherited;
    }
    Some(state)
}

/// A request may end here.
#[inline(always)]
pub(crate) fn end<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(hit) = hit(ctx, regs) else { return 0 };
    let request_type = u32::from(hit.cookie.request_type);
    let known = tid_flag(hit.tid);
    if known != flag::IN_REQUEST && known != flag::UNSAMPLED {
        if let Some(process) = traced(hit.tgid) {
            totals::count(request_type, Counter::Ends);
            if known == flag::BORN {
                // How a server greets: PostgreSQL says that it is ready before the first query.
                set_tid_flag(hit.tid, flag::KNOWN);
                return 0;
            }
            totals::count(request_type, Counter::EndsWithoutBegin);
            if known == flag::NONE {
                running_at_start(&hit, request_type, &process);
            }
        }
        return 0;
    }
    let Some(state) = THREADS.get_ptr_mut(hit.tid) else {
        lose(Loss::ThreadMissing);
        return 0;
    };
    // SAFETY: as in begin.
    let state = unsafe { &mut *state };
    totals::count(request_type, Counter::Ends);
    let sp = if matches!(hit.cookie.frame, Frame::Popped) {
        hit.sp.wrapping_sub(8)
    } else {
        hit.sp
    };
    match state.on_end(request_type, hit.cookie.frame, sp) {
        EndAction::Close => {
            let now = if state.is_sampled() {
                leave_request(state, hit.tid)
            } else {
                set_tid_flag(hit.tid, flag::KNOWN);
                0
            };
            close(state, now, reason::COMPLETE);
        }
        EndAction::Inner => {}
        EndAction::NoRequest => totals::count(request_type, Counter::EndsWithoutBegin),
    }
    0
}

/// Takes the flag down at a moment that no switch overlaps, and returns that moment.
#[inline(always)]
fn leave_request(state: &mut ThreadState, tid: u32) -> u64 {
    let switches = &raw const state.switches;
    let mut tries = 0;
    while tries < END_TRIES {
        // SAFETY: the scheduler programs change the counter while this thread is switched out.
        let before = unsafe { switches.read_volatile() };
        let now = bpf_now();
        set_tid_flag(tid, flag::KNOWN);
        // SAFETY: as above.
        if unsafe { switches.read_volatile() } == before {
            return now;
        }
        set_tid_flag(tid, flag::IN_REQUEST);
        tries += 1;
    }
    set_tid_flag(tid, flag::KNOWN);
    lose(Loss::EndRaced);
    bpf_now()
}

/// Closes the open request of a thread whose flag is down, adds it up and sends it. One that is not
/// recorded is only counted.
#[inline(always)]
pub(crate) fn close(state: &mut ThreadState, now: u64, why: u32) {
    if !state.is_sampled() {
        state.close(now, why);
        totals::count(
            state.record.request_type,
            if why == reason::COMPLETE {
                Counter::Unsampled
            } else {
                Counter::Incomplete
            },
        );
        return;
    }
    if state.is_off_cpu() {
        lose(Loss::SwitchInUnseen);
    }
    state.close(now, why);
    send(&mut state.record);
}

#[inline(always)]
fn send(record: &mut RequestRecord) {
    // SAFETY: the helper writes at most the size it is given.
    unsafe {
        bpf_get_current_comm(record.comm.as_mut_ptr().cast(), record.comm.len() as u32);
    }
    if record.latency_ns() < record.off_cpu_ns() {
        lose(Loss::LedgerNegative);
    }
    totals::add_request(record);
    emit::request(record);
}

/// The first thing seen of a thread is an end: its request ran when tracing started. What is
/// known of it is when it ended.
#[inline(always)]
fn running_at_start(hit: &Hit, request_type: u32, process: &Process) {
    let Some(state) = introduce(hit, process) else {
        return;
    };
    // SAFETY: as in begin.
    let record = unsafe { &mut (*state).record };
    record.kind = kind::REQUEST;
    record.request_type = request_type;
    record.weight = 1;
    record.reason = reason::RUNNING_AT_START;
    record.begin_ns = 0;
    record.end_ns = bpf_now();
    set_tid_flag(hit.tid, flag::KNOWN);
    send(record);
}

#[inline(always)]
fn hit<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> Option<Hit> {
    if !tracing() {
        return None;
    }
    // SAFETY: `ctx` is the context of a uprobe program.
    let cookie = Cookie::decode(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    // SAFETY: the context of a uprobe program is its registers.
    let (rsp, rbp, flags) = unsafe {
        // Volatile: of two loads the compiler would make one at a variable offset of the context,
        // which the verifier refuses.
        (
            (&raw const (*regs).rsp).read_volatile(),
            (&raw const (*regs).rbp).read_volatile(),
            (*regs).eflags,
        )
    };
    if let Some(code) = cookie.condition
        && !condition_holds(code, flags)
    {
        return None;
    }
    let (tgid, tid) = current_ids();
    Some(Hit {
        cookie,
        tgid,
        tid,
        sp: cookie.slot.address(rsp, rbp),
    })
}

/// The process, if it is traced. Probes are set per file: other processes hit them too.
#[inline(always)]
fn traced(tgid: u32) -> Option<Process> {
    // SAFETY: copied at once; a concurrent exec of the same process cannot happen here.
    unsafe { PROCESSES.get(tgid) }.copied()
}

/// What stands at a stack pointer; 0 when it cannot be read.
#[inline(always)]
fn return_address(sp: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(sp as *const u64) }.unwrap_or(0)
}

#[inline(always)]
fn bpf_now() -> u64 {
    // SAFETY: no precondition.
    unsafe { bpf_ktime_get_ns() }
}
