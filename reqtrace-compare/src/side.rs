//! One side: its requests in, their sums by block of time out.

use std::collections::BTreeMap;

use reqtrace_analysis::cells::Histogram;
use reqtrace_analysis::report::blame::Causes;
use reqtrace_analysis::report::{Ledger, Places};

use crate::columns::{Columns, OfLedger};
use crate::facts::Facts;
use crate::groups::Groups;
use crate::items::{ItemKind, Items};
use crate::slowest::Slowest;
use crate::sums::Block;

/// The shortest block.
const SECOND_NS: u64 = 1_000_000_000;
/// With more blocks neighbours become one, but for those of two recordings.
const MOST_BLOCKS: usize = 600;
/// Bytes of the slowest requests.
const MOST_BYTES: usize = 48 << 20;

/// A complete request.
#[derive(Clone, Copy, Debug)]
pub struct One<'a> {
    /// Its type.
    pub request: &'a str,
    /// When it began, in nanoseconds since the start of what is compared of its recording.
    pub at_ns: u64,
    /// Where its time went.
    pub ledger: &'a Ledger,
    /// Its blocked and parked time by root cause; `None` when the recording has no blame.
    pub causes: Option<&'a Causes>,
    /// How many it stands for.
    pub weight: u32,
    /// What it has in common with others: the fingerprint of its label. `None`: nothing is known of that.
    pub group: Option<&'a str>,
}

/// A recording of a side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Its first block, and how many.
    pub(crate) first: usize,
    pub(crate) blocks: usize,
}

/// Requests of one type.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeSide {
    pub(crate) blocks: Vec<Block>,
    /// Each counts once, whatever it stands for.
    pub(crate) records: u64,
    pub(crate) latencies: Histogram<10>,
    pub(crate) slowest: Slowest,
    pub(crate) groups: Groups,
}

/// One side of a comparison: recordings, one after the other.
#[derive(Clone, Debug)]
pub struct Side {
    pub(crate) facts: Vec<Facts>,
    pub(crate) columns: Columns,
    pub(crate) runs: Vec<Run>,
    pub(crate) types: BTreeMap<String, TypeSide>,
    pub(crate) items: Items,
    pub(crate) block_ns: u64,
    /// Whether root causes are known.
    pub(crate) has_causes: bool,
    slo_ns: Option<u64>,
    of_ledger: OfLedger,
    /// Where the current run begins.
    first: usize,
    times: Vec<(usize, u64)>,
}

impl Side {
    /// An empty side. Requests slower than the objective are counted, if there is one.
    #[must_use]
    pub fn new(slo_ns: Option<u64>) -> Self {
        Self {
            facts: Vec::new(),
            columns: Columns::new(),
            runs: Vec::new(),
            types: BTreeMap::new(),
            items: Items::default(),
            block_ns: SECOND_NS,
            has_causes: true,
            slo_ns,
            of_ledger: OfLedger::default(),
            first: 0,
            times: Vec::new(),
        }
    }

    /// The requests that come next are of a recording with these wait classes and places.
    pub fn begin(&mut self, classes: &[String], places: &Places) {
        self.of_ledger = OfLedger::new(&mut self.columns, classes, places);
        self.first = self.runs.last().map_or(0, |run| run.first + run.blocks);
        self.items.begin();
    }

    /// Adds a request. Its ledger has the classes and places of the recording.
    pub fn add(&mut self, one: &One<'_>) {
        let mut times = std::mem::take(&mut self.times);
        times.clear();
        self.of_ledger.times(one.ledger, one.causes, |column, ns| {
            times.push((column, ns));
        });
        self.has_causes &= one.causes.is_some();
        let (weight, latency_ns) = (u64::from(one.weight), one.ledger.latency_ns);
        while self.first + (one.at_ns / self.block_ns) as usize >= 2 * self.most_blocks() {
            self.coarsen();
        }
        let at = self.first + (one.at_ns / self.block_ns) as usize;
        if !self.types.contains_key(one.request) {
            self.types
                .insert(one.request.to_owned(), TypeSide::default());
        }
        if let Some(of) = self.types.get_mut(one.request) {
            if of.blocks.len() <= at {
                of.blocks.resize(at + 1, Block::default());
            }
            let block = &mut of.blocks[at];
            block.weight += weight;
            block.latency_ns += latency_ns * weight;
            if self.slo_ns.is_some_and(|slo_ns| latency_ns > slo_ns) {
                block.slow += weight;
            }
            for (column, ns) in &times {
                block.column(*column, ns * weight);
            }
            block.latencies.add(latency_ns, weight);
            of.records += 1;
            of.latencies.add(latency_ns, weight);
            of.slowest.add(latency_ns, one.weight, at, &times);
            if let Some(group) = one.group {
                of.groups.add(group, at, weight, latency_ns, &times);
            }
        }
        self.times = times;
        self.bound();
    }

    /// Of the type with the most rows the faster half goes.
    fn bound(&mut self) {
        let bytes: usize = self.types.values().map(|of| of.slowest.bytes()).sum();
        if bytes > MOST_BYTES
            && let Some(of) = self.types.values_mut().max_by_key(|of| of.slowest.bytes())
        {
            of.slowest.halve();
        }
    }

    /// A stretch of the recording is over, all of about the same length: complete requests of each type, and the sums of
    /// items by kind, request type and name, ns; all since its begin. `false`: it had no request, and belongs to the next one.
    pub fn cut(
        &mut self,
        requests: impl IntoIterator<Item = (String, u64)>,
        sums: impl IntoIterator<Item = (ItemKind, String, String, u64)>,
    ) -> bool {
        self.items.cut(requests, sums)
    }

    /// Makes one of each two of the last stretches, so many.
    pub fn join_cuts(&mut self, last: usize) {
        self.items.join(last);
    }

    /// The recording is over.
    pub fn end(&mut self, facts: Facts) {
        // What is left of a block is part of the last one.
        let blocks = ((facts.length_ns / self.block_ns) as usize).max(1);
        let end = self.first + blocks;
        let last = end - 1;
        for of in self.types.values_mut() {
            let beyond = of.blocks.split_off(end.min(of.blocks.len()));
            of.blocks.resize(end, Block::default());
            beyond.iter().for_each(|block| of.blocks[last].merge(block));
            of.slowest.move_blocks(|block| block.min(last));
            of.groups.move_blocks(|block| block.min(last));
        }
        self.runs.push(Run {
            first: self.first,
            blocks,
        });
        self.facts.push(facts);
        while self.blocks() > self.most_blocks() {
            self.coarsen();
        }
    }

    /// All blocks of the runs that are over.
    pub(crate) fn blocks(&self) -> usize {
        self.runs.last().map_or(0, |run| run.first + run.blocks)
    }

    /// Each recording has one at least.
    fn most_blocks(&self) -> usize {
        MOST_BLOCKS.max(self.runs.len())
    }

    /// How long each block is, ns: the last one of a recording has what is left of it.
    pub(crate) fn lengths_ns(&self) -> Vec<u64> {
        let of_run = |(run, facts): (&Run, &Facts)| {
            let whole = run.blocks - 1;
            let left_ns = facts.length_ns.saturating_sub(whole as u64 * self.block_ns);
            std::iter::repeat_n(self.block_ns, whole).chain([left_ns])
        };
        self.runs.iter().zip(&self.facts).flat_map(of_run).collect()
    }

    /// Makes blocks twice as long: neighbours of a run become one.
    fn coarsen(&mut self) {
        let mut to = Vec::new();
        let mut next = 0;
        for run in &mut self.runs {
            let blocks = (run.blocks / 2).max(1);
            to.extend((0..run.blocks).map(|block| next + (block / 2).min(blocks - 1)));
            (run.first, run.blocks) = (next, blocks);
            next += blocks;
        }
        let old_first = to.len();
        let to = |block: usize| {
            to.get(block)
                .copied()
                .unwrap_or_else(|| next + (block - old_first) / 2)
        };
        for of in self.types.values_mut() {
            let mut blocks: Vec<Block> = Vec::new();
            for (at, block) in of.blocks.iter().enumerate() {
                if blocks.len() <= to(at) {
                    blocks.resize(to(at) + 1, Block::default());
                }
                blocks[to(at)].merge(block);
            }
            of.blocks = blocks;
            of.slowest.move_blocks(to);
            of.groups.move_blocks(to);
        }
        if self.first >= old_first {
            self.first = next;
        }
        self.block_ns *= 2;
    }
}
