//! Which argument registers a function reads: its code in, those that hold an argument out. In the others is
//! what was there by chance.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use reqtrace_common::call::NOTED_ARGUMENTS;

use super::instructions::decoder;
use reqtrace_binary::elf::Object;

/// In the order of the System V AMD64 ABI.
const REGISTERS: [Register; NOTED_ARGUMENTS] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX];

/// Instructions looked at before the rest counts as read.
const MAX_LOOKED_AT: usize = 4096;

/// Whether the function that begins there reads each of its first arguments before something else is
/// in the register; `true` where it is not known, as behind a call through a pointer.
#[must_use]
pub fn reads(object: &Object, entry: u64) -> [bool; NOTED_ARGUMENTS] {
    let mut read = [false; NOTED_ARGUMENTS];
    let mut factory = InstructionInfoFactory::new();
    let mut looked_at = 0;
    // By address, the registers with which it was come to.
    let mut seen: BTreeMap<u64, [bool; NOTED_ARGUMENTS]> = BTreeMap::new();
    let mut work = vec![(entry, [true; NOTED_ARGUMENTS])];
    while let Some((start, mut held)) = work.pop() {
        for code in decoder(object, start..start.saturating_add(1 << 16)) {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT || code.is_invalid() {
                return [true; NOTED_ARGUMENTS];
            }
            let known = seen.entry(code.ip()).or_default();
            if (0..NOTED_ARGUMENTS).all(|at| known[at] || !held[at]) {
                break;
            }
            (0..NOTED_ARGUMENTS).for_each(|at| known[at] |= held[at]);
            // `xor edi, edi` reads nothing.
            let clears = matches!(code.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
                && code.op1_kind() == OpKind::Register
                && code.op0_register() == code.op1_register();
            let mut written = [false; NOTED_ARGUMENTS];
            for used in factory.info(&code).used_registers() {
                let full = used.register().full_register();
                if let Some(at) = REGISTERS.iter().position(|register| *register == full) {
                    let is_write = clears || used.access() == OpAccess::Write;
                    written[at] |= is_write;
                    read[at] |= held[at] && !is_write;
                }
            }
            (0..NOTED_ARGUMENTS).for_each(|at| held[at] &= !written[at]);
            match code.flow_control() {
                FlowControl::Next => {}
                FlowControl::ConditionalBranch => work.push((code.near_branch_target(), held)),
                // A callee may get them; behind the call they are gone.
                FlowControl::UnconditionalBranch | FlowControl::Call => {
                    work.push((code.near_branch_target(), held));
                    break;
                }
                FlowControl::IndirectBranch | FlowControl::IndirectCall => {
                    (0..NOTED_ARGUMENTS).for_each(|at| read[at] |= held[at]);
                    break;
                }
                _ => break,
            }
        }
    }
    read
}
