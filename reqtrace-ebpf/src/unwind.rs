//! Walks user stacks by tables compiled from `.eh_frame`.
//!
//! In: the user registers of the thread that is being switched out, and the tables of its process.
//! Out: return addresses, and the reason why the walk stopped. Runs under the run-queue lock: each
//! step is bounded, and never faults a page in.

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_user as read_user_bytes};
use core::ffi::c_void;

use reqtrace_common::limits::MAX_FRAMES;
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::{
    BLOCK_SHIFT, CHUNK_SHIFT, Cfa, MAPPING_STEPS, MAX_MAPPINGS, Mapping, Mappings, Rbp, Row, Rule,
    SEARCH_STEPS, Stop, WALK_BY_FRAME_POINTERS, ends_in_call, restores_stack, words_before_return,
};

use crate::globals::GAPS_BY_FRAME_POINTERS;
use crate::maps::{UNWIND_INDEX, UNWIND_ROWS};
use crate::task::UserContext;
use crate::uprobes::{Place, replaced_return, true_place};

/// Where `struct ucontext` of a signal frame keeps registers (x86-64 kernel ABI), bytes.
const SIGNAL_RBP: u64 = 120;
const SIGNAL_RSP: u64 = 160;
const SIGNAL_RIP: u64 = 168;

/// Words of [`Walker::copy`]: most kernel stacks of a blocked thread take 100 to 300.
pub(crate) const COPY_WORDS: usize = 512;
/// Bytes of a user stack that are read at once. A walk goes up the stack and reads two words a frame;
/// a read of this length takes little longer than that of one word.
const USER_COPY: u64 = 1024;
/// Words read by a walk that are kept: see [`Walker::words`]. A power of two.
pub(crate) const MAX_WORDS: usize = 128;
/// Set in the address of a word that was read by itself, such as code: no address of user space has it. Around it no piece is copied.
const BY_ITSELF: u64 = 1 << 63;

/// A word of user memory that a walk went by.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

/// A walk under way. It lies in a map and not on the stack: to the verifier a value read from a map is
/// any number, so it looks at a step once, and not once for each way that led to it.
#[repr(C)]
pub(crate) struct Walker {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    /// The mapping of the frame before; `size` is 0 when there is none.
    start: u64,
    size: u64,
    bias: u64,
    index_start: u32,
    chunks: u32,
    /// Where `pc` was read, so that it can be a uretprobe's trampoline; otherwise 0.
    slot: u64,
    /// User address of the first word of `copy`.
    copied_from: u64,
    pub(crate) depth: u32,
    stop: u32,
    /// 0 when `pc` is where the thread really was, 1 when it is a return address.
    back: u64,
    /// 1 when some frame was found by its frame pointer.
    by_frame_pointer: u32,
    /// 1 as long as `bp` is the register of the thread.
    bp_is_first: u32,
    /// 1 when that register led somewhere.
    pub(crate) bp_matters: u32,
    /// Where `bp` was read, if that is not among `words` yet: it is only where it leads somewhere. 0: it is, or is the register.
    bp_at: u64,
    /// Used entries of `words`; one more than there are when some found no room, or when the walk
    /// went by something else than words.
    pub(crate) word_count: u32,
    /// 1 when a word is not what it was; only [`crate::known`] uses it.
    pub(crate) differs: u32,
    /// 1 when the first frame may be one byte on: see [`start`].
    may_be_behind: u32,
    /// 1 when a frame pointer may lead to another stack, once: from that of a runtime to that of a goroutine, which may lie below.
    pub(crate) may_change_stacks: u32,
    /// What the walk read. The same registers, tables and words make the same walk.
    pub(crate) words: [Word; MAX_WORDS],
    /// A piece of a stack.
    pub(crate) copy: [u64; COPY_WORDS],
}

/// What a step needs beside the walk.
#[repr(C)]
struct Step {
    walker: *mut Walker,
    stack: *mut StoredStack,
    mappings: *const Mappings,
}

/// Puts the walk at its beginning.
#[inline(always)]
pub(crate) fn start(walker: &mut Walker, user: &UserContext) {
    let place = true_place(user);
    start_at(walker, user, &place);
    // A breakpoint before it: a probe that it has hit, or what compilers put between functions. Only the first
    // has a row.
    walker.may_be_behind = u32::from(place.pc.wrapping_add(1) == user.pc);
}

/// Puts the walk at a place that is known to be where the thread is.
#[inline(always)]
pub(crate) fn start_at(walker: &mut Walker, user: &UserContext, place: &Place) {
    walker.may_be_behind = 0;
    walker.pc = place.pc;
    walker.sp = place.sp;
    walker.bp = user.bp;
    walker.size = 0;
    walker.slot = 0;
    walker.copied_from = u64::MAX;
    walker.depth = 0;
    walker.stop = Stop::TooDeep as u32;
    walker.back = 0;
    walker.by_frame_pointer = 0;
    walker.bp_is_first = 1;
    walker.bp_matters = 0;
    walker.bp_at = 0;
    walker.word_count = 0;
    walker.may_change_stacks = 0;
}

/// Whether a walk that was put at its beginning begins in code without a table.
#[inline(always)]
pub(crate) fn goes_by_frame_pointers(walk: &mut Walker, mappings: *const Mappings) -> bool {
    locate(walk, mappings);
    walk.size != 0 && walk.chunks == 0 && walk.index_start == WALK_BY_FRAME_POINTERS
}

/// Walks into `stack`, and returns the number of frames and why it stopped.
#[inline(always)]
pub(crate) fn walk(
    walker: *mut Walker,
    mappings: *const Mappings,
    stack: *mut StoredStack,
) -> (usize, Stop) {
    let mut step = Step {
        walker,
        stack,
        mappings,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            // One more, as the first may be taken twice.
            MAX_FRAMES as u32 + 1,
            take_step as *mut c_void,
            (&raw mut step).cast(),
            0,
        );
    }
    // SAFETY: this CPU's own entry, and interrupts are off.
    let walker = unsafe { &*walker };
    let mut stop = walker.stop;
    if stop == Stop::Complete as u32 && walker.by_frame_pointer != 0 {
        stop = Stop::FramePointers as u32;
    }
    let depth = walker.depth as usize;
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

/// One frame. Returns 1 to stop.
extern "C" fn take_step(_round: u32, step: *mut Step) -> u64 {
    // SAFETY: the context of `walk`.
    let step = unsafe { &mut *step };
    // SAFETY: this CPU's own entry, and interrupts are off.
    let walker = unsafe { &mut *step.walker };
    let depth = walker.depth as usize;
    match advance(walker, step.mappings, step.stack, depth) {
        Ok(()) => 0,
        Err(stop) => {
            walker.stop = stop as u32;
            1
        }
    }
}

/// Stores the address and goes to the caller.
#[inline(always)]
fn advance(
    walk: &mut Walker,
    mappings: *const Mappings,
    stack: *mut StoredStack,
    depth: usize,
) -> Result<(), Stop> {
    if depth >= MAX_FRAMES {
        return Err(Stop::TooDeep);
    }
    locate(walk, mappings);
    if walk.size == 0
        && walk.slot != 0
        && let Some(original) = replaced_return(walk.slot)
    {
        // A uretprobe has replaced it; the kernel knows what stood there.
        walk.word_count = MAX_WORDS as u32 + 1;
        walk.pc = original;
        locate(walk, mappings);
    }
    // An address that lies in no mapping is not stored: nothing is known of it.
    if walk.size == 0 && depth != 0 {
        return Err(Stop::NoMapping);
    }
    // SAFETY: depth is below the array's length.
    unsafe {
        (&raw mut (*stack).frames)
            .cast::<u64>()
            .add(depth)
            .write(walk.pc);
    };
    walk.depth = depth as u32 + 1;
    if walk.size == 0 {
        return Err(Stop::NoMapping);
    }
    let address = walk.pc.wrapping_sub(walk.back);
    let rule = match find_rule(walk, address) {
        Err(Stop::NoRow) => Rule::bare(Cfa::None),
        found => found?,
    };
    if matches!(rule.cfa, Cfa::None) && walk.may_be_behind != 0 {
        walk.pc = walk.pc.wrapping_add(1);
        walk.depth = 0;
        walk.may_be_behind = 0;
        return Ok(());
    }
    walk.may_be_behind = 0;
    let cfa = match rule.cfa {
        Cfa::Rsp => walk.sp.wrapping_add(u64::from(rule.cfa_words) * 8),
        Cfa::Rbp => frame(walk).wrapping_add(u64::from(rule.cfa_words) * 8),
        Cfa::Plt => walk
            .sp
            .wrapping_add(if address & 15 >= 11 { 16 } else { 8 }),
        Cfa::AtRbp => {
            let at = frame(walk).wrapping_sub(u64::from(rule.cfa_words) * 8);
            read_stack(walk, at)?
        }
        Cfa::Signal => return signal(walk),
        // V8's built-in functions in Node, hand-written assembly.
        Cfa::None if GAPS_BY_FRAME_POINTERS.load() == 0 => return Err(Stop::NoRow),
        Cfa::None | Cfa::FramePointer => {
            let otherwise = if matches!(rule.cfa, Cfa::None) {
                Stop::NoRow
            } else {
                Stop::NoTable
            };
            match before_return(walk) {
                Some(words) => walk.sp.wrapping_add(words * 8 + 8),
                None => return frame_pointer(walk, otherwise),
            }
        }
        Cfa::Outermost => return Err(Stop::Complete),
        Cfa::Unsupported => return Err(Stop::Unsupported),
    };
    if cfa <= walk.sp {
        return Err(Stop::NotAscending);
    }
    let saved = match rule.rbp {
        Rbp::Same => 0,
        Rbp::BelowCfa(words) => cfa.wrapping_sub(u64::from(words) * 8),
        Rbp::AtRbp => frame(walk),
    };
    if saved != 0 {
        saved_frame(walk, saved)?;
    }
    let slot = cfa.wrapping_sub(8);
    let pc = read_stack(walk, slot)?;
    if pc == 0 {
        return Err(Stop::Complete);
    }
    walk.pc = pc;
    walk.sp = cfa;
    walk.slot = slot;
    walk.back = 1;
    Ok(())
}

/// The frame pointer, which leads somewhere.
#[inline(always)]
fn frame(walk: &mut Walker) -> u64 {
    walk.bp_matters |= walk.bp_is_first;
    if walk.bp_at != 0 {
        note(walk, walk.bp_at, walk.bp);
        walk.bp_at = 0;
    }
    walk.bp
}

/// The caller's is in this word. It may be any number that the caller keeps there.
#[inline(always)]
fn saved_frame(walk: &mut Walker, at: u64) -> Result<(), Stop> {
    walk.bp = match copied(walk, at) {
        Some(value) => value,
        None => peek(walk, at)?,
    };
    walk.bp_at = at;
    walk.bp_is_first = 0;
    Ok(())
}

/// The caller is the code that the signal interrupted.
#[inline(always)]
fn signal(walk: &mut Walker) -> Result<(), Stop> {
    let frame = walk.sp;
    saved_frame(walk, frame.wrapping_add(SIGNAL_RBP))?;
    // A handler on its own stack may return to a lower address: no check of the order here.
    walk.sp = read_stack(walk, frame.wrapping_add(SIGNAL_RSP))?;
    // Stored one byte on, as if it were a return address: both are looked up at the byte before.
    walk.pc = read_stack(walk, frame.wrapping_add(SIGNAL_RIP))?.wrapping_add(1);
    walk.slot = 0;
    walk.back = 1;
    Ok(())
}

/// What code without a row takes off the stack when it is returned to, if it then returns itself: words.
#[inline(always)]
fn before_return(walk: &mut Walker) -> Option<u64> {
    if walk.back == 0 {
        return None;
    }
    words_before_return(read_word(walk, walk.pc).ok()?)
}

/// The caller by the frame pointer. Code that has none keeps something else in rbp: what is taken for a return address
/// must stand behind a call, or be the code of an interpreter, which takes its stack pointer from there.
#[inline(always)]
fn frame_pointer(walk: &mut Walker, otherwise: Stop) -> Result<(), Stop> {
    let frame = frame(walk);
    if frame < walk.sp {
        if walk.may_change_stacks == 0 {
            return Err(otherwise);
        }
        walk.may_change_stacks = 0;
    }
    let bp = read_stack(walk, frame)?;
    let pc = read_stack(walk, frame.wrapping_add(8))?;
    if pc == 0 {
        return Err(Stop::Complete);
    }
    let before = read_word(walk, pc.wrapping_sub(8)).map_err(|_| otherwise)?;
    if !ends_in_call(before) && !read_word(walk, pc).is_ok_and(restores_stack) {
        // A goroutine is made as if behind the `nop` that `runtime.goexit` begins with, and without a frame before it.
        let is_goroutine = bp == 0 && before >> 56 == 0x90;
        return Err(if is_goroutine {
            Stop::Complete
        } else {
            otherwise
        });
    }
    walk.bp = bp;
    walk.bp_at = 0;
    walk.bp_is_first = 0;
    walk.pc = pc;
    walk.sp = frame.wrapping_add(16);
    walk.slot = 0;
    walk.back = 1;
    walk.by_frame_pointer = 1;
    Ok(())
}

/// Reads a word of the stack, by the piece.
#[inline(always)]
fn read_stack(walk: &mut Walker, address: u64) -> Result<u64, Stop> {
    let Some(value) = copied(walk, address) else {
        return read_word(walk, address);
    };
    note(walk, address, value);
    Ok(value)
}

/// A word of the piece of the stack that is copied, which moves on where it has to; `None` when the piece
/// cannot be read, as at the end of a stack.
#[inline(always)]
fn copied(walk: &mut Walker, address: u64) -> Option<u64> {
    let mut offset = address.wrapping_sub(walk.copied_from);
    if offset > USER_COPY - 8 || offset & 7 != 0 {
        // SAFETY: the helper writes at most the size it is given, and checks the address.
        let failed = unsafe {
            read_user_bytes(
                (&raw mut walk.copy).cast(),
                USER_COPY as u32,
                address as *const c_void,
            )
        };
        if failed != 0 {
            walk.copied_from = u64::MAX;
            return None;
        }
        walk.copied_from = address;
        offset = 0;
    }
    let index = (offset >> 3) as usize & (COPY_WORDS - 1);
    // SAFETY: the mask keeps the index inside the array.
    Some(unsafe { (&raw const walk.copy).cast::<u64>().add(index).read() })
}

/// What stands now where a walk has read a word.
#[inline(always)]
pub(crate) fn now_at(walk: &mut Walker, word: &Word) -> Option<u64> {
    let address = word.address & !BY_ITSELF;
    if address == word.address {
        return copied(walk, address);
    }
    // SAFETY: the helper checks the address and does not fault pages in.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Reads one word.
#[inline(always)]
fn read_word(walk: &mut Walker, address: u64) -> Result<u64, Stop> {
    let value = peek(walk, address)?;
    note(walk, address | BY_ITSELF, value);
    Ok(value)
}

/// A word that is not noted. One that cannot be read now may be readable the next time: that walk is not remembered.
#[inline(always)]
fn peek(walk: &mut Walker, address: u64) -> Result<u64, Stop> {
    // SAFETY: the helper checks the address and does not fault pages in.
    unsafe { bpf_probe_read_user(address as *const u64) }.map_err(|_| {
        walk.word_count = MAX_WORDS as u32 + 1;
        Stop::NotResident
    })
}

/// Notes what was read.
#[inline(always)]
fn note(walk: &mut Walker, address: u64, value: u64) {
    let count = walk.word_count as usize;
    if count < MAX_WORDS {
        // SAFETY: the index is below the array's length.
        unsafe {
            (&raw mut walk.words)
                .cast::<Word>()
                .add(count)
                .write(Word { address, value });
        }
    }
    if count <= MAX_WORDS {
        walk.word_count = count as u32 + 1;
    }
}

/// Finds the mapping of the frame.
#[inline(always)]
fn locate(walk: &mut Walker, mappings: *const Mappings) {
    let address = walk.pc.wrapping_sub(walk.back);
    if address.wrapping_sub(walk.start) < walk.size {
        return;
    }
    // SAFETY: points to a map value.
    let mapping = unsafe { &*find_mapping(mappings, address) };
    let size = mapping.end.wrapping_sub(mapping.start);
    walk.start = mapping.start;
    walk.bias = mapping.bias;
    walk.index_start = mapping.index_start;
    walk.chunks = mapping.chunks;
    walk.size = if address.wrapping_sub(mapping.start) < size {
        size
    } else {
        0
    };
}

/// The last mapping that begins at or below an address, or the first one.
#[inline(always)]
fn find_mapping(mappings: *const Mappings, address: u64) -> *const Mapping {
    // SAFETY: points to a map value; indices are masked.
    unsafe {
        let mut size = (*mappings).len as usize;
        let entries = (&raw const (*mappings).entries).cast::<Mapping>();
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
        entries.add(low & (MAX_MAPPINGS - 1))
    }
}

#[inline(always)]
fn find_rule(walk: &Walker, address: u64) -> Result<Rule, Stop> {
    let (bias, index_start, chunks) = (walk.bias, walk.index_start, walk.chunks);
    if chunks == 0 {
        return if index_start == WALK_BY_FRAME_POINTERS {
            Ok(Rule::bare(Cfa::FramePointer))
        } else {
            Err(Stop::NoTable)
        };
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
    Ok(Rule::unpack(rule.rule))
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
