//! The tables of plans for markers and attributes: chains in, indices for attach cookies out. The same
//! chain is stored once.

use std::collections::BTreeMap;

use reqtrace_common::limits::MAX_MARKER_PLANS;
use reqtrace_common::marker::{AttributePlan, MarkerPlan};

use reqtrace_base::error::{Error, Result};

/// Plans for markers and attributes, as the kernel programs have them.
#[derive(Clone, Debug)]
pub struct MarkerTable {
    /// The first one stands for none.
    markers: Vec<MarkerPlan>,
    marker_chains: BTreeMap<Vec<MarkerPlan>, u16>,
    /// The first one stands for none.
    attributes: Vec<AttributePlan>,
    attribute_chains: BTreeMap<Vec<AttributePlan>, u32>,
}

impl Default for MarkerTable {
    fn default() -> Self {
        Self {
            markers: vec![MarkerPlan::default()],
            marker_chains: BTreeMap::new(),
            attributes: vec![AttributePlan::default()],
            attribute_chains: BTreeMap::new(),
        }
    }
}

impl MarkerTable {
    /// The index of a chain of plans, which is added when it is not there. 0 for an empty one.
    ///
    /// # Errors
    ///
    /// When there are more plans than indices.
    pub(super) fn chain(&mut self, chain: &[MarkerPlan]) -> Result<u16> {
        if chain.is_empty() {
            return Ok(0);
        }
        if let Some(index) = self.marker_chains.get(chain) {
            return Ok(*index);
        }
        let first = first_of(&self.markers, chain)?;
        for (plan, next) in chain.iter().zip(nexts(first, chain.len())) {
            self.markers.push(MarkerPlan { next, ..*plan });
        }
        let index = first as u16;
        self.marker_chains.insert(chain.to_vec(), index);
        Ok(index)
    }

    /// The same of ways to read attributes.
    ///
    /// # Errors
    ///
    /// When there are more plans than indices.
    pub(super) fn attributes_of(&mut self, chain: &[AttributePlan]) -> Result<u32> {
        if chain.is_empty() {
            return Ok(0);
        }
        if let Some(index) = self.attribute_chains.get(chain) {
            return Ok(*index);
        }
        let first = first_of(&self.attributes, chain)?;
        for (plan, next) in chain.iter().zip(nexts(first, chain.len())) {
            self.attributes.push(AttributePlan { next, ..*plan });
        }
        self.attribute_chains.insert(chain.to_vec(), first as u32);
        Ok(first as u32)
    }

    /// All plans for markers, in the order of their indices; the first stands for none.
    #[must_use]
    pub fn markers(&self) -> &[MarkerPlan] {
        &self.markers
    }

    /// All plans for attributes, in the order of their indices; the first stands for none.
    #[must_use]
    pub fn attributes(&self) -> &[AttributePlan] {
        &self.attributes
    }
}

/// The index that the first of a chain gets.
fn first_of<T>(plans: &[T], chain: &[T]) -> Result<usize> {
    let first = plans.len();
    if first + chain.len() > MAX_MARKER_PLANS {
        return Err(Error::usage(format!(
            "the markers need more than {MAX_MARKER_PLANS} plans: each place that reads a variable, and \
             each text of a condition, is one"
        ))
        .next("trace fewer programs at once, or use fewer texts in conditions"));
    }
    Ok(first)
}

/// What each of a chain of so many names as its next.
fn nexts(first: usize, count: usize) -> impl Iterator<Item = u32> {
    let end = first + count;
    (first + 1..=end).map(move |next| if next == end { 0 } else { next as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(op: u32) -> MarkerPlan {
        MarkerPlan {
            op,
            ..MarkerPlan::default()
        }
    }

    #[test]
    fn equal_chains_share_an_index_and_end() {
        let mut table = MarkerTable::default();
        assert_eq!(table.chain(&[]).unwrap(), 0);
        let first = table.chain(&[plan(1), plan(2)]).unwrap();
        let second = table.chain(&[plan(1)]).unwrap();
        assert_eq!((first, second), (1, 3));
        assert_eq!(table.chain(&[plan(1), plan(2)]).unwrap(), first);
        let next: Vec<u32> = table.markers().iter().map(|plan| plan.next).collect();
        assert_eq!(next, [0, 2, 0, 0]);

        let attribute = |index| AttributePlan {
            index,
            ..AttributePlan::default()
        };
        assert_eq!(table.attributes_of(&[]).unwrap(), 0);
        let both = [attribute(0), attribute(1)];
        assert_eq!(table.attributes_of(&both).unwrap(), 1);
        assert_eq!(table.attributes_of(&both).unwrap(), 1);
        let next: Vec<u32> = table.attributes().iter().map(|plan| plan.next).collect();
        assert_eq!(next, [0, 2, 0]);
    }

    #[test]
    fn more_plans_than_indices_are_refused() {
        let mut table = MarkerTable::default();
        for op in 1..MAX_MARKER_PLANS as u32 {
            table.chain(&[plan(op)]).unwrap();
        }
        let error = table.chain(&[plan(u32::MAX)]).unwrap_err();
        assert!(error.to_string().contains("4096"), "{error}");
        assert_eq!(table.chain(&[plan(7)]).unwrap(), 7);
    }
}
