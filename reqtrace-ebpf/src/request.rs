//! Begin and end of requests. These run in the traced thread and can be preempted at any
//! instruction, by the scheduler programs too: nothing here is per CPU, begin publishes its flag
//! last, and end reads a switch counter around its clock.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{bpf_get_attach_cookie, bpf_get_current_comm};
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};

use reqtrace_common::config::{Process, tid_flag as flag};
use reqtrace_common::cookie::{Cookie, Frame, condition_holds};
use reqtrace_common::filter::KeepSlow;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{RequestRecord, reason};
use reqtrace_common::thread::{Begin, BeginAction, EndAction, RequestState, Thread};

use crate::assembly::forgotten;
use crate::before;
use crate::blame;
use crate::emit;
use crate::globals::{KEEP_ONE_IN, KEEP_SLOW_NS, LABELS_WANTED};
use crate::interrupt;
use crate::label;
use crate::maps::THREADS;
use crate::maps::{
    PROCESSES, Tids, draw_weight, has_state, lose, random_by_kernel, set_tid_flag, thread_or_new,
    tid_flag, tracing,
};
use crate::passed;
use crate::plan;
use crate::task::current_ids;
use crate::totals::{self, Counter};

/// How often end is tried again when the thread was switched out in the middle of it.
const END_TRIES: usize = 8;

/// A marker that was hit.
pub(crate) struct Marked {
    pub(crate) cookie: Cookie,
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    /// Where the return address of the marked function stands.
    sp: u64,
}

/// A request may begin here.
#[inline(always)]
pub(crate) fn begin<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(hit) = hit(ctx, regs) else { return 0 };
    let label = hit.cookie.label;
    begin_at(regs, &hit, label, 0)
}

/// The same, with conditions and attributes.
#[inline(always)]
pub(crate) fn marked_begin<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(hit) = hit(ctx, regs) else { return 0 };
    let Some((index, plan)) = plan::first(regs, &hit) else {
        return 0;
    };
    if is_traced(&hit) {
        plan::count_hit(index);
    }
    begin_at(regs, &hit, plan.label as u16, plan.attributes)
}

#[inline(always)]
fn begin_at(regs: *mut pt_regs, hit: &Marked, label: u16, attributes: u32) -> u32 {
    let request_type = u32::from(hit.cookie.request_type);
    let Some(tids) = Tids::table() else { return 0 };
    let sp = if matches!(hit.cookie.frame, Frame::Unrelated) {
        0
    } else {
        hit.sp
    };
    // Before anything else: most begins are not recorded where any is not.
    let mut weight = draw_weight(|| passed::random(hit.tid));
    let byte = tids.get(hit.tid);
    if weight != 1 && blame::is_holder(hit.tid, byte) {
        weight = 1;
    }
    if byte == flag::PASSED {
        // A begin inside, or the frame of the request is gone.
        passed::unpack(hit.tid);
    } else if weight == 0
        && byte == flag::KNOWN
        && !blame::holders_wanted()
        && passed::open(hit.tid, request_type, sp)
    {
        totals::count(request_type, Counter::Begins);
        before::pass(hit.tid);
        tids.set(hit.tid, flag::PASSED);
        return 0;
    }
    let weight = forgotten(u64::from(weight), hit.sp) as u32;
    let thread = match known(hit, tids) {
        Some(thread) => {
            totals::count(request_type, Counter::Begins);
            thread
        }
        None => {
            let Some(process) = traced(hit.tgid) else {
                return 0;
            };
            totals::count(request_type, Counter::Begins);
            let Some(thread) = introduce(hit.tgid, hit.tid, &process) else {
                return 0;
            };
            // SAFETY: the current thread's own entry. It is no helper any more.
            unsafe { (*thread).state.needed_ns = 0 };
            thread
        }
    };
    // SAFETY: the entry is this thread's own; it is removed only by this thread, at its exit.
    let thread = unsafe { &mut *thread };
    let begin = Begin {
        now: 0,
        request_type,
        reentry: hit.cookie.reentry,
        sp,
        return_address: 0,
        weight: 0,
    };
    match thread.request.on_begin(&begin) {
        BeginAction::Open => {}
        BeginAction::CloseThenOpen => {
            tids.set(hit.tid, flag::KNOWN);
            close(thread, bpf_now(), reason::NO_END);
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
    if weight == 0 {
        before::pass(hit.tid);
        let now = if blame::holders_wanted() {
            thread.name_record();
            bpf_now()
        } else {
            0
        };
        thread.open_unsampled(&Begin { now, ..begin });
        tids.set(hit.tid, flag::UNSAMPLED);
        return 0;
    }
    let return_address = if matches!(hit.cookie.frame, Frame::Same) {
        return_address(sp)
    } else {
        0
    };
    let label_len = if LABELS_WANTED.load() != 0 {
        label::read(regs, label, &mut thread.request.record)
    } else {
        0
    };
    thread.request.keyed.has_extra = 0;
    before::begins(hit.tid, &mut thread.request);
    if attributes != 0 {
        let request = &mut thread.request;
        plan::attributes(regs, attributes, hit.tgid, request_type, request);
    }
    let begin = Begin {
        now: bpf_now(),
        return_address,
        weight,
        ..begin
    };
    thread.open(&begin);
    thread.request.record.label_len = label_len;
    // Those of the request before may be of another CPU.
    thread.state.is_clocked = 0;
    tids.set(hit.tid, flag::IN_REQUEST);
    interrupt::starts(hit.tid);
    0
}

/// A thread that has met a marker before. Its process need not be looked up: an exec
/// and the thread's exit make it unknown.
#[inline(always)]
fn known(hit: &Marked, tids: Tids) -> Option<*mut Thread> {
    if has_state(tids.get(hit.tid)) {
        THREADS.get_ptr_mut(hit.tid)
    } else {
        None
    }
}

/// A thread of a traced process that meets its first marker.
#[inline(always)]
pub(crate) fn introduce(tgid: u32, tid: u32, process: &Process) -> Option<*mut Thread> {
    let thread = thread_or_new(tid)?;
    // SAFETY: as in begin.
    unsafe {
        (*thread).state.tgid = tgid;
        (*thread).state.tid = tid;
        (*thread).state.exec_generation = process.exec_generation;
        (*thread).state.inherited = process.inherited;
        // From here on it changes when the thread is renamed.
        let comm = &mut (*thread).request.record.comm;
        bpf_get_current_comm(comm.as_mut_ptr().cast(), comm.len() as u32);
    }
    Some(thread)
}

/// A request may end here.
#[inline(always)]
pub(crate) fn end<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(hit) = hit(ctx, regs) else { return 0 };
    end_at(regs, &hit, 0)
}

/// The same, with conditions and attributes.
#[inline(always)]
pub(crate) fn marked_end<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(hit) = hit(ctx, regs) else { return 0 };
    let Some((index, plan)) = plan::first(regs, &hit) else {
        return 0;
    };
    if is_traced(&hit) {
        plan::count_hit(index);
    }
    end_at(regs, &hit, plan.attributes)
}

#[inline(always)]
fn end_at(regs: *mut pt_regs, hit: &Marked, attributes: u32) -> u32 {
    let request_type = u32::from(hit.cookie.request_type);
    let known = tid_flag(hit.tid);
    let sp = if matches!(hit.cookie.frame, Frame::Popped) {
        hit.sp.wrapping_sub(8)
    } else {
        hit.sp
    };
    if known == flag::PASSED {
        totals::count(request_type, Counter::Ends);
        match passed::on_end(hit.tid, request_type, hit.cookie.frame, sp) {
            EndAction::Close => {
                set_tid_flag(hit.tid, flag::KNOWN);
                totals::count(request_type, Counter::Unsampled);
            }
            EndAction::Inner => {}
            EndAction::NoRequest => totals::count(request_type, Counter::EndsWithoutBegin),
        }
        return 0;
    }
    if known != flag::IN_REQUEST && known != flag::UNSAMPLED {
        if let Some(process) = traced(hit.tgid) {
            totals::count(request_type, Counter::Ends);
            if known == flag::BORN || known == flag::BORN_HELPER {
                // How a server greets: PostgreSQL says that it is ready before the first query.
                set_tid_flag(hit.tid, flag::KNOWN);
                return 0;
            }
            totals::count(request_type, Counter::EndsWithoutBegin);
            if known == flag::NONE || known == flag::HELPER {
                running_at_start(hit, request_type, &process);
            }
        }
        return 0;
    }
    let Some(thread) = THREADS.get_ptr_mut(hit.tid) else {
        lose(Loss::ThreadMissing);
        return 0;
    };
    // SAFETY: as in begin.
    let thread = unsafe { &mut *thread };
    totals::count(request_type, Counter::Ends);
    match thread.request.on_end(request_type, hit.cookie.frame, sp) {
        EndAction::Close => {
            if attributes != 0 && thread.request.is_sampled() {
                let request = &mut thread.request;
                plan::attributes(regs, attributes, hit.tgid, request_type, request);
            }
            let now = if thread.request.is_sampled() {
                leave_request(thread, hit.tid)
            } else {
                set_tid_flag(hit.tid, flag::KNOWN);
                if blame::holders_wanted() {
                    bpf_now()
                } else {
                    0
                }
            };
            close(thread, now, reason::COMPLETE);
        }
        EndAction::Inner => {}
        EndAction::NoRequest => totals::count(request_type, Counter::EndsWithoutBegin),
    }
    0
}

/// Takes the flag down at a moment that no switch overlaps, and returns that moment.
#[inline(always)]
pub(crate) fn leave_request(thread: &mut Thread, tid: u32) -> u64 {
    interrupt::stops(tid);
    let switches = &raw const thread.state.switches;
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

/// Closes the open request of a thread whose flag is down, adds it up and sends it.
#[inline(always)]
pub(crate) fn close(thread: &mut Thread, now: u64, why: u32) {
    if thread.request.is_sampled() && thread.state.is_off_cpu() {
        lose(Loss::SwitchInUnseen);
    }
    thread.close(now, why);
    send_closed(&mut thread.request);
}

/// Adds up and sends a request that was closed. One that is not recorded is only counted.
#[inline(always)]
pub(crate) fn send_closed(request: &mut RequestState) {
    let record = &mut request.record;
    if record.weight == 0 {
        count_unrecorded(record.request_type, record.reason);
        if blame::holders_wanted() && record.begin_ns != 0 {
            emit::unrecorded(record);
        }
        return;
    }
    let is_keyed = request.keyed.is_keyed != 0;
    if request.keyed.has_extra == 0 {
        return send_for(record, stands_for(record), is_keyed, true);
    }
    let extra = &mut request.keyed.extra;
    extra.tgid = record.tgid;
    extra.tid = record.tid;
    extra.begin_ns = record.begin_ns;
    let mut away_ns = 0;
    let mut place = 0;
    while place < extra.away_ns.len() {
        away_ns += extra.away_ns[place];
        place += 1;
    }
    if away_ns != 0 {
        totals::add_away(record, away_ns - extra.queued_ns, extra.queued_ns);
    }
    if record.latency_ns() < record.off_cpu_ns() + away_ns {
        lose(Loss::LedgerNegative);
    }
    let stands_for = stands_for(record);
    extra.is_withheld = u32::from(stands_for == 0);
    let mut has_extra = true;
    if stands_for != 0 || extra.texts_set != 0 {
        has_extra = emit::extra(extra) || stands_for == 0;
    }
    send_for(record, stands_for, is_keyed, has_extra);
}

/// Counts a request that was not recorded.
#[inline(always)]
pub(crate) fn count_unrecorded(request_type: u32, why: u32) {
    let counter = if why == reason::COMPLETE {
        Counter::Unsampled
    } else {
        Counter::Incomplete
    };
    totals::count(request_type, counter);
}

/// Adds up a request, and sends it for as many others as [`stands_for`] says. Of one that is not sent it is sent when it was,
/// where something waits for that: blame, and samples of a request with a key, which any thread may have run. One that
/// `has_extra` no more is lost: its parked time would be time on CPU.
#[inline(always)]
fn send_for(record: &mut RequestRecord, stands_for: u32, is_keyed: bool, has_extra: bool) {
    if record.latency_ns() < record.off_cpu_ns() {
        lose(Loss::LedgerNegative);
    }
    totals::add_request(record);
    if stands_for == 0 {
        totals::count(record.request_type, Counter::Withheld);
        if is_keyed || blame::wanted() {
            record.weight = 0;
            emit::unrecorded(record);
        }
        return;
    }
    if !has_extra {
        return lose(Loss::RingFull);
    }
    record.weight = record.weight.saturating_mul(stands_for);
    emit::request(record);
}

/// For how many recorded requests this one is sent; 0: it is not.
#[inline(always)]
fn stands_for(record: &RequestRecord) -> u32 {
    if KEEP_SLOW_NS.load() == 0 || record.reason != reason::COMPLETE {
        return 1;
    }
    stands_for_those_of(record.latency_ns())
}

/// The same of its latency. A function with an external name: the verifier goes over what comes next once, and not once for
/// each way through this.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn stands_for_those_of(latency_ns: u64) -> u32 {
    let keep = KeepSlow {
        slow_ns: KEEP_SLOW_NS.load(),
        one_in: KEEP_ONE_IN.load(),
    };
    keep.stands_for(latency_ns, random_by_kernel)
}

/// The first thing seen of a thread is an end: its request ran when tracing started. What is
/// known of it is when it ended.
#[inline(always)]
fn running_at_start(hit: &Marked, request_type: u32, process: &Process) {
    let Some(thread) = introduce(hit.tgid, hit.tid, process) else {
        return;
    };
    // SAFETY: as in begin.
    let thread = unsafe { &mut *thread };
    thread.name_record();
    let record = &mut thread.request.record;
    record.request_type = request_type;
    record.weight = 1;
    record.reason = reason::RUNNING_AT_START;
    record.begin_ns = 0;
    record.end_ns = bpf_now();
    set_tid_flag(hit.tid, flag::KNOWN);
    send_for(record, 1, false, true);
}

#[inline(always)]
pub(crate) fn hit<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> Option<Marked> {
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
    if cookie.in_request && tid_flag(tid) != flag::IN_REQUEST {
        return None;
    }
    Some(Marked {
        cookie,
        tgid,
        tid,
        sp: cookie.slot.address(rsp, rbp),
    })
}

/// Whether a marker was hit in a traced process.
#[inline(always)]
pub(crate) fn is_traced(hit: &Marked) -> bool {
    has_state(tid_flag(hit.tid)) || PROCESSES.get_ptr(hit.tgid).is_some()
}

/// The process, if it is traced. Probes are set per file: other processes hit them too.
#[inline(always)]
pub(crate) fn traced(tgid: u32) -> Option<Process> {
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
pub(crate) fn bpf_now() -> u64 {
    // SAFETY: no precondition.
    unsafe { bpf_ktime_get_ns() }
}
