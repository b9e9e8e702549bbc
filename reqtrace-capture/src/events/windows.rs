//! Exact sums of the kernel, window by window: what was taken out of its tables in, what is new in it out.
//!
//! Totals and losses are never set back, and sums per stack are taken out of a window that is over, so
//! that nothing is lost between two looks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqtrace_common::loss::Loss;
use reqtrace_common::sums::{StackSum, TypeTotals};
use reqtrace_recording::Window;

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
    losses: BTreeMap<Loss, u64>,
    next: Instant,
}

impl Windows {
    pub(crate) fn new() -> Self {
        Self {
            totals: Vec::new(),
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
        let mut totals: Vec<TypeTotals> = sums
            .totals
            .iter()
            .zip(&self.totals)
            .map(|(all, said)| less(all, said))
            .collect();
        let keyed = keyed(&mut totals);
        self.totals = sums.totals;
        let not_zero = |of: fn(&StackSum) -> u64| {
            let all = (0..).zip(&sums.stacks);
            let all = all.map(|(index, (_, sum))| (index, of(sum)));
            all.filter(|(_, number)| *number > 0).collect()
        };
        let bytes = not_zero(|sum| sum.bytes);
        let queued = Some(not_zero(|sum| sum.longest_run_queue_ns));
        let window = Window {
            until_ns,
            totals,
            sums: sums.stacks,
            histograms: sums.histograms,
            bytes,
            keyed,
            queued,
        };
        let losses = sums.losses.into_iter().filter_map(|(loss, all)| {
            let said = self.losses.insert(loss, all).unwrap_or(0);
            (all > said).then(|| (loss, all - said))
        });
        (window, losses.collect())
    }
}

/// Takes out what a window says beside its totals; nothing when all of it is 0.
fn keyed(totals: &mut [TypeTotals]) -> Vec<(u64, u64, u64, u64)> {
    use std::mem::take;
    let of = |totals: &mut TypeTotals| {
        (
            take(&mut totals.parked_ns),
            take(&mut totals.queued_ns),
            take(&mut totals.unknown_keys),
            take(&mut totals.running_elsewhere),
        )
    };
    let keyed: Vec<_> = totals.iter_mut().map(of).collect();
    let is_zero = keyed.iter().all(|of_type| *of_type == (0, 0, 0, 0));
    if is_zero { Vec::new() } else { keyed }
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
        (&mut new.parked_ns, said.parked_ns),
        (&mut new.queued_ns, said.queued_ns),
        (&mut new.unknown_keys, said.unknown_keys),
        (&mut new.running_elsewhere, said.running_elsewhere),
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
        totals.parked_ns = 3 * count;
        totals.running_elsewhere = count / 9;
        Sums {
            totals: vec![totals],
            losses: vec![(Loss::RingFull, count)],
            ..Sums::default()
        }
    }

    #[test]
    fn windows_add_up_to_the_whole() {
        let mut windows = Windows::new();
        let mut lost = 0;
        let mut totals = TypeTotals::ZERO;
        for count in [4, 4, 9] {
            let (window, losses) = windows.new_in(sums(count), 1);
            let mut new = window.totals[0];
            assert_eq!((new.parked_ns, new.running_elsewhere), (0, 0));
            if let Some(keyed) = window.keyed.first() {
                (
                    new.parked_ns,
                    new.queued_ns,
                    new.unknown_keys,
                    new.running_elsewhere,
                ) = *keyed;
            }
            totals.merge(&new);
            lost += losses.iter().map(|(_, count)| count).sum::<u64>();
        }
        assert_eq!(totals, sums(9).totals[0]);
        assert_eq!(lost, 9);
    }
}
