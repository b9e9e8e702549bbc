//! Where a function is left: its code in, the instructions to probe out.
//!
//! A probe on each of them replaces a uretprobe. Where begin and end are of one function the
//! kernel program compares the stack pointer with the one at entry, so a site at which the frame
//! still stands does no harm; a site at which the stack pointer fits and control stays inside
//! would end a request too early. So jumps to cold parts and through switch tables must be
//! distinguished from tail calls:
//!
//! * A direct jump to the start of another function's symbol, or into a procedure linkage table,
//!   is a tail call. One to a `.cold` or `.part` symbol is followed.
//! * Without a symbol, `.eh_frame` decides: a jump made, or a target entered, with a frame still
//!   on the stack is no call; nor is one to code that jumps back into this function.
//! * An indirect jump is a tail call unless it goes through a switch table.
//!
//! The caller of a function gets control back when its tail callee returns, so that is where the
//! request should end: the callee's returns are probed in place of the jump, and the stack pointer
//! tells this activation from others. That costs a probe hit for each call by others, so only
//! callees that hardly anybody else calls are followed; for `free` the request ends at the jump.

mod flow;
mod sites;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use super::instructions::{MAX_FUNCTION, condition_of, decoder, direct_target, ends_flow};
use super::symbols;
use reqtrace_binary::demangle::{Copy, split_suffix};
use reqtrace_binary::elf::Object;

use flow::Flow;

pub use sites::{
    Reads, Site, behind_load, beside, comes_to, entry, instruction_at, is_emulated_at,
};

/// Direct calls and jumps to a tail callee from elsewhere up to which it is followed.
const MAX_OTHER_CALLERS: usize = 4;

/// Tail callees followed for one function, through each other.
const MAX_CALLEES: usize = 8;

/// Instructions of a function with all that belongs to it. One with more is not decoded: these take 100 MB.
const MAX_INSTRUCTIONS: usize = 1 << 20;

/// Where a function is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// The instructions that leave it: virtual address, and the x86 condition code for a
    /// conditional jump. Sorted; empty when the function is never left, or not decodable.
    pub sites: Vec<(u64, Option<u8>)>,
    /// Its code jumps to its own first instruction, as a call of itself or as a loop: nothing
    /// tells the two apart, and the probe at its entry fires either way. Counted as a call.
    pub reenters: bool,
    /// Where the direct tail calls among the sites go. The callee's time is not in the request.
    pub tail_calls: BTreeSet<u64>,
    /// Whether a tail call through a pointer is among the sites.
    pub indirect_tail_call: bool,
}

impl Exits {
    /// Whether the function can be left by calling another one.
    #[must_use]
    pub fn has_tail_calls(&self) -> bool {
        !self.tail_calls.is_empty() || self.indirect_tail_call
    }
}

/// Finds every place at which the function with this body is left. `tied`: the stack pointer will
/// be compared with that at entry, so that tail callees may be followed.
#[must_use]
pub fn exits(object: &Object, body: &Range<u64>, tied: bool) -> Exits {
    walk(object, body, tied).map_or_else(Exits::default, |walk| walk.exits())
}

/// The same, and what to probe in place of each instruction that leaves the function.
#[must_use]
pub fn end_sites(object: &Object, body: &Range<u64>, tied: bool) -> (Exits, Vec<Site>) {
    let Some(walk) = walk(object, body, tied) else {
        return (Exits::default(), Vec::new());
    };
    let exits = walk.exits();
    let sites = walk.sites(&exits.sites, false);
    (exits, sites)
}

/// The same where what the function returns is read: at a tail call it is not known yet.
#[must_use]
pub fn result_sites(object: &Object, body: &Range<u64>, tied: bool) -> (Exits, Vec<Site>) {
    let Some(walk) = walk(object, body, tied) else {
        return (Exits::default(), Vec::new());
    };
    let exits = walk.exits();
    let sites = walk.sites(&exits.sites, true);
    (exits, sites)
}

/// The instructions of the function with this body and of its cold parts, by address; none when it is too large
/// to be decoded.
pub(super) fn code_of(object: &Object, body: &Range<u64>) -> Vec<Instruction> {
    walk(object, body, false).map_or_else(Vec::new, |walk| walk.code.into_values().collect())
}

/// Where a function goes on after calls that it makes.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// The instructions to probe.
    pub(super) probed: Vec<u64>,
    /// Those behind calls to which control comes also without any of the calls.
    pub(super) joined: Vec<u64>,
}

/// Where to probe behind some calls of the function with this body: `after` are the instructions behind each.
pub(super) fn behind_calls(object: &Object, body: &Range<u64>, after: &[u64]) -> Behind {
    let Some(walk) = walk(object, body, false) else {
        return Behind::default();
    };
    let flow = Flow::of(&walk);
    // Behind one of two calls there may be just a jump to where both go on: that is hit for either.
    let goes_on_at = |address: u64| {
        let code = walk.code.get(&address).filter(|code| ends_flow(code))?;
        direct_target(code).filter(|target| *target != address && after.contains(target))
    };
    let is_probed = |address: &u64| goes_on_at(*address).is_none();
    let is_joined = |address: &u64| {
        let mut jumps = flow.jumps.to(*address).iter();
        let by_others = jumps.any(|jump| !after.contains(jump) || goes_on_at(*jump).is_none());
        by_others || flow.is_case_or_pad(*address)
    };
    let all = || after.iter().copied();
    Behind {
        probed: all().filter(is_probed).collect(),
        joined: all().filter(is_joined).collect(),
    }
}

/// Decodes a function; `None` when it is too large to be one.
fn walk<'o>(object: &'o Object, body: &Range<u64>, tied: bool) -> Option<Walk<'o>> {
    if body.end.saturating_sub(body.start) > MAX_FUNCTION {
        return None;
    }
    let mut walk = Walk {
        object,
        entry: body.start,
        parts: Vec::new(),
        code: BTreeMap::new(),
        levels_kept: false,
        callees_left: if tied { MAX_CALLEES } else { 0 },
    };
    walk.add_part(body.clone(), body.start);
    walk.levels_kept = walk.frames_are_kept();
    walk.follow_cold_parts();
    (!walk.is_too_large()).then_some(walk)
}

struct Walk<'o> {
    object: &'o Object,
    entry: u64,
    /// The body, then the cold parts that belong to it.
    parts: Vec<Range<u64>>,
    code: BTreeMap<u64, Instruction>,
    /// Call frame information describes epilogues too, so it can be asked at a jump.
    levels_kept: bool,
    callees_left: usize,
}

impl Walk<'_> {
    fn is_too_large(&self) -> bool {
        self.code.len() > MAX_INSTRUCTIONS
    }

    fn add_part(&mut self, part: Range<u64>, entry: u64) {
        self.parts.push(part.clone());
        self.decode_from(vec![entry]);
        self.decode_gaps(&part);
    }

    fn part_of(&self, address: u64) -> Option<&Range<u64>> {
        self.parts.iter().find(|part| part.contains(&address))
    }

    /// Follows control flow through all parts.
    fn decode_from(&mut self, mut work: Vec<u64>) {
        while let Some(start) = work.pop() {
            let Some(part) = self.part_of(start).cloned() else {
                continue;
            };
            for instruction in decoder(self.object, start..part.end) {
                if instruction.is_invalid() || self.code.contains_key(&instruction.ip()) {
                    break;
                }
                self.code.insert(instruction.ip(), instruction);
                if self.is_too_large() {
                    return;
                }
                if let Some(target) = direct_target(&instruction) {
                    work.push(target);
                }
                if ends_flow(&instruction) {
                    break;
                }
            }
        }
    }

    /// Decodes what no direct jump reaches: targets of switch tables, and landing pads. Each gap
    /// begins where an instruction ends, so it decodes from there, if it is code; one that does
    /// not come out even is data and is left alone.
    fn decode_gaps(&mut self, part: &Range<u64>) {
        let mut gaps = Vec::new();
        let mut at = part.start;
        for (start, instruction) in self.code.range(part.clone()) {
            if *start > at {
                gaps.push(at..*start);
            }
            at = at.max(instruction.next_ip());
        }
        if at < part.end {
            gaps.push(at..part.end);
        }
        for gap in gaps {
            if self.is_too_large() {
                return;
            }
            let found: Vec<Instruction> = decoder(self.object, gap.clone()).collect();
            if found.iter().any(Instruction::is_invalid) {
                continue;
            }
            self.code
                .extend(found.into_iter().map(|found| (found.ip(), found)));
        }
    }

    /// Whether the stack pointer is known to be back at its entry level at every return: what
    /// older compilers' frame descriptions do not say of epilogues.
    fn frames_are_kept(&self) -> bool {
        let frames = self.object.frames();
        let mut returns = self
            .code
            .values()
            .filter(|code| code.flow_control() == FlowControl::Return)
            .peekable();
        returns.peek().is_some()
            && returns.all(|code| frames.at_entry_level(code.ip()) == Some(true))
    }

    fn frame_stands(&self, site: u64) -> bool {
        self.levels_kept && self.object.frames().at_entry_level(site) == Some(false)
    }

    fn follow_cold_parts(&mut self) {
        let mut judged = BTreeSet::new();
        loop {
            let jumps: Vec<(u64, u64)> = self
                .code
                .values()
                .filter_map(|code| Some((code.ip(), direct_target(code)?)))
                .filter(|(_, target)| self.part_of(*target).is_none())
                .filter(|jump| !judged.contains(jump))
                .collect();
            if jumps.is_empty() || self.is_too_large() {
                return;
            }
            for (site, target) in jumps {
                judged.insert((site, target));
                if self.part_of(target).is_some() {
                    continue;
                }
                let part = self
                    .cold_part(site, target)
                    .or_else(|| self.rarely_called(target));
                if let Some(part) = part {
                    self.add_part(part, target);
                }
            }
        }
    }

    /// The range around a jump's target, if it is a piece of this function and not a call.
    fn cold_part(&self, site: u64, target: u64) -> Option<Range<u64>> {
        if self.object.in_plt(target) || self.is_stub(target) {
            return None;
        }
        let symbols = self.object.symbols();
        let after = symbols.partition_point(|symbol| symbol.address <= target);
        let covering = symbols[..after]
            .iter()
            .rev()
            .take(16)
            .filter(|symbol| symbol.address == target || target - symbol.address < symbol.size);
        let mut is_start = false;
        for symbol in covering {
            let (_, copy) = split_suffix(self.object.name(symbol));
            if copy == Copy::Part && symbol.size > 0 {
                return Some(symbol.address..symbol.address.saturating_add(symbol.size));
            }
            is_start |= symbol.address == target;
        }
        if is_start {
            return None;
        }
        let frames = self.object.frames();
        let range = frames.range(target)?;
        let entered_as_call = range.start == target && frames.at_entry_level(target) == Some(true);
        if !entered_as_call || self.frame_stands(site) || self.comes_back(&range) {
            return Some(range);
        }
        None
    }

    /// The body of a tail callee that may be followed.
    fn rarely_called(&mut self, target: u64) -> Option<Range<u64>> {
        if self.callees_left == 0 || self.object.in_plt(target) || self.is_stub(target) {
            return None;
        }
        let body = symbols::body(self.object, target);
        let others = self
            .object
            .references(target)
            .filter(|from| self.part_of(*from).is_none())
            .take(MAX_OTHER_CALLERS + 1)
            .count();
        if body.is_empty()
            || body.end - body.start > MAX_FUNCTION
            || body.contains(&self.entry)
            || others > MAX_OTHER_CALLERS
        {
            return None;
        }
        self.callees_left -= 1;
        Some(body)
    }

    /// Whether code jumps into the middle of this function: only a piece of it can.
    fn comes_back(&self, range: &Range<u64>) -> bool {
        decoder(self.object, range.clone())
            .take_while(|code| !code.is_invalid())
            .filter_map(|code| direct_target(&code))
            .any(|target| target != self.entry && self.part_of(target).is_some())
    }

    /// A linkage stub without a section that says so: `endbr64` or nothing, then an indirect
    /// jump.
    fn is_stub(&self, target: u64) -> bool {
        decoder(self.object, target..target.saturating_add(32))
            .find(|code| code.mnemonic() != Mnemonic::Endbr64)
            .is_some_and(|code| {
                code.flow_control() == FlowControl::IndirectBranch
                    && code.is_ip_rel_memory_operand()
            })
    }

    fn exits(&self) -> Exits {
        let mut exits = Exits::default();
        for code in self.code.values() {
            let target = direct_target(code);
            exits.reenters |= target == Some(self.entry);
            match (code.flow_control(), target) {
                (FlowControl::Return, _) => {}
                (_, Some(target))
                    if self.leaves(target) && !code.is_loop() && !code.is_loopcc() =>
                {
                    if target != self.entry {
                        exits.tail_calls.insert(target);
                    }
                }
                (FlowControl::IndirectBranch, _)
                    if !self.through_table(code) && !self.frame_stands(code.ip()) =>
                {
                    exits.indirect_tail_call = true;
                }
                _ => continue,
            }
            exits.sites.push((code.ip(), condition_of(code)));
        }
        exits
    }

    /// A jump to the function's own entry is a call too: the entry's probe fires again.
    fn leaves(&self, target: u64) -> bool {
        target == self.entry || self.part_of(target).is_none()
    }
}

#[cfg(test)]
mod tests;
