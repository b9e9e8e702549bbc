//! A window of sums, as it is in a file: histograms without their empty buckets.

use reqtrace_common::filter::LengthHistogram;
use reqtrace_common::sums::{StackSum, StackSumKey, TypeTotals};
use serde::{Deserialize, Serialize};

use super::Malformed;
use crate::event::Window;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireWindow {
    until_ns: u64,
    totals: Vec<WireTotals>,
    sums: Vec<(WireKey, WireSum)>,
    histograms: Vec<(WireKey, Vec<(u32, u64)>)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireTotals {
    count: u64,
    latency_ns: u64,
    run_queue_ns: u64,
    preempted_ns: u64,
    blocked_ns: u64,
    unattributed_ns: u64,
    max_ns: u64,
    begins: u64,
    ends: u64,
    incomplete: u64,
    nested: u64,
    other_type: u64,
    ends_without_begin: u64,
    unsampled: u64,
    beyond: u64,
    histogram: Vec<(u32, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireKey {
    user_stack: u64,
    kernel_stack: u64,
    tgid: u32,
    exec_generation: u32,
    request_type: u32,
    off_kind: u32,
    syscall: i32,
    file: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireSum {
    off_ns: u64,
    run_queue_ns: u64,
    count: u64,
    longest_ns: u64,
}

/// Index and count of the buckets that are not empty.
fn filled(counts: &[u64]) -> Vec<(u32, u64)> {
    let numbered = (0..).zip(counts.iter().copied());
    numbered.filter(|(_, count)| *count > 0).collect()
}

fn fill(counts: &mut [u64], filled: &[(u32, u64)]) -> Result<(), Malformed> {
    for (index, count) in filled {
        *counts.get_mut(*index as usize).ok_or(Malformed)? = *count;
    }
    Ok(())
}

impl From<&StackSumKey> for WireKey {
    fn from(key: &StackSumKey) -> Self {
        Self {
            user_stack: key.user_stack,
            kernel_stack: key.kernel_stack,
            tgid: key.tgid,
            exec_generation: key.exec_generation,
            request_type: key.request_type,
            off_kind: key.off_kind,
            syscall: key.syscall,
            file: key.file,
        }
    }
}

impl From<&WireKey> for StackSumKey {
    fn from(key: &WireKey) -> Self {
        Self {
            user_stack: key.user_stack,
            kernel_stack: key.kernel_stack,
            tgid: key.tgid,
            exec_generation: key.exec_generation,
            request_type: key.request_type,
            off_kind: key.off_kind,
            syscall: key.syscall,
            file: key.file,
        }
    }
}

impl From<&Window> for WireWindow {
    fn from(window: &Window) -> Self {
        let totals = |totals: &TypeTotals| WireTotals {
            count: totals.count,
            latency_ns: totals.latency_ns,
            run_queue_ns: totals.run_queue_ns,
            preempted_ns: totals.preempted_ns,
            blocked_ns: totals.blocked_ns,
            unattributed_ns: totals.unattributed_ns,
            max_ns: totals.max_ns,
            begins: totals.begins,
            ends: totals.ends,
            incomplete: totals.incomplete,
            nested: totals.nested,
            other_type: totals.other_type,
            ends_without_begin: totals.ends_without_begin,
            unsampled: totals.unsampled,
            beyond: totals.beyond,
            histogram: filled(&totals.histogram),
        };
        let sum = |(key, sum): &(StackSumKey, StackSum)| {
            let sum = WireSum {
                off_ns: sum.off_ns,
                run_queue_ns: sum.run_queue_ns,
                count: sum.count,
                longest_ns: sum.longest_ns,
            };
            (key.into(), sum)
        };
        let histogram = |(key, lengths): &(StackSumKey, LengthHistogram)| {
            (WireKey::from(key), filled(&lengths.counts))
        };
        Self {
            until_ns: window.until_ns,
            totals: window.totals.iter().map(totals).collect(),
            sums: window.sums.iter().map(sum).collect(),
            histograms: window.histograms.iter().map(histogram).collect(),
        }
    }
}

impl TryFrom<WireWindow> for Window {
    type Error = Malformed;

    fn try_from(wire: WireWindow) -> Result<Self, Malformed> {
        let totals = |wire: &WireTotals| {
            let mut totals = TypeTotals {
                count: wire.count,
                latency_ns: wire.latency_ns,
                run_queue_ns: wire.run_queue_ns,
                preempted_ns: wire.preempted_ns,
                blocked_ns: wire.blocked_ns,
                unattributed_ns: wire.unattributed_ns,
                max_ns: wire.max_ns,
                begins: wire.begins,
                ends: wire.ends,
                incomplete: wire.incomplete,
                nested: wire.nested,
                other_type: wire.other_type,
                ends_without_begin: wire.ends_without_begin,
                unsampled: wire.unsampled,
                beyond: wire.beyond,
                ..TypeTotals::ZERO
            };
            fill(&mut totals.histogram, &wire.histogram)?;
            Ok(totals)
        };
        let sum = |(key, sum): &(WireKey, WireSum)| {
            let sum = StackSum {
                off_ns: sum.off_ns,
                run_queue_ns: sum.run_queue_ns,
                count: sum.count,
                longest_ns: sum.longest_ns,
            };
            (key.into(), sum)
        };
        let histogram = |(key, counts): &(WireKey, Vec<(u32, u64)>)| {
            let mut lengths = LengthHistogram::ZERO;
            fill(&mut lengths.counts, counts)?;
            Ok((key.into(), lengths))
        };
        Ok(Self {
            until_ns: wire.until_ns,
            totals: wire.totals.iter().map(totals).collect::<Result<_, _>>()?,
            sums: wire.sums.iter().map(sum).collect(),
            histograms: wire
                .histograms
                .iter()
                .map(histogram)
                .collect::<Result<_, _>>()?,
        })
    }
}
