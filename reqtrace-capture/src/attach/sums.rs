//! What the kernel's maps have added up, as plain lists.

use std::collections::BTreeMap;

use aya::maps::{Array, MapData, PerCpuArray};
use reqtrace_common::config::Filled;
use reqtrace_common::filter::LengthHistogram as KernelHistogram;
use reqtrace_common::loss::Loss;
use reqtrace_common::marker::{
    MarkerCounts, MarkerHits, MarkerPlan, PLANS_IN_LINE, count, hits_at, marker_flag,
};
use reqtrace_common::sums::{
    StackSum as KernelSum, StackSumKey as KernelKey, TypeTotals as KernelTotals, off_kind,
};
use reqtrace_recording::{LengthsOf, MarkerCount, StackSumKey, SumOf, TypeTotals};

use super::batch;
use super::decode::own;
use super::maps::{Maps, map_error};
use super::marked;
use super::plans::PlanTables;
use super::sizes::Sizes;
use reqtrace_base::error::Result;

/// A table is emptied when so much of it was filled since the last time: the rest has room for what
/// comes while it is emptied, in the next window.
const FULL_ENOUGH: u64 = 4;

/// What the kernel has added up.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Per request type, in profile order, since the start.
    pub(crate) totals: Vec<TypeTotals>,
    /// Per stack pair, in one window.
    pub(crate) stacks: Vec<SumOf>,
    /// Lengths per stack pair, when they are counted, in one window.
    pub(crate) histograms: Vec<LengthsOf>,
    /// Losses since the start, those that never happened left out.
    pub(crate) losses: Vec<(Loss, u64)>,
    /// Of each marker, since the start.
    pub(crate) markers: Vec<MarkerCount>,
}

impl Sums {
    /// Reads the totals and the losses, and takes what belongs to a window that is over out of the
    /// tables of sums.
    pub(super) fn take(
        maps: &Maps,
        request_types: usize,
        window: u64,
        tables: &PlanTables,
        forgotten: &Forgotten,
    ) -> Result<Self> {
        let totals: PerCpuArray<_, KernelTotals> =
            PerCpuArray::try_from(maps.map("TOTALS")?).map_err(map_error)?;
        let mut totals: Vec<TypeTotals> = (0..request_types as u32)
            .map(|index| {
                let mut sum = KernelTotals::ZERO;
                for cpu in totals.get(&index, 0).map_err(map_error)?.iter() {
                    sum.merge(cpu);
                }
                Ok(own::totals(&sum))
            })
            .collect::<Result<_>>()?;
        let plans = tables.marker_plans();
        let counts = forgotten.left(counts(maps, plans.len())?);
        for (of_plan, (plan, name)) in counts.iter().zip(plans).skip(1) {
            if let Some(of_type) = totals.get_mut(name.request as usize) {
                of_type.merge(&counted(plan, of_plan));
            }
        }
        for (request, before) in &forgotten.totals {
            if let Some(of_type) = totals.get_mut(*request as usize) {
                of_type.merge(before);
            }
        }
        let markers = marked::by_marker(tables, &counts, &totals);
        let counters: Array<_, u64> = maps.array("LOSSES")?;
        let mut losses = Vec::new();
        for loss in Loss::ALL {
            let count = counters.get(&(loss as u32), 0).map_err(map_error)?;
            if count != 0 {
                losses.push((loss, count));
            }
        }
        Ok(Self {
            totals,
            stacks: taken(maps, "STACK_SUMS", window, |key, sum: &KernelSum| SumOf {
                key,
                sum: own::sum(sum),
            })?,
            histograms: taken(maps, "HISTOGRAMS", window, |key, of: &KernelHistogram| {
                LengthsOf {
                    key,
                    lengths: own::lengths(of),
                }
            })?,
            losses,
            markers,
        })
    }
}

/// What was counted of plans whose places are free for other markers since.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// By request type.
    totals: BTreeMap<u32, TypeTotals>,
    /// By the place of the plan: the kernel counts on.
    counts: BTreeMap<usize, MarkerCounts>,
}

impl Forgotten {
    /// What the kernel has counted of plans since.
    fn left(&self, mut counts: Vec<MarkerCounts>) -> Vec<MarkerCounts> {
        for (plan, before) in &self.counts {
            let counts = counts.get_mut(*plan).into_iter().flatten();
            counts.zip(before).for_each(|(all, before)| *all -= before);
        }
        counts
    }

    /// Forgets what was counted of plans, but for the sums of their request types; `all` are the plans there were, each with its
    /// type. Nothing hits them any more.
    pub(super) fn add(
        &mut self,
        maps: &Maps,
        plans: &[u32],
        all: &[(MarkerPlan, u32)],
    ) -> Result<()> {
        let counts = self.left(counts(maps, all.len())?);
        for index in plans.iter().map(|plan| *plan as usize) {
            if let Some((counts, (plan, request))) = counts.get(index).zip(all.get(index)) {
                let of_type = self.totals.entry(*request).or_default();
                of_type.merge(&counted(plan, counts));
                let before = self.counts.entry(index).or_default().iter_mut();
                before.zip(counts).for_each(|(sum, more)| *sum += more);
            }
        }
        Ok(())
    }
}

/// What of a request type is counted of one plan.
fn counted(plan: &MarkerPlan, counts: &MarkerCounts) -> TypeTotals {
    let is_child = plan.flags & marker_flag::CHILD != 0;
    TypeTotals {
        unknown_keys: counts[count::UNKNOWN_KEYS] + counts[count::NO_UNIT],
        ends_without_begin: counts[count::ENDS_WITHOUT_BEGIN],
        running_elsewhere: counts[count::ELSEWHERE],
        other_type: counts[count::OTHER_TYPE],
        children: if is_child { counts[count::HITS] } else { 0 },
        ..TypeTotals::ZERO
    }
}

/// What the kernel has counted of each plan of a marker.
fn counts(maps: &Maps, plans: usize) -> Result<Vec<MarkerCounts>> {
    let mut counts = vec![MarkerCounts::default(); plans];
    let table = maps.map("MARKER_COUNTS")?;
    batch::of_cpus(table, plans, |plan, more: &MarkerCounts| {
        let sums = counts.get_mut(plan).into_iter().flatten();
        sums.zip(more).for_each(|(sum, more)| *sum += more);
    })?;
    let Some(last) = (plans as u32).checked_sub(1) else {
        return Ok(counts);
    };
    let lines = hits_at(last).0 as usize + 1;
    batch::of_cpus(
        maps.map("MARKER_HITS")?,
        lines,
        |line, more: &MarkerHits| {
            let of_line = counts.chunks_mut(PLANS_IN_LINE as usize).nth(line);
            let sums = of_line.into_iter().flatten().zip(&more[1..]);
            sums.for_each(|(counts, more)| counts[count::HITS] += more);
        },
    )?;
    Ok(counts)
}

fn taken<V: aya::Pod, T>(
    maps: &Maps,
    table: &str,
    window: u64,
    of: impl Fn(StackSumKey, &V) -> T,
) -> Result<Vec<T>> {
    let table = maps.map(table)?;
    let (mut keys, mut found) = (Vec::new(), Vec::new());
    batch::entries(table, |key: &KernelKey, value: &V| {
        let is_odd = key.off_kind & off_kind::ODD_WINDOW != 0;
        if u64::from(is_odd) == window {
            keys.push(*key);
            let mut key = *key;
            key.off_kind &= !off_kind::ODD_WINDOW;
            found.push(of(own::key(&key), value));
        }
    })?;
    batch::delete::<KernelKey, V>(table, &keys)?;
    Ok(found)
}

/// How full the kernel's tables are.
pub(super) struct Filling {
    /// At the last change of windows.
    before: Filled,
    sizes: Sizes,
}

impl Filling {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            before: Filled::default(),
            sizes,
        }
    }

    /// Whether it is time to empty them.
    pub(super) fn is_due(&self, maps: &Maps) -> Result<bool> {
        let now = filled(maps)?;
        Ok(
            now.stacks - self.before.stacks >= u64::from(self.sizes.stacks) / FULL_ENOUGH
                || now.sums - self.before.sums >= u64::from(self.sizes.sums) / FULL_ENOUGH,
        )
    }

    /// The windows have changed.
    pub(super) fn changed(&mut self, maps: &Maps) -> Result<()> {
        self.before = filled(maps)?;
        Ok(())
    }
}

fn filled(maps: &Maps) -> Result<Filled> {
    let filled: Array<&MapData, Filled> = maps.array("FILLED")?;
    filled.get(&0, 0).map_err(map_error)
}
