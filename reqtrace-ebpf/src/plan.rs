//! Plans of markers: registers at a probe in; which plan holds, what its readings yield, and the attributes
//! that it reads, out.
//!
//! Runs in the traced thread. Memory that is not there is no fault: a condition on it does not hold, a key is
//! unknown, and an attribute is left out and counted.

use core::ffi::c_void;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_loop, bpf_probe_read_user, bpf_probe_read_user_str,
};

use reqtrace_common::label::label_kind;
use reqtrace_common::loss::Loss;
use reqtrace_common::marker::{
    AttributePlan, Condition, MAX_ATTRIBUTES, MAX_CONDITION_TEXT, MAX_CONDITIONS,
    MAX_MARKER_ALTERNATIVES, MAX_NUMBERS, MAX_SITE_ATTRIBUTES, MAX_TEXT, MarkerPlan, PLANS_IN_LINE,
    condition_kind, count, hits_at,
};
use reqtrace_common::record::{TextHead, kind};
use reqtrace_common::thread::RequestState;

use crate::assembly::add;
use crate::emit;
use crate::globals::CPUS;
use crate::label::number;
use crate::maps::{
    ATTRIBUTE_PLANS, MARKER_COUNTS, MARKER_HITS, MARKER_PLANS, RING, lose, of_this_cpu,
};
use crate::request::{self, Marked};

/// Room for the texts that are short, as most are; others have room for the longest.
const SHORT: usize = 128;

/// A [`reqtrace_common::record::TextRecord`], with this much room.
#[repr(C)]
struct Text<const ROOM: usize> {
    head: TextHead,
    text: [u8; ROOM],
}

/// The first plan of a hit marker's chain whose conditions hold, and its index.
#[inline(always)]
pub(crate) fn first(regs: *mut pt_regs, marked: &Marked) -> Option<(u32, &'static MarkerPlan)> {
    let found = first_of(regs, marked.cookie.label);
    if found.is_none() && request::is_traced(marked) {
        count(u32::from(marked.cookie.label), count::NONE_HELD);
    }
    found
}

#[inline(always)]
fn first_of(regs: *mut pt_regs, chain: u16) -> Option<(u32, &'static MarkerPlan)> {
    let mut index = u32::from(chain);
    let mut tries = 0;
    while tries < MAX_MARKER_ALTERNATIVES && index != 0 {
        let plan = MARKER_PLANS.get_ptr(index)?;
        // SAFETY: points into the map, which user space filled before any probe was set.
        let plan = unsafe { &*plan };
        if all_hold(regs, &plan.when, index) {
            return Some((index, plan));
        }
        index = plan.next;
        tries += 1;
    }
    None
}

/// Counts a hit of a marker, by the index of its plan.
#[inline(always)]
pub(crate) fn count_hit(plan: u32) {
    let (line, word) = hits_at(plan);
    if let Some(hits) = MARKER_HITS.get_ptr_mut(of_this_cpu(line)) {
        // A mask, and no comparison, which Linux 6.1 forgets.
        const { assert!(PLANS_IN_LINE == 7) };
        // SAFETY: points into the map, and there are as many words.
        unsafe { add(hits.cast::<u64>().add(word & 7), 1) }
    }
}

/// Counts what else happens at one.
#[inline(always)]
pub(crate) fn count(plan: u32, what: usize) {
    if let Some(counts) = MARKER_COUNTS.get_ptr_mut(of_this_cpu(plan)) {
        // SAFETY: points into the map, and `what` is one of the counters.
        unsafe { add(counts.cast::<u64>().add(what), 1) }
    }
}

/// Flag beside the index of a plan: it is an attribute's.
const OF_ATTRIBUTE: u32 = 1 << 31;

/// Whether the conditions of a plan hold. `of` is its index.
#[inline(always)]
fn all_hold(regs: *mut pt_regs, conditions: &[Condition; MAX_CONDITIONS], of: u32) -> bool {
    let mut index = 0;
    while index < MAX_CONDITIONS {
        let condition = &conditions[index];
        if condition.kind == condition_kind::NONE {
            return true;
        }
        let Some(value) = number(regs, &condition.value) else {
            return false;
        };
        // SAFETY: the registers of the probed thread.
        let here = unsafe { (*regs).rip };
        if condition_holds(of, index as u32, value, here) == 0 {
            return false;
        }
        index += 1;
    }
    true
}

/// Whether one condition of a plan holds for the value that was read. A function with an external name: the verifier goes over it
/// once, and not once for each condition and each way that leads there.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn condition_holds(of: u32, index: u32, value: u64, here: u64) -> u32 {
    const { assert!(MAX_CONDITIONS.is_power_of_two()) }
    let index = index as usize & (MAX_CONDITIONS - 1);
    let plan = of & !OF_ATTRIBUTE;
    // SAFETY: both point into maps, which user space filled before any probe was set; the mask keeps the index below the length.
    let condition = unsafe {
        if of & OF_ATTRIBUTE != 0 {
            let Some(plan) = ATTRIBUTE_PLANS.get_ptr(plan) else {
                return 0;
            };
            (&raw const (*plan).when).cast::<Condition>().add(index)
        } else {
            let Some(plan) = MARKER_PLANS.get_ptr(plan) else {
                return 0;
            };
            (&raw const (*plan).when).cast::<Condition>().add(index)
        }
    };
    // SAFETY: as above.
    u32::from(holds(unsafe { &*condition }, value, here))
}

#[inline(always)]
fn holds(condition: &Condition, value: u64, here: u64) -> bool {
    let fits = if condition.kind == condition_kind::TEXT {
        let Some(fits) = is_text(value, condition) else {
            return false;
        };
        fits
    } else {
        let from = if condition.kind == condition_kind::CODE {
            here
        } else {
            0
        };
        is_number(value.wrapping_sub(from) as i64, condition)
    };
    fits != (condition.negate != 0)
}

#[inline(always)]
fn is_number(value: i64, condition: &Condition) -> bool {
    if condition.kind == condition_kind::RANGE {
        return condition.numbers[0] <= value && value <= condition.numbers[1];
    }
    if condition.kind == condition_kind::BITS {
        return value & condition.numbers[0] == condition.numbers[1];
    }
    let mut index = 0;
    while index < MAX_NUMBERS {
        if index < condition.used as usize && condition.numbers[index] == value {
            return true;
        }
        index += 1;
    }
    false
}

/// Compares a text that a NUL ends; `None` when it could not be read.
#[inline(always)]
fn is_text(address: u64, condition: &Condition) -> Option<bool> {
    const WORDS: usize = (MAX_CONDITION_TEXT + 2) / 8;
    let mut text = [0_u64; WORDS];
    // SAFETY: the helper writes at most as many bytes as the array has, the last one a NUL.
    let read = unsafe {
        bpf_probe_read_user_str(
            text.as_mut_ptr().cast(),
            (8 * WORDS) as u32,
            address as *const c_void,
        )
    };
    if read <= 0 {
        return None;
    }
    // With its NUL, and so that one that is cut is never as long.
    if read as u32 != condition.used + 1 {
        return Some(false);
    }
    let wanted = (&raw const condition.text).cast::<u64>();
    let mut differs = 0;
    let mut index = 0;
    while index < WORDS {
        // SAFETY: the array of bytes has as many words.
        differs |= text[index] ^ unsafe { wanted.add(index).read_unaligned() };
        index += 1;
    }
    Some(differs == 0)
}

/// What it takes to read the attributes of one marker.
struct Reader {
    regs: *mut pt_regs,
    request: *mut RequestState,
    /// The plan that comes next; 0: none.
    index: u32,
    tgid: u32,
    request_type: u32,
}

/// Reads the attributes of a plan for a request of this type, in whose process the marker was hit.
///
/// A callback: the kernel verifies it once, and not once for each attribute that there may be.
#[inline(always)]
pub(crate) fn attributes(
    regs: *mut pt_regs,
    first: u32,
    tgid: u32,
    request_type: u32,
    request: &mut RequestState,
) {
    if first == 0 {
        return;
    }
    let mut reader = Reader {
        regs,
        request,
        index: first,
        tgid,
        request_type,
    };
    // SAFETY: the callback's context is the reader, which outlives the loop.
    unsafe {
        bpf_loop(
            MAX_SITE_ATTRIBUTES as u32,
            read_next as *mut c_void,
            (&raw mut reader).cast(),
            0,
        );
    }
}

/// Reads one attribute. Returns 1 if there is no other.
extern "C" fn read_next(_: u32, reader: *mut Reader) -> i64 {
    // SAFETY: the context of `attributes`.
    let (regs, request, index, tgid, request_type) = unsafe {
        let Reader {
            regs,
            request,
            index,
            tgid,
            request_type,
        } = &*reader;
        (*regs, &mut **request, *index, *tgid, *request_type)
    };
    let Some(plan) = ATTRIBUTE_PLANS.get_ptr(index) else {
        return 1;
    };
    // SAFETY: as in `first`.
    let plan = unsafe { &*plan };
    if all_hold(regs, &plan.when, OF_ATTRIBUTE | index) {
        attribute(regs, plan, tgid, request_type, request);
    }
    // SAFETY: as above.
    unsafe {
        (*reader).index = plan.next;
    }
    i64::from(plan.next == 0)
}

#[inline(always)]
fn attribute(
    regs: *mut pt_regs,
    plan: &AttributePlan,
    tgid: u32,
    request_type: u32,
    request: &mut RequestState,
) {
    let extra = request.keyed.extra();
    let bit = 1_u32 << (plan.index & 31);
    if plan.keep_last == 0 && (extra.numbers_set | extra.texts_set) & bit != 0 {
        return;
    }
    let Some(value) = number(regs, &plan.value) else {
        lose(Loss::LabelUnreadable);
        return;
    };
    if plan.kind == label_kind::NUMBER {
        // A mask, and no comparison: Linux 6.1 forgets what was compared when the number was on the stack.
        let index = plan.index as usize & (MAX_ATTRIBUTES - 1);
        // SAFETY: the mask keeps the index below the length, a power of two.
        unsafe {
            let numbers = (&raw mut extra.numbers).cast::<u64>();
            numbers.add(index).write_volatile(value);
        }
        extra.numbers_set |= bit;
        return;
    }
    let length = if plan.kind == label_kind::BYTES {
        let Some(length) = number(regs, &plan.length) else {
            lose(Loss::LabelUnreadable);
            return;
        };
        Some(length)
    } else {
        None
    };
    if extra.stamp_ns == 0 {
        extra.stamp_ns = unique_now();
    }
    let head = TextHead {
        kind: kind::TEXT,
        tgid,
        stamp_ns: extra.stamp_ns,
        request_type,
        index: plan.index,
        len: 0,
        is_cut: 0,
    };
    let most = u64::from(plan.most);
    let is_sent = if most <= SHORT as u64 {
        text::<SHORT>(head, value, length, most)
    } else {
        text::<MAX_TEXT>(head, value, length, most)
    };
    if is_sent {
        extra.texts_set |= bit;
    }
}

/// Sends a text. `length` is `None` for one that a NUL ends. Whether there was one.
#[inline(always)]
fn text<const ROOM: usize>(head: TextHead, address: u64, length: Option<u64>, most: u64) -> bool {
    let Some(mut record) = RING.reserve::<Text<ROOM>>(0) else {
        lose(Loss::TextRingFull);
        return false;
    };
    let record_ptr = record.as_mut_ptr();
    let most = if most > ROOM as u64 {
        ROOM as u64
    } else {
        most
    };
    // SAFETY: the helpers write at most `most` bytes, which the record has.
    let read = unsafe {
        (*record_ptr).head = head;
        let into = (&raw mut (*record_ptr).text).cast::<c_void>();
        match length {
            None => c_string(into, address, most),
            Some(length) => bytes(into, ROOM as u32, address, length, most),
        }
    };
    let Some((len, is_cut)) = read else {
        lose(Loss::LabelUnreadable);
        record.discard(0);
        return false;
    };
    // SAFETY: points into the record.
    unsafe {
        (*record_ptr).head.len = len;
        (*record_ptr).head.is_cut = u32::from(is_cut);
    }
    record.submit(emit::wakeup());
    true
}

/// Reads up to a NUL. Returns the length and whether it goes on.
#[inline(always)]
unsafe fn c_string(into: *mut c_void, address: u64, most: u64) -> Option<(u32, bool)> {
    // SAFETY: by the caller.
    let read =
        unsafe { bpf_probe_read_user_str(into.cast(), most as u32, address as *const c_void) };
    if read <= 0 {
        return None;
    }
    // With the NUL, which takes the place of a byte where the text is cut.
    Some((read as u32 - 1, read as u64 == most))
}

#[inline(always)]
unsafe fn bytes(
    into: *mut c_void,
    room: u32,
    address: u64,
    length: u64,
    most: u64,
) -> Option<(u32, bool)> {
    let is_cut = length > most;
    let len = if is_cut { most as u32 } else { length as u32 };
    // SAFETY: a local value. Linux 6.1 does not see from the comparison above that it is no negative number.
    let len = unsafe { (&raw const len).read_volatile() };
    if len > room {
        return None;
    }
    // SAFETY: by the caller.
    let result = unsafe { bpf_probe_read_user(into, len, address as *const c_void) };
    (result == 0).then_some((len, is_cut))
}

/// A time a little before now that nothing else has: each CPU, of 512, has its own last bits, and none comes here twice in so many
/// nanoseconds, which is less than a trap takes.
#[inline(always)]
pub(crate) fn unique_now() -> u64 {
    // SAFETY: no precondition.
    let (now, cpu) = unsafe { (bpf_ktime_get_ns(), bpf_get_smp_processor_id()) };
    let step = match CPUS.load() {
        0..=64 => 64,
        65..=128 => 128,
        129..=256 => 256,
        _ => 512,
    };
    let last = step - 1;
    (now.wrapping_sub(step) & !last) | (u64::from(cpu) & last)
}
