//! Calls of functions that are watched, to find keys of requests.
//!
//! In: entries and returns of functions, each with thread, arguments or result, and frame. Out: a
//! [`CallRecord`] each, which has how many watched calls of the thread it is inside of.

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

/// Arguments of a call that are noted: the first ones.
pub const NOTED_ARGUMENTS: usize = 4;

/// Watched calls inside one another that are known of a thread, 16 bytes each. A power of two, so
/// that a mask bounds the index.
pub const MAX_DEPTH: usize = 8;

/// Flag of the number of a function, in cookies and in [`CallRecord::function`]: the function
/// returns there.
pub const RETURNS: u32 = 1 << 31;

/// An entry of a function, or its return.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallRecord {
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Number of the function, and perhaps [`RETURNS`].
    pub function: u32,
    /// Watched calls of the thread that this one is inside of, [`MAX_DEPTH`] at most.
    pub depth: u32,
    /// The first arguments; of a return the result, and zeros.
    pub values: [u64; NOTED_ARGUMENTS],
}

impl CallRecord {
    /// Number of the function, below [`MAX_WATCHED`] in any case.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.function & (MAX_WATCHED - 1)
    }

    /// Whether it is a return.
    #[must_use]
    pub const fn is_return(&self) -> bool {
        self.function & RETURNS != 0
    }
}

/// A call that runs, as far as its return address still stands there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningCall {
    /// Where its return address stands.
    pub frame: u64,
    /// That address.
    pub return_address: u64,
}

/// Calls of watched functions that a thread is in, the outermost first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningCalls {
    /// Used entries of `calls`.
    pub used: u64,
    /// The calls.
    pub calls: [RunningCall; MAX_DEPTH],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_has_the_number_of_its_function() {
        let call = CallRecord {
            function: RETURNS | (MAX_WATCHED - 1),
            ..CallRecord::default()
        };
        assert_eq!((call.number(), call.is_return()), (MAX_WATCHED - 1, true));
        let entry = CallRecord::default();
        assert_eq!((entry.number(), entry.is_return()), (0, false));
    }

    #[test]
    fn small_numbers_and_what_lies_in_the_kernel_are_no_pointers() {
        let numbers = [0, 1, 4096, 65_535, u64::from(u32::MAX) << 32, u64::MAX];
        assert!(numbers.iter().all(|&number| !is_pointer(number)));
        assert!(is_pointer(0x5555_5555_4000) && is_pointer(0x7fff_ffff_e000));
    }
}
