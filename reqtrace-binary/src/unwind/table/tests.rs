//! Tables against gimli and against real files.

use std::fs::File;

use gimli::{
    CfaRule, CieOrFde, Encoding, EvaluationResult, Location, Register, RegisterRule,
    UnwindExpression, UnwindSection as _, UnwindTableRow, Value, X86_64,
};
use proptest::prelude::*;

use super::*;
use crate::unwind::object::Segment;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn object(path: &str) -> Object {
    Object::read(&File::open(path).unwrap()).unwrap()
}

/// What a walk needs to know about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    None,
    Outermost,
    Found { cfa: u64, rbp: u64, pc: u64 },
    Unsupported,
}

/// Registers as they could be; memory holds at each address a number made from it.
const RSP: u64 = 0x7ffd_1234_5670;
const RBP: u64 = 0x7ffd_1234_9990;
fn memory(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
}

/// By the table.
fn by_table(table: &Table, pc: u64) -> Caller {
    let rule = table.lookup(pc);
    let offset = u64::from(rule.cfa_words) * 8;
    let cfa = match rule.cfa {
        Cfa::None => return Caller::None,
        Cfa::Outermost => return Caller::Outermost,
        Cfa::Unsupported | Cfa::FramePointer => return Caller::Unsupported,
        Cfa::Rsp => RSP + offset,
        Cfa::Rbp => RBP + offset,
        Cfa::Plt => RSP + if pc & 15 >= 11 { 16 } else { 8 },
        Cfa::AtRbp => memory(RBP - offset),
        Cfa::Signal => {
            return Caller::Found {
                cfa: memory(RSP + 160),
                rbp: memory(RSP + 120),
                pc: memory(RSP + 168),
            };
        }
    };
    let rbp = match rule.rbp {
        Rbp::Same => RBP,
        Rbp::BelowCfa(words) => memory(cfa.wrapping_sub(u64::from(words) * 8)),
        Rbp::AtRbp => memory(RBP),
    };
    Caller::Found {
        cfa,
        rbp,
        pc: memory(cfa.wrapping_sub(8)),
    }
}

fn evaluate(
    expression: &UnwindExpression<usize>,
    section: &Section<'_>,
    encoding: Encoding,
    pc: u64,
    initial: Option<u64>,
) -> u64 {
    let mut evaluation = expression.get(section).unwrap().evaluation(encoding);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().unwrap();
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = match register {
                    X86_64::RSP => RSP,
                    X86_64::RBP => RBP,
                    X86_64::RA => pc,
                    other => u64::from(other.0),
                };
                evaluation.resume_with_register(Value::Generic(value))
            }
            EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(Value::Generic(memory(address)))
            }
            other => panic!("{other:?}"),
        }
        .unwrap();
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => address,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// By gimli's own evaluation, which shares nothing with [`translate`].
fn by_gimli(row: &UnwindTableRow<usize>, section: &Section<'_>, fde: &Fde<'_>, pc: u64) -> Caller {
    let encoding = fde.cie().encoding();
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match *register {
            X86_64::RSP => RSP.wrapping_add_signed(*offset),
            X86_64::RBP => RBP.wrapping_add_signed(*offset),
            _ => return Caller::Unsupported,
        },
        CfaRule::Expression(cfa) => evaluate(cfa, section, encoding, pc, None),
    };
    let value = |register: Register, same: u64| match row.register(register) {
        None | Some(RegisterRule::SameValue) => Some(same),
        Some(RegisterRule::Offset(offset)) => Some(memory(cfa.wrapping_add_signed(offset))),
        Some(RegisterRule::Expression(place)) => {
            Some(memory(evaluate(&place, section, encoding, pc, Some(cfa))))
        }
        _ => None,
    };
    if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
        return Caller::Outermost;
    }
    match (value(X86_64::RBP, RBP), value(X86_64::RA, 0)) {
        (Some(rbp), Some(pc)) => Caller::Found { cfa, rbp, pc },
        _ => Caller::Unsupported,
    }
}

/// All of an object's functions, found without the table's help.
fn all<'a>(section: &Section<'a>, bases: &BaseAddresses) -> Vec<Fde<'a>> {
    let mut entries = section.entries(bases);
    let mut all = Vec::new();
    while let Some(entry) = entries.next().unwrap() {
        if let CieOrFde::Fde(partial) = entry {
            all.push(partial.parse(EhFrame::cie_from_offset).unwrap());
        }
    }
    all
}

/// Compares at the first and last address of every row, and at `more`.
fn agree(object: &Object, more: &[u64]) -> (u64, u64) {
    let table = Table::compile(object).unwrap();
    let section = EhFrame::new(&object.frames.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(object.frames.address);
    let mut context = UnwindContext::new();
    let (mut same, mut unsupported) = (0, 0);
    let mut compare = |expected: Caller, pc: u64| match by_table(&table, pc) {
        Caller::Unsupported => unsupported += 1,
        found => {
            assert_eq!(found, expected, "at {pc:#x}");
            same += 1;
        }
    };
    let all = all(&section, &bases);
    for fde in &all {
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let row = row.clone();
            if row.start_address() < row.end_address() {
                for pc in [row.start_address(), row.end_address() - 1] {
                    compare(by_gimli(&row, &section, fde, pc), pc);
                }
            }
        }
    }
    for &pc in more {
        let Some(fde) = all.iter().find(|fde| fde.contains(pc)) else {
            let found = by_table(&table, pc);
            let hole = Caller::Found {
                cfa: RSP + 8,
                rbp: RBP,
                pc: memory(RSP),
            };
            assert!(
                found == Caller::None || found == hole,
                "{found:?} at {pc:#x}"
            );
            continue;
        };
        let row = fde
            .unwind_info_for_address(&section, &bases, &mut context, pc)
            .unwrap()
            .clone();
        compare(by_gimli(&row, &section, fde, pc), pc);
    }
    (same, unsupported)
}

#[test]
fn tables_say_what_gimli_says() {
    let libraries = [LIBC, "/lib64/ld-linux-x86-64.so.2", "/proc/self/exe"];
    for path in libraries {
        let (same, unsupported) = agree(&object(path), &[]);
        assert!(same > 1000, "{path}: {same}");
        assert!(unsupported * 100 < same, "{path}: {unsupported} of {same}");
    }
}

/// `REQTRACE_OBJECT=/usr/sbin/mariadbd cargo test --release -- --ignored --nocapture agrees`
#[test]
#[ignore = "for any object, by hand; prints what it costs"]
fn an_object_of_your_choice_agrees() {
    let path = std::env::var("REQTRACE_OBJECT").unwrap_or_else(|_| LIBC.to_owned());
    let object = object(&path);
    let table = Table::compile(&object).unwrap();
    println!(
        "{path}: {} rows, {} bytes, {:?}\n{:#?}",
        table.rows.len(),
        table.bytes(),
        table.stats.elapsed,
        table.stats
    );
    println!("agreeing, unsupported: {:?}", agree(&object, &[]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn tables_agree_anywhere(offsets in prop::collection::vec(0_u64..0x1e_0000, 2000)) {
        agree(&object(LIBC), &offsets);
    }
}

#[test]
fn a_table_is_well_formed() {
    let table = Table::compile(&object(LIBC)).unwrap();
    assert_eq!(table.base % PAGE, 0);
    assert_eq!(table.rows[0].pc, 0);
    assert!(table.rows.is_sorted_by(|one, next| one.pc < next.pc));
    assert!(
        table
            .rows
            .windows(2)
            .all(|pair| pair[0].rule != pair[1].rule)
    );
    assert_eq!(table.index[0], 0);
    for (chunk, &entry) in table.index.iter().enumerate() {
        let start = (chunk as u64) << CHUNK_SHIFT;
        assert!(u64::from(table.rows[entry as usize].pc) <= start);
        let next = table.rows.get(entry as usize + 1);
        assert!(next.is_none_or(|row| u64::from(row.pc) > start));
    }
    let last = table.rows.last().unwrap();
    assert_eq!(Rule::unpack(last.rule).cfa, Cfa::None);
    assert_eq!(table.lookup(table.base.wrapping_sub(1)).cfa, Cfa::None);
    assert_eq!(table.lookup(u64::MAX).cfa, Cfa::None);
    assert_eq!(*table.index.last().unwrap() as usize, table.rows.len() - 1);
}

/// An `.eh_frame` with one CIE (rsp + 8) and functions given by start, length and the bytes of
/// their instructions.
fn synthetic(functions: &[(u64, u64, &[u8])]) -> Object {
    const CIE: &[u8] = &[
        0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1, 0, 0,
    ];
    let mut bytes = Vec::new();
    bytes.extend((CIE.len() as u32).to_le_bytes());
    bytes.extend(CIE);
    for (start, length, instructions) in functions {
        let size = 4 + 8 + 8 + 1 + instructions.len();
        bytes.extend((size as u32).to_le_bytes());
        bytes.extend((bytes.len() as u32).to_le_bytes());
        bytes.extend(start.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.push(0);
        bytes.extend(*instructions);
    }
    bytes.extend([0; 4]);
    Object {
        build_id: None,
        segments: vec![Segment {
            offset: 0,
            address: 0,
            file_size: 0x10_0000,
            memory_size: 0x10_0000,
            executable: true,
        }],
        frames: super::super::object::Frames {
            address: 0x20_0000,
            bytes,
        },
    }
}

fn rsp(cfa_words: u32) -> Rule {
    Rule {
        cfa: Cfa::Rsp,
        cfa_words,
        rbp: Rbp::Same,
    }
}

/// `DW_CFA_def_cfa_offset 16`, `32`, and `24` after 4 bytes.
const OFFSET_16: &[u8] = &[0x0e, 16];
const OFFSET_32: &[u8] = &[0x0e, 32];
const THEN_24: &[u8] = &[0x44, 0x0e, 24];
/// `DW_CFA_undefined RA`
const OUTERMOST: &[u8] = &[0x07, 16];

#[test]
fn gaps_have_no_rule_and_equal_neighbours_one_row() {
    let object = synthetic(&[
        (0x1030, 0x10, OFFSET_16),
        (0x1010, 0x10, THEN_24),
        (0x1040, 0x10, OFFSET_16),
    ]);
    let table = Table::compile(&object).unwrap();
    assert_eq!(table.base, 0x1000);
    let rows: Vec<_> = table
        .rows
        .iter()
        .map(|row| (row.pc, Rule::unpack(row.rule)))
        .collect();
    let none = Rule::bare(Cfa::None);
    assert_eq!(
        rows,
        [
            (0, none),
            (0x10, rsp(1)),
            (0x14, rsp(3)),
            (0x20, none),
            (0x30, rsp(2)),
            (0x50, none)
        ]
    );
    assert_eq!(table.stats.covered_bytes, 0x30);
}

#[test]
fn what_begins_last_holds_as_in_the_runtime() {
    let object = synthetic(&[
        (0x1000, 0x40, OFFSET_16),
        (0x1020, 0x10, OFFSET_32),
        (0x1020, 0x20, OFFSET_16),
        (0x1050, 0, OFFSET_16),
        (0, 0x100, OFFSET_16),
        (0x7000_0000, 0x100, OFFSET_16),
    ]);
    let table = Table::compile(&object).unwrap();
    assert_eq!(table.lookup(0x101f), rsp(2));
    assert_eq!(table.lookup(0x1020), rsp(4));
    assert_eq!(table.lookup(0x1030).cfa, Cfa::None);
    assert_eq!((table.stats.overlapping, table.stats.dropped), (1, 4));
}

#[test]
fn only_the_hole_in_clone_is_filled() {
    let table = |hole: u64, before: &'static [u8]| {
        let next = 0x1010 + hole;
        let functions = [(0x1000, 0x10, before), (next, 0x10, OUTERMOST)];
        Table::compile(&synthetic(&functions)).unwrap()
    };
    assert_eq!(table(10, &[]).lookup(0x1012), rsp(1));
    assert_eq!(table(10, &[]).lookup(0x101a).cfa, Cfa::Outermost);
    assert_eq!(table(32, &[]).lookup(0x1012).cfa, Cfa::None);
    assert_eq!(table(10, OFFSET_16).lookup(0x1012).cfa, Cfa::None);
}

#[test]
fn what_is_not_understood_has_a_cause() {
    let cases: [(&[u8], UnsupportedCause); 7] = [
        (&[0x0c, 10, 8], UnsupportedCause::CfaRegister),
        (&[0x0f, 2, 0x77, 8], UnsupportedCause::CfaExpression),
        (&[0x0e, 12], UnsupportedCause::CfaOffset),
        (&[0x0e, 0x80, 0x80, 0x80, 0x10], UnsupportedCause::CfaOffset),
        (&[0x09, 16, 5], UnsupportedCause::ReturnAddress),
        (&[0x09, 6, 5], UnsupportedCause::FramePointer),
        (&[0x3f], UnsupportedCause::Malformed),
    ];
    for (instructions, cause) in cases {
        let table = Table::compile(&synthetic(&[(0x1000, 0x10, instructions)])).unwrap();
        assert_eq!(table.lookup(0x1008).cfa, Cfa::Unsupported, "{cause:?}");
        let expected = Unsupported { rows: 1, bytes: 16 };
        assert_eq!(
            table.stats.unsupported[cause as usize], expected,
            "{cause:?}"
        );
        assert_eq!(table.stats.all_unsupported(), expected);
    }
}

#[test]
fn linkage_tables_of_any_layout_are_understood() {
    let plt = |pushed: u8| {
        let expression = [
            0x0f,
            11,
            0x77,
            8,
            0x80,
            0,
            0x3f,
            0x1a,
            0x30 + pushed,
            0x2a,
            0x33,
            0x24,
            0x22,
        ];
        Table::compile(&synthetic(&[(0x1010, 0x20, &expression)])).unwrap()
    };
    assert_eq!(plt(11).lookup(0x1010), Rule::bare(Cfa::Plt));
    let tracked = plt(9);
    for (pc, words) in [
        (0x1010, 1),
        (0x1018, 1),
        (0x1019, 2),
        (0x101f, 2),
        (0x1020, 1),
    ] {
        assert_eq!(tracked.lookup(pc), rsp(words), "{pc:#x}");
    }
    assert_eq!(tracked.lookup(0x1030).cfa, Cfa::None);
}

#[test]
fn a_chunk_of_one_byte_rows_can_be_searched() {
    let instructions: Vec<u8> = (0..600_u32)
        .flat_map(|number| [0x41, 0x0e, 8 + 8 * (number % 3) as u8])
        .collect();
    let table = Table::compile(&synthetic(&[(0x1000, 601, &instructions)])).unwrap();
    for number in 0..600_u32 {
        assert_eq!(
            table.lookup(0x1001 + u64::from(number)),
            rsp(1 + number % 3),
            "{number}"
        );
    }
}

/// One function could have a row for every three bytes of the section: gigabytes before the registry looked at them.
#[test]
fn a_table_with_more_rows_than_there_is_room_for_is_none() {
    let instructions: Vec<u8> = (0..600_u32)
        .flat_map(|number| [0x41, 0x0e, 8 + 8 * (number % 3) as u8])
        .collect();
    let one = synthetic(&[(0x1000, 601, &instructions)]);
    // It begins with one more.
    assert!(Table::within(&one, 601).is_ok());
    assert_eq!(Table::within(&one, 600), Err(TableError::TooManyRows));
    let functions: Vec<(u64, u64, &[u8])> = (1..=600)
        .map(|number| (0x1000 + 0x100 * number, 0x10, OFFSET_16))
        .collect();
    let many = synthetic(&functions);
    assert!(Table::within(&many, 1300).is_ok());
    for most in [100, 700] {
        let none = Table::within(&many, most);
        assert_eq!(none, Err(TableError::TooManyRows), "{most}");
    }
}

#[test]
fn nothing_to_compile_is_an_error() {
    assert_eq!(Table::compile(&synthetic(&[])), Err(TableError::Empty));
    let mut object = synthetic(&[(0x1000, 0x10, OFFSET_16), (0x2_0000_0000, 0x10, OFFSET_16)]);
    object.segments[0].memory_size = u64::MAX;
    let Err(TableError::TooLarge(span)) = Table::compile(&object) else {
        panic!("too large");
    };
    assert_eq!(span, 0x1_ffff_f010);
}

proptest! {
    #[test]
    fn damaged_frames_never_panic(place in 0_usize..100_000, byte: u8) {
        let mut object = object("/lib64/ld-linux-x86-64.so.2");
        let length = object.frames.bytes.len();
        object.frames.bytes[place % length] = byte;
        let _ = Table::compile(&object);
    }
}

#[test]
fn threads_of_this_c_library_end_at_an_outermost_row() {
    let table = Table::compile(&object(LIBC)).unwrap();
    let outermost = table
        .rows
        .iter()
        .filter(|row| Rule::unpack(row.rule).cfa == Cfa::Outermost);
    assert!(outermost.count() >= 2, "clone and clone3");
    let signal = table
        .rows
        .iter()
        .filter(|row| Rule::unpack(row.rule).cfa == Cfa::Signal);
    assert_eq!(signal.count(), 1);
    let start = Table::compile(&object("/proc/self/exe")).unwrap();
    assert!(
        start
            .rows
            .iter()
            .any(|row| Rule::unpack(row.rule).cfa == Cfa::Outermost),
        "_start"
    );
}
