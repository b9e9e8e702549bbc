//! What the kernel's verifier would say of the programs' stacks, without a kernel: the object files in; how deep each program's
//! calls go, out. A kernel of today gives each function's frame the room that it needs; Linux 6.1 rounds up to 32 bytes
//! (`check_max_stack_depth` in kernel/bpf/verifier.c), and refuses more than 512 for a program and what it calls.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::{Elf, Sym, section_header::SHF_EXECINSTR, sym::STT_FUNC};

use super::{COUNT_OBJECT, OBJECT};

/// Bytes of stack for a program and what it calls.
const MOST: usize = 512;

/// Functions that call each other, the program among them.
const MOST_FRAMES: usize = 8;

/// What a frame is rounded up to, also one without anything in it.
const ROUNDED_TO: usize = 32;

/// Parts of an instruction (Documentation/bpf/standardization/instruction-set.rst).
const CALL: u8 = 0x85;
const LOAD_64: u8 = 0x18;
const ADD: u8 = 0x07;
const MOVE: u8 = 0xbf;
const CLASS: u8 = 7;
const LOADS_AND_STORES: std::ops::RangeInclusive<u8> = 1..=3;
const FRAME: u8 = 10;
/// A call of a function, and the address of one, in the second register's place.
const OF_FUNCTION: u8 = 1;

/// A function: the section that it is in, and its first byte there.
type At = (usize, u64);

#[derive(Default)]
struct Function {
    frame: usize,
    /// And what it hands to a helper that calls it.
    calls: BTreeSet<At>,
}

/// The functions of an object by their places, and the names of those that are programs.
fn functions(bytes: &[u8]) -> (BTreeMap<At, Function>, BTreeMap<At, String>) {
    let elf = Elf::parse(bytes).unwrap();
    let is_code =
        |index: usize| elf.section_headers[index].sh_flags & u64::from(SHF_EXECINSTR) != 0;
    let at = |symbol: &Sym| (symbol.st_shndx, symbol.st_value);
    let all = || elf.syms.iter().filter(|one| one.st_type() == STT_FUNC);
    let mut functions: BTreeMap<At, Function> = all()
        .map(|symbol| (at(&symbol), Function::default()))
        .collect();
    let text = elf
        .section_headers
        .iter()
        .position(|section| elf.shdr_strtab.get_at(section.sh_name) == Some(".text"));
    let programs = all()
        .filter(|symbol| Some(symbol.st_shndx) != text)
        .map(|symbol| {
            (
                at(&symbol),
                elf.strtab.get_at(symbol.st_name).unwrap().to_owned(),
            )
        });
    let programs = programs.collect();
    // Where instructions refer to functions, with the symbol and its place.
    let mut referred: BTreeMap<At, (At, bool)> = BTreeMap::new();
    for (section, relocations) in &elf.shdr_relocs {
        let of = elf.section_headers[*section].sh_info as usize;
        for relocation in relocations.iter().filter(|_| is_code(of)) {
            let symbol = elf.syms.get(relocation.r_sym).unwrap();
            if symbol.st_shndx < elf.section_headers.len() && is_code(symbol.st_shndx) {
                let is_function = symbol.st_type() == STT_FUNC;
                referred.insert((of, relocation.r_offset), (at(&symbol), is_function));
            }
        }
    }
    let starts: Vec<At> = functions.keys().copied().collect();
    for (place, start) in starts.iter().enumerate() {
        let (section, first) = *start;
        let header = &elf.section_headers[section];
        let end = match starts.get(place + 1) {
            Some((other, next)) if *other == section => *next,
            _ => header.sh_size,
        };
        let (mut frame, mut calls) = (0, BTreeSet::new());
        let mut copies_frame = 0;
        for offset in (first..end).step_by(8) {
            let from = (header.sh_offset + offset) as usize;
            let [code, registers, low, high, one, two, three, four] = bytes[from..from + 8] else {
                panic!("eight bytes");
            };
            let (to, by) = (registers & 15, registers >> 4);
            let distance = i16::from_le_bytes([low, high]);
            let number = i32::from_le_bytes([one, two, three, four]);
            let base = if code & CLASS == 1 { by } else { to };
            if LOADS_AND_STORES.contains(&(code & CLASS)) && base == FRAME {
                frame = frame.max(usize::from(distance.unsigned_abs()));
            }
            match code {
                // The address of something in the frame.
                MOVE if by == FRAME => copies_frame |= 1 << to,
                ADD if copies_frame & 1 << to != 0 && number < 0 => {
                    frame = frame.max(number.unsigned_abs() as usize);
                    copies_frame &= !(1 << to);
                }
                CALL | LOAD_64 => match referred.get(&(section, offset)) {
                    Some((symbol, true)) => _ = calls.insert(*symbol),
                    // By the section: the number is the function's place in it.
                    Some(((section, _), false)) if code == CALL => {
                        calls.insert((*section, (i64::from(number) + 1) as u64 * 8));
                    }
                    Some(((section, _), false)) => {
                        calls.insert((*section, number as u64));
                    }
                    None if code == CALL && by == OF_FUNCTION => {
                        let target = offset as i64 + 8 * (i64::from(number) + 1);
                        calls.insert((section, target as u64));
                    }
                    None => {}
                },
                _ => {}
            }
        }
        functions.insert(*start, Function { frame, calls });
    }
    (functions, programs)
}

/// How deep a function and what it calls go, with the way there.
fn deepest(functions: &BTreeMap<At, Function>, from: At) -> (usize, Vec<At>) {
    let function = &functions[&from];
    let below = function.calls.iter().filter(|called| **called != from);
    let (depth, mut way) = below
        .map(|called| deepest(functions, *called))
        .max()
        .unwrap_or_default();
    way.insert(0, from);
    (
        depth + function.frame.max(1).next_multiple_of(ROUNDED_TO),
        way,
    )
}

#[test]
fn no_program_needs_more_stack_than_linux_6_1_has() {
    for bytes in [OBJECT, COUNT_OBJECT] {
        let (functions, programs) = functions(bytes);
        assert!(!programs.is_empty());
        for (program, name) in &programs {
            let (depth, way) = deepest(&functions, *program);
            let frames: Vec<usize> = way.iter().map(|at| functions[at].frame).collect();
            println!("{name}: {depth} bytes in frames of {frames:?}");
            assert!(
                depth <= MOST && frames.len() <= MOST_FRAMES,
                "{name}: {depth} bytes in frames of {frames:?}"
            );
        }
    }
}

#[test]
fn calls_and_callbacks_are_seen() {
    let (functions, programs) = functions(OBJECT);
    let marker = programs.iter().find(|(_, name)| *name == "marker");
    let (_, way) = deepest(&functions, *marker.unwrap().0);
    assert!(way.len() > 3, "{way:?}");
    // The programs hand functions to `bpf_loop`; no other has their address.
    let elf = Elf::parse(OBJECT).unwrap();
    let named = |symbol: &Sym| elf.strtab.get_at(symbol.st_name).unwrap();
    let callback = elf.syms.iter().find(|one| named(one).contains("read_next"));
    let callback = callback.map(|one| (one.st_shndx, one.st_value)).unwrap();
    let mut all = functions.values();
    assert!(all.any(|function| function.calls.contains(&callback)));
}
