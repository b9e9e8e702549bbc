//! What Rust cannot say for this target: atomic changes of map values (BPF ISA version 3, kernel
//! 5.12), since Rust's atomics are switched off for it, a pointer as a number, and whose stack a
//! program has.
//!
//! Lints are checked by the host's compiler, which knows no BPF instruction: for it, and only for
//! it, the same functions stand here without assembly.

use core::ptr;

use aya_ebpf::helpers::generated::bpf_tail_call;
use aya_ebpf::{EbpfContext, Global};

#[cfg(target_arch = "bpf")]
pub(crate) use bpf::{
    add, add_word, address_of, barrier, compare_exchange, distance, fetch_add, forgotten,
};
#[cfg(not(target_arch = "bpf"))]
pub(crate) use host::{
    add, add_word, address_of, barrier, compare_exchange, distance, fetch_add, forgotten,
};

/// Always 0: see [`keeps_the_threads_stack`].
#[unsafe(no_mangle)]
static TAIL_CALLS: Global<u32> = Global::new(0);

/// For each program on a uprobe, which is not guarded against others of its kind: a thread may be preempted in it, and another one
/// run it on the same CPU. From 6.13 on the kernel gives programs with more than 64 bytes of locals a stack that is the CPU's
/// (`bpf_enable_priv_stack`), which these two would share. It gives none to programs with a tail call (`check_max_stack_depth`), and
/// counts one that is never made: the verifier takes it out.
#[inline(always)]
pub(crate) fn keeps_the_threads_stack<C: EbpfContext>(ctx: &C) {
    if TAIL_CALLS.load() != 0 {
        // SAFETY: never called.
        unsafe {
            bpf_tail_call(ctx.as_ptr(), ptr::null_mut(), 0);
        }
    }
}

#[cfg(target_arch = "bpf")]
mod bpf {
    use core::arch::asm;
    use core::ffi::c_void;

    /// Adds to a counter that other CPUs add to at the same time.
    ///
    /// # Safety
    ///
    /// `counter` points to an aligned `u64` in a map.
    #[inline(always)]
    pub(crate) unsafe fn add(counter: *mut u64, value: u64) {
        // SAFETY: by the contract of this function.
        unsafe {
            asm!(
                "lock *(u64 *)({counter} + 0) += {value}",
                counter = in(reg) counter,
                value = in(reg) value,
            );
        }
    }

    /// The same of a counter with half as many bytes.
    ///
    /// # Safety
    ///
    /// `counter` points to an aligned `u32` in a map.
    #[inline(always)]
    pub(crate) unsafe fn add_word(counter: *mut u32, value: u32) {
        // SAFETY: by the contract of this function.
        unsafe {
            asm!(
                "lock *(u32 *)({counter} + 0) += {value}",
                counter = in(reg) counter,
                value = in(reg) u64::from(value),
            );
        }
    }

    /// Adds to a number that other CPUs add to, and returns what it was.
    ///
    /// # Safety
    ///
    /// `counter` points to an aligned `u64` in a map.
    #[inline(always)]
    pub(crate) unsafe fn fetch_add(counter: *mut u64, value: u64) -> u64 {
        let mut found = value;
        // SAFETY: by the contract of this function.
        unsafe {
            asm!(
                "{value} = atomic_fetch_add((u64 *)({counter} + 0), {value})",
                counter = in(reg) counter,
                value = inout(reg) found,
            );
        }
        found
    }

    /// The same value. The verifier, which does not know `any`, forgets what it knows of it, and so goes once over what comes next, and not
    /// once for each way that led here.
    #[inline(always)]
    pub(crate) fn forgotten(value: u64, any: u64) -> u64 {
        let mut same = value;
        // SAFETY: registers only.
        unsafe {
            asm!(
                "{same} ^= {any}",
                "{same} ^= {any}",
                same = inout(reg) same,
                any = in(reg) any,
                options(pure, nomem),
            );
        }
        same
    }

    /// No load or store is moved across this by the compiler; x86 keeps stores in their order, and loads.
    #[inline(always)]
    pub(crate) fn barrier() {
        // SAFETY: no instruction.
        unsafe { asm!("") }
    }

    /// Stores `new` if the value is `expected`, and returns the value found.
    ///
    /// # Safety
    ///
    /// `target` points to an aligned `u64` in a map.
    #[inline(always)]
    pub(crate) unsafe fn compare_exchange(target: *mut u64, expected: u64, new: u64) -> u64 {
        let found;
        // SAFETY: by the contract of this function.
        unsafe {
            asm!(
                "r0 = cmpxchg_64({target} + 0, r0, {new})",
                target = in(reg) target,
                new = in(reg) new,
                inout("r0") expected => found,
            );
        }
        found
    }

    /// How far a pointer is from another one: a number, which the verifier lets a program calculate with.
    #[inline(always)]
    pub(crate) fn distance(pointer: *const u8, from: *const u8) -> u64 {
        let mut number = pointer;
        // SAFETY: registers only.
        unsafe {
            asm!("{number} -= {from}", number = inout(reg) number, from = in(reg) from);
        }
        number as u64
    }

    /// A pointer as a number: the verifier allows no arithmetic on one to a program's context.
    ///
    /// # Safety
    ///
    /// `cell` points to an aligned `u64` in a map that nothing else uses meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn address_of(pointer: *const c_void, cell: *mut u64) -> u64 {
        let address: u64;
        // SAFETY: by the contract of this function.
        unsafe {
            asm!(
                "*(u64 *)({cell} + 0) = {pointer}",
                "{address} = *(u64 *)({cell} + 0)",
                cell = in(reg) cell,
                pointer = in(reg) pointer,
                address = out(reg) address,
            );
        }
        address
    }
}

#[cfg(not(target_arch = "bpf"))]
mod host {
    use core::ffi::c_void;

    pub(crate) unsafe fn add(counter: *mut u64, value: u64) {
        // SAFETY: never called.
        unsafe { *counter += value }
    }

    pub(crate) unsafe fn add_word(counter: *mut u32, value: u32) {
        // SAFETY: never called.
        unsafe { *counter += value }
    }

    pub(crate) unsafe fn fetch_add(counter: *mut u64, value: u64) -> u64 {
        // SAFETY: never called.
        unsafe { counter.replace(value) }
    }

    pub(crate) fn forgotten(value: u64, _any: u64) -> u64 {
        value
    }

    pub(crate) fn barrier() {}

    pub(crate) unsafe fn compare_exchange(target: *mut u64, _expected: u64, new: u64) -> u64 {
        // SAFETY: never called.
        unsafe { target.replace(new) }
    }

    pub(crate) fn distance(pointer: *const u8, from: *const u8) -> u64 {
        (pointer as u64).wrapping_sub(from as u64)
    }

    pub(crate) unsafe fn address_of(pointer: *const c_void, _cell: *mut u64) -> u64 {
        pointer as u64
    }
}
