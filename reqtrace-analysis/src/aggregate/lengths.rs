//! Lengths of blocks: histograms per stack pair in, one per request type and wait class out.

use reqtrace_common::filter::{LengthHistogram, POWERS};
use reqtrace_common::sums::StackSumKey;

use super::sites::Sites;
use super::sites::{site_of, space_of};
use crate::report::LengthCounts;

/// Per request type: wait classes in their order, then what has no class.
pub(super) fn of(
    sites: &mut Sites,
    types: usize,
    histograms: &[(StackSumKey, LengthHistogram)],
) -> Vec<Vec<LengthCounts>> {
    let mut names = sites.classifier.names().to_vec();
    let classes = names.len();
    names.extend(["unattributed".to_owned(), "preempted".to_owned()]);
    let none = names.iter().map(|name| LengthCounts {
        name: name.clone(),
        counts: vec![0; POWERS],
    });
    let mut by_type = vec![none.collect::<Vec<_>>(); types];
    for (key, histogram) in histograms {
        let Some(of_type) = by_type.get_mut(key.request_type as usize) else {
            continue;
        };
        let index = if key.is_block() {
            let class = sites.class(space_of(key), &site_of(key));
            class.unwrap_or(classes)
        } else {
            classes + 1
        };
        for (sum, count) in of_type[index].counts.iter_mut().zip(&histogram.counts) {
            *sum += count;
        }
    }
    for of_type in &mut by_type {
        of_type.retain(|lengths| lengths.counts.iter().any(|count| *count > 0));
    }
    by_type
}
