//! What the state machine of [`reqtrace_common::keyed`] does to the world: its steps in; changes of this object's maps,
//! and what is read of the traced process, out.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_probe_read_kernel};

use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::keyed::{
    By, Hit, Inserted, Job, KeyEntry, KeyId, Look, Misfit, PARKED as PARKED_PLACE, TICKETS, World,
    is_end,
};
use reqtrace_common::loss::Loss;
use reqtrace_common::marker::{MarkerPlan, count, marker_flag, op};
use reqtrace_common::record::{LastRun, STACK_NONE, waker_is};
use reqtrace_common::thread::{RequestState, Thread};

use super::external::{
    RUNNING, keyed_close, keyed_count_resume, keyed_exchange, keyed_goes_on, keyed_insert,
    keyed_over, keyed_part, keyed_remove,
};
use super::{children, park, rest, room, taken, waker};
use crate::assembly::fetch_add;
use crate::globals::LABELS_WANTED;
use crate::maps::{
    E2BIG, KEYS, PARKED, THREADS, TICKET, insert_parked, lose, remove_parked, set_tid_flag,
};
use crate::totals::Counter;
use crate::{before, blame, emit, interrupt, label, origin, plan, request, task, totals};

/// Where a new entry of [`PARKED`] is copied from: it is larger than the BPF stack.
static NEW_REQUEST: RequestState = RequestState::ZERO;

/// The maps of this object, for one hit. Without registers and plan nothing is read of the traced process.
pub(super) struct Kernel {
    pub(super) regs: *mut pt_regs,
    pub(super) plan: *const MarkerPlan,
    /// Of the plan.
    pub(super) index: u32,
    pub(super) tgid: u32,
    pub(super) tid: u32,
    pub(super) request_type: u32,
}

impl World for Kernel {
    type Entry = *mut KeyEntry;

    #[inline(always)]
    fn nowhere(&self) -> *mut KeyEntry {
        core::ptr::null_mut()
    }

    #[inline(always)]
    fn entry(&mut self, id: &KeyId) -> Option<*mut KeyEntry> {
        KEYS.get_ptr_mut(id)
    }

    #[inline(always)]
    fn look(&mut self, entry: *mut KeyEntry) -> Look {
        // SAFETY: points into the map. What stands there may be another key's by now: its word is another one.
        unsafe {
            Look {
                word: (&raw const (*entry).word).read_volatile(),
                ready_ns: (&raw const (*entry).ready_ns).read_volatile(),
                job: (&raw const (*entry).job).read_volatile(),
                weight: (&raw const (*entry).weight).read_volatile(),
            }
        }
    }

    #[inline(always)]
    fn exchange(&mut self, id: &KeyId, from: u64, to: u64) -> bool {
        let of = u64::from(id.tgid) << 32 | u64::from(id.request_type);
        keyed_exchange(of, id.key[0], id.key[1], from, to) != 0
    }

    #[inline(always)]
    fn note_left(&mut self, entry: *mut KeyEntry, left: &RequestState) {
        if entry.is_null() {
            return;
        }
        let record = &left.record;
        // SAFETY: points into the map.
        unsafe {
            (&raw mut (*entry).may_be_at).write_volatile(left.keyed.may_be_at());
            (&raw mut (*entry).since_ns).write_volatile(left.keyed.since_ns);
            (&raw mut (*entry).begin_ns).write_volatile(record.begin_ns);
            (&raw mut (*entry).place).write_volatile(left.keyed.place);
            (&raw mut (*entry).tid).write_volatile(record.tid);
            (&raw mut (*entry).exec_generation).write_volatile(record.exec_generation);
        }
    }

    #[inline(always)]
    fn note_weight(&mut self, entry: *mut KeyEntry, weight: u32) {
        if entry.is_null() {
            return;
        }
        // SAFETY: points into the map.
        unsafe { (&raw mut (*entry).weight).write_volatile(weight) }
    }

    #[inline(always)]
    fn note_all_of(&mut self, entry: *mut KeyEntry, other: *mut KeyEntry) {
        if entry.is_null() || other.is_null() {
            return;
        }
        // SAFETY: both point into the map.
        unsafe {
            (&raw mut (*entry).since_ns).write_volatile((*other).since_ns);
            (&raw mut (*entry).ready_ns).write_volatile((*other).ready_ns);
            (&raw mut (*entry).job).write_volatile((*other).job);
            (&raw mut (*entry).begin_ns).write_volatile((*other).begin_ns);
            (&raw mut (*entry).weight).write_volatile((*other).weight);
            (&raw mut (*entry).place).write_volatile((*other).place);
            (&raw mut (*entry).tid).write_volatile((*other).tid);
            (&raw mut (*entry).exec_generation).write_volatile((*other).exec_generation);
            (&raw mut (*entry).may_be_at).write_volatile((*other).may_be_at);
        }
    }

    #[inline(always)]
    fn note_ready(&mut self, entry: *mut KeyEntry, ready_ns: u64, job: Job) {
        if entry.is_null() {
            return;
        }
        // SAFETY: points into the map.
        unsafe {
            (&raw mut (*entry).ready_ns).write_volatile(ready_ns);
            (&raw mut (*entry).job).write_volatile(job);
        }
    }

    #[inline(always)]
    fn insert(&mut self, id: &KeyId) -> Inserted {
        let of = u64::from(id.tgid) << 32 | u64::from(id.request_type);
        match keyed_insert(of, id.key[0], id.key[1]) {
            0 => Inserted::Done,
            E2BIG => Inserted::Full,
            _ => Inserted::Exists,
        }
    }

    #[inline(always)]
    fn remove(&mut self, id: &KeyId) {
        let of = u64::from(id.tgid) << 32 | u64::from(id.request_type);
        keyed_remove(of, id.key[0], id.key[1]);
    }

    #[inline(always)]
    fn ticket(&mut self) -> u64 {
        let Some(next) = TICKET.get_ptr_mut(0) else {
            return 0;
        };
        // SAFETY: points to the map's only entry.
        unsafe { (fetch_add(next, 1) + 1) & (TICKETS - 1) }
    }

    #[inline(always)]
    fn make_room(&mut self, recorded: bool) -> bool {
        room::make_room(u32::from(recorded)) != 0
    }

    #[inline(always)]
    fn store(&mut self, ticket: u64, request: &RequestState) -> bool {
        insert_parked(ticket, request)
    }

    #[inline(always)]
    fn store_new(&mut self, ticket: u64) -> bool {
        let new: &RequestState = &NEW_REQUEST;
        insert_parked(ticket, new)
    }

    #[inline(always)]
    fn store_running(&mut self, tid: u32, of: u64, ticket: u64) -> bool {
        taken::store_running(tid, of, ticket) != 0
    }

    #[inline(always)]
    fn tell_taken(&mut self, tid: u32, ticket: u64) {
        if let Some(thread) = THREADS.get_ptr_mut(tid) {
            // SAFETY: points into the map. If it is another thread's by now, that one has another ticket.
            unsafe { (*thread).request.keyed.tell_taken(ticket) }
        }
    }

    #[inline(always)]
    fn with_stored(
        &mut self,
        ticket: u64,
        change: impl FnOnce(&mut Self, &mut RequestState),
    ) -> bool {
        let Some(stored) = PARKED.get_ptr_mut(ticket) else {
            return false;
        };
        // SAFETY: points into the map, and who has the ticket has the request.
        change(self, unsafe { &mut *stored });
        true
    }

    #[inline(always)]
    fn fetch(&mut self, ticket: u64, into: &mut RequestState) -> bool {
        let Some(stored) = PARKED.get_ptr(ticket) else {
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
        remove_parked(ticket);
        failed == 0
    }

    #[inline(always)]
    fn discard(&mut self, ticket: u64) {
        remove_parked(ticket);
    }

    #[inline(always)]
    fn waited_for(&mut self, _thread: &Thread, id: &KeyId, _entry: *mut KeyEntry) -> Job {
        let of = u64::from(id.tgid) << 32 | u64::from(id.request_type);
        // Without a branch: what comes of each is looked at once by the verifier.
        let wanted = waker::wanted(of, id.key[0], id.key[1], self.index);
        let by = park::park(0, wanted as u32);
        // SAFETY: the registers of the probed thread.
        let code = unsafe { (*self.regs).rip };
        let may_be_at = (wanted >> 32) as u32;
        Job::decode(waker::waited_for(
            may_be_at, by, self.index, id.key[0], code,
        ))
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
        let state = &mut thread.state;
        if origin::wanted() && state.parked_until_ns != 0 {
            keyed_goes_on(state.parked_since_ns, state.parked_until_ns);
            state.parked_until_ns = 0;
        }
        // Those of the request before may be of another CPU.
        thread.state.is_clocked = 0;
        set_tid_flag(thread.state.tid, byte);
        if byte == flag::IN_REQUEST {
            interrupt::starts(thread.state.tid);
        }
    }

    #[inline(always)]
    fn leave(&mut self, thread: &mut Thread) -> u64 {
        let tid = thread.state.tid;
        if origin::wanted() && thread.request.is_sampled() {
            origin::leaves(thread);
        }
        let now = if thread.request.is_sampled() {
            if thread.state.is_off_cpu() {
                lose(Loss::SwitchInUnseen);
            }
            let now = request::leave_request(thread, tid);
            if blame::wanted() {
                let record = &thread.request.record;
                thread.state.ran = LastRun {
                    begin_ns: record.begin_ns,
                    until_ns: now,
                    request_type: record.request_type,
                    is_done: 0,
                };
            }
            now
        } else {
            thread.state.ran = LastRun::NONE;
            request::bpf_now()
        };
        rest(tid, thread);
        now
    }

    #[inline(always)]
    fn weight(&mut self, _thread: &Thread, hit: &Hit) -> u32 {
        children::weight(hit.flags, hit.tid)
    }

    #[inline(always)]
    fn read(&mut self, request: &mut RequestState, is_begin: bool) {
        if is_begin {
            request.keyed.forget_sockets();
            before::begins(self.tid, request);
        } else if !request.is_sampled() {
            return;
        }
        // SAFETY: points into the map.
        let (first, label) = unsafe { ((*self.plan).attributes, (*self.plan).label) };
        plan::attributes(self.regs, first, self.tgid, self.request_type, request);
        if is_begin && LABELS_WANTED.load() != 0 {
            let record = &mut request.record;
            record.label_len = label::read(self.regs, label as u16, record);
        }
    }

    #[inline(always)]
    fn read_stored(&mut self, ticket: u64) {
        if let Some(stored) = PARKED.get_ptr_mut(ticket) {
            // SAFETY: points into the map, and who has the ticket has the request.
            self.read(unsafe { &mut *stored }, true);
        }
    }

    #[inline(always)]
    fn name(&mut self, request: &mut RequestState) {
        let comm = &mut request.record.comm;
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
    fn count_unrecorded(&mut self, request_type: u32, reason: u32) {
        request::count_unrecorded(request_type, reason);
    }

    #[inline(always)]
    fn was_parked(&mut self, id: &KeyId, entry: *mut KeyEntry, until_ns: u64, by: &By) {
        if !blame::wanted() {
            return;
        }
        // SAFETY: points into the map.
        let entry = unsafe { &*entry };
        let mut place = entry.place;
        if place == PARKED_PLACE && entry.job.named() != 0 {
            place = entry.job.named() - 1;
        }
        let (mut by_stack, mut ran) = (STACK_NONE, LastRun::NONE);
        if let Some(thread) = THREADS.get_ptr(self.tid) {
            // SAFETY: the current thread's own entry.
            (by_stack, ran) = unsafe { ((*thread).state.wakes_from, (*thread).state.ran) };
        }
        emit::away(by, |away| {
            if !by.is_in_request && ran.is_done == LastRun::WAKES {
                away.by_is = waker_is::IN_REQUEST;
                away.by_request_type = ran.request_type;
                away.by_begin_ns = ran.begin_ns;
            }
            away.job = entry.job;
            away.by_stack = by_stack;
            away.tgid = id.tgid;
            away.from_tid = entry.tid;
            away.exec_generation = entry.exec_generation;
            away.request_type = id.request_type;
            away.is_ready = 1;
            away.place = place;
            away.queued = 0;
            away.request_begin_ns = entry.begin_ns;
            away.since_ns = entry.since_ns;
            away.until_ns = until_ns;
        });
    }

    #[inline(always)]
    fn was_away(&mut self, request: &RequestState, left_ns: u64, until_ns: u64, by: &By) {
        if !blame::wanted() {
            return;
        }
        let mut ran = core::ptr::null();
        if by.is_own
            && let Some(thread) = THREADS.get_ptr_mut(self.tid)
        {
            // SAFETY: the current thread's own entry.
            let state = unsafe { &mut (*thread).state };
            let mut parked_until_ns = until_ns;
            if request.keyed.queued != 0 {
                parked_until_ns = request.keyed.since_ns;
                ran = &raw const state.ran;
            }
            state.parked_since_ns = left_ns;
            state.parked_until_ns = if parked_until_ns > left_ns {
                parked_until_ns
            } else {
                0
            };
        }
        let record = &request.record;
        emit::away(by, |away| {
            away.tgid = record.tgid;
            away.from_tid = record.tid;
            away.exec_generation = record.exec_generation;
            away.request_type = record.request_type;
            away.place = request.keyed.place;
            away.queued = request.keyed.queued;
            away.request_begin_ns = record.begin_ns;
            away.since_ns = request.keyed.since_ns;
            away.until_ns = until_ns;
            if !ran.is_null() {
                // SAFETY: of the current thread's own entry.
                away.ran = unsafe { *ran };
            }
        });
    }

    #[inline(always)]
    fn part(&mut self, thread: &mut Thread, how: u64) {
        // One that was taken uses its sockets on.
        if is_end(how) && !thread.request.keyed.is_taken() {
            keyed_over(RUNNING);
        }
        let again = keyed_part(how);
        if again != 0 {
            self.make_room(true);
            keyed_part(again);
        }
        // SAFETY: points into the map.
        let is_done = !self.plan.is_null()
            && unsafe {
                (*self.plan).op == op::END && (*self.plan).flags & marker_flag::LEAVES != 0
            };
        if blame::wanted()
            && is_done
            && let Some(thread) = THREADS.get_ptr_mut(self.tid)
        {
            // SAFETY: the current thread's own entry.
            unsafe { (&raw mut (*thread).state.ran.is_done).write_volatile(LastRun::DONE) }
        }
    }

    #[inline(always)]
    fn close_taken(&mut self, _thread: &Thread, stored: u64, how: u64, found: &Look) {
        keyed_over(stored);
        keyed_close(stored, how, found.word, found.ready_ns, found.job.encode());
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
    fn misfit(&mut self, _request_type: u32, what: Misfit) {
        let counter = match what {
            Misfit::Unknown => count::UNKNOWN_KEYS,
            Misfit::EndWithoutBegin => count::ENDS_WITHOUT_BEGIN,
            Misfit::Elsewhere => count::ELSEWHERE,
            Misfit::OtherType => count::OTHER_TYPE,
            Misfit::ParkedAlready => count::PARKED_ALREADY,
        };
        plan::count(self.index, counter);
    }

    #[inline(always)]
    fn count_resume(&mut self, word: u64) {
        keyed_count_resume(self.index, word);
    }

    #[inline(always)]
    fn lose(&mut self, loss: Loss) {
        lose(loss);
    }
}

/// The current thread, and what it takes to change its request without reading the traced process.
#[inline(always)]
pub(super) fn current() -> Option<(*mut Thread, Kernel)> {
    let (tgid, tid) = task::current_ids();
    let kernel = Kernel {
        regs: core::ptr::null_mut(),
        plan: core::ptr::null(),
        index: 0,
        tgid,
        tid,
        request_type: 0,
    };
    Some((THREADS.get_ptr_mut(tid)?, kernel))
}
