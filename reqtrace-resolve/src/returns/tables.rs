//! Switch tables: an indirect jump in, whether it goes through a table, and where to, out.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::Walk;
use super::flow::Jumps;
use crate::emulated::writes;
use crate::instructions::condition_of;

/// Instructions looked at before an indirect jump for the load of a switch table's entry, and for
/// the check of its index.
const TABLE_WINDOW: usize = 16;

/// Entries of a table that are believed.
const MAX_ENTRIES: u64 = 4096;

/// Entries of a table without a check of its index: no more than a byte tells apart.
const MAX_UNCHECKED: u64 = 256;

/// Where a jump through a switch table goes.
#[derive(Debug)]
pub(super) struct Targets {
    /// Everywhere.
    pub(super) all: Vec<u64>,
    /// And nowhere else: the check of its index says how long the table is.
    pub(super) are_exact: bool,
}

impl Walk<'_> {
    /// Whether an indirect jump goes through a switch table.
    pub(super) fn through_table(&self, jump: &Instruction) -> bool {
        // Compilers write `notrack` only on jumps through tables that they made themselves.
        if jump.segment_prefix() == Register::DS {
            return true;
        }
        if jump.op0_kind() == OpKind::Memory {
            return self.is_own_table(jump);
        }
        let target = jump.op0_register();
        let mut added = None;
        for code in self
            .code
            .range(..jump.ip())
            .rev()
            .take(TABLE_WINDOW)
            .map(|(_, code)| code)
        {
            if code.flow_control() == FlowControl::UnconditionalBranch
                || code.flow_control() == FlowControl::Return
            {
                return false;
            }
            let writes = |register: Register| {
                code.op_count() > 0
                    && code.op0_kind() == OpKind::Register
                    && code.op0_register().full_register() == register
            };
            match added {
                // `jmp *%rax` after `add %rdx,%rax`: one of the two came from a table of
                // 32-bit distances.
                None if writes(target) => match code.mnemonic() {
                    Mnemonic::Add if code.op1_kind() == OpKind::Register => {
                        added = Some(code.op1_register());
                    }
                    Mnemonic::Add => return code.memory_index() != Register::None,
                    Mnemonic::Mov => {
                        return code.op1_kind() == OpKind::Memory && self.is_own_table(code);
                    }
                    _ => return false,
                },
                Some(other)
                    if (writes(target) || writes(other))
                        && matches!(code.mnemonic(), Mnemonic::Movsxd | Mnemonic::Mov)
                        && code.op1_kind() == OpKind::Memory
                        && code.memory_index() != Register::None =>
                {
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Where a jump through a switch table goes. `None` unless the table, the check of its index
    /// and all its entries are understood.
    pub(super) fn table_targets(&self, jump: &Instruction, jumps: &Jumps) -> Option<Targets> {
        let line = self.line_before(jump.ip(), jumps);
        if jump.op0_kind() == OpKind::Memory {
            if !self.is_own_table(jump) {
                return None;
            }
            let entries = entries(&line, jump.memory_index().full_register())?;
            let table = jump.memory_displacement64();
            let all = self.inside(entries, |index| self.object.word(table + 8 * index))?;
            return Some(Targets {
                all,
                are_exact: true,
            });
        }
        let target = jump.op0_register().full_register();
        let add = line
            .iter()
            .position(|code| writes(code, target))
            .filter(|at| line[*at].mnemonic() == Mnemonic::Add)?;
        if line[add].op1_kind() != OpKind::Register {
            return None;
        }
        let parts = [target, line[add].op1_register().full_register()];
        // Of the two that are added one is the table, the other an entry of it.
        let rest = &line[add + 1..];
        let load = rest
            .iter()
            .position(|code| parts.iter().any(|part| writes(code, *part)))?;
        let code = rest[load];
        if !is_load(code) {
            return None;
        }
        let base = code.memory_base().full_register();
        // The base is in the register that is added, or was copied there.
        let of_base = *parts.iter().find(|part| **part != dest(code))?;
        if of_base != base || rest[..load].iter().any(|code| writes(code, base)) {
            return None;
        }
        let lea = rest[load + 1..].iter().find(|code| writes(code, base))?;
        if lea.mnemonic() != Mnemonic::Lea || !lea.is_ip_rel_memory_operand() {
            return None;
        }
        let table = lea.memory_displacement64();
        let entry = |index: u64| {
            let distance = *self.object.data(table + 4 * index).first_chunk::<4>()?;
            Some(table.wrapping_add_signed(i64::from(i32::from_le_bytes(distance))))
        };
        let entries = entries(&rest[load + 1..], code.memory_index().full_register());
        Some(Targets {
            are_exact: entries.is_some(),
            all: match entries {
                Some(entries) => self.inside(entries, entry)?,
                None => self.at_most(entry)?,
            },
        })
    }

    /// All targets that a table may have whose index is checked nowhere, as that of an enumeration is not: of what lies there
    /// as much as may be an entry. `None` when that has no end, or the first one is none of this function.
    fn at_most(&self, entry: impl Fn(u64) -> Option<u64>) -> Option<Vec<u64>> {
        let is_code = |target: &u64| !self.object.code(*target).is_empty();
        let targets = (0..=MAX_UNCHECKED).map_while(|index| entry(index).filter(is_code));
        let targets: Vec<u64> = targets.collect();
        let is_own = self.code.contains_key(targets.first()?);
        (is_own && targets.len() as u64 <= MAX_UNCHECKED).then_some(targets)
    }

    /// The targets of so many entries, all of which must be instructions of this function.
    fn inside(&self, entries: u64, entry: impl Fn(u64) -> Option<u64>) -> Option<Vec<u64>> {
        (0..entries)
            .map(|index| entry(index).filter(|target| self.code.contains_key(target)))
            .collect()
    }

    /// The instructions that are always executed before one at `address`, nearest first.
    fn line_before(&self, address: u64, jumps: &Jumps) -> Vec<&Instruction> {
        let mut line = Vec::new();
        let mut at = address;
        while line.len() < TABLE_WINDOW && jumps.to(at).is_empty() {
            let Some(code) = self.instruction_before(at) else {
                break;
            };
            let goes_on = matches!(
                code.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            );
            if !goes_on {
                break;
            }
            line.push(code);
            at = code.ip();
        }
        line
    }

    /// Whether a memory operand is an entry of a table of addresses that point into this
    /// function. A table of function pointers looks the same but for what is in it.
    fn is_own_table(&self, code: &Instruction) -> bool {
        code.memory_index() != Register::None
            && code.memory_index_scale() == 8
            && code.memory_base() == Register::None
            && self
                .object
                .word(code.memory_displacement64())
                .is_some_and(|first| first != self.entry && self.part_of(first).is_some())
    }
}

/// A load of an entry of four bytes.
fn is_load(code: &Instruction) -> bool {
    code.mnemonic() == Mnemonic::Movsxd
        && code.op1_kind() == OpKind::Memory
        && code.memory_index() != Register::None
        && code.memory_index_scale() == 4
        && code.memory_displacement64() == 0
}

fn dest(code: &Instruction) -> Register {
    code.op0_register().full_register()
}

/// How many entries a table has, from the check of the index in the straight line before the load:
/// `cmp $N,index; ja` beyond it, or `and $N,index`.
fn entries(line: &[&Instruction], index: Register) -> Option<u64> {
    let mut wanted = index;
    let mut beyond = None;
    for code in line {
        if let Some(condition) = condition_of(code) {
            // The one nearest to the check decides.
            beyond = match condition {
                7 => Some(1),
                3 => Some(0),
                _ => None,
            };
            continue;
        }
        let of_wanted =
            code.op_count() == 2 && code.op0_kind() == OpKind::Register && dest(code) == wanted;
        if code.mnemonic() == Mnemonic::Cmp {
            let more = beyond.take();
            if of_wanted && is_wide(code) && is_immediate(code) {
                return code
                    .immediate(1)
                    .checked_add(more?)
                    .filter(|entries| *entries <= MAX_ENTRIES);
            }
        } else if changes_flags(code) {
            beyond = None;
        }
        if !writes(code, wanted) {
            continue;
        }
        match code.mnemonic() {
            Mnemonic::And if of_wanted && is_immediate(code) => {
                return code
                    .immediate(1)
                    .checked_add(1)
                    .filter(|entries| *entries <= MAX_ENTRIES);
            }
            // Whole registers only: what is cut off could be beyond the check.
            Mnemonic::Mov if of_wanted && code.op1_kind() == OpKind::Register && is_wide(code) => {
                wanted = code.op1_register().full_register();
            }
            Mnemonic::Movzx if of_wanted && code.op1_kind() == OpKind::Register => {
                // `cmp $N,%al; ja; movzbl %al,%eax`.
                return entries_of_part(line, code);
            }
            _ => return None,
        }
    }
    None
}

/// The same where the check is of the part of a register that was then widened.
fn entries_of_part(line: &[&Instruction], widening: &Instruction) -> Option<u64> {
    let part = widening.op1_register();
    let mut beyond = None;
    for code in line.iter().skip_while(|code| code.ip() >= widening.ip()) {
        if let Some(condition) = condition_of(code) {
            beyond = match condition {
                7 => Some(1),
                3 => Some(0),
                _ => None,
            };
            continue;
        }
        if code.mnemonic() == Mnemonic::Cmp {
            let more = beyond.take();
            let checks = code.op0_kind() == OpKind::Register && is_immediate(code);
            if checks && code.op0_register() == part {
                let mask = if part.size() == 1 { 0xff } else { 0xffff };
                return (code.immediate(1) & mask)
                    .checked_add(more?)
                    .filter(|entries| *entries <= MAX_ENTRIES);
            }
        } else if changes_flags(code) {
            beyond = None;
        }
        if writes(code, part.full_register()) {
            return None;
        }
    }
    None
}

fn is_wide(code: &Instruction) -> bool {
    code.op0_register().size() >= 4
}

fn is_immediate(code: &Instruction) -> bool {
    matches!(
        code.op1_kind(),
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

fn changes_flags(code: &Instruction) -> bool {
    code.rflags_modified() != 0
}
