//! Kernel stacks that are remembered, each with the places of its return addresses: of threads that are switched out, and of
//! what wakes a thread on nobody's behalf, such as interrupts.

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_kernel as bpf_probe_read_kernel_word;
use aya_ebpf::helpers::generated::{
    bpf_get_current_task_btf, bpf_loop, bpf_probe_read_kernel, bpf_task_pt_regs,
};
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use reqtrace_common::limits::MAX_FRAMES;
use reqtrace_common::record::StackId;
use reqtrace_common::sums::StoredStack;

use super::{AT_ONCE, first_of_set, mix};
use crate::assembly::address_of;
use crate::maps::FRAME_SCRATCH;
use crate::unwind::{COPY_WORDS, Walker, Word};

/// One system call from one place may block in several places of the kernel: so many are remembered.
const SET: u32 = 8;
/// Bytes of [`Walker::copy`]; a power of two.
const COPY_BYTES: u64 = (COPY_WORDS * 8) as u64;
/// Return addresses of a stack that is remembered; a power of two.
const MAX_RETURNS: usize = 64;
/// Frames that the unwinder finds below the copied part of the stack: this program, and the kernel's
/// function that runs it.
const BELOW: usize = 2;
/// Size of a page, and of a stack of interrupts on x86-64 (`IRQ_STACK_SIZE`).
const PAGE: u64 = 4 << 10;
const INTERRUPT_STACK: u64 = 16 << 10;
/// Set in what tells stacks of wakers apart, and in no number of another stack, mostly.
const OF_WAKER: u64 = 1 << 63;

/// 1 KB each; sized by user space before loading.
#[map]
static KNOWN_KERNEL: PerCpuArray<Known> = PerCpuArray::with_max_entries(1, 0);

/// A kernel stack, and where its return addresses stand.
#[repr(C)]
struct Known {
    key: u64,
    epoch: u64,
    id: StackId,
    count: u32,
    /// 1: of who delivers a segment; see [`crate::stack::waker`].
    is_of_segment: u32,
    /// Places, in words from the bottom of the copy, and values.
    returns: [Word; MAX_RETURNS],
    /// The outermost one, with its place from the top.
    outermost: Word,
}

/// Where this CPU's stack of interrupts ends.
#[map]
static INTERRUPT_STACK_END: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// A kernel stack, copied.
pub(crate) struct Place {
    /// First entry of the set.
    first: u32,
    key: u64,
    epoch: u64,
    /// Length of the copy.
    words: u32,
}

impl Place {
    /// Of a stack that was not copied. In place of an option: without one the verifier finds fields that nobody has written.
    const NONE: Self = Self {
        first: 0,
        key: 0,
        epoch: 0,
        words: 0,
    };

    #[inline(always)]
    pub(crate) const fn is_there(&self) -> bool {
        self.words != 0
    }
}

/// A stack that is remembered. No option either: `id` is 0 where none is.
pub(crate) struct Recalled {
    pub(crate) id: StackId,
    pub(crate) is_of_segment: bool,
}

impl Recalled {
    pub(crate) const NONE: Self = Self {
        id: 0,
        is_of_segment: false,
    };

    #[inline(always)]
    pub(crate) fn id(&self) -> Option<StackId> {
        (self.id != 0).then_some(self.id)
    }
}

/// The stack that a program runs on top of.
struct Extent {
    /// The context of a raw tracepoint's program is an array on that stack, just below the frames of whose tracepoint it is.
    bottom: u64,
    /// Of the thread's own stack: the registers of user space.
    top: u64,
}

impl Extent {
    /// That of the current thread. Whoever runs on another one is below its bottom, or far away.
    #[inline(always)]
    fn of_thread<C: EbpfContext>(ctx: &C) -> Option<Self> {
        let cell = FRAME_SCRATCH.get_ptr_mut(0)?;
        // SAFETY: the cell is this CPU's own and interrupts are off; helpers without precondition.
        unsafe {
            let registers = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const c_void;
            Some(Self {
                bottom: address_of(ctx.as_ptr(), cell),
                top: address_of(registers, cell),
            })
        }
    }

    #[inline(always)]
    const fn bytes(&self) -> u64 {
        self.top.wrapping_sub(self.bottom)
    }
}

/// Where the kernel stack of the current thread is remembered, and a copy of that stack; `None` when
/// it is longer than what is looked at, or cannot be read. `near` is a number that other stacks do not
/// have, mostly: that of the user stack.
#[inline(always)]
pub(crate) fn place<C: EbpfContext>(
    ctx: &C,
    walker: *mut Walker,
    near: u64,
    epoch: u64,
) -> Option<Place> {
    copy(walker, &Extent::of_thread(ctx)?, near, epoch)
}

/// The same of what wakes a thread, and whether it runs on the stack of interrupts: from an interrupt that hit the kernel, or a
/// softirq. One that hit user space, and a thread of the kernel's own, are on the thread's.
#[inline(always)]
pub(crate) fn place_of_waker<C: EbpfContext>(
    ctx: &C,
    walker: *mut Walker,
    epoch: u64,
) -> (Place, bool) {
    let Some(mut extent) = Extent::of_thread(ctx) else {
        return (Place::NONE, false);
    };
    let is_elsewhere = extent.bytes() >= INTERRUPT_STACK;
    if is_elsewhere {
        extent.top = end_of_interrupt_stack(extent.bottom).unwrap_or(0);
    }
    // Nothing random is on these stacks: the same way leads as deep.
    let near = extent.bytes() | OF_WAKER;
    let place = copy(walker, &extent, near, epoch);
    (place.unwrap_or(Place::NONE), is_elsewhere)
}

/// Where the stack of interrupts that this address is on ends. Behind it no page is mapped; where that is not so, its end is not
/// found.
#[inline(always)]
fn end_of_interrupt_stack(bottom: u64) -> Option<u64> {
    let known = INTERRUPT_STACK_END.get_ptr_mut(0)?;
    // SAFETY: this CPU's own entry, and interrupts are off; the helper checks the address.
    unsafe {
        if (*known).wrapping_sub(bottom) < INTERRUPT_STACK {
            return Some(*known);
        }
        let mut page = (bottom | (PAGE - 1)) + 1;
        let mut pages = 0;
        while pages < INTERRUPT_STACK / PAGE {
            if bpf_probe_read_kernel_word(page as *const u64).is_err() {
                *known = page;
                return Some(page);
            }
            page += PAGE;
            pages += 1;
        }
    }
    None
}

/// Copies a stack.
#[inline(always)]
fn copy(walker: *mut Walker, extent: &Extent, near: u64, epoch: u64) -> Option<Place> {
    let length = extent.bytes();
    if !(8..COPY_BYTES).contains(&length) {
        return None;
    }
    // SAFETY: this CPU's own entry, and interrupts are off. The length is read back and masked: kernel 6.1
    // forgets the bounds of a number that was kept on the stack. The helper writes at most the size it is
    // given, and checks the address.
    let (bytes, failed) = unsafe {
        (*walker).word_count = length as u32;
        let bytes = (&raw const (*walker).word_count).read_volatile() & (COPY_BYTES as u32 - 1);
        let failed = bpf_probe_read_kernel(
            (&raw mut (*walker).copy).cast(),
            bytes,
            extent.bottom as *const c_void,
        );
        (bytes, failed)
    };
    if failed != 0 {
        return None;
    }
    let key = mix(near);
    Some(Place {
        first: first_of_set(key, SET),
        key,
        epoch,
        words: bytes / 8,
    })
}

/// What the comparison of kernel stacks needs.
#[repr(C)]
struct Compare {
    walker: *mut Walker,
    key: u64,
    epoch: u64,
    id: StackId,
    entry: *const Known,
    first: u32,
    words: u32,
    is_of_segment: u64,
}

/// The stack that the kernel's unwinder would find, when it is known.
#[inline(always)]
pub(crate) fn recall(walker: *mut Walker, place: &Place) -> Recalled {
    let mut compare = Compare {
        walker,
        key: place.key,
        epoch: place.epoch,
        id: 0,
        entry: ptr::null(),
        first: place.first,
        words: place.words,
        is_of_segment: 0,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            SET,
            compare_entry as *mut c_void,
            (&raw mut compare).cast(),
            0,
        );
    }
    Recalled {
        id: compare.id,
        is_of_segment: compare.is_of_segment != 0,
    }
}

/// Looks whether the stack is that of an entry. Returns 1 to stop.
extern "C" fn compare_entry(index: u32, compare: *mut Compare) -> u64 {
    // SAFETY: the context of `recall`; this CPU's own entries, and interrupts are off.
    unsafe {
        let this = &mut *compare;
        let Some(entry) = KNOWN_KERNEL.get_ptr(this.first + index) else {
            return 1;
        };
        let (known, walker) = (&*entry, &mut *this.walker);
        if known.key != this.key || known.epoch != this.epoch {
            return 0;
        }
        let outermost = this.words.wrapping_sub(known.outermost.address as u32);
        if word_at(walker, outermost as usize) != known.outermost.value {
            return 0;
        }
        walker.differs = 0;
        this.entry = entry;
        bpf_loop(
            (MAX_RETURNS / AT_ONCE) as u32,
            compare_returns as *mut c_void,
            compare.cast(),
            0,
        );
        if walker.differs != 0 {
            return 0;
        }
        this.id = known.id;
        this.is_of_segment = u64::from(known.is_of_segment);
        1
    }
}

/// Looks whether return addresses stand where they stood. Returns 1 to stop.
extern "C" fn compare_returns(round: u32, compare: *mut Compare) -> u64 {
    // SAFETY: the context of `recall`; this CPU's own entries, and indices are masked.
    unsafe {
        let compare = &mut *compare;
        let known = &*compare.entry;
        let walker = &mut *compare.walker;
        let first = round as usize * AT_ONCE;
        let mut next = 0;
        while next < AT_ONCE {
            let index = (first + next) & (MAX_RETURNS - 1);
            if index as u32 >= known.count {
                return 1;
            }
            let word = &*(&raw const known.returns).cast::<Word>().add(index);
            if word_at(walker, word.address as usize) != word.value {
                walker.differs = 1;
                return 1;
            }
            next += 1;
        }
    }
    0
}

#[inline(always)]
fn word_at(walker: &Walker, index: usize) -> u64 {
    // SAFETY: the mask keeps the index inside the array.
    unsafe {
        (&raw const walker.copy)
            .cast::<u64>()
            .add(index & (COPY_WORDS - 1))
            .read()
    }
}

/// What the search for return addresses needs.
#[repr(C)]
struct Search {
    walker: *mut Walker,
    stack: *const StoredStack,
}

/// How many of the frames that were read are on the stack that was copied; `None` if the outermost of them is not at its top, where
/// the stack of interrupts has the return to who runs a softirq.
#[inline(always)]
pub(crate) fn on_this_stack(
    walker: *mut Walker,
    place: &Place,
    stack: *const StoredStack,
    len: usize,
) -> Option<usize> {
    /// Above the return address there is only the thread's stack pointer.
    const AT_TOP: u64 = 3;
    if len <= BELOW + 1 || len - BELOW > MAX_RETURNS {
        return None;
    }
    let found = find(walker, place, stack, len);
    if found <= BELOW as u32 || found > len as u32 {
        return None;
    }
    let index = (found as usize).wrapping_sub(BELOW + 1) & (MAX_RETURNS - 1);
    // SAFETY: this CPU's own entry, and interrupts are off; the index is masked.
    let outermost = unsafe {
        (&raw const (*walker).words)
            .cast::<Word>()
            .add(index)
            .read()
    };
    (u64::from(place.words).wrapping_sub(outermost.address) <= AT_TOP).then_some(found as usize)
}

/// Looks for return addresses from the bottom of the stack on: up to which frame they were found.
#[inline(always)]
fn find(walker: *mut Walker, place: &Place, stack: *const StoredStack, len: usize) -> u32 {
    // SAFETY: this CPU's own entry, and interrupts are off.
    let walk = unsafe { &mut *walker };
    walk.depth = len as u32;
    walk.word_count = BELOW as u32;
    walk.differs = place.words;
    let mut search = Search { walker, stack };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            place.words.div_ceil(AT_ONCE as u32),
            search_up as *mut c_void,
            (&raw mut search).cast(),
            0,
        );
        (&raw const (*walker).word_count).read_volatile()
    }
}

/// Remembers the kernel stack that was read, with the places of its return addresses.
///
/// The unwinder says which they are, not where. They are looked for in their order from both ends of the
/// stack; only if both searches find the same places are these certain. The way of the unwinder depends
/// on nothing else: it begins at the same place of the scheduler, and each return address, with the depth
/// of its frame, says where the next one stands. The outermost one stands at the top; below it the kernel
/// leaves out a random number of words in each system call (`randomize_kstack_offset`). `len` frames are on the stack that was
/// copied.
#[inline(always)]
pub(crate) fn keep(
    walker: *mut Walker,
    place: &Place,
    stack: *const StoredStack,
    len: usize,
    recalled: &Recalled,
) {
    if len <= BELOW + 1 || len - BELOW > MAX_RETURNS {
        return;
    }
    if find(walker, place, stack, len) != len as u32 {
        return;
    }
    // SAFETY: this CPU's own entry, and interrupts are off.
    let walk = unsafe { &mut *walker };
    let rounds = place.words.div_ceil(AT_ONCE as u32);
    let mut search = Search { walker, stack };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            rounds,
            search_down as *mut c_void,
            (&raw mut search).cast(),
            0,
        );
    }
    if walk.word_count != BELOW as u32 {
        return;
    }
    walk.depth = (len - BELOW - 1) as u32;
    // Read back and masked at each use: kernel 6.1 forgets the bounds of a number that was kept on the stack.
    let inner = || {
        // SAFETY: a field of a map's value.
        let inner = unsafe { (&raw const (*walker).depth).read_volatile() };
        inner as usize & (MAX_RETURNS - 1)
    };
    // One of the set gives way: which is left to the random length of the stack, if it has one.
    let turn = (place.words ^ place.words >> 3 ^ recalled.id as u32 >> 3) & (SET - 1);
    let Some(entry) = KNOWN_KERNEL.get_ptr_mut(place.first + turn) else {
        return;
    };
    // SAFETY: this CPU's own entry, and interrupts are off; the index is masked, and the helper writes
    // at most the size it is given.
    unsafe {
        let words = (&raw const walk.words).cast::<Word>();
        let outermost = words.add(inner()).read();
        let known = &mut *entry;
        known.key = place.key;
        known.epoch = place.epoch;
        known.id = recalled.id;
        known.is_of_segment = u32::from(recalled.is_of_segment);
        known.count = inner() as u32;
        known.outermost = Word {
            address: u64::from(place.words).wrapping_sub(outermost.address),
            value: outermost.value,
        };
        bpf_probe_read_kernel(
            (&raw mut known.returns).cast(),
            (inner() * size_of::<Word>()) as u32,
            words.cast(),
        );
    }
}

/// Notes the lowest place of each return address, in their order.
extern "C" fn search_up(round: u32, search: *mut Search) -> u64 {
    // SAFETY: the context of `keep`; indices are checked or masked.
    unsafe {
        let search = &mut *search;
        let walker = &mut *search.walker;
        let frames = (&raw const (*search.stack).frames).cast::<u64>();
        let first = round as usize * AT_ONCE;
        let mut next = 0;
        while next < AT_ONCE {
            // Read again each time: the verifier loses what the compiler knows of the last round's.
            let count = (&raw const walker.word_count).read_volatile();
            let frame = count as usize & (MAX_FRAMES - 1);
            if count >= walker.depth || first + next >= walker.differs as usize {
                return 1;
            }
            let value = word_at(walker, first + next);
            if value == frames.add(frame).read() {
                let index = frame.wrapping_sub(BELOW) & (MAX_RETURNS - 1);
                (&raw mut walker.words)
                    .cast::<Word>()
                    .add(index)
                    .write(Word {
                        address: (first + next) as u64,
                        value,
                    });
                walker.word_count = count + 1;
            }
            next += 1;
        }
    }
    0
}

/// Goes back from the top, and stops where a return address has a higher place too.
extern "C" fn search_down(round: u32, search: *mut Search) -> u64 {
    // SAFETY: as in `search_up`.
    unsafe {
        let search = &mut *search;
        let walker = &mut *search.walker;
        let above = walker.differs.wrapping_sub(round * AT_ONCE as u32);
        let mut next = 1;
        while next <= AT_ONCE as u32 {
            let left = walker.word_count as usize;
            if left <= BELOW {
                return 1;
            }
            let index = left.wrapping_sub(BELOW + 1) & (MAX_RETURNS - 1);
            let word = (&raw const walker.words).cast::<Word>().add(index).read();
            let at = above.wrapping_sub(next);
            if at >= walker.differs {
                return 1;
            }
            if word_at(walker, at as usize) == word.value {
                if u64::from(at) != word.address {
                    return 1;
                }
                walker.word_count = left as u32 - 1;
            }
            next += 1;
        }
    }
    0
}
