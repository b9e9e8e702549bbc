//! Metrics of one request type: blocks of both sides in, numbers with intervals out.

use std::ops::Range;

use reqtrace_analysis::cells::Histogram;
use reqtrace_analysis::cells::bucket::{highest, lowest};

use crate::bootstrap::Draws;
use crate::estimate::{Sampled, Scale, change, value};
use crate::model::{Estimate, Measure, Metric};
use crate::side::TypeSide;
use crate::sums::{BLOCK_BITS, Block};

/// A quantile has an interval if so many requests are beyond it on each side.
pub(crate) const BEYOND: f64 = 20.0;

/// What is looked at of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked<'a> {
    pub(crate) of: &'a TypeSide,
    pub(crate) draws: Option<&'a Draws>,
    /// Blocks of each recording.
    pub(crate) runs: &'a [Range<usize>],
    /// How long each block is, ns.
    pub(crate) lengths_ns: &'a [u64],
}

/// Sums of some blocks, each as often as it was drawn.
struct Sum {
    length_ns: f64,
    weight: f64,
    latency_ns: f64,
    slow: f64,
    quantiles: Vec<f64>,
}

/// Buckets of blocks, as floating numbers in one piece.
struct Dense {
    first: usize,
    counts: Vec<f64>,
    /// Those of each block.
    blocks: Vec<Vec<(usize, f64)>>,
}

impl Dense {
    fn new(blocks: &[Block]) -> Self {
        let all = || blocks.iter().flat_map(|block| block.latencies.buckets());
        let first = all()
            .map(|(bucket, _)| usize::from(bucket))
            .min()
            .unwrap_or(0);
        let end = all()
            .map(|(bucket, _)| usize::from(bucket) + 1)
            .max()
            .unwrap_or(0);
        let of = |latencies: &Histogram<BLOCK_BITS>| {
            let buckets = latencies.buckets();
            buckets
                .map(|(bucket, count)| (usize::from(bucket) - first, count as f64))
                .collect()
        };
        Self {
            first,
            counts: vec![0.0; end.saturating_sub(first)],
            blocks: blocks.iter().map(|block| of(&block.latencies)).collect(),
        }
    }

    fn add(&mut self, block: usize, times: f64) {
        for (bucket, count) in &self.blocks[block] {
            self.counts[*bucket] += times * count;
        }
    }

    /// Values at these shares of all, which rise; all counts are 0 again.
    fn take(&mut self, shares: impl Iterator<Item = f64>, weight: f64) -> Vec<f64> {
        let mut values = Vec::new();
        let (mut seen, mut at) = (0.0, 0);
        for share in shares {
            let wanted = share * weight;
            while at < self.counts.len() && seen + self.counts[at] < wanted {
                seen += self.counts[at];
                at += 1;
            }
            let bucket = (self.first + at) as u32;
            let (low, high) = (
                lowest(BLOCK_BITS, bucket) as f64,
                highest(BLOCK_BITS, bucket) as f64 + 1.0,
            );
            let count = self.counts.get(at).copied().unwrap_or(0.0);
            let within = if count > 0.0 {
                (wanted - seen) / count
            } else {
                0.0
            };
            values.push(low + (high - low) * within);
        }
        self.counts.fill(0.0);
        values
    }
}

fn shares() -> impl Iterator<Item = f64> {
    Measure::ALL.into_iter().filter_map(Measure::quantile)
}

/// A type without a request on this side has no blocks, and as long a time as the others.
fn sum(
    of: &TypeSide,
    dense: &mut Dense,
    lengths_ns: &[u64],
    times_of: impl Fn(usize) -> u16,
) -> Sum {
    let (mut all_ns, mut weight, mut latency_ns, mut slow) = (0_u128, 0, 0_u128, 0);
    for (at, length_ns) in lengths_ns.iter().enumerate() {
        let times = times_of(at);
        if times == 0 {
            continue;
        }
        let times = u64::from(times);
        all_ns += u128::from(times) * u128::from(*length_ns);
        let Some(block) = of.blocks.get(at) else {
            continue;
        };
        weight += times * block.weight;
        latency_ns += u128::from(times) * u128::from(block.latency_ns);
        slow += times * block.slow;
        dense.add(at, times as f64);
    }
    Sum {
        length_ns: all_ns as f64,
        weight: weight as f64,
        latency_ns: latency_ns as f64,
        slow: slow as f64,
        quantiles: dense.take(shares(), weight as f64),
    }
}

fn measured(measure: Measure, sum: &Sum) -> f64 {
    let place = || {
        Measure::ALL
            .into_iter()
            .filter(|one| one.quantile().is_some())
            .position(|one| one == measure)
    };
    match measure {
        // In this order what is a whole number stays one.
        Measure::Rate => sum.weight * 1e9 / sum.length_ns,
        Measure::Mean => sum.latency_ns / sum.weight,
        Measure::Slow => sum.slow / sum.weight,
        _ => place().map_or(f64::NAN, |at| sum.quantiles[at]),
    }
}

/// Each metric on one side; its value is that of the whole side.
fn sampled(looked: Looked<'_>) -> Vec<Sampled> {
    let of = looked.of;
    let mut dense = Dense::new(&of.blocks);
    let mut each =
        |times_of: &dyn Fn(usize) -> u16| sum(of, &mut dense, looked.lengths_ns, times_of);
    let all = each(&|_| 1);
    let draws: Vec<Sum> = looked
        .draws
        .into_iter()
        .flat_map(Draws::each)
        .map(|times| each(&|at| times[at]))
        .collect();
    let runs: Vec<Sum> = looked
        .runs
        .iter()
        .map(|run| each(&|at| u16::from(run.contains(&at))))
        .collect();
    let of_measure = |measure: Measure| {
        let exact = measure
            .quantile()
            .and_then(|share| of.latencies.quantile(share));
        Sampled {
            value: exact.map_or_else(|| measured(measure, &all), |ns| ns as f64),
            draws: draws.iter().map(|sum| measured(measure, sum)).collect(),
            runs: runs.iter().map(|sum| measured(measure, sum)).collect(),
        }
    };
    Measure::ALL.into_iter().map(of_measure).collect()
}

/// The change as a share of the first side, where there is something to have a share of. Of what came and comes no more it is
/// the whole, as surely as there is less at all.
fn relative(a: &Sampled, b: &Sampled, absolute: &Estimate, independent: f64) -> Option<Estimate> {
    if a.value <= 0.0 {
        return None;
    }
    let is_less = absolute.interval.is_some_and(|[_, high]| high < 0.0);
    Some(match b.value == 0.0 && is_less {
        true => Estimate {
            change: -1.0,
            interval: Some([-1.0; 2]),
            ..*absolute
        },
        false => change(a, b, Scale::Ratio, independent),
    })
}

/// All metrics, in order.
pub(crate) fn of_type(sides: [Looked<'_>; 2], has_slo: bool, independent: f64) -> Vec<Metric> {
    // What a request stands for makes no quantile surer.
    let counts = sides.map(|side| side.of.records as f64);
    let mut sampled = sides.map(sampled);
    let mut metric = |at: usize, measure: Measure| {
        let mut own = [0, 1].map(|side: usize| std::mem::take(&mut sampled[side][at]));
        let is_rare = measure.quantile().is_some_and(|share| {
            counts
                .iter()
                .any(|count| count * (1.0 - share) < BEYOND - 1e-6)
        });
        if is_rare {
            own.iter_mut().for_each(|sampled| sampled.draws.clear());
        }
        let [a, b] = &own;
        let absolute = change(a, b, Scale::Difference, independent);
        Metric {
            measure,
            sides: [0, 1].map(|side: usize| value(&own[side], independent)),
            relative: relative(a, b, &absolute, independent),
            absolute,
        }
    };
    let measures = Measure::ALL.into_iter().enumerate();
    let measures = measures.filter(|(_, measure)| has_slo || *measure != Measure::Slow);
    let metrics = measures.map(|(at, measure)| metric(at, measure));
    // Without requests there is a rate and nothing else.
    let is_known = |metric: &Metric| {
        metric.measure == Measure::Rate || counts.iter().all(|count| *count > 0.0)
    };
    metrics.filter(is_known).collect()
}
