//! What the maps held at the end: a [`Snapshot`] in, its recorded form out, and back again.

use std::collections::{BTreeMap, HashMap};

use reqtrace_common::loss::Loss;
use reqtrace_common::record::StackId;
use serde::{Deserialize, Serialize};

use super::encode::{RecordedHistogram, RecordedOpen, RecordedSum, RecordedTotals};
use crate::decode::{ProgramCost, RawStack, Snapshot, WalkCost};
use crate::error::{Error, Result};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedSnapshot {
    stop_ns: u64,
    totals: Vec<RecordedTotals>,
    sums: Vec<RecordedSum>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    histograms: Vec<RecordedHistogram>,
    open: Vec<RecordedOpen>,
    losses: BTreeMap<String, u64>,
    programs: Vec<ProgramCost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    walks: Option<WalkCost>,
}

impl RecordedSnapshot {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            stop_ns: snapshot.stop_ns,
            totals: snapshot.totals.iter().map(RecordedTotals::of).collect(),
            sums: snapshot.sums.iter().map(RecordedSum::of).collect(),
            histograms: snapshot
                .histograms
                .iter()
                .map(RecordedHistogram::of)
                .collect(),
            open: snapshot.open.iter().map(RecordedOpen::of).collect(),
            losses: snapshot
                .losses
                .iter()
                .map(|(loss, count)| (loss.name().to_owned(), *count))
                .collect(),
            programs: snapshot.programs.clone(),
            walks: snapshot.walks.clone(),
        }
    }

    pub(super) fn restore(&self, stacks: HashMap<StackId, RawStack>) -> Result<Snapshot> {
        let open = self
            .open
            .iter()
            .map(RecordedOpen::restore)
            .collect::<Option<_>>()
            .ok_or_else(|| {
                Error::usage("the recording holds a broken record of an open request")
            })?;
        let losses = self
            .losses
            .iter()
            .filter_map(|(name, count)| {
                let loss = Loss::ALL.into_iter().find(|loss| loss.name() == name)?;
                Some((loss, *count))
            })
            .collect();
        Ok(Snapshot {
            stop_ns: self.stop_ns,
            totals: self.totals.iter().map(RecordedTotals::restore).collect(),
            sums: self.sums.iter().map(RecordedSum::restore).collect(),
            histograms: self
                .histograms
                .iter()
                .map(RecordedHistogram::restore)
                .collect(),
            stacks,
            open,
            losses,
            programs: self.programs.clone(),
            walks: self.walks.clone(),
        })
    }
}
