//! Hits that are of no request, as most are of a runtime's markers: registers at a probe in; which unit the thread runs, and
//! counts, out. Only the plan in brief is looked at: see [`reqtrace_common::marker::BriefPlan`].

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_user;
use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::marker::{
    BRIEF_READS, BriefCondition, MAX_MARKER_ALTERNATIVES, brief_kind, condition_kind, marker_flag,
};

use crate::label;
use crate::maps::{BRIEF_PLANS, PROCESSES, may_have_key, tid_flag};
use crate::request::Marked;
use crate::{before, plan, units};

/// Indices in `pt_regs`.
const RBX: u8 = 5;
const RAX: u8 = 10;
const RSI: u8 = 13;
const RDI: u8 = 14;

/// Whether this was such a hit, and is done. If not, nothing has been done.
#[inline(always)]
pub(super) fn takes(regs: *mut pt_regs, marked: &Marked) -> bool {
    let first = u32::from(marked.cookie.label);
    let Some(brief) = BRIEF_PLANS.get_ptr(first) else {
        return false;
    };
    // SAFETY: points into the map; an entry in use is not changed.
    let brief = unsafe { &*brief };
    if brief.kind == brief_kind::WHOLE && brief.next == 0 {
        return false;
    }
    let base = register(regs, brief.base);
    let key = if brief.key == brief.base {
        base
    } else {
        register(regs, brief.key)
    };
    let ids = u64::from(marked.tgid) << 32 | u64::from(marked.tid);
    // SAFETY: the registers of the probed thread.
    let code = unsafe { (*regs).rip };
    keyed_by_nobody(first, ids, base, key, code) != 0
}

/// The registers that most plans look at are loaded, without a helper.
#[inline(always)]
fn register(regs: *mut pt_regs, index: u8) -> u64 {
    // SAFETY: the registers of the probed thread. Volatile: of two loads the compiler would make one at a variable offset,
    // which the verifier refuses.
    unsafe {
        match index {
            RDI => (&raw const (*regs).rdi).read_volatile(),
            RSI => (&raw const (*regs).rsi).read_volatile(),
            RAX => (&raw const (*regs).rax).read_volatile(),
            RBX => (&raw const (*regs).rbx).read_volatile(),
            _ => label::register(regs, index),
        }
    }
}

/// The same with what the plans look at. A function with an external name: the verifier goes over it once, and over what its
/// caller does next as if this were not there.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn keyed_by_nobody(first: u32, ids: u64, base: u64, key: u64, code: u64) -> u32 {
    let (tgid, tid) = ((ids >> 32) as u32, ids as u32);
    let flag = tid_flag(tid);
    // A thread in a request may find that another one has taken it.
    if flag == flag::IN_REQUEST {
        return 0;
    }
    let mut read = Read::NOTHING;
    let mut index = first;
    let mut tries = 0;
    while tries < MAX_MARKER_ALTERNATIVES && index != 0 {
        let Some(brief) = BRIEF_PLANS.get_ptr(index) else {
            return 0;
        };
        // SAFETY: as in `takes`.
        let brief = unsafe { &*brief };
        // Of a thread in a request only.
        if brief.flags & marker_flag::CHILD != 0 && brief.next != 0 {
            index = brief.next;
            tries += 1;
            continue;
        }
        // Asked before memory is read: the plan as a whole reads it again.
        let may_go_on = brief.kind == brief_kind::KEYED || brief.is_next_last != 0;
        if may_go_on && may_have_key(key) {
            return 0;
        }
        if brief.is_wide != 0 && !read.words(base) {
            return 0;
        }
        let do_hold = brief.is_any != 0
            || holds(&brief.first, base, code, &mut read)
                && (brief.more == 0 || holds(&brief.second, base, code, &mut read));
        if do_hold && brief.kind != brief_kind::KEYED {
            return u32::from(brief.kind == brief_kind::NOTE);
        }
        if do_hold || brief.is_next_last != 0 {
            if !is_idle(tgid, flag) {
                return 0;
            }
            let (index, flags, place) = if do_hold {
                (index, brief.flags, brief.place)
            } else {
                (brief.next, brief.next_flags, brief.next_place)
            };
            passes(index, flags, place, tid, key);
            return 1;
        }
        index = brief.next;
        tries += 1;
    }
    // The plan as a whole counts it.
    0
}

/// The thread has come to the marker with a key that no request has.
#[inline(always)]
fn passes(index: u32, flags: u32, place: u32, tid: u32, key: u64) {
    if flags & (marker_flag::ENTERS | marker_flag::LEAVES) != 0 {
        units::meets_other(flags, tid, key, place);
    }
    if before::wanted() && flags & marker_flag::RESUMES != 0 {
        before::pass(tid);
    }
    plan::count_hit(index);
}

/// Whether the thread is known, and in no request.
#[inline(always)]
fn is_idle(tgid: u32, flag: u8) -> bool {
    flag == flag::KNOWN || flag == flag::HELPER && PROCESSES.get_ptr(tgid).is_some()
}

/// What was read: the plans of a chain look at the same words, most of them.
struct Read {
    /// The first words that the register points to, and whether they have been read.
    words: [u64; 3],
    has_words: bool,
    /// Where was read last; 0: nowhere yet.
    address: u64,
    value: u64,
}

impl Read {
    const NOTHING: Self = Self {
        words: [0; 3],
        has_words: false,
        address: 0,
        value: 0,
    };

    /// Reads the first words at once, which takes no longer than one. Whether they are there.
    #[inline(always)]
    fn words(&mut self, base: u64) -> bool {
        if !self.has_words {
            // SAFETY: the helper checks where it reads.
            let Ok(words) = (unsafe { bpf_probe_read_user(base as *const [u64; 3]) }) else {
                return false;
            };
            self.words = words;
            self.has_words = true;
        }
        true
    }

    /// The word at an address.
    #[inline(always)]
    fn word(&mut self, base: u64, address: u64) -> Option<u64> {
        if self.has_words && address == base {
            return Some(self.words[0]);
        }
        if self.has_words && address == base.wrapping_add(16) {
            return Some(self.words[2]);
        }
        if address == 0 || address != self.address {
            // SAFETY: as above.
            self.value = unsafe { bpf_probe_read_user(address as *const u64) }.ok()?;
            self.address = address;
        }
        Some(self.value)
    }
}

#[inline(always)]
fn holds(condition: &BriefCondition, base: u64, code: u64, read: &mut Read) -> bool {
    if condition.kind == condition_kind::NONE {
        return true;
    }
    let mut value = base;
    let mut done = 0;
    while done < BRIEF_READS && done < usize::from(condition.reads) {
        let address = value.wrapping_add(condition.offsets[done] as i64 as u64);
        let Some(found) = read.word(base, address) else {
            return false;
        };
        value = found;
        done += 1;
    }
    condition.holds(value, code)
}
