//! What an object's code refers to: a parsed [`Object`] in, the targets of its jumps and the slots of
//! what it imports out. Both are looked up when they are first asked for.

use std::collections::BTreeMap;
use std::ops::Range;

use goblin::elf::sym::Symtab;

use super::headers::CONTEXT;
use super::parse::string_at;
use super::{Object, SymbolTable};
use crate::landing;

/// The kinds of relocation that put the address of an import in its slot (System V AMD64 ABI, 4.4).
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// The one that puts an address of the object itself there.
const R_X86_64_RELATIVE: u32 = 8;

/// What a stub may begin with, and its jump through a slot.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const BND: u8 = 0xf2;
const JMP_SLOT: [u8; 2] = [0xff, 0x25];

/// A call through one.
const CALL_SLOT: [u8; 2] = [0xff, 0x15];

/// Bytes of an `Elf64_Rela`.
const RELA: usize = 24;

/// What compilers call where the guard of a stack frame was overwritten. It never returns.
const STACK_CHECK_FAILED: [&str; 3] = [
    "__stack_chk_fail",
    "__stack_chk_fail_local",
    "__GI___stack_chk_fail",
];

/// What is looked up once.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Sections of relocations.
    pub(super) relocations: Vec<Range<usize>>,
    /// Global offset tables: what is in them is known when the object is linked or loaded, and never changes.
    pub(super) offsets: Vec<Range<u64>>,
    /// Slots that are filled with an address of the object, each with that address.
    relative: std::sync::OnceLock<BTreeMap<u64, u64>>,
    /// Target and origin of what may be a direct jump, by target.
    jumps: std::sync::OnceLock<Vec<(u64, u64)>>,
    /// Slots that are filled with the address of a dynamic symbol, each with the symbol's index.
    slots: std::sync::OnceLock<BTreeMap<u64, u32>>,
    /// Slots that hold the address of an imported `__stack_chk_fail`.
    guards: std::sync::OnceLock<Vec<u64>>,
}

impl Object {
    /// The bytes from an address of code or data to the end of its segment.
    #[must_use]
    pub fn data(&self, address: u64) -> &[u8] {
        self.segments
            .iter()
            .find(|segment| segment.address.contains(&address))
            .map_or(&[], |segment| self.bytes_of(segment, address))
    }

    /// Where exceptions may enter the code of a range; `None` when its tables are not understood.
    #[must_use]
    pub fn landing_pads(&self, range: &Range<u64>) -> Option<Vec<u64>> {
        let mut pads = Vec::new();
        for (table, function) in self.frames().exception_tables(range)? {
            pads.extend(landing::landing_pads(self.data(table), table, function)?);
        }
        Some(pads)
    }

    /// Targets and origins of what may be a jump with a 32-bit distance into a range: what looks
    /// like one, at any byte of the code, so that nothing is missed. By target.
    pub fn jumps_into(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let jumps = self.references.jumps.get_or_init(|| self.all_jumps());
        let from = jumps.partition_point(|(target, _)| *target < range.start);
        let end = range.end;
        jumps[from..]
            .iter()
            .copied()
            .take_while(move |(target, _)| *target < end)
    }

    fn all_jumps(&self) -> Vec<(u64, u64)> {
        let code = || self.segments.iter().filter(|segment| segment.executable);
        let mut jumps = Vec::new();
        for segment in code() {
            let start = segment.address.start;
            for (at, bytes) in self.bytes_of(segment, start).windows(6).enumerate() {
                let from = start + at as u64;
                let (distance, next) = match bytes {
                    [0xe9, distance @ .., _] => (distance, from + 5),
                    [0x0f, 0x80..=0x8f, distance @ ..] => (distance, from + 6),
                    _ => continue,
                };
                let Some(distance) = distance.first_chunk() else {
                    continue;
                };
                let target = next.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
                if code().any(|segment| segment.address.contains(&target)) {
                    jumps.push((target, from));
                }
            }
        }
        jumps.sort_unstable();
        jumps
    }

    /// Whether the function at an address, or its stub, is the one that ends a program whose stack
    /// was overwritten.
    #[must_use]
    pub fn is_stack_check_failed(&self, address: u64) -> bool {
        let from = self
            .symbols
            .partition_point(|symbol| symbol.address < address);
        self.symbols[from..]
            .iter()
            .take_while(|symbol| symbol.address == address)
            .any(|symbol| STACK_CHECK_FAILED.contains(&self.name(symbol)))
    }

    /// Whether the pointer at an address is filled with the address of an imported
    /// `__stack_chk_fail` when the object is loaded.
    #[must_use]
    pub fn is_slot_of_stack_check_failed(&self, slot: u64) -> bool {
        let guards = self.references.guards.get_or_init(|| self.guard_slots());
        guards.contains(&slot)
    }

    fn guard_slots(&self) -> Vec<u64> {
        let bytes = self.bytes();
        // The dynamic symbols are those that relocations of a loaded object name.
        let dynamic = self.tables.iter().filter(|table| table.is_dynamic);
        let wanted: Vec<u32> = dynamic
            .flat_map(|table| failing_symbols(bytes, table))
            .collect();
        let slots = self.slots().iter();
        slots
            .filter(|(_, symbol)| wanted.contains(symbol))
            .map(|(slot, _)| *slot)
            .collect()
    }

    /// Slots that are filled with the address of a dynamic symbol when the object is loaded.
    fn slots(&self) -> &BTreeMap<u64, u32> {
        self.references.slots.get_or_init(|| {
            let filled = self.relocated(&[R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT]);
            let symbols = filled.map(|(slot, symbol, _)| (slot, symbol));
            symbols.collect()
        })
    }

    /// Relocations of these kinds: the slot, the index of a symbol, and what is added to its address.
    fn relocated(&self, kinds: &[u32]) -> impl Iterator<Item = (u64, u32, u64)> {
        let sections = self.references.relocations.iter();
        let all = sections.flat_map(|section| {
            let section = self.bytes().get(section.clone()).unwrap_or_default();
            section.chunks_exact(RELA)
        });
        all.filter_map(|rela| {
            let word = |at: usize| {
                let bytes = rela[at..].first_chunk().copied().unwrap_or_default();
                u64::from_le_bytes(bytes)
            };
            let info = word(8);
            let is_one = kinds.contains(&(info as u32));
            is_one.then(|| (word(0), (info >> 32) as u32, word(16)))
        })
    }

    /// Where data has the addresses of code, each with that address, by place. Words of a program that is not moved
    /// count, too, if they look like one.
    #[must_use]
    pub fn pointers_to_code(&self) -> Vec<(u64, u64)> {
        let moved = self.relative();
        let mut found = Vec::new();
        for segment in self.segments.iter().filter(|segment| !segment.executable) {
            let start = segment.address.start.next_multiple_of(8);
            let words = self.bytes_of(segment, start).chunks_exact(8).zip(0_u64..);
            for (word, at) in words {
                let slot = start + 8 * at;
                let linked = word.first_chunk().copied().map_or(0, u64::from_le_bytes);
                let target = moved.get(&slot).copied().unwrap_or(linked);
                if target != 0 && self.code_segment(target).is_some() {
                    found.push((slot, target));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Where these bytes stand in code, as far as a mask has them: at any byte, so that nothing is missed.
    pub fn bytes_in_code<const N: usize>(
        &self,
        bytes: [u8; N],
        mask: [u8; N],
    ) -> impl Iterator<Item = u64> {
        let code = self.segments.iter().filter(|segment| segment.executable);
        code.flat_map(move |segment| {
            let start = segment.address.start;
            let all = self.bytes_of(segment, start).windows(N).zip(start..);
            let fits = move |there: &[u8]| {
                let mut all = there.iter().zip(bytes).zip(mask);
                all.all(|((there, byte), mask)| there & mask == byte)
            };
            all.filter(move |(there, _)| fits(there)).map(|(_, at)| at)
        })
    }

    /// Where code may call a function or jump to it, directly or through the global offset table.
    #[must_use]
    pub fn callers(&self, function: u64) -> Vec<u64> {
        let through = [CALL_SLOT, JMP_SLOT].into_iter().flat_map(|through| {
            let all = self.bytes_in_code(through, [0xff; 2]);
            all.filter(|at| {
                let code = self.code(*at);
                let distance = code.get(2..).and_then(|rest| rest.first_chunk());
                let distance = distance.copied().map_or(0, i32::from_le_bytes);
                let slot = (at + 6).wrapping_add_signed(distance.into());
                self.in_offset_table(slot) == Some(function)
            })
        });
        self.references(function).chain(through).collect()
    }

    /// Slots that are filled with an address of the object when it is loaded.
    fn relative(&self) -> &BTreeMap<u64, u64> {
        self.references.relative.get_or_init(|| {
            let filled = self.relocated(&[R_X86_64_RELATIVE]);
            filled.map(|(slot, _, address)| (slot, address)).collect()
        })
    }

    /// The address of a function that a slot of a global offset table has, if that is one of the object's own.
    #[must_use]
    pub fn in_offset_table(&self, slot: u64) -> Option<u64> {
        let mut tables = self.references.offsets.iter();
        if !tables.any(|table| table.contains(&slot)) {
            return None;
        }
        if self.slots().contains_key(&slot) {
            return self.in_slot(slot);
        }
        // Of a program that is not moved, and of packed relocations, the slot has the address as linked.
        let relative = self.relative().get(&slot).copied();
        relative.or_else(|| self.word(slot))
    }

    /// The address of the object's own function that a slot is filled with, unless another object has one of
    /// that name.
    #[must_use]
    pub fn in_slot(&self, slot: u64) -> Option<u64> {
        let index = *self.slots().get(&slot)?;
        let table = self.tables.iter().find(|table| table.is_dynamic)?;
        let symbols = Symtab::parse(self.bytes(), table.offset, table.count, CONTEXT).ok()?;
        let symbol = symbols.get(index as usize)?;
        (symbol.st_shndx != 0).then_some(symbol.st_value)
    }

    /// The same of the slot that a stub of the procedure linkage table at an address goes through.
    #[must_use]
    pub fn through_stub(&self, address: u64) -> Option<u64> {
        if !self.in_plt(address) {
            return None;
        }
        let code = self.code(address);
        let rest = code.strip_prefix(&ENDBR64).unwrap_or(code);
        let rest = rest.strip_prefix(&[BND]).unwrap_or(rest);
        let (distance, _) = rest.strip_prefix(&JMP_SLOT)?.split_first_chunk()?;
        let next = address + (code.len() - rest.len() + JMP_SLOT.len() + distance.len()) as u64;
        self.in_slot(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))))
    }
}

fn failing_symbols(bytes: &[u8], table: &SymbolTable) -> Vec<u32> {
    let Ok(symbols) = Symtab::parse(bytes, table.offset, table.count, CONTEXT) else {
        return Vec::new();
    };
    let fails = |name: usize| {
        string_at(bytes, &table.strings, name)
            .and_then(|name| bytes.get(name))
            .is_some_and(|name| {
                STACK_CHECK_FAILED
                    .iter()
                    .any(|failed| failed.as_bytes() == name)
            })
    };
    symbols
        .iter()
        .zip(0..)
        .filter(|(symbol, _)| fails(symbol.st_name))
        .map(|(_, index)| index)
        .collect()
}
