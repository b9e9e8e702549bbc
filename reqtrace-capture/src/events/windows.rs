//! Exact sums of the kernel, window by window: what was taken out of its tables in, what is new in it out.
//!
//! Totals and losses are never set back, and sums per stack are taken out of a window that is over, so
//! that nothing is lost between two looks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqtrace_common::loss::Loss;
use reqtrace_recording::{MarkerCount, MarkerCounts, TypeTotals, Window};

use crate::attach::Sums;

/// How often the sums are looked at while tracing; a recording that is cut lacks those since.
const PAUSE: Duration = Duration::from_secs(5);
/// When they are looked at first.
const FIRST: Duration = Duration::from_secs(1);
/// The pause is so many times as long as a look takes, so that looking costs 0.2 % of a CPU at most.
const PAUSE_PER_LOOK: u32 = 500;

/// What was sent so far.
#[derive(Debug)]
pub(crate) struct Windows {
    totals: Vec<TypeTotals>,
    losses: BTreeMap<Loss, u64>,
    markers: Vec<MarkerCount>,
    next: Instant,
}

impl Windows {
    pub(crate) fn new() -> Self {
        Self {
            totals: Vec::new(),
            losses: BTreeMap::new(),
            markers: Vec::new(),
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
        let totals = sums.totals.iter().zip(&self.totals);
        let totals = totals.map(|(all, sent)| all.with(sent, u64::wrapping_sub));
        let totals = totals.collect();
        self.totals = sums.totals;
        let window = Window {
            until_ns,
            totals,
            sums: sums.stacks,
            histograms: sums.histograms,
            longest_apart: true,
            markers: self.new_of_markers(sums.markers),
        };
        let losses = sums.losses.into_iter().filter_map(|(loss, all)| {
            let sent = self.losses.insert(loss, all).unwrap_or(0);
            (all > sent).then(|| (loss, all - sent))
        });
        (window, losses.collect())
    }
}

impl Windows {
    /// Markers of which something is new, and those that were not there before.
    fn new_of_markers(&mut self, all: Vec<MarkerCount>) -> Vec<MarkerCount> {
        let sent = std::mem::replace(&mut self.markers, all);
        let name = |marker: &MarkerCount| {
            let (marker, place) = (marker.clone(), marker.place.clone());
            (marker.request, marker.marker, place, marker.object)
        };
        let sent: BTreeMap<_, MarkerCounts> = sent
            .iter()
            .map(|marker| (name(marker), marker.counts))
            .collect();
        let new = self.markers.iter().filter_map(|marker| {
            let before = sent.get(&name(marker));
            let counts = marker
                .counts
                .with(before.copied().unwrap_or_default(), u64::saturating_sub);
            let is_new = before.is_none() || counts != MarkerCounts::default();
            is_new.then(|| MarkerCount {
                counts,
                ..marker.clone()
            })
        });
        new.collect()
    }
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
        totals.children = count / 7;
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
            totals.merge(&window.totals[0]);
            lost += losses.iter().map(|(_, count)| count).sum::<u64>();
        }
        assert_eq!(totals, sums(9).totals[0]);
        assert_eq!(lost, 9);
    }

    #[test]
    fn counts_of_markers_add_up_and_come_only_when_they_are_new() {
        let marker = |place: &str, hits| MarkerCount {
            place: place.to_owned(),
            counts: MarkerCounts {
                hits,
                parked_already: hits / 2,
                ..MarkerCounts::default()
            },
            ..MarkerCount::default()
        };
        let mut windows = Windows::new();
        let mut new = |markers| {
            let sums = Sums {
                markers,
                ..Sums::default()
            };
            windows.new_in(sums, 1).0.markers
        };
        // One that was never hit is there once, with its zeros.
        let first = vec![marker("a", 4), marker("b", 0)];
        assert_eq!(new(first.clone()), first);
        assert_eq!(new(first), []);
        let more = new(vec![marker("a", 10), marker("b", 0), marker("c", 2)]);
        assert_eq!(more, [marker("a", 6), marker("c", 2)]);
    }
}
