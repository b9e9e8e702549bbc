//! Markers of request types with a key: a hit in; the state machine of [`reqtrace_common::keyed`] on this
//! object's maps, out.
//!
//! Runs in the traced thread, and can be preempted at any instruction; see [`crate::request`].

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_probe_read_kernel};

use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::keyed::{self, KeyEntry, KeyId, Misfit, World};
use reqtrace_common::loss::Loss;
use reqtrace_common::marker::{MarkerPlan, marker_flag, op};
use reqtrace_common::record::{AwayRecord, kind, waker_is};
use reqtrace_common::thread::{RequestState, Thread, status};

use crate::assembly::compare_exchange;
use crate::globals::LABELS_WANTED;
use crate::maps::{KEYS, PARKED, THREADS, draw_weight, lose, set_tid_flag, tid_flag};
use crate::request::{self, Marked};
use crate::totals::{self, Counter};
use crate::{before, blame, emit, label, plan};

/// A marker of a type with a key, or one that only reads attributes.
#[inline(always)]
pub(crate) fn marker<C: EbpfContext>(ctx: &C, regs: *mut pt_regs) -> u32 {
    let Some(marked) = request::hit(ctx, regs) else {
        return 0;
    };
    let Some(plan) = plan::first(regs, marked.cookie.label) else {
        return 0;
    };
    let request_type = u32::from(marked.cookie.request_type);
    if plan.op == op::NONE {
        attributes(regs, plan, &marked, request_type);
        return 0;
    }
    let named = |key: u64| KeyId {
        tgid: marked.tgid,
        request_type,
        key,
    };
    let mut hit = keyed::Hit {
        op: plan.op,
        flags: plan.flags,
        place: plan.place,
        id: named(0),
        to: named(0),
        tid: marked.tid,
    };
    if plan.flags & marker_flag::CURRENT == 0 {
        let Some(key) = label::number(regs, &plan.key) else {
            lose(Loss::KeyUnreadable);
            return 0;
        };
        hit.id.key = key;
    }
    if plan.op == op::ADOPT {
        let Some(key) = label::number(regs, &plan.to) else {
            lose(Loss::KeyUnreadable);
            return 0;
        };
        hit.to.key = key;
    }
    let Some(thread) = thread_of(&marked) else {
        return 0;
    };
    // SAFETY: the entry is this thread's own; it is removed only by this thread, at its exit.
    let thread = unsafe { &mut *thread };
    let mut kernel = Kernel {
        regs,
        plan,
        tgid: marked.tgid,
        tid: marked.tid,
        request_type,
    };
    keyed::hit(&mut kernel, thread, &hit);
    0
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
    if thread.request.status == status::OPEN && thread.request.record.request_type == request_type {
        let request = &mut thread.request;
        plan::attributes(regs, plan.attributes, marked.tgid, request_type, request);
    }
}

/// The state of the thread, if its process is traced.
#[inline(always)]
fn thread_of(marked: &Marked) -> Option<*mut Thread> {
    match tid_flag(marked.tid) {
        flag::KNOWN | flag::IN_REQUEST | flag::UNSAMPLED => THREADS.get_ptr_mut(marked.tid),
        _ => {
            let process = request::traced(marked.tgid)?;
            let thread = request::introduce(marked, &process)?;
            if !blame::is_helper(tid_flag(marked.tid)) {
                rest(marked.tid, thread);
            }
            Some(thread)
        }
    }
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

/// The maps of this object, for one hit.
struct Kernel<'a> {
    regs: *mut pt_regs,
    plan: &'a MarkerPlan,
    tgid: u32,
    tid: u32,
    request_type: u32,
}

impl World for Kernel<'_> {
    type Entry = *mut KeyEntry;

    #[inline(always)]
    fn entry(&mut self, id: &KeyId) -> Option<*mut KeyEntry> {
        KEYS.get_ptr_mut(id)
    }

    #[inline(always)]
    fn look(&mut self, entry: *mut KeyEntry) -> KeyEntry {
        // SAFETY: points into the map. An entry that is taken out meanwhile may be another key's: then its
        // stamp is another one.
        unsafe {
            KeyEntry {
                word: (&raw const (*entry).word).read_volatile(),
                stamp_ns: (&raw const (*entry).stamp_ns).read_volatile(),
                weight: (&raw const (*entry).weight).read_volatile(),
            }
        }
    }

    #[inline(always)]
    fn exchange(&mut self, entry: *mut KeyEntry, from: u64, to: u64) -> bool {
        // SAFETY: points into the map.
        unsafe { compare_exchange(&raw mut (*entry).word, from, to) == from }
    }

    #[inline(always)]
    fn insert(&mut self, id: &KeyId, entry: &KeyEntry) -> bool {
        KEYS.insert(id, entry, 0).is_ok()
    }

    #[inline(always)]
    fn remove(&mut self, id: &KeyId) {
        let _ = KEYS.remove(id);
    }

    #[inline(always)]
    fn store(&mut self, id: &KeyId, request: &RequestState) -> bool {
        PARKED.insert(id, request, 0).is_ok()
    }

    #[inline(always)]
    fn store_again(&mut self, from: &KeyId, to: &KeyId) -> bool {
        let Some(stored) = PARKED.get_ptr_mut(from) else {
            return false;
        };
        // SAFETY: points into the map, and the word of its key says that nobody else moves it.
        unsafe {
            (*stored).keyed.id = *to;
            let request: &RequestState = &*stored;
            PARKED.insert(to, request, 0).is_ok()
        }
    }

    #[inline(always)]
    fn with_stored(
        &mut self,
        id: &KeyId,
        change: impl FnOnce(&mut Self, &mut RequestState),
    ) -> bool {
        let Some(stored) = PARKED.get_ptr_mut(id) else {
            return false;
        };
        // SAFETY: as above.
        change(self, unsafe { &mut *stored });
        true
    }

    #[inline(always)]
    fn fetch(&mut self, id: &KeyId, into: &mut RequestState) -> bool {
        let Some(stored) = PARKED.get_ptr(id) else {
            return false;
        };
        // SAFETY: the helper writes the size of a state, into one.
        let failed = unsafe {
            bpf_probe_read_kernel(
                (&raw mut *into).cast(),
                size_of::<RequestState>() as u32,
                stored.cast(),
            )
        };
        let _ = PARKED.remove(id);
        failed == 0
    }

    #[inline(always)]
    fn discard(&mut self, id: &KeyId) {
        let _ = PARKED.remove(id);
    }

    #[inline(always)]
    fn now(&mut self) -> u64 {
        request::bpf_now()
    }

    #[inline(always)]
    fn unique_now(&mut self) -> u64 {
        plan::unique_now()
    }

    #[inline(always)]
    fn enter(&mut self, thread: &mut Thread) {
        let byte = if thread.request.is_sampled() {
            flag::IN_REQUEST
        } else {
            flag::UNSAMPLED
        };
        before::pass(thread.state.tid);
        set_tid_flag(thread.state.tid, byte);
    }

    #[inline(always)]
    fn leave(&mut self, thread: &mut Thread) -> u64 {
        let tid = thread.state.tid;
        let now = if thread.request.is_sampled() {
            request::leave_request(thread, tid)
        } else {
            request::bpf_now()
        };
        rest(tid, thread);
        now
    }

    #[inline(always)]
    fn weight(&mut self) -> u32 {
        draw_weight()
    }

    #[inline(always)]
    fn read(&mut self, request: &mut RequestState, is_begin: bool) {
        if is_begin {
            before::begins(self.tid, request);
        } else if !request.is_sampled() {
            return;
        }
        let first = self.plan.attributes;
        plan::attributes(self.regs, first, self.tgid, self.request_type, request);
        if is_begin && LABELS_WANTED.load() != 0 {
            let record = &mut request.record;
            record.label_len = label::read(self.regs, self.plan.label as u16, record);
        }
    }

    #[inline(always)]
    fn name(&mut self, thread: &mut Thread) {
        let comm = &mut thread.request.record.comm;
        // SAFETY: the helper writes at most the size that it is given.
        unsafe {
            bpf_get_current_comm(comm.as_mut_ptr().cast(), comm.len() as u32);
        }
    }

    #[inline(always)]
    fn send(&mut self, request: &mut RequestState) {
        request::send_closed(request);
    }

    #[inline(always)]
    fn was_away(&mut self, request: &RequestState, place: u32, until_ns: u64, thread: &Thread) {
        if !blame::wanted() {
            return;
        }
        let by = &thread.request;
        let is_other = by.status == status::OPEN && !core::ptr::eq(by, request);
        let record = &request.record;
        emit::away(AwayRecord {
            kind: kind::AWAY,
            tgid: record.tgid,
            from_tid: record.tid,
            by_tid: thread.state.tid,
            exec_generation: record.exec_generation,
            request_type: record.request_type,
            place,
            queued: request.keyed.queued,
            request_begin_ns: record.begin_ns,
            since_ns: request.keyed.since_ns,
            until_ns,
            by_is: if is_other {
                waker_is::IN_REQUEST
            } else {
                waker_is::UNKNOWN
            },
            by_request_type: if is_other { by.record.request_type } else { 0 },
            by_begin_ns: if is_other { by.record.begin_ns } else { 0 },
        });
    }

    #[inline(always)]
    fn begun(&mut self, request_type: u32) {
        totals::count(request_type, Counter::Begins);
    }

    #[inline(always)]
    fn ended(&mut self, request_type: u32) {
        totals::count(request_type, Counter::Ends);
    }

    #[inline(always)]
    fn misfit(&mut self, request_type: u32, what: Misfit) {
        let counter = match what {
            Misfit::Unknown => Counter::UnknownKeys,
            Misfit::EndWithoutBegin => Counter::EndsWithoutBegin,
            Misfit::Elsewhere => Counter::RunningElsewhere,
            Misfit::OtherType => Counter::OtherType,
        };
        totals::count(request_type, counter);
    }

    #[inline(always)]
    fn lose(&mut self, loss: Loss) {
        lose(loss);
    }
}
