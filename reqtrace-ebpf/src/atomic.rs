//! Atomic changes of map values. Rust's atomics are switched off for this target, so these are its
//! instructions by name (BPF ISA version 3, kernel 5.12).

use core::arch::asm;

/// Adds to a counter that other CPUs add to at the same time.
///
/// # Safety
///
/// `counter` points to an aligned `u64` in a map.
#[inline(always)]
pub(crate) unsafe fn add(counter: *mut u64, value: u64) {
    // SAFETY: by the contract of this function.
    unsafe {
        asm!("lock *(u64 *)({counter} + 0) += {value}", counter = in(reg) counter, value = in(reg) value);
    }
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
