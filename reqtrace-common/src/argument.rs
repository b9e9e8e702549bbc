//! First arguments of functions that are watched, to find keys of requests.
//!
//! In: calls of functions, each with its first argument, thread and frame. Out: of each argument
//! where it was and with whom it came back, and of each pair of functions how an argument got from
//! one to the other.

use crate::limits::MAX_WATCHED;

/// The lowest address that counts as a pointer, bytes: Linux maps nothing below by default
/// (`vm.mmap_min_addr`), and small numbers are not taken for one.
pub const LOWEST_POINTER: u64 = 64 << 10;

/// The first address behind those of user space on x86-64 with four levels of page tables.
pub const POINTERS_END: u64 = 1 << 47;

/// Whether a number may be an address of the process.
#[must_use]
#[inline]
pub const fn is_pointer(value: u64) -> bool {
    value >= LOWEST_POINTER && value < POINTERS_END
}

/// An argument of one process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArgumentId {
    /// The process.
    pub tgid: u32,
    /// 0.
    pub pad: u32,
    /// The argument.
    pub value: u64,
}

/// Where an argument was.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArgumentState {
    /// The call that had it last, but for those inside another one that has it: a [`Caller`].
    pub last: u64,
    /// One bit for each function that had it.
    pub functions: u64,
    /// Calls that had it.
    pub calls: u64,
    /// Where the return address of the outermost of these calls stands, as far as it is known to run.
    pub frame: u64,
    /// That return address.
    pub return_address: u64,
}

/// A thread and a function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The thread.
    pub tid: u32,
    /// Number of the function.
    pub function: u32,
}

impl Caller {
    /// As one word, so that it is read and written at once.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> u64 {
        (self.tid as u64) << 32 | self.function as u64
    }

    /// The reverse of [`Caller::encode`]. The function is below [`MAX_WATCHED`] in any case.
    #[must_use]
    #[inline]
    pub const fn decode(word: u64) -> Self {
        Self {
            tid: (word >> 32) as u32,
            function: word as u32 & (MAX_WATCHED - 1),
        }
    }
}

/// Calls of one function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCalls {
    /// Those with an argument that may be a pointer.
    pub pointers: u64,
    /// Those with an argument that no watched function had before.
    pub first: u64,
}

/// How arguments got from one function to another: calls of the second one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// On the same thread, which had no other argument there in between.
    pub direct: u64,
    /// The same, while the first function runs, or one that it calls: a call inside another.
    pub inside: u64,
    /// On the same thread, after the first function had another argument on it.
    pub turns: u64,
    /// On another thread.
    pub moves: u64,
}

impl Steps {
    /// All of them.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.direct + self.inside + self.turns + self.moves
    }

    /// Those that tell that arguments are not done with one after the other by one thread.
    #[must_use]
    pub const fn back(&self) -> u64 {
        self.turns + self.moves
    }
}

/// Index of a pair of functions in the table of [`Steps`].
#[must_use]
#[inline]
pub const fn pair(from: u32, to: u32) -> u32 {
    (from & (MAX_WATCHED - 1)) * MAX_WATCHED + (to & (MAX_WATCHED - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_one_word_and_pairs_one_index() {
        let caller = Caller {
            tid: 4_194_303,
            function: MAX_WATCHED - 1,
        };
        assert_eq!(Caller::decode(caller.encode()), caller);
        assert_eq!(Caller::decode(u64::MAX).function, MAX_WATCHED - 1);
        assert_eq!(pair(0, 0), 0);
        assert_eq!(
            pair(MAX_WATCHED - 1, MAX_WATCHED - 1),
            MAX_WATCHED * MAX_WATCHED - 1
        );
    }

    #[test]
    fn small_numbers_and_what_lies_in_the_kernel_are_no_pointers() {
        let numbers = [0, 1, 4096, 65_535, u64::from(u32::MAX) << 32, u64::MAX];
        assert!(numbers.iter().all(|&number| !is_pointer(number)));
        assert!(is_pointer(0x5555_5555_4000) && is_pointer(0x7fff_ffff_e000));
    }
}
