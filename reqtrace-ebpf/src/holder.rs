//! Who holds the lock that a thread is about to wait for: the futex and its call in, a thread out.

use aya_ebpf::helpers::generated::bpf_probe_read_user;

use reqtrace_common::futex::{
    MUTEX_WORDS, RWLOCK_BEFORE, RWLOCK_WORDS, Waits, holder_is, of_mutex, of_rwlock, waits,
};

use crate::maps::FUTEX_SCRATCH;
use crate::task;

/// One of [`holder_is`] for the current thread, which waits on this futex, and the thread that holds the
/// lock, by its number in its own PID namespace.
#[inline(always)]
pub(crate) fn of(futex: u64) -> (u32, u32) {
    let [operation, value] = task::second_and_third();
    let waits = waits(operation, value);
    let Some(words) = FUTEX_SCRATCH.get_ptr_mut(0) else {
        return (holder_is::UNREADABLE, 0);
    };
    let (from, count) = match waits {
        Waits::Otherwise => return (holder_is::NOT_TOLD, 0),
        Waits::Writer => (futex.wrapping_sub(RWLOCK_BEFORE), RWLOCK_WORDS),
        Waits::Mutex | Waits::OwnerInWord => (futex, MUTEX_WORDS),
    };
    // SAFETY: this CPU's own entry, and interrupts are off; the helper checks the address.
    unsafe {
        if bpf_probe_read_user(words.cast(), (count * 4) as u32, from as *const _) != 0 {
            return (holder_is::UNREADABLE, 0);
        }
        if matches!(waits, Waits::Writer) {
            of_rwlock(&*words)
        } else {
            of_mutex(waits, &*words.cast::<[u32; MUTEX_WORDS]>())
        }
    }
}
