//! Who holds a lock of glibc: the words at a futex that a thread waits on in, the thread that holds it
//! out.
//!
//! Only a lock that says who holds it has a holder; a number that merely could be a thread is none. Layouts
//! are those of x86-64: `struct __pthread_mutex_s` (sysdeps/x86/nptl/bits/struct_mutex.h) and
//! `struct __pthread_rwlock_arch_t` (struct_rwlock.h). Mutexes record their owner since glibc 2.0 in all
//! kinds but those whose lock was elided; a read-write lock its writer, never its readers.

/// What was found at a futex.
pub mod holder_is {
    /// The wait was on no futex.
    pub const NO_FUTEX: u32 = 0;
    /// This thread, by the number that it has in its own PID namespace.
    pub const THREAD: u32 = 1;
    /// No lock that says who holds it: a condition variable, a semaphore, or a lock of another kind.
    pub const NOT_TOLD: u32 = 2;
    /// The lock changed hands just then.
    pub const CHANGING: u32 = 3;
    /// The memory could not be read.
    pub const UNREADABLE: u32 = 4;
}

/// What the lock word of a mutex has that others wait for, and what its waiters wait on.
const LOCKED_WITH_WAITERS: u32 = 2;
/// In the words of robust and PI mutexes, beside the owner.
const FUTEX_WAITERS: u32 = 1 << 31;
const FUTEX_TID_MASK: u32 = (1 << 30) - 1;
/// What waiters of a read-write lock wait on while a writer has it: 1 and `PTHREAD_RWLOCK_FUTEX_USED`.
const WRITER_WITH_WAITERS: u32 = 3;

const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_LOCK_PI2: u32 = 13;
/// Without the flags `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
const COMMAND: u32 = 127;

/// Bits of `__kind`: robust, PI, shared between processes; two about elision that do not matter here.
const KIND_ROBUST: u32 = 16;
const KIND_PI: u32 = 32;
const KIND_IGNORED: u32 = 128 | 256 | 512;
/// Normal, recursive, errorcheck, adaptive.
const LAST_KIND: u32 = 3;

/// Words of a mutex from its futex on: lock, count, owner, users, kind.
pub const MUTEX_WORDS: usize = 5;
/// Words of a read-write lock that are looked at, from [`RWLOCK_BEFORE`] bytes before the futex on.
pub const RWLOCK_WORDS: usize = 14;
/// A read-write lock begins 8 or 12 bytes before the futex that its waiters wait on.
pub const RWLOCK_BEFORE: u64 = 12;

/// What a wait on a futex may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// For a mutex, if the words say so.
    Mutex,
    /// For a mutex whose word has the owner.
    OwnerInWord,
    /// For the writer of a read-write lock, if the words say so.
    Writer,
    /// For something else.
    Otherwise,
}

/// What a wait may be by the arguments of `futex`.
#[must_use]
#[inline]
pub const fn waits(operation: u32, value: u32) -> Waits {
    match operation & COMMAND {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => Waits::OwnerInWord,
        FUTEX_WAIT | FUTEX_WAIT_BITSET => match value {
            LOCKED_WITH_WAITERS => Waits::Mutex,
            WRITER_WITH_WAITERS => Waits::Writer,
            _ if value & FUTEX_WAITERS != 0 => Waits::OwnerInWord,
            _ => Waits::Otherwise,
        },
        _ => Waits::Otherwise,
    }
}

/// The holder of a mutex: one of [`holder_is`], and the thread.
#[must_use]
#[inline]
pub const fn of_mutex(waits: Waits, words: &[u32; MUTEX_WORDS]) -> (u32, u32) {
    let [lock, _, owner, users, kind] = *words;
    let kind = kind & !KIND_IGNORED;
    let plain = kind & !(KIND_ROBUST | KIND_PI);
    if plain > LAST_KIND {
        return (holder_is::NOT_TOLD, 0);
    }
    let in_word = kind & (KIND_ROBUST | KIND_PI) != 0;
    match waits {
        Waits::OwnerInWord if in_word => known(lock & FUTEX_TID_MASK),
        Waits::Mutex if !in_word && users > 0 && owner != 0 => {
            if lock == LOCKED_WITH_WAITERS {
                known(owner)
            } else {
                (holder_is::CHANGING, 0)
            }
        }
        _ => (holder_is::NOT_TOLD, 0),
    }
}

/// The writer that holds a read-write lock: as [`of_mutex`].
#[must_use]
#[inline]
pub const fn of_rwlock(words: &[u32; RWLOCK_WORDS]) -> (u32, u32) {
    // The futex is `__writers_futex` or `__wrphase_futex`, 12 or 8 bytes into the lock.
    let for_writer = writer(words, 0);
    let for_phase = writer(words, 1);
    match (for_writer, for_phase) {
        (0, 0) => (holder_is::NOT_TOLD, 0),
        (tid, 0) | (0, tid) => known(tid),
        // Both look like one.
        _ => (holder_is::NOT_TOLD, 0),
    }
}

/// `__cur_writer` of the lock that begins at this word; 0 when it does not look like one.
#[inline]
const fn writer(words: &[u32; RWLOCK_WORDS], at: usize) -> u32 {
    let padding = words[at + 4] | words[at + 5] | words[at + 10] | words[at + 11];
    let (shared, flags) = (words[at + 7], words[at + 12]);
    if words[3] == WRITER_WITH_WAITERS && padding == 0 && shared <= 1 && flags <= 2 {
        words[at + 6]
    } else {
        0
    }
}

const fn known(tid: u32) -> (u32, u32) {
    if tid == 0 {
        (holder_is::CHANGING, 0)
    } else {
        (holder_is::THREAD, tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: u32 = 128;
    const REALTIME: u32 = 256;

    #[test]
    fn only_waits_that_glibc_makes_for_locks_are_looked_at() {
        for operation in [FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_BITSET | REALTIME] {
            assert_eq!(waits(operation | PRIVATE, 2), Waits::Mutex);
            assert_eq!(waits(operation, 3), Waits::Writer);
            assert_eq!(waits(operation, FUTEX_WAITERS | 17), Waits::OwnerInWord);
            // A condition variable, and a semaphore.
            assert_eq!(waits(operation | PRIVATE, 4), Waits::Otherwise);
            assert_eq!(waits(operation | PRIVATE, 0), Waits::Otherwise);
        }
        assert_eq!(waits(FUTEX_LOCK_PI | PRIVATE, 0), Waits::OwnerInWord);
        assert_eq!(waits(FUTEX_LOCK_PI2 | PRIVATE, 0), Waits::OwnerInWord);
        assert_eq!(waits(11, 2), Waits::Otherwise);
    }

    #[test]
    fn a_mutex_of_each_kind_has_its_owner() {
        for kind in [0, 1, 2, 3, 128, 256, 512 | 1] {
            let words = [2, 1, 4711, 1, kind];
            assert_eq!(
                of_mutex(Waits::Mutex, &words),
                (holder_is::THREAD, 4711),
                "{kind}"
            );
        }
        for kind in [KIND_ROBUST, KIND_ROBUST | 1, KIND_PI, KIND_PI | 2] {
            let words = [FUTEX_WAITERS | 4711, 0, 4711, 1, kind];
            assert_eq!(
                of_mutex(Waits::OwnerInWord, &words),
                (holder_is::THREAD, 4711)
            );
            // The owner died: the word has another bit too.
            let words = [FUTEX_WAITERS | 1 << 30 | 4711, 0, 4711, 1, kind];
            assert_eq!(
                of_mutex(Waits::OwnerInWord, &words),
                (holder_is::THREAD, 4711)
            );
        }
    }

    #[test]
    fn what_only_looks_like_a_mutex_has_no_holder() {
        let nobody = (holder_is::NOT_TOLD, 0);
        // Nobody uses it; no owner; no kind of mutex; a kind that has its owner elsewhere.
        for words in [
            [2, 0, 4711, 0, 0],
            [2, 0, 0, 1, 0],
            [2, 0, 4711, 1, 4],
            [2, 0, 4711, 1, 0x7fff_0000],
            [2, 0, 4711, 1, KIND_ROBUST],
        ] {
            assert_eq!(of_mutex(Waits::Mutex, &words), nobody, "{words:?}");
        }
        let normal = [FUTEX_WAITERS | 4711, 0, 4711, 1, 0];
        assert_eq!(of_mutex(Waits::OwnerInWord, &normal), nobody);
        // It was given back just then.
        assert_eq!(
            of_mutex(Waits::Mutex, &[0, 0, 4711, 1, 0]),
            (holder_is::CHANGING, 0)
        );
    }

    #[test]
    fn a_read_write_lock_has_its_writer_from_either_futex() {
        let mut words = [0; RWLOCK_WORDS];
        (words[0], words[2], words[3], words[6]) = (8, 3, 3, 4711);
        assert_eq!(of_rwlock(&words), (holder_is::THREAD, 4711));
        let mut words = [0x55, 8, 1, 3, 0, 0, 0, 4711, 0, 0, 0, 0, 0, 0];
        assert_eq!(of_rwlock(&words), (holder_is::THREAD, 4711));
        words[13] = 77;
        assert_eq!(of_rwlock(&words), (holder_is::NOT_TOLD, 0));
        assert_eq!(of_rwlock(&[3; RWLOCK_WORDS]), (holder_is::NOT_TOLD, 0));
    }
}
