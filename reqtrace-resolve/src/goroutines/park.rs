//! Why and where a goroutine waits: a program in; where its runtime keeps the reason, the program counter and the frame
//! pointer of a goroutine, and its own names of reasons, out.
//!
//! All of it is read from the code that writes it, so that no table of versions is needed: `runtime.mcall` stores where a
//! goroutine goes on, `runtime.gopark` its argument, and `runtime.waitReason.String` knows the table of names.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use reqtrace_binary::elf::Object;
use reqtrace_common::marker::{MAX_REASONS, ParkPlan, park_kind, place_number};
use reqtrace_profile::place_of_reason;

use super::super::instructions::decoder;
use super::super::symbols::body;
use super::function;

const SWITCHES: &str = "runtime.mcall";
const PARKS: &str = "runtime.gopark";
const NAMES: &str = "runtime.waitReason.String";

/// Instructions of a function that are looked at.
const MAX_CODE: usize = 256;

/// Longest name of a reason.
const MAX_NAME: u64 = 64;

/// What is known of goroutines that wait, and what is not, in sentences.
pub(in crate::goroutines) fn plan(object: &Object) -> (ParkPlan, Vec<String>) {
    let mut plan = ParkPlan {
        kind: park_kind::GOROUTINE,
        ..ParkPlan::default()
    };
    let mut unknown = Vec::new();
    let mut no = |what: &str, function: &str, why: &str| {
        unknown.push(format!(
            "parked time of goroutines has no {what}: in {}, built by {}, `{function}` {why}",
            object.shown(),
            object.go_version().unwrap_or("an unknown version of Go")
        ));
    };
    match code(object, SWITCHES) {
        None => no("stack", SWITCHES, "is not there"),
        Some(code) => match saved(&code) {
            Some((pc, bp)) => (plan.pc, plan.bp) = (pc, bp),
            None => no(
                "stack",
                SWITCHES,
                "does not store program counter and frame pointer in a way that is known",
            ),
        },
    }
    let reason = code(object, PARKS).and_then(|code| reason(&code));
    let names = code(object, NAMES).and_then(|code| names(object, &code));
    match (reason, names) {
        (None, _) => no(
            "reason",
            PARKS,
            "does not store its reason in a way that is known",
        ),
        (_, None) => no(
            "reason",
            NAMES,
            "has no table of names that can be read in the file",
        ),
        (Some(at), Some(names)) => {
            plan.reason = at;
            for (number, name) in (0..).zip(&names) {
                if !name.is_empty() {
                    plan.name(number, place_number(place_of_reason(name)));
                }
            }
        }
    }
    (plan, unknown)
}

fn code(object: &Object, name: &str) -> Option<Vec<Instruction>> {
    let body = body(object, function(object, name)?);
    Some(decoder(object, body).take(MAX_CODE).collect())
}

/// What a register has.
#[derive(Clone, Copy, PartialEq)]
enum Has {
    StackPointer,
    CallersStackPointer,
    CallersProgramCounter,
    CallersFramePointer,
}

/// Where a goroutine's program counter and frame pointer are stored: of the caller, since it goes on there.
fn saved(code: &[Instruction]) -> Option<(u32, u32)> {
    // Bytes that were pushed.
    let mut pushed = 0_u64;
    let mut is_framed = false;
    let mut known: Vec<(Register, Has)> = Vec::new();
    let mut stored: Vec<(Has, u64)> = Vec::new();
    for one in code {
        if one.flow_control() != FlowControl::Next {
            break;
        }
        let of = |register: Register| {
            let found = known.iter().rev().find(|(known, _)| *known == register);
            found.map(|(_, has)| *has)
        };
        let at = one.memory_displacement64();
        let is_plain = one.memory_index() == Register::None;
        let (to, from) = (one.op0_register(), one.op1_register());
        let mut has = None;
        match (one.mnemonic(), one.op0_kind(), one.op1_kind()) {
            (Mnemonic::Push, ..) => {
                pushed += 8;
                continue;
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Register) if from == Register::RSP => {
                is_framed |= to == Register::RBP;
                has = Some(Has::StackPointer);
            }
            (Mnemonic::Lea, OpKind::Register, _)
                if one.memory_base() == Register::RSP && is_plain && at == pushed + 8 =>
            {
                has = Some(Has::CallersStackPointer);
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Memory) if is_plain => {
                let base = one.memory_base();
                let is_stack = base == Register::RSP || of(base) == Some(Has::StackPointer);
                if base == Register::RBP && is_framed && pushed == 8 && at == 0 {
                    has = Some(Has::CallersFramePointer);
                } else if is_stack && at == pushed {
                    has = Some(Has::CallersProgramCounter);
                }
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register)
                if one.memory_base() == Register::R14 && is_plain =>
            {
                let has = match of(from) {
                    None if from == Register::RBP && !is_framed => Some(Has::CallersFramePointer),
                    known => known,
                };
                stored.extend(has.map(|has| (has, at)));
                continue;
            }
            _ => {}
        }
        if one.op0_kind() == OpKind::Register {
            known.retain(|(register, _)| *register != to.full_register());
            known.extend(has.map(|has| (to, has)));
        }
    }
    let one = |wanted: Has| {
        let mut found = stored.iter().filter(|(has, _)| *has == wanted);
        let (_, at) = found.next().filter(|_| found.clone().next().is_none())?;
        u32::try_from(*at).ok().filter(|at| *at != 0)
    };
    let (sp, pc) = (
        one(Has::CallersStackPointer)?,
        one(Has::CallersProgramCounter)?,
    );
    // They stand side by side in all versions.
    (pc == sp + 8).then_some((pc, one(Has::CallersFramePointer)?))
}

/// Where the argument of one byte is stored that says why: the third one, in a structure that is found by way of the thread's
/// (`m.curg`), and not on the stack.
fn reason(code: &[Instruction]) -> Option<u32> {
    let mut found = None;
    for (number, one) in code.iter().enumerate() {
        let is_store = one.mnemonic() == Mnemonic::Mov
            && one.op0_kind() == OpKind::Memory
            && one.op1_register() == Register::CL
            && ![Register::RSP, Register::RBP].contains(&one.memory_base());
        if !is_store {
            continue;
        }
        let base = one.memory_base();
        let before = code[..number].iter();
        let loads = |register: Register| {
            let mut writers = before.clone().rev().filter(move |one| {
                one.op0_kind() == OpKind::Register
                    && one.op0_register().full_register() == register
                    && matches!(one.mnemonic(), Mnemonic::Mov | Mnemonic::Lea)
            });
            let last = writers.next()?;
            (last.mnemonic() == Mnemonic::Mov && last.op1_kind() == OpKind::Memory)
                .then(|| last.memory_base())
        };
        // The goroutine of the thread of this goroutine.
        let is_goroutine = loads(base).and_then(loads) == Some(Register::R14);
        let is_argument = !before.clone().any(|one| {
            one.op0_kind() == OpKind::Register
                && one.op0_register().full_register() == Register::RCX
                && !matches!(one.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
        });
        if !is_goroutine || !is_argument || found.is_some() {
            return None;
        }
        found = u32::try_from(one.memory_displacement64()).ok();
    }
    found.filter(|at| *at != 0)
}

/// The names of all reasons, in their order: a table of strings that is indexed by the reason, below a limit that is compared
/// with.
fn names(object: &Object, code: &[Instruction]) -> Option<Vec<String>> {
    let limit = code
        .iter()
        .find(|one| one.mnemonic() == Mnemonic::Cmp && one.op0_register() == Register::AL)?;
    let count = limit.immediate(1);
    if limit.op1_kind() != OpKind::Immediate8 || count > MAX_REASONS as u64 {
        return None;
    }
    let table = code.iter().enumerate().find_map(|(number, one)| {
        let is_address = one.mnemonic() == Mnemonic::Lea && one.is_ip_rel_memory_operand();
        let behind = code[number + 1..].iter().take(3);
        let is_indexed = |next: &Instruction| {
            let (base, index) = (next.memory_base(), next.memory_index());
            next.mnemonic() == Mnemonic::Mov
                && index != Register::None
                && [base, index].contains(&one.op0_register())
        };
        (is_address && behind.clone().any(is_indexed)).then(|| one.ip_rel_memory_address())
    })?;
    (0..count)
        .map(|number| text(object, table + 16 * number))
        .collect()
}

/// A string of Go: its address and its length.
fn text(object: &Object, at: u64) -> Option<String> {
    let (address, length) = (object.word(at)?, object.word(at + 8)?);
    if length > MAX_NAME || address == 0 && length != 0 {
        return None;
    }
    let mut bytes = Vec::new();
    for first in (0..length).step_by(8) {
        bytes.extend(object.word(address + first)?.to_le_bytes());
    }
    bytes.truncate(length as usize);
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte);
    bytes
        .iter()
        .all(is_plain)
        .then(|| String::from_utf8(bytes).ok())?
}

#[cfg(test)]
mod tests;
