//! Sizes of the kernel's tables: one figure in, entries of each table that grows with what is traced out.

use reqtrace_common::config::Process;
use reqtrace_common::limits::{MAX_PROCESSES, MAX_STACK_SUMS, MAX_STACKS, MAX_THREADS};
use reqtrace_common::record::StackId;
use reqtrace_common::sums::{StackSum, StackSumKey, StoredStack};
use reqtrace_common::thread::Thread;
use serde::{Deserialize, Serialize};

use reqtrace_base::error::{Error, Result};

/// Bytes that the kernel adds to each entry of a hash map: its head, and its share of the buckets.
const ENTRY: u64 = 64;
/// The least that is taken, as a share of what is taken if nothing is asked for: one in so many. Then there is
/// room for 128 threads.
const LEAST: u64 = 32;
/// The most: so many times as much.
const MOST: u64 = 256;

/// How many entries the kernel's tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Threads that have been in a request and live.
    pub(super) threads: u32,
    /// Traced processes that live.
    pub(super) processes: u32,
    /// Stacks of two windows.
    pub(super) stacks: u32,
    /// Sums per pair of stacks of two windows.
    pub(super) sums: u32,
}

/// Of the stacks that are shown, one in so many is enough for those that only tell for what a request waited: they are taken
/// out of the tables when a quarter of these is full.
const FEWER_STACKS: u32 = 4;

impl Default for Sizes {
    fn default() -> Self {
        Self {
            threads: MAX_THREADS,
            processes: MAX_PROCESSES,
            stacks: MAX_STACKS,
            sums: MAX_STACK_SUMS,
        }
    }
}

impl Sizes {
    /// The largest that are possible.
    pub(super) fn most() -> Self {
        let of = |usual: u32| usual.saturating_mul(2 * MOST as u32);
        let Self {
            threads,
            processes,
            stacks,
            sums,
        } = Self::default();
        Self {
            threads: of(threads),
            processes: of(processes),
            stacks: of(stacks),
            sums: of(sums),
        }
    }

    /// Those that fit into so many bytes of kernel memory, with the shares that they have by default.
    ///
    /// # Errors
    ///
    /// A usage error when it is so little that nothing could be traced, or more than makes sense.
    pub fn within(bytes: u64) -> Result<Self> {
        let usual = Self::default().bytes();
        if !(usual / LEAST..=usual * MOST).contains(&bytes) {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            return Err(Error::usage(format!(
                "--memory: {bytes} bytes for the kernel's tables"
            ))
            .next(format!(
                "give {}MB to {}MB; without --memory they take {}MB, with room for {MAX_THREADS} threads",
                mib(usual / LEAST),
                (usual * MOST) >> 20,
                mib(usual),
            )));
        }
        // The product is far below 2^64, and the quotient at most MOST times the usual number.
        let share = |usual_entries: u32| (u64::from(usual_entries) * bytes / usual) as u32;
        Ok(Self {
            threads: share(MAX_THREADS),
            processes: share(MAX_PROCESSES),
            stacks: share(MAX_STACKS),
            sums: share(MAX_STACK_SUMS),
        })
    }

    /// How many processes may be traced at a time.
    pub(crate) fn processes(self) -> usize {
        self.processes as usize
    }

    /// With room for the stacks that tell for what a request waited, and not for those of a flame graph.
    #[must_use]
    pub fn without_shown_stacks(self) -> Self {
        Self {
            stacks: self.stacks / FEWER_STACKS,
            sums: self.sums / FEWER_STACKS,
            ..self
        }
    }

    /// What these tables take in the kernel, without those of histograms.
    #[must_use]
    pub fn bytes(self) -> u64 {
        let of = |entries: u32, key: usize, value: usize| {
            u64::from(entries) * (key as u64 + value as u64 + ENTRY)
        };
        of(self.threads, size_of::<u32>(), size_of::<Thread>())
            + of(self.processes, size_of::<u32>(), size_of::<Process>())
            + of(self.stacks, size_of::<StackId>(), size_of::<StoredStack>())
            + of(self.sums, size_of::<StackSumKey>(), size_of::<StackSum>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_figure_gives_each_table_its_share() {
        let usual = Sizes::default();
        assert_eq!(Sizes::within(usual.bytes()).unwrap(), usual);
        for bytes in [
            usual.bytes() / 32,
            10 << 20,
            200 << 20,
            1 << 30,
            usual.bytes() * 256,
        ] {
            let sizes = Sizes::within(bytes).unwrap();
            // Rounding takes less than an entry of each.
            assert!(
                sizes.bytes() <= bytes && sizes.bytes() + 8192 > bytes,
                "{sizes:?}"
            );
        }
        assert!(Sizes::within(300 << 20).unwrap().threads > 20_000);
    }

    #[test]
    fn too_little_and_too_much_are_refused_with_the_figures() {
        for bytes in [0, 1 << 20, u64::MAX] {
            let error = Sizes::within(bytes).unwrap_err();
            let error = format!("{error} {}", error.advice().unwrap_or_default());
            for words in [
                &*format!("{bytes} bytes"),
                "without --memory they take",
                "4096 threads",
            ] {
                assert!(error.contains(words), "{words}: {error}");
            }
        }
    }
}
