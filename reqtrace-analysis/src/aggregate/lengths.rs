//! Lengths of blocks: histograms per stack pair in, one per request type and wait class out.

use reqtrace_common::filter::POWERS;
use reqtrace_recording::{LengthHistogram, StackSumKey};

use super::sites::Sites;
use super::sites::{site_of, space_of};
use crate::report::LengthCounts;

/// Histograms so far: per request type the wait classes in their order, then what has no class, then
/// preemption.
#[derive(Clone, Debug)]
pub(super) struct Lengths(Vec<Vec<[u64; POWERS]>>);

impl Lengths {
    pub(super) fn new(types: usize, classes: usize) -> Self {
        Self(vec![vec![[0; POWERS]; classes + 2]; types])
    }

    /// Adds histograms.
    pub(super) fn add(&mut self, sites: &mut Sites, histograms: &[(StackSumKey, LengthHistogram)]) {
        let classes = sites.classifier.names().len();
        for (key, histogram) in histograms {
            let Some(of_type) = self.0.get_mut(key.request_type as usize) else {
                continue;
            };
            let index = if key.is_block() {
                let class = sites.class(Some(key.request_type), space_of(key), &site_of(key));
                class.unwrap_or(classes)
            } else {
                classes + 1
            };
            for (sum, count) in of_type[index].iter_mut().zip(&histogram.counts) {
                *sum += count;
            }
        }
    }

    /// Per request type, those that have a block.
    pub(super) fn counts(&self, classes: &[String]) -> Vec<Vec<LengthCounts>> {
        let own = ["unattributed".to_owned(), "preempted".to_owned()];
        let names: Vec<&String> = classes.iter().chain(&own).collect();
        let of_type = |of_type: &Vec<[u64; POWERS]>| {
            let named = names.iter().zip(of_type);
            let filled = named.filter(|(_, counts)| counts.iter().any(|count| *count > 0));
            filled
                .map(|(name, counts)| LengthCounts {
                    name: (*name).clone(),
                    counts: counts.to_vec(),
                })
                .collect()
        };
        self.0.iter().map(of_type).collect()
    }
}
