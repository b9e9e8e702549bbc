//! The table of label plans: chains of alternatives in, indices for attach cookies out. The same
//! chain is stored once.

use std::collections::BTreeMap;

use reqtrace_common::label::LabelPlan;
use reqtrace_common::limits::MAX_LABEL_PLANS;

use reqtrace_base::error::{Error, Result};

/// Plans for labels, as the kernel programs have them.
#[derive(Clone, Debug)]
pub struct LabelTable {
    /// The first one stands for no label.
    plans: Vec<LabelPlan>,
    chains: BTreeMap<Vec<LabelPlan>, u16>,
}

impl Default for LabelTable {
    fn default() -> Self {
        Self {
            plans: vec![LabelPlan::default()],
            chains: BTreeMap::new(),
        }
    }
}

impl LabelTable {
    /// The index of a chain, which is added when it is not there. 0 for an empty one.
    ///
    /// # Errors
    ///
    /// When there are more plans than indices.
    pub(super) fn index_of(&mut self, chain: &[LabelPlan]) -> Result<u16> {
        if chain.is_empty() {
            return Ok(0);
        }
        if let Some(index) = self.chains.get(chain) {
            return Ok(*index);
        }
        let first = self.plans.len();
        let end = first + chain.len();
        if end > MAX_LABEL_PLANS {
            return Err(Error::usage(format!(
                "the labels need more than {MAX_LABEL_PLANS} ways to be read"
            ))
            .next("trace fewer programs at once, or without --labels"));
        }
        for (position, plan) in chain.iter().enumerate() {
            let next = first + position + 1;
            self.plans.push(LabelPlan {
                next: if next == end { 0 } else { next as u32 },
                ..*plan
            });
        }
        let index = first as u16;
        self.chains.insert(chain.to_vec(), index);
        Ok(index)
    }

    /// All plans, in the order of their indices; the first stands for no label.
    #[must_use]
    pub fn plans(&self) -> &[LabelPlan] {
        &self.plans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: u32) -> LabelPlan {
        LabelPlan {
            kind,
            ..LabelPlan::default()
        }
    }

    #[test]
    fn equal_chains_share_an_index_and_end() {
        let mut table = LabelTable::default();
        assert_eq!(table.index_of(&[]).unwrap(), 0);
        let first = table.index_of(&[plan(1), plan(2)]).unwrap();
        let second = table.index_of(&[plan(1)]).unwrap();
        assert_eq!((first, second), (1, 3));
        assert_eq!(table.index_of(&[plan(1), plan(2)]).unwrap(), first);
        let next: Vec<u32> = table.plans().iter().map(|plan| plan.next).collect();
        assert_eq!(next, [0, 2, 0, 0]);
    }

    #[test]
    fn more_plans_than_indices_are_refused() {
        let mut table = LabelTable::default();
        for kind in 1..MAX_LABEL_PLANS as u32 {
            table.index_of(&[plan(kind)]).unwrap();
        }
        let error = table.index_of(&[plan(u32::MAX)]).unwrap_err();
        assert!(error.to_string().contains("4096"), "{error}");
        assert_eq!(table.index_of(&[plan(7)]).unwrap(), 7);
    }
}
