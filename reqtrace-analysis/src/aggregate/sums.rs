//! The kernel's exact sums: windows in, totals of the trace out, and sums per stack pair until they are
//! settled.

use reqtrace_recording::{
    LengthHistogram, LengthsOf, MarkerCount, StackSum, StackSumKey, SumOf, TypeTotals, Window,
};
use rustc_hash::FxHashMap;

/// Sums per stack pair that are kept by id: the more there are, the longer settling them takes.
const MAX_UNSETTLED: usize = 8192;

/// Markers that are distinguished: a profile has some dozens, and a program of another version as many.
const MAX_MARKERS: usize = 1024;

/// All windows so far, added up.
#[derive(Debug)]
pub(super) struct Sums {
    /// Per request type, in profile order.
    pub(super) totals: Vec<TypeTotals>,
    stacks: FxHashMap<StackSumKey, StackSum>,
    histograms: FxHashMap<StackSumKey, LengthHistogram>,
    /// Of each marker.
    pub(super) markers: Vec<MarkerCount>,
    /// Whether the longest times have no run queue in them.
    pub(super) longest_apart: bool,
}

impl Sums {
    pub(super) fn new(types: usize) -> Self {
        Self {
            totals: vec![TypeTotals::ZERO; types],
            stacks: FxHashMap::default(),
            histograms: FxHashMap::default(),
            markers: Vec::new(),
            longest_apart: true,
        }
    }

    /// Adds a window.
    pub(super) fn add(&mut self, window: &Window) {
        for (sum, more) in self.totals.iter_mut().zip(&window.totals) {
            sum.merge(more);
        }
        for more in &window.markers {
            self.add_marker(more);
        }
        for SumOf { key, sum: more } in &window.sums {
            let sum = self.stacks.entry(*key).or_default();
            sum.off_ns += more.off_ns;
            sum.run_queue_ns += more.run_queue_ns;
            sum.count += more.count;
            sum.longest_ns = sum.longest_ns.max(more.longest_ns);
            sum.bytes += more.bytes;
            sum.longest_run_queue_ns = sum.longest_run_queue_ns.max(more.longest_run_queue_ns);
        }
        self.longest_apart &= window.longest_apart;
        for LengthsOf { key, lengths } in &window.histograms {
            let sum = self.histograms.entry(*key).or_insert(LengthHistogram::ZERO);
            for (count, more) in sum.counts.iter_mut().zip(&lengths.counts) {
                *count += more;
            }
        }
    }

    fn add_marker(&mut self, more: &MarkerCount) {
        let is_it = |known: &&mut MarkerCount| {
            (known.request, &known.marker) == (more.request, &more.marker)
                && (&known.place, &known.object) == (&more.place, &more.object)
        };
        if let Some(known) = self.markers.iter_mut().find(is_it) {
            known.counts = known.counts.with(more.counts, u64::saturating_add);
        } else if self.markers.len() < MAX_MARKERS {
            self.markers.push(more.clone());
        }
    }

    /// Whether there are so many sums per stack pair that they are to be settled.
    pub(super) fn is_full(&self) -> bool {
        self.stacks.len() >= MAX_UNSETTLED
    }

    /// Forgets the sums per stack pair, and lengths: they are settled.
    pub(super) fn forget(&mut self) {
        self.stacks.clear();
        self.histograms.clear();
    }

    /// Sums per stack pair, in an order that is always the same.
    pub(super) fn stacks(&self) -> Vec<(StackSumKey, StackSum)> {
        in_order(&self.stacks)
    }

    /// Lengths per stack pair, in an order that is always the same.
    pub(super) fn histograms(&self) -> Vec<(StackSumKey, LengthHistogram)> {
        in_order(&self.histograms)
    }
}

/// Sums by key.
pub(super) fn in_order<T: Copy>(sums: &FxHashMap<StackSumKey, T>) -> Vec<(StackSumKey, T)> {
    let mut sums: Vec<_> = sums.iter().map(|(key, sum)| (*key, *sum)).collect();
    sums.sort_unstable_by_key(|(key, _)| {
        let place = (key.kernel_stack, key.user_stack, key.syscall, key.file);
        let process = (key.tgid, key.exec_generation);
        (process, key.request_type, key.off_kind, place)
    });
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_all_windows_are_apart_from_the_run_queue() {
        let mut sums = Sums::new(1);
        let sum = |syscall, longest_ns, longest_run_queue_ns| SumOf {
            key: StackSumKey {
                syscall,
                ..StackSumKey::default()
            },
            sum: StackSum {
                longest_ns,
                longest_run_queue_ns,
                ..StackSum::default()
            },
        };
        let mut window = Window {
            sums: vec![sum(1, 7, 0), sum(2, 120_000, 66_000_000)],
            longest_apart: true,
            ..Window::default()
        };
        sums.add(&window);
        window.sums = vec![sum(2, 90_000, 1_000)];
        sums.add(&window);
        let [(_, first), (_, second)] = sums.stacks()[..] else {
            panic!("{:?}", sums.stacks());
        };
        assert_eq!((first.longest_ns, first.longest_run_queue_ns), (7, 0));
        let longest = (second.longest_ns, second.longest_run_queue_ns);
        assert_eq!(longest, (120_000, 66_000_000));
        assert!(sums.longest_apart);
        // One of an older recording.
        window.longest_apart = false;
        sums.add(&window);
        assert!(!sums.longest_apart);
    }
}
