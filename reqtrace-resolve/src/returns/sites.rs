//! Where to probe in place of an instruction that the kernel would single-step: an instruction that
//! leaves a function, or its entry, in; instructions that the kernel emulates, and that are the same
//! event, out.
//!
//! Between a site and what it stands for there are only instructions that go on to the next, no call
//! and no system call; and control cannot come in between from anywhere else.
//! So one is hit exactly when the other is. Where any of that cannot be shown, the instruction itself
//! is probed: right, but slower. An entry that no kernel sets a probe on is moved in the same way, to what
//! every kernel does.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use reqtrace_common::cookie::ReturnSlot;

use super::Walk;
use super::flow::Flow;
use crate::emulated::{before, behind, is_emulated, is_harmless, is_within_stack, writes};
use crate::instructions::{condition_of, decoder, ends_flow, name_of};
use crate::probeable::{Probing, probing};
use reqtrace_binary::elf::Object;
use reqtrace_binary::frames::FramePlace;

/// Instructions between a site and what it stands for.
const MAX_BETWEEN: usize = 24;

/// Sites that stand for one instruction.
const MAX_SITES: usize = 8;

/// Conditional jumps probed although they may go elsewhere, for one function: each is a trap that
/// the program would not need.
const MAX_CONDITIONAL: usize = 2;

/// An instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Virtual address.
    pub address: u64,
    /// The x86 condition code under which a conditional jump there counts; `None`: each hit does.
    pub condition: Option<u8>,
    /// Where the function's return address stands there.
    pub slot: ReturnSlot,
    /// Bytes of code from it to what it stands for: the instruction that leaves the function, or
    /// back to its entry. 0: it is that itself.
    pub distance: u64,
}

impl Site {
    /// An instruction at which the stack pointer is at its entry level.
    #[must_use]
    pub const fn itself(address: u64, condition: Option<u8>) -> Self {
        Self {
            address,
            condition,
            slot: ReturnSlot::AT_RSP,
            distance: 0,
        }
    }
}

/// Whether a probe at an address costs no single step on any kernel.
#[must_use]
pub fn is_emulated_at(object: &Object, address: u64) -> bool {
    is_emulated(object.code(address))
}

/// The name of the instruction at an address, and whether the kernel emulates it.
#[must_use]
pub fn instruction_at(object: &Object, address: u64) -> Option<(String, bool)> {
    let code = decoder(object, address..address.saturating_add(16)).next()?;
    // A near call is carried out, too; only, no probe is moved to one.
    let is_call = object.code(address).first() == Some(&0xe8);
    Some((name_of(&code), is_call || is_emulated_at(object, address)))
}

/// What is read at a marker, so that no instruction in between may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reads {
    /// Arguments in registers, or nothing.
    Arguments,
    /// What a function returns, where it is left.
    Result,
    /// Other registers, or arguments on the stack.
    Anything,
}

/// Where to probe the entry of the function with this body.
#[must_use]
pub fn entry(object: &Object, body: &std::ops::Range<u64>, reads: Reads) -> Site {
    let itself = Site::itself(body.start, None);
    if is_emulated_at(object, body.start) {
        return itself;
    }
    let Some(walk) = super::walk(object, body, false) else {
        return itself;
    };
    let flow = Flow::of(&walk);
    walk.entry_site(&flow, reads, Wanted::Emulated)
        .or_else(|| {
            let is_taken = Wanted::Taken.is_at(object, body.start);
            (!is_taken).then(|| walk.entry_site(&flow, reads, Wanted::Taken))?
        })
        .unwrap_or(itself)
}

/// Where to probe in place of any instruction, where these registers are read: the next instruction that the kernel emulates, or
/// the one before.
#[must_use]
pub fn beside(object: &Object, address: u64, kept: &[Register]) -> Site {
    let itself = Site::itself(address, None);
    if is_emulated_at(object, address) {
        return itself;
    }
    let function = object.frames().range(address);
    let Some(walk) = function.and_then(|body| super::walk(object, &body, false)) else {
        return itself;
    };
    let flow = Flow::of(&walk);
    let behind = walk.site_behind(&flow, address, kept);
    behind
        .or_else(|| walk.site_in_front(&flow, address, kept))
        .unwrap_or(itself)
}

/// Where to probe behind an instruction that loads a register, while that and these hold what they hold behind it: at the next
/// instruction that the kernel emulates.
#[must_use]
pub fn behind_load(
    object: &Object,
    load: u64,
    loaded: Register,
    kept: &[Register],
) -> Option<Site> {
    let body = object.frames().range(load)?;
    let walk = super::walk(object, &body, false)?;
    let flow = Flow::of(&walk);
    let code = walk.code.get(&load)?;
    if !changes_nothing(code, kept) {
        return None;
    }
    let kept: Vec<Register> = [&[loaded], kept].concat();
    walk.site_from(&flow, code.next_ip(), &kept)
}

/// Whether a function always comes from its entry to an instruction, and only from there.
#[must_use]
pub fn comes_to(object: &Object, body: &std::ops::Range<u64>, address: u64) -> bool {
    let Some(walk) = super::walk(object, body, false) else {
        return false;
    };
    let flow = Flow::of(&walk);
    let mut at = body.start;
    for _ in 0..MAX_BETWEEN {
        if at != body.start && walk.is_joined(&flow, at) {
            return false;
        }
        if at == address {
            return !walk.may_be_entered(&flow, at);
        }
        match walk.code.get(&at) {
            Some(code) if code.flow_control() == FlowControl::Next => at = code.next_ip(),
            _ => return false,
        }
    }
    false
}

/// What a begin may be moved to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// What the kernel emulates, which is faster.
    Emulated,
    /// Anything that every kernel sets a probe on, because it does not on the entry.
    Taken,
}

impl Wanted {
    fn is_at(self, object: &Object, address: u64) -> bool {
        match self {
            Self::Emulated => is_emulated_at(object, address),
            Self::Taken => probing(object.code(address)) == Probing::Taken,
        }
    }
}

impl Walk<'_> {
    /// The sites for all instructions that leave the function, each by its address and, of a jump,
    /// its condition. `with_result`: what the function returns is in its register there already.
    pub(super) fn sites(&self, exits: &[(u64, Option<u8>)], with_result: bool) -> Vec<Site> {
        let stepped = |exit: u64| !is_emulated_at(self.object, exit);
        let flow = if exits.iter().any(|(exit, _)| stepped(*exit)) {
            Flow::of(self)
        } else {
            Flow::default()
        };
        let mut conditional = 0;
        let mut sites: Vec<Site> = Vec::new();
        for (exit, condition) in exits {
            let moved = stepped(*exit)
                .then(|| self.sites_before(&flow, *exit, with_result))
                .flatten()
                .filter(|moved| {
                    let more = moved.iter().filter(|site| site.condition.is_some());
                    let all = conditional + more.count();
                    let few = all <= MAX_CONDITIONAL;
                    if few {
                        conditional = all;
                    }
                    few
                });
            match moved {
                Some(moved) => sites.extend(moved),
                None => sites.push(Site::itself(*exit, *condition)),
            }
        }
        sites.sort_unstable();
        sites.dedup_by(|next, site| {
            // Both ways of one jump leave the function.
            let both = next.address == site.address && next.slot == site.slot;
            if both && next.condition != site.condition {
                site.condition = None;
            }
            both
        });
        sites
    }

    /// Walks back from an instruction that leaves the function, over what is always executed before
    /// it, to what the kernel emulates.
    fn sites_before(&self, flow: &Flow, exit: u64, with_result: bool) -> Option<Vec<Site>> {
        let frames = self.object.frames();
        if frames.at_entry_level(exit) != Some(true) {
            return None;
        }
        let mut place = FramePlace::AT_RSP;
        let mut at = exit;
        let mut sites = Vec::new();
        let mut guarded = true;
        let mut closed = false;
        for _ in 0..MAX_BETWEEN {
            if flow.is_entered(self, at) || at == self.entry {
                return None;
            }
            for jump in flow.jumps.to(at) {
                let jump = self.code.get(jump)?;
                let other = jump.next_ip();
                let condition = condition_of(jump).filter(|_| !self.fails(other));
                guarded &= self.fails(other);
                let distance = exit - at + jump.len() as u64;
                sites.push(self.site(flow, jump, condition, other, place, distance)?);
            }
            let code = self.instruction_before(at)?;
            let distance = exit - code.ip();
            match code.flow_control() {
                FlowControl::Next if is_emulated_at(self.object, code.ip()) => {
                    guarded = false;
                    let place = before(place, code)?;
                    sites.push(self.site(flow, code, None, 0, place, distance)?);
                }
                FlowControl::Next => {
                    if !is_harmless(code) || with_result && writes(code, Register::RAX) {
                        return None;
                    }
                    place = before(place, code)?;
                    at = code.ip();
                    continue;
                }
                FlowControl::ConditionalBranch => {
                    let other = code.near_branch_target();
                    let is_guard = self.fails(other);
                    guarded &= is_guard;
                    let condition = condition_of(code)?;
                    let condition = (!is_guard).then_some(condition ^ 1);
                    sites.push(self.site(flow, code, condition, other, place, distance)?);
                }
                FlowControl::Call if self.is_failure(code) => {}
                _ if ends_flow(code) => {}
                _ => return None,
            }
            closed = true;
            break;
        }
        // Nothing but the check of the stack's guard leads here, whatever jumps there are: without
        // it no compiler returns.
        let certain = guarded || flow.open.is_empty() && flow.pads_known;
        let ends_in_sites = (1..=MAX_SITES).contains(&sites.len());
        (closed && certain && ends_in_sites).then_some(sites)
    }

    /// A site, if the kernel emulates it, the frame is certain there, and a condition that must be
    /// looked at costs one trap at most.
    fn site(
        &self,
        flow: &Flow,
        code: &Instruction,
        condition: Option<u8>,
        other: u64,
        place: FramePlace,
        distance: u64,
    ) -> Option<Site> {
        if !is_emulated_at(self.object, code.ip()) || !self.frame_fits(code.ip(), place) {
            return None;
        }
        if condition.is_some() && flow.leads_to(self, other, code.ip()) {
            return None;
        }
        Some(Site {
            address: code.ip(),
            condition,
            slot: place.slot()?,
            distance,
        })
    }

    /// Whether the call frame information has the same of a frame as the code, or by the
    /// frame pointer as it usually stands.
    fn frame_fits(&self, address: u64, place: FramePlace) -> bool {
        let row = self.object.frames().return_address(address);
        row == Some(place) || !place.from_rbp && row == Some(FramePlace::rbp(8))
    }

    /// Whether the code at an address does nothing but end the program, because the stack's guard
    /// was overwritten.
    fn fails(&self, address: u64) -> bool {
        decoder(self.object, address..address.saturating_add(32))
            .find(|code| !matches!(code.mnemonic(), Mnemonic::Nop | Mnemonic::Endbr64))
            .is_some_and(|code| self.is_failure(&code))
    }

    fn is_failure(&self, code: &Instruction) -> bool {
        match code.flow_control() {
            FlowControl::Call => {
                let callee = code.near_branch_target();
                self.object.is_stack_check_failed(callee) || self.is_failing_stub(callee)
            }
            FlowControl::IndirectCall => {
                code.is_ip_rel_memory_operand()
                    && self
                        .object
                        .is_slot_of_stack_check_failed(code.ip_rel_memory_address())
            }
            _ => false,
        }
    }

    /// A stub of the procedure linkage table.
    fn is_failing_stub(&self, address: u64) -> bool {
        decoder(self.object, address..address.saturating_add(16))
            .find(|code| code.mnemonic() != Mnemonic::Endbr64)
            .is_some_and(|code| {
                code.flow_control() == FlowControl::IndirectBranch
                    && code.is_ip_rel_memory_operand()
                    && self
                        .object
                        .is_slot_of_stack_check_failed(code.ip_rel_memory_address())
            })
    }

    /// Walks on from the entry to the first instruction that is wanted.
    fn entry_site(&self, flow: &Flow, reads: Reads, wanted: Wanted) -> Option<Site> {
        let mut place = FramePlace::AT_RSP;
        let mut at = self.entry;
        for _ in 0..MAX_BETWEEN {
            let code = self.code.get(&at)?;
            let is_first = at == self.entry;
            if !is_first && (flow.is_entered(self, at) || !flow.jumps.to(at).is_empty()) {
                return None;
            }
            if wanted.is_at(self.object, at) {
                let place_is_certain = self.frame_fits(at, place);
                return (place_is_certain && !self.may_be_entered(flow, at)).then_some(Site {
                    address: at,
                    condition: None,
                    slot: place.slot()?,
                    distance: at - self.entry,
                });
            }
            if code.mnemonic() != Mnemonic::Endbr64 && !keeps(code, reads, wanted) {
                return None;
            }
            place = behind(place, code)?;
            at = code.next_ip();
        }
        None
    }

    /// Walks on from an instruction to the first one that the kernel emulates.
    fn site_behind(&self, flow: &Flow, from: u64, kept: &[Register]) -> Option<Site> {
        let code = self.code.get(&from)?;
        changes_nothing(code, kept).then(|| self.site_from(flow, code.next_ip(), kept))?
    }

    /// The same from there on.
    fn site_from(&self, flow: &Flow, from: u64, kept: &[Register]) -> Option<Site> {
        let mut at = from;
        for _ in 0..MAX_BETWEEN {
            let code = self.code.get(&at)?;
            if self.is_joined(flow, at) {
                return None;
            }
            if is_emulated_at(self.object, at) {
                return (!self.may_be_entered(flow, at)).then(|| Site::itself(at, None));
            }
            if !changes_nothing(code, kept) {
                return None;
            }
            at = code.next_ip();
        }
        None
    }

    /// Walks back from an instruction, over what is always executed before it, to one that the kernel emulates: also to a
    /// jump that goes elsewhere under some condition.
    fn site_in_front(&self, flow: &Flow, to: u64, kept: &[Register]) -> Option<Site> {
        let mut at = to;
        for _ in 0..MAX_BETWEEN {
            if at == self.entry || self.is_joined(flow, at) {
                return None;
            }
            let code = self.instruction_before(at)?;
            at = code.ip();
            let condition = match code.flow_control() {
                FlowControl::ConditionalBranch => Some(condition_of(code)? ^ 1),
                FlowControl::Next if changes_nothing(code, kept) => None,
                _ => return None,
            };
            if is_emulated_at(self.object, at) {
                return (!self.may_be_entered(flow, to)).then(|| Site::itself(at, condition));
            }
            if condition.is_some() {
                return None;
            }
        }
        None
    }

    /// Whether control comes to an address also from elsewhere than the instruction before.
    fn is_joined(&self, flow: &Flow, address: u64) -> bool {
        flow.is_entered(self, address) || !flow.jumps.to(address).is_empty()
    }

    /// Whether an indirect jump that is not understood, or an exception, might go to an address near
    /// the entry. A jump goes to code that has the same frame as it has itself.
    fn may_be_entered(&self, flow: &Flow, address: u64) -> bool {
        let frames = self.object.frames();
        let here = frames.return_address(address);
        // Between the entry and the site the frame is that of the entry, or has grown.
        let fits = |jump: &u64| {
            frames
                .return_address(*jump)
                .is_none_or(|there| Some(there) == here || there == FramePlace::AT_RSP)
        };
        !flow.pads_known || flow.open.iter().any(fits)
    }
}

/// Whether an instruction leaves these registers alone, and memory but for the stack's and counts of references: nothing that
/// tells another thread to go on.
fn changes_nothing(code: &Instruction, kept: &[Register]) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(code);
    let mut written = info.used_memory().iter().filter(|memory| {
        !matches!(
            memory.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        )
    });
    let counts = code.mnemonic() == Mnemonic::Xadd;
    let is_quiet = counts || written.all(|memory| memory.base() == Register::RSP);
    is_harmless(code)
        && is_quiet
        && (counts || !code.has_lock_prefix())
        && !kept.iter().any(|kept| writes(code, *kept))
}

/// Whether an instruction at a function's beginning leaves alone what a request reads. Where the entry
/// cannot be probed memory may be touched: what takes a lock there changes what any thread may change.
fn keeps(code: &Instruction, reads: Reads, wanted: Wanted) -> bool {
    let arguments = [
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RCX,
        Register::R8,
        Register::R9,
    ];
    reads == Reads::Arguments
        && is_harmless(code)
        && (wanted == Wanted::Taken || is_within_stack(code))
        && !arguments.iter().any(|argument| writes(code, *argument))
}

#[cfg(test)]
mod tests;
