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

/// What the hypervisor calls itself that this machine runs on, if it runs on one (leaf 0x4000_0000 of `cpuid`).
#[must_use]
pub fn hypervisor() -> Option<String> {
    use std::arch::x86_64::__cpuid;

    const IS_GUEST: u32 = 1 << 31;
    let is_guest = __cpuid(1).ecx & IS_GUEST != 0;
    is_guest.then(|| {
        let name = __cpuid(0x4000_0000);
        let bytes = [name.ebx, name.ecx, name.edx]
            .map(u32::to_le_bytes)
            .concat();
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').to_owned()
    })
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
