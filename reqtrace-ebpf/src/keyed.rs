//! Markers of request types with a key: a hit in; the state machine of [`reqtrace_common::keyed`] on this
//! object's maps, out.
//!
//! Runs in the traced thread, and can be preempted at any instruction; see [`crate::request`].

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;

use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::keyed::{self, KeyId, MAX_KEY_PARTS, Where, Word};
use reqtrace_common::label::Reading;
use reqtrace_common::loss::Loss;
use reqtrace_common::marker::{MarkerPlan, count, marker_flag, op, park_kind};
use reqtrace_common::thread::{Thread, status};

use self::kernel::Kernel;
use crate::assembly::compare_exchange;
use crate::maps::{KEYS, THREADS, has_state, lose, remove_key, set_tid_flag, tid_flag};
use crate::request::{self, Marked};
use crate::{before, blame, label, passed, plan, units};

mod children;
mod external;
mod kernel;
mod nobody;
mod park;
mod recovered;
mod room;
mod taken;
mod waker;

/// A marker of a type with a key, or one that only reads attributes.
#[inline(always)]
pub(crate) fn marker<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(marked) = request::hit(ctx, regs) else {
        return 0;
    };
    if nobody::takes(regs, &marked) {
        return 0;
    }
    let Some((index, plan)) = plan::first(regs, &marked) else {
        return 0;
    };
    let request_type = u32::from(marked.cookie.request_type);
    if plan.op == op::NONE {
        if request::is_traced(&marked) {
            plan::count_hit(index);
        }
        attributes(regs, plan, &marked, request_type);
        return 0;
    }
    let named = KeyId {
        tgid: marked.tgid,
        request_type,
        key: [0; MAX_KEY_PARTS],
    };
    if plan.is_of_request() && tid_flag(marked.tid) != flag::IN_REQUEST {
        // Known from its first hit on: what comes of the others is seen in brief.
        gets_a_state(marked.tgid, marked.tid);
        return 0;
    }
    let mut hit = keyed::Hit {
        op: plan.op,
        flags: plan.flags,
        place: plan.place,
        id: named,
        to: named,
        tid: marked.tid,
    };
    let is_named = plan.flags & (marker_flag::CURRENT | marker_flag::UNIT) == 0;
    let is_read = (!is_named || key(regs, plan.key_parts, &plan.key, &mut hit.id))
        && key(regs, plan.to_parts, &plan.to, &mut hit.to);
    if !is_read {
        lose(Loss::KeyUnreadable);
        return 0;
    }
    let Some(thread) = thread_of(marked.tgid, marked.tid) else {
        return 0;
    };
    if plan.flags & marker_flag::CHILD != 0 {
        // SAFETY: as below.
        if is_running(unsafe { &*thread }, &hit) {
            plan::count_hit(index);
        }
        return 0;
    }
    if children::may_begin(plan.flags, marked.tid, request_type) == 0 {
        return 0;
    }
    plan::count_hit(index);
    if before::wanted() && plan.op == op::RESUME {
        before::pass(marked.tid);
    }
    // SAFETY: points into the map. Read again: the verifier is to know nothing of it.
    hit.op = unsafe { (&raw const plan.op).read_volatile() };
    hit.id.key[0] = units::unit_at_marker(plan.flags, marked.tid, hit.id.key[0], plan.place);
    if plan.flags & marker_flag::UNIT != 0 && hit.id.key[0] == 0 {
        if hit.op != op::NOTE {
            plan::count(index, count::NO_UNIT);
        }
        return 0;
    }
    children::end(plan.flags, marked.tid, request_type, hit.id.key[0]);
    // SAFETY: the entry is this thread's own; it is removed only by this thread, at its exit.
    let thread = unsafe { &mut *thread };
    let kind = plan.park.kind;
    if kind == park_kind::RECOVERED {
        // SAFETY: the registers of the probed thread.
        let here = unsafe { (*regs).rip };
        hit.op = recovered::op_behind_panic(hit.id.key[0], here, index);
    }
    let waits = matches!(
        kind,
        park_kind::GOROUTINE | park_kind::HERE | park_kind::NOTED
    );
    if waits && is_running(thread, &hit) {
        // One call for all kinds: what comes next is looked at once by the verifier.
        hit.place = park::park(hit.id.key[0], index);
    }
    if hit.op == op::NOTE {
        return 0;
    }
    thread.state.parked_until_ns = 0;
    let mut kernel = Kernel {
        regs,
        plan,
        index,
        tgid: marked.tgid,
        tid: marked.tid,
        request_type,
    };
    keyed::hit(&mut kernel, thread, &hit);
    0
}

/// Whether the thread runs the request that is meant, and it is recorded.
#[inline(always)]
fn is_running(thread: &Thread, hit: &keyed::Hit) -> bool {
    let request = &thread.request;
    request.status == status::OPEN
        && request.is_sampled()
        && request.keyed.is_keyed != 0
        && !request.keyed.is_taken()
        && request.keyed.id.request_type == hit.id.request_type
        && (hit.flags & marker_flag::CURRENT != 0 || request.keyed.id.key[0] == hit.id.key[0])
}

/// Reads the parts of a key; `false` when memory could not be read.
#[inline(always)]
fn key(
    regs: *mut pt_regs,
    parts: u32,
    readings: &[Reading; MAX_KEY_PARTS],
    into: &mut KeyId,
) -> bool {
    let mut part = 0;
    while part < MAX_KEY_PARTS && part < parts as usize {
        let Some(value) = label::number(regs, &readings[part]) else {
            return false;
        };
        into.key[part] = value;
        part += 1;
    }
    true
}

/// A marker that only reads attributes, of a request with or without a key.
#[inline(always)]
fn attributes(regs: *mut pt_regs, plan: &MarkerPlan, marked: &Marked, request_type: u32) {
    if tid_flag(marked.tid) != flag::IN_REQUEST {
        return;
    }
    let Some(thread) = THREADS.get_ptr_mut(marked.tid) else {
        lose(Loss::ThreadMissing);
        return;
    };
    // SAFETY: as in `marker`.
    let thread = unsafe { &mut *thread };
    let is_its_own = thread.request.status == status::OPEN && !thread.request.keyed.is_taken();
    if is_its_own && thread.request.record.request_type == request_type {
        let request = &mut thread.request;
        plan::attributes(regs, plan.attributes, marked.tgid, request_type, request);
    }
}

/// The state of the thread, if its process is traced.
#[inline(always)]
fn thread_of(tgid: u32, tid: u32) -> Option<*mut Thread> {
    if tid_flag(tid) == flag::PASSED {
        passed::unpack(tid);
    }
    // Read again: the verifier goes once over what follows.
    match tid_flag(tid) {
        byte if has_state(byte) => THREADS.get_ptr_mut(tid),
        _ => {
            let process = request::traced(tgid)?;
            let thread = request::introduce(tgid, tid, &process)?;
            if !blame::is_helper(tid_flag(tid)) {
                rest(tid, thread);
            }
            Some(thread)
        }
    }
}

/// The same in a function with an external name, for which `marker` needs no stack: it has a state from here on.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gets_a_state(tgid: u32, tid: u32) -> u32 {
    u32::from(thread_of(tgid, tid).is_some())
}

/// The thread runs no request. With blame its intervals are recorded all the same: what is parked waits
/// for it.
#[inline(always)]
fn rest(tid: u32, thread: *mut Thread) {
    if !blame::wanted() {
        set_tid_flag(tid, flag::KNOWN);
        return;
    }
    // SAFETY: the current thread's own entry.
    unsafe {
        let now = request::bpf_now();
        let state = &mut (*thread).state;
        if state.helper_ns == 0 {
            state.helper_ns = now;
            blame::name(state.tgid, state.tid, &(*thread).request.record.comm);
        }
        state.needed_ns = now;
    }
    set_tid_flag(tid, flag::HELPER);
}

/// The thread leaves, and what it runs with it, if it has a key: nobody else can take that. Whether it is the
/// thread's.
#[inline(always)]
pub(crate) fn gives_up(thread: &Thread) -> bool {
    let keyed = &thread.request.keyed;
    if keyed.is_keyed == 0 {
        return true;
    }
    let Some(entry) = KEYS.get_ptr_mut(keyed.id) else {
        return false;
    };
    let mut tries = 0;
    while tries < 2 {
        tries += 1;
        // SAFETY: points into the map.
        unsafe {
            let found = (&raw const (*entry).word).read_volatile();
            let word = Word::decode(found);
            if word.ticket != keyed.ticket || !matches!(word.at, Where::Running(_)) {
                return false;
            }
            let busy = Word::busy(word.ticket).encode();
            if compare_exchange(&raw mut (*entry).word, found, busy) == found {
                remove_key(&keyed.id);
                return true;
            }
        }
    }
    false
}
