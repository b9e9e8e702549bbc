//! Exact sums of the kernel, window by window: all that its maps hold in, what is new in it out.
//!
//! The kernel's sums are never set back, so that nothing is lost between two looks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqtrace_common::filter::LengthHistogram;
use reqtrace_common::loss::Loss;
use reqtrace_common::sums::{StackSum, StackSumKey, TypeTotals};
use reqtrace_recording::Window;
use rustc_hash::FxHashMap;

use crate::attach::Sums;

/// How often the sums are looked at while tracing; a recording that is cut lacks those since.
const PAUSE: Duration = Duration::from_secs(5);
/// When they are looked at first.
const FIRST: Duration = Duration::from_secs(1);
/// The pause is so many times as long as a look takes, so that looking costs 0.2 % of a CPU at most.
const PAUSE_PER_LOOK: u32 = 500;

/// What was said so far.
#[derive(Debug)]
pub(crate) struct Windows {
    totals: Vec<TypeTotals>,
    stacks: FxHashMap<StackSumKey, StackSum>,
    histograms: FxHashMap<StackSumKey, LengthHistogram>,
    losses: BTreeMap<Loss, u64>,
    next: Instant,
}

impl Windows {
    pub(crate) fn new() -> Self {
        Self {
            totals: Vec::new(),
            stacks: FxHashMap::default(),
            histograms: FxHashMap::default(),
            losses: BTreeMap::new(),
            next: Instant::now() + FIRST,
        }
    }

    /// Whether it is time for the next look.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// A look has taken so long.
    pub(crate) fn looked(&mut self, since: Instant) {
        let pause = since.elapsed().saturating_mul(PAUSE_PER_LOOK).max(PAUSE);
        self.next = Instant::now() + pause;
    }

    /// What is new: a window, and losses.
    pub(crate) fn new_in(&mut self, sums: Sums, until_ns: u64) -> (Window, Vec<(Loss, u64)>) {
        self.totals.resize(sums.totals.len(), TypeTotals::ZERO);
        let totals = sums
            .totals
            .iter()
            .zip(&self.totals)
            .map(|(all, said)| less(all, said))
            .collect();
        self.totals = sums.totals;
        let mut window = Window {
            until_ns,
            totals,
            sums: Vec::new(),
            histograms: Vec::new(),
        };
        for (key, all) in sums.stacks {
            let said = self.stacks.entry(key).or_default();
            if all != *said {
                let new = StackSum {
                    off_ns: all.off_ns.wrapping_sub(said.off_ns),
                    run_queue_ns: all.run_queue_ns.wrapping_sub(said.run_queue_ns),
                    count: all.count.wrapping_sub(said.count),
                    longest_ns: all.longest_ns,
                };
                *said = all;
                window.sums.push((key, new));
            }
        }
        for (key, all) in sums.histograms {
            let said = self.histograms.entry(key).or_insert(LengthHistogram::ZERO);
            if all != *said {
                let mut new = all;
                for (count, said) in new.counts.iter_mut().zip(&said.counts) {
                    *count = count.wrapping_sub(*said);
                }
                *said = all;
                window.histograms.push((key, new));
            }
        }
        let losses = sums.losses.into_iter().filter_map(|(loss, all)| {
            let said = self.losses.insert(loss, all).unwrap_or(0);
            (all > said).then(|| (loss, all - said))
        });
        (window, losses.collect())
    }
}

/// What was counted since; the longest is that of all.
fn less(all: &TypeTotals, said: &TypeTotals) -> TypeTotals {
    let mut new = *all;
    for (field, said) in [
        (&mut new.count, said.count),
        (&mut new.latency_ns, said.latency_ns),
        (&mut new.run_queue_ns, said.run_queue_ns),
        (&mut new.preempted_ns, said.preempted_ns),
        (&mut new.blocked_ns, said.blocked_ns),
        (&mut new.unattributed_ns, said.unattributed_ns),
        (&mut new.begins, said.begins),
        (&mut new.ends, said.ends),
        (&mut new.incomplete, said.incomplete),
        (&mut new.nested, said.nested),
        (&mut new.other_type, said.other_type),
        (&mut new.ends_without_begin, said.ends_without_begin),
        (&mut new.unsampled, said.unsampled),
        (&mut new.beyond, said.beyond),
    ] {
        *field = field.wrapping_sub(said);
    }
    for (count, said) in new.histogram.iter_mut().zip(&said.histogram) {
        *count = count.wrapping_sub(*said);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(count: u64) -> Sums {
        let mut totals = TypeTotals::ZERO;
        totals.count = count;
        totals.max_ns = 7 * count;
        totals.histogram[5] = count;
        let mut lengths = LengthHistogram::ZERO;
        lengths.counts[1] = count;
        let key = |stack| StackSumKey {
            user_stack: stack,
            ..StackSumKey::default()
        };
        let sum = StackSum {
            off_ns: 3 * count,
            count,
            longest_ns: count,
            ..StackSum::default()
        };
        Sums {
            totals: vec![totals],
            stacks: vec![(key(1), sum), (key(2), StackSum::default())],
            histograms: vec![(key(1), lengths)],
            losses: vec![(Loss::RingFull, count)],
        }
    }

    #[test]
    fn windows_add_up_to_the_whole() {
        let mut windows = Windows::new();
        let (mut all, mut lost) = (StackSum::default(), 0);
        let mut totals = TypeTotals::ZERO;
        for count in [4, 4, 9] {
            let (window, losses) = windows.new_in(sums(count), 1);
            totals.merge(&window.totals[0]);
            for (key, sum) in &window.sums {
                assert_eq!(key.user_stack, 1);
                all.off_ns += sum.off_ns;
                all.count += sum.count;
                all.longest_ns = all.longest_ns.max(sum.longest_ns);
            }
            lost += losses.iter().map(|(_, count)| count).sum::<u64>();
        }
        assert_eq!(totals, sums(9).totals[0]);
        assert_eq!((all, lost), (sums(9).stacks[0].1, 9));
    }
}
