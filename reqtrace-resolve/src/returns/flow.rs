//! Control flow of a function: its decoded code in, where each instruction may be entered from out.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction};

use super::Walk;
use super::tables::Targets;
use crate::instructions::{decoder, direct_target, ends_flow};

/// Instructions followed from a jump before it is taken to lead back to itself.
const MAX_FOLLOWED: usize = 20_000;

/// Longest x86 instruction, bytes.
const MAX_INSTRUCTION: u64 = 15;

/// How far a jump with a distance of one byte goes, bytes.
const SHORT: u64 = 0x84;

/// Direct jumps of a function, by target.
#[derive(Debug, Default)]
pub(super) struct Jumps(BTreeMap<u64, Vec<u64>>);

impl Jumps {
    /// Where the jumps to an address are.
    pub(super) fn to(&self, address: u64) -> &[u64] {
        self.0.get(&address).map_or(&[], Vec::as_slice)
    }
}

/// From where a function's instructions are entered.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) jumps: Jumps,
    /// Addresses at which control may come from elsewhere than the instruction before and the
    /// direct jumps: functions, switch tables, landing pads, jumps out of other code.
    entered: BTreeSet<u64>,
    /// Those of them that are certain: cases of switch tables whose length is known, and landing pads.
    certain: BTreeSet<u64>,
    /// Targets of each jump through a switch table.
    tables: BTreeMap<u64, Vec<u64>>,
    /// Indirect jumps whose targets are not known. Empty, and `pads_known`: nothing else enters.
    pub(super) open: Vec<u64>,
    /// All landing pads are in `entered`.
    pub(super) pads_known: bool,
}

impl Flow {
    pub(super) fn of(walk: &Walk<'_>) -> Self {
        let mut flow = Self {
            pads_known: true,
            ..Self::default()
        };
        for code in walk.code.values() {
            if let Some(target) = direct_target(code) {
                flow.jumps.0.entry(target).or_default().push(code.ip());
            }
            if code.flow_control() == FlowControl::Call {
                flow.entered.insert(code.near_branch_target());
            }
        }
        for code in walk.code.values() {
            if code.flow_control() != FlowControl::IndirectBranch {
                continue;
            }
            match walk.table_targets(code, &flow.jumps) {
                Some(Targets { all, are_exact }) => {
                    if are_exact {
                        flow.certain.extend(&all);
                    }
                    flow.entered.extend(&all);
                    flow.tables.insert(code.ip(), all);
                }
                None => flow.open.push(code.ip()),
            }
        }
        for part in &walk.parts {
            match walk.object.landing_pads(part) {
                Some(pads) => {
                    flow.certain.extend(&pads);
                    flow.entered.extend(pads);
                }
                None => flow.pads_known = false,
            }
            let from_elsewhere = walk.object.jumps_into(part);
            flow.entered.extend(
                from_elsewhere
                    .filter(|(_, from)| walk.part_of(*from).is_none())
                    .map(|(target, _)| target),
            );
            flow.enter_from_neighbours(walk, part.start, part.end);
        }
        flow
    }

    /// Jumps of one byte from the code just before and behind a part. Only code written by hand has
    /// them.
    fn enter_from_neighbours(&mut self, walk: &Walk<'_>, start: u64, end: u64) {
        let frames = walk.object.frames();
        let before = (1..16).find_map(|back| frames.range(start.saturating_sub(back)));
        let behind = (0..16).find_map(|on| frames.range(end.saturating_add(on)));
        for neighbour in before.into_iter().chain(behind) {
            if walk.part_of(neighbour.start).is_some() {
                continue;
            }
            let near = start.saturating_sub(SHORT)..end.saturating_add(SHORT);
            let targets = decoder(walk.object, neighbour)
                .take_while(|code| code.ip() < near.end)
                .filter(|code| near.contains(&code.ip()))
                .filter_map(|code| direct_target(&code));
            self.entered.extend(targets);
        }
    }

    /// Whether control may come to an address from elsewhere.
    pub(super) fn is_entered(&self, walk: &Walk<'_>, address: u64) -> bool {
        let symbols = walk.object.symbols();
        let from = symbols.partition_point(|symbol| symbol.address < address);
        self.entered.contains(&address)
            || symbols
                .get(from)
                .is_some_and(|symbol| symbol.address == address)
            || walk.object.frames().begins(address)
    }

    /// Whether a switch table or an exception is known to lead to an address.
    pub(super) fn is_case_or_pad(&self, address: u64) -> bool {
        self.certain.contains(&address)
    }

    /// Whether the code at `start` can lead to `goal` in the same activation.
    pub(super) fn leads_to(&self, walk: &Walk<'_>, start: u64, goal: u64) -> bool {
        let mut seen = BTreeSet::new();
        let mut work = vec![start];
        while let Some(at) = work.pop() {
            if at == goal || seen.len() > MAX_FOLLOWED {
                return true;
            }
            let Some(code) = walk.code.get(&at).filter(|_| seen.insert(at)) else {
                continue;
            };
            work.extend(direct_target(code));
            work.extend(self.tables.get(&at).into_iter().flatten());
            if !ends_flow(code) {
                work.push(code.next_ip());
            }
        }
        false
    }
}

impl Walk<'_> {
    /// The instruction that ends where one at `address` begins; `None` also where two do.
    pub(super) fn instruction_before(&self, address: u64) -> Option<&Instruction> {
        let near = address.saturating_sub(MAX_INSTRUCTION)..address;
        let mut found = self
            .code
            .range(near)
            .map(|(_, code)| code)
            .filter(|code| code.next_ip() >= address);
        let only = found.next()?;
        (found.next().is_none() && only.next_ip() == address).then_some(only)
    }
}
