//! The CPUs that this program may use.

use std::mem::{size_of, zeroed};

/// CPUs that this thread may run on, by number.
#[must_use]
pub fn allowed() -> Vec<usize> {
    // SAFETY: a set of bits.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `set` has the size that is given.
    let found = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if found != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: below the size of the set.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Keeps this thread on one CPU, as far as the kernel lets it.
pub fn stay_on(cpu: usize) {
    // SAFETY: a set of bits, and a number below its size.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
