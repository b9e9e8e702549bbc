//! Walks user stacks by tables compiled from `.eh_frame`.
//!
//! In: the user registers of the thread that is being switched out, and the tables of its process.
//! Out: return addresses, and the reason why the walk stopped. Runs under the run-queue lock: each
//! step is bounded, reads at most two words of user memory, and never faults a page in.

use aya_ebpf::helpers::generated::bpf_loop;
use core::ffi::c_void;

use reqtrace_common::limits::MAX_FRAMES;
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::{
    BLOCK_SHIFT, CHUNK_SHIFT, Cfa, KNOWN_RULES as KNOWN, KNOWN_RULES_BITS, KnownRule,
    MAPPING_STEPS, MAX_MAPPINGS, Mappings, Rbp, Row, Rule, SEARCH_STEPS, Stop,
    WALK_BY_FRAME_POINTERS, ends_in_call,
};

use crate::copy::Copied;
use crate::maps::{KNOWN_RULES, UNWIND_INDEX, UNWIND_ROWS};
use crate::task::UserContext;
use crate::uprobes::{replaced_return, true_place};

/// Where `struct ucontext` of a signal frame keeps registers (x86-64 kernel ABI), bytes.
const SIGNAL_RBP: u64 = 120;
const SIGNAL_RSP: u64 = 160;
const SIGNAL_RIP: u64 = 168;

/// A walk under way.
#[repr(C)]
struct Walk {
    pc: u64,
    sp: u64,
    bp: u64,
    stack: *mut StoredStack,
    mappings: *const Mappings,
    known: *mut KnownRule,
    copied: Copied,
    /// Where `pc` stood as a return address, 0 when it is none.
    slot: u64,
    depth: u32,
    stop: u32,
    /// 1 when `pc` is where the thread really was, 0 when it is a return address.
    exact: u32,
    /// 1 when some frame was found by its frame pointer.
    by_frame_pointer: u32,
}

/// Walks from `user` into `stack`, and returns the number of frames and why it stopped; no frames
/// when a map is missing, which does not happen.
#[inline(always)]
pub(crate) fn walk(
    user: &UserContext,
    mappings: *const Mappings,
    stack: *mut StoredStack,
) -> (usize, Stop) {
    let place = true_place(user);
    let (Some(known), Some(copied)) = (KNOWN_RULES.get_ptr_mut(0), Copied::of_user(place.sp))
    else {
        return (0, Stop::NotResident);
    };
    let mut walk = Walk {
        pc: place.pc,
        sp: place.sp,
        bp: user.bp,
        stack,
        mappings,
        known: known.cast(),
        copied,
        slot: 0,
        depth: 0,
        stop: Stop::TooDeep as u32,
        exact: 1,
        by_frame_pointer: 0,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            MAX_FRAMES as u32,
            step as *mut c_void,
            (&raw mut walk).cast(),
            0,
        );
    }
    let mut stop = walk.stop;
    if stop == Stop::Complete as u32 && walk.by_frame_pointer != 0 {
        stop = Stop::FramePointers as u32;
    }
    let depth = walk.depth as usize;
    (
        if depth > MAX_FRAMES {
            MAX_FRAMES
        } else {
            depth
        },
        stop_of(stop),
    )
}

#[inline(always)]
fn stop_of(number: u32) -> Stop {
    match number {
        0 => Stop::Complete,
        1 => Stop::FramePointers,
        2 => Stop::NoMapping,
        3 => Stop::NoTable,
        4 => Stop::NoRow,
        5 => Stop::Unsupported,
        6 => Stop::NotResident,
        8 => Stop::NotAscending,
        _ => Stop::TooDeep,
    }
}

/// One frame: stores the address and goes to the caller. Returns 1 to stop.
extern "C" fn step(_index: u32, walk: *mut Walk) -> u64 {
    // SAFETY: the context of `walk`.
    let walk = unsafe { &mut *walk };
    match advance(walk) {
        Ok(()) => 0,
        Err(stop) => {
            walk.stop = stop as u32;
            1
        }
    }
}

#[inline(always)]
fn advance(walk: &mut Walk) -> Result<(), Stop> {
    let depth = walk.depth as usize;
    if depth >= MAX_FRAMES {
        return Err(Stop::TooDeep);
    }
    let mut address = if walk.exact != 0 {
        walk.pc
    } else {
        walk.pc.wrapping_sub(1)
    };
    let mut found = rule_at(walk, address);
    if matches!(found, Err(Stop::NoMapping))
        && walk.slot != 0
        && let Some(pc) = replaced_return(walk.slot)
    {
        // A uretprobe has replaced it; the kernel knows what stood there.
        walk.pc = pc;
        address = pc.wrapping_sub(1);
        found = rule_at(walk, address);
    }
    // An address that lies in no mapping is not stored: nothing can be said about it.
    if !matches!(found, Err(Stop::NoMapping)) || depth == 0 {
        // SAFETY: depth is below the array's length.
        unsafe {
            (&raw mut (*walk.stack).frames)
                .cast::<u64>()
                .add(depth)
                .write(walk.pc);
        };
        walk.depth += 1;
    }
    let rule = found?;
    let cfa = match rule.cfa {
        Cfa::Rsp => walk.sp.wrapping_add(u64::from(rule.cfa_words) * 8),
        Cfa::Rbp => walk.bp.wrapping_add(u64::from(rule.cfa_words) * 8),
        Cfa::Plt => walk
            .sp
            .wrapping_add(if address & 15 >= 11 { 16 } else { 8 }),
        Cfa::AtRbp => read_user(walk, walk.bp.wrapping_sub(u64::from(rule.cfa_words) * 8))?,
        Cfa::Signal => return signal(walk),
        Cfa::FramePointer => return frame_pointer(walk),
        Cfa::Outermost => return Err(Stop::Complete),
        Cfa::None => return Err(Stop::NoRow),
        Cfa::Unsupported => return Err(Stop::Unsupported),
    };
    if cfa <= walk.sp {
        return Err(Stop::NotAscending);
    }
    let bp = match rule.rbp {
        Rbp::Same => walk.bp,
        Rbp::BelowCfa(words) => read_user(walk, cfa.wrapping_sub(u64::from(words) * 8))?,
        Rbp::AtRbp => read_user(walk, walk.bp)?,
    };
    let slot = cfa.wrapping_sub(8);
    let pc = read_user(walk, slot)?;
    if pc == 0 {
        return Err(Stop::Complete);
    }
    walk.slot = slot;
    walk.pc = pc;
    walk.sp = cfa;
    walk.bp = bp;
    walk.exact = 0;
    Ok(())
}

/// The caller is the code that the signal interrupted.
#[inline(always)]
fn signal(walk: &mut Walk) -> Result<(), Stop> {
    let frame = walk.sp;
    walk.bp = read_user(walk, frame.wrapping_add(SIGNAL_RBP))?;
    // Stored one byte on, as if it were a return address: both are looked up at the byte before.
    walk.pc = read_user(walk, frame.wrapping_add(SIGNAL_RIP))?.wrapping_add(1);
    // A handler on its own stack may return to a lower address: no check of the order here.
    walk.sp = read_user(walk, frame.wrapping_add(SIGNAL_RSP))?;
    walk.slot = 0;
    walk.exact = 0;
    Ok(())
}

/// The caller by the frame pointer. Code that has none keeps something else in rbp: what is taken
/// for a return address must stand behind a call.
#[inline(always)]
fn frame_pointer(walk: &mut Walk) -> Result<(), Stop> {
    let frame = walk.bp;
    if frame < walk.sp {
        return Err(Stop::NoTable);
    }
    let pc = read_user(walk, frame.wrapping_add(8))?;
    if pc == 0 {
        return Err(Stop::Complete);
    }
    let before = read_user(walk, pc.wrapping_sub(8)).map_err(|_| Stop::NoTable)?;
    if !ends_in_call(before) {
        return Err(Stop::NoTable);
    }
    walk.bp = read_user(walk, frame)?;
    walk.pc = pc;
    walk.sp = frame.wrapping_add(16);
    walk.slot = 0;
    walk.exact = 0;
    walk.by_frame_pointer = 1;
    Ok(())
}

#[inline(always)]
fn read_user(walk: &Walk, address: u64) -> Result<u64, Stop> {
    walk.copied.word(address).ok_or(Stop::NotResident)
}

/// The rule for an address, from memory if it was found before. An address in no mapping is not
/// remembered: there are too many of them.
#[inline(always)]
fn rule_at(walk: &Walk, address: u64) -> Result<Rule, Stop> {
    // SAFETY: points to a map value; the mask keeps the index inside, and only this CPU, with
    // interrupts off, writes there.
    unsafe {
        let generation = (*walk.mappings).generation;
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - KNOWN_RULES_BITS);
        let known = &mut *walk.known.add(hash as usize & (KNOWN - 1));
        if known.address == address && known.generation == generation {
            return unpack(known.rule);
        }
        let packed = find_rule(walk.mappings, address)?;
        *known = KnownRule {
            address,
            generation,
            rule: packed,
        };
        unpack(packed)
    }
}

/// What a mapping without a table has in place of a packed rule: no table has these.
const STOPS: u32 = Rule::bare(Cfa::None).pack() | 1 << 31;
const BY_FRAME_POINTERS: u32 = Rule::bare(Cfa::None).pack() | 1 << 30;

#[inline(always)]
fn unpack(packed: u32) -> Result<Rule, Stop> {
    match packed {
        STOPS => Err(Stop::NoTable),
        BY_FRAME_POINTERS => Ok(Rule::bare(Cfa::FramePointer)),
        packed => Ok(Rule::unpack(packed)),
    }
}

/// The mapping that an address lies in: bias, first entry of its chunk index, number of chunks.
#[inline(always)]
fn find_mapping(mappings: *const Mappings, address: u64) -> Option<(u64, u32, u32)> {
    // SAFETY: points to a map value; indices are masked.
    unsafe {
        let mut size = (*mappings).len as usize;
        let entries = (&raw const (*mappings).entries).cast::<reqtrace_common::unwind::Mapping>();
        let mut low = 0_usize;
        let mut tries = 0;
        while tries < MAPPING_STEPS {
            let half = size / 2;
            let middle = (low + half) & (MAX_MAPPINGS - 1);
            if (*entries.add(middle)).start <= address {
                low = middle;
            }
            size -= half;
            tries += 1;
        }
        let mapping = &*entries.add(low & (MAX_MAPPINGS - 1));
        if address < mapping.start || address >= mapping.end {
            return None;
        }
        Some((mapping.bias, mapping.index_start, mapping.chunks))
    }
}

/// The packed rule for an address.
#[inline(always)]
fn find_rule(mappings: *const Mappings, address: u64) -> Result<u32, Stop> {
    let (bias, index_start, chunks) = find_mapping(mappings, address).ok_or(Stop::NoMapping)?;
    if chunks == 0 {
        return Ok(if index_start == WALK_BY_FRAME_POINTERS {
            BY_FRAME_POINTERS
        } else {
            STOPS
        });
    }
    let offset = address.wrapping_sub(bias);
    let chunk = offset >> CHUNK_SHIFT;
    if chunk >= u64::from(chunks) {
        return Err(Stop::NoRow);
    }
    let chunk = index_start.wrapping_add(chunk as u32);
    let first = index(chunk)?;
    let last = index(chunk.wrapping_add(1))?;
    let offset = offset as u32;
    let mut low = first;
    let mut rule = row(first)?;
    if rule.pc > offset {
        return Err(Stop::NoRow);
    }
    let mut size = last.wrapping_sub(first).wrapping_add(1);
    let mut tries = 0;
    while tries < SEARCH_STEPS {
        let half = size / 2;
        if half == 0 {
            break;
        }
        let candidate = row(low.wrapping_add(half))?;
        if candidate.pc <= offset {
            low = low.wrapping_add(half);
            rule = candidate;
        }
        size -= half;
        tries += 1;
    }
    Ok(rule.rule)
}

#[inline(always)]
fn row(number: u32) -> Result<Row, Stop> {
    let block = UNWIND_ROWS
        .get_ptr(number >> BLOCK_SHIFT)
        .ok_or(Stop::NoRow)?;
    let inside = (number & ((1 << BLOCK_SHIFT) - 1)) as usize;
    // SAFETY: the mask keeps the index inside the block.
    Ok(unsafe { *block.cast::<Row>().add(inside) })
}

#[inline(always)]
fn index(number: u32) -> Result<u32, Stop> {
    let block = UNWIND_INDEX
        .get_ptr(number >> BLOCK_SHIFT)
        .ok_or(Stop::NoRow)?;
    let inside = (number & ((1 << BLOCK_SHIFT) - 1)) as usize;
    // SAFETY: the mask keeps the index inside the block.
    Ok(unsafe { *block.cast::<u32>().add(inside) })
}
