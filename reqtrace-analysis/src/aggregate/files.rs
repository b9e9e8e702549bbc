//! Files: the kernel's sums per place of blocking in; how long requests were blocked on each file out.
//!
//! The number of files is bounded: those with the least time are put together.

use reqtrace_common::record::FILE_UNKNOWN;
use reqtrace_recording::{StackSum, StackSumKey};
use rustc_hash::FxHashMap;

use super::sites::{Sites, site_of};
use crate::bounded::{in_order, take_smallest};
use crate::report::FileLine;

/// Files of one request type that are kept by themselves, at least.
const MAX_FILES: usize = 1 << 12;
/// Files of one request type that a report names.
const MAX_NAMED: usize = 100;

/// What requests of one type were blocked on, by path; the empty path is all others.
type OfType = FxHashMap<Box<str>, Sum>;

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    blocks: u64,
    ns: u64,
    run_queue_ns: u64,
    longest_ns: u64,
    longest_run_queue_ns: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.ns += other.ns;
        self.run_queue_ns += other.run_queue_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.longest_run_queue_ns = self.longest_run_queue_ns.max(other.longest_run_queue_ns);
        self.bytes += other.bytes;
    }
}

/// What is known of single blocks, and of the run queue after them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queues {
    /// How many blocks there were, the longest, and the time on the run queue: not of requests' records, which have the sum
    /// of all blocks at a place.
    pub(super) known: bool,
    /// The longest, so that the longest blocks have none in them.
    pub(super) longest_known: bool,
}

/// Files so far, per request type.
#[derive(Clone, Debug)]
pub(super) struct Files(Vec<OfType>);

impl Files {
    pub(super) fn new(types: usize) -> Self {
        Self(vec![OfType::default(); types])
    }

    /// Adds sums.
    pub(super) fn add(&mut self, sites: &mut Sites, sums: &[(StackSumKey, StackSum)]) {
        for (key, sum) in sums {
            let site = site_of(key);
            let Some(of_type) = self.0.get_mut(key.request_type as usize) else {
                continue;
            };
            if !key.is_block() || site.file <= FILE_UNKNOWN {
                continue;
            }
            // Sockets and pipes are named for what they are, and have no path.
            let Some(path) = sites
                .file_waited_for(&site)
                .filter(|path| path.contains('/'))
            else {
                continue;
            };
            let more = Sum {
                blocks: sum.count,
                ns: sum.off_ns,
                run_queue_ns: sum.run_queue_ns,
                longest_ns: sum.longest_ns,
                longest_run_queue_ns: sum.longest_run_queue_ns,
                bytes: sum.bytes,
            };
            match of_type.get_mut(path) {
                Some(sum) => sum.add(more),
                None => {
                    of_type.insert(path.into(), more);
                }
            }
            if of_type.len() >= 2 * MAX_FILES {
                merge(of_type);
            }
        }
    }

    /// Per request type, the most time first.
    pub(super) fn lines(&self, queues: Queues) -> Vec<Vec<FileLine>> {
        let of_types = self.0.iter();
        of_types.map(|of_type| lines(of_type, queues)).collect()
    }
}

fn merge(of_type: &mut OfType) {
    for (_, sum) in take_smallest(of_type, MAX_FILES, |sum| sum.ns) {
        of_type.entry("".into()).or_default().add(sum);
    }
}

fn lines(of_type: &OfType, queues: Queues) -> Vec<FileLine> {
    let named = in_order(of_type.iter(), |sum| sum.ns);
    named
        .into_iter()
        .take(MAX_NAMED)
        .map(|(path, sum)| FileLine {
            path: path.to_string(),
            blocks: queues.known.then_some(sum.blocks),
            ns: sum.ns,
            run_queue_ns: queues.known.then_some(sum.run_queue_ns),
            longest_ns: queues.known.then_some(sum.longest_ns),
            longest_run_queue_ns: queues.longest_known.then_some(sum.longest_run_queue_ns),
            bytes: sum.bytes,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_files_lose_their_names_and_no_time() {
        let mut of_type = OfType::default();
        for number in 1..=2 * MAX_FILES as u64 {
            let sum = Sum {
                blocks: 1,
                ns: number,
                longest_ns: number,
                ..Sum::default()
            };
            of_type.insert(format!("/data/{number}").into(), sum);
        }
        let all: u64 = of_type.values().map(|sum| sum.ns).sum();
        merge(&mut of_type);
        assert_eq!(of_type.len(), MAX_FILES + 1);
        assert_eq!(of_type.values().map(|sum| sum.ns).sum::<u64>(), all);
        let lines = lines(
            &of_type,
            Queues {
                known: true,
                longest_known: false,
            },
        );
        assert_eq!(lines.len(), MAX_NAMED);
        assert_eq!(lines[0].path, "");
        assert_eq!(lines[1].path, format!("/data/{}", 2 * MAX_FILES));
        let last = 2 * MAX_FILES as u64;
        assert_eq!(
            (lines[1].blocks, lines[1].longest_ns),
            (Some(1), Some(last))
        );
    }

    /// A record has the sum of a request's blocks at a place, and not how many there were.
    #[test]
    fn blocks_are_not_counted_by_records() {
        let sum = Sum {
            blocks: 1,
            ns: 100_000_000,
            longest_ns: 100_000_000,
            ..Sum::default()
        };
        let of_type = OfType::from_iter([("/data/a".into(), sum)]);
        let queues = Queues {
            known: false,
            longest_known: false,
        };
        let lines = lines(&of_type, queues);
        assert_eq!((lines[0].ns, lines[0].run_queue_ns), (100_000_000, None));
        assert_eq!((lines[0].blocks, lines[0].longest_ns), (None, None));
    }
}
