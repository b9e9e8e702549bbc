//! What the kernel's maps have added up, as plain lists.

use reqtrace_common::filter::LengthHistogram;
use reqtrace_common::loss::Loss;
use reqtrace_common::sums::{StackSum, StackSumKey, TypeTotals};

/// All that the kernel has added up since the start.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Per request type, in profile order.
    pub(crate) totals: Vec<TypeTotals>,
    /// Per stack pair.
    pub(crate) stacks: Vec<(StackSumKey, StackSum)>,
    /// Lengths per stack pair, when they are counted.
    pub(crate) histograms: Vec<(StackSumKey, LengthHistogram)>,
    /// Losses, those that never happened left out.
    pub(crate) losses: Vec<(Loss, u64)>,
}
