//! Sums by name: the kernel's sums per stack pair in, what a report says of them out.
//!
//! Ids of stacks mean something for a while only, and there may be any number of them; names and wait
//! classes are few. So sums are settled now and then: they get their names, are added up by name, and
//! are forgotten. What gets another name later keeps the one it had.

use reqtrace_recording::{LengthHistogram, StackSum, StackSumKey};

use super::files::Files;
use super::lengths::Lengths;
use super::signs::Places;
use super::sites::{Sites, site_of, space_of};
use super::stacks::Lines;
use super::unwinding::Walked;

/// Sums by name.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// Blocked time per type and class, incomplete requests included.
    pub(super) by_class: Vec<Vec<u64>>,
    pub(super) files: Files,
    pub(super) places: Places,
    pub(super) lengths: Lengths,
    pub(super) lines: Lines,
    /// Of samples: numbers of them in place of times.
    pub(super) on_cpu: Lines,
    pub(super) walked: Walked,
}

/// Sums to be added.
pub(super) struct New<'a> {
    /// The kernel's, of all requests.
    pub(super) sums: &'a [(StackSumKey, StackSum)],
    /// Those whose stacks are shown.
    pub(super) shown: &'a [(StackSumKey, StackSum)],
    pub(super) histograms: &'a [(StackSumKey, LengthHistogram)],
    pub(super) samples: &'a [(StackSumKey, u64)],
}

impl Settled {
    pub(super) fn new(types: usize, classes: usize) -> Self {
        Self {
            by_class: vec![vec![0; classes]; types],
            files: Files::new(types),
            places: Places::new(types),
            lengths: Lengths::new(types, classes),
            lines: Lines::default(),
            on_cpu: Lines::default(),
            walked: Walked::default(),
        }
    }

    /// Adds sums, which get their names.
    pub(super) fn add(&mut self, sites: &mut Sites, new: &New<'_>) {
        for (key, sum) in new.sums {
            let Some(classes) = self.by_class.get_mut(key.request_type as usize) else {
                continue;
            };
            if key.is_block()
                && let Some(class) =
                    sites.class(Some(key.request_type), space_of(key), &site_of(key))
            {
                classes[class] += sum.off_ns;
            }
        }
        self.files.add(sites, new.shown);
        self.places.add(sites, new.sums);
        self.lengths.add(sites, new.histograms);
        self.lines.add(sites, self.by_class.len(), new.shown);
        self.on_cpu
            .add_samples(sites, self.by_class.len(), new.samples);
        self.walked.add(sites, new.shown);
    }
}
