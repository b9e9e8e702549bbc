use super::super::{MAGICS, OF_X86_64, inlined, tables};
use super::*;

const VERSION: &str = "go1.26.6";

/// A function of 0x40 bytes at 0x1000, into which `main.a` was inlined from 0x10 to 0x30, and into that `main.b` up to 0x20.
fn table() -> Vec<u8> {
    let mut table = MAGICS[1].to_le_bytes().to_vec();
    table.extend(OF_X86_64);
    // Number of functions, files, first address, names, two that are not read, streams, functions.
    for word in [1_u64, 0, 0x1000, 72, 0, 0, 104, 120] {
        table.extend(word.to_le_bytes());
    }
    table.extend(b"main.f\0main.a\0main.b\0");
    table.resize(104, 0);
    // Values and places as deltas: -1 up to 0x10, 1 up to 0x20, 0 up to 0x30, -1 up to 0x40.
    table.extend([0xff, 0, 0x10, 4, 0x10, 1, 0x10, 1, 0x10, 0]);
    table.resize(120, 0);
    // The function's begin, its entry, and the end of the last one.
    let mut entry: Vec<u8> = [0_u32, 12, 0x40]
        .iter()
        .flat_map(|half| half.to_le_bytes())
        .collect();
    entry.extend([0; 28]);
    entry.extend(3_u32.to_le_bytes());
    entry.resize(12 + 43, 0);
    entry.push(4);
    for half in [0, 0, 1, u32::MAX, u32::MAX, u32::MAX, 8] {
        entry.extend(half.to_le_bytes());
    }
    table.extend(entry);
    table
}

/// Where tables are: what is before the calls, `main.a` into the function, and `main.b` into that at 0x24.
fn calls() -> Vec<u8> {
    let mut calls = vec![0; 8];
    for half in [0_u32, 7, 0x8, 1, 0, 14, 0x24, 1] {
        calls.extend(half.to_le_bytes());
    }
    calls
}

fn read(table: &[u8], calls: &[u8], version: &str) -> Option<Inlined> {
    inlined(table, None, 0, calls, version)
}

#[test]
fn inlined_calls_are_named_from_the_innermost_one_out() {
    let inlined = read(&table(), &calls(), VERSION).unwrap();
    for (address, wanted) in [
        (0xfff, &[][..]),
        (0x1000, &[]),
        (0x100f, &[]),
        (0x1010, &["main.b", "main.a"]),
        (0x101f, &["main.b", "main.a"]),
        (0x1020, &["main.a"]),
        (0x1030, &[]),
        (0x1040, &[]),
        (u64::MAX, &[]),
    ] {
        assert_eq!(inlined.at(address), wanted, "{address:#x}");
    }
}

#[test]
fn what_does_not_fit_together_has_none() {
    for version in ["go1.18.9", "go1.28", "go2.1", "devel"] {
        assert!(read(&table(), &calls(), version).is_none(), "{version}");
    }
    let none = |table: &[u8], calls: &[u8]| {
        let inlined = read(table, calls, VERSION);
        inlined.is_none_or(|inlined| (0..0x50).all(|at| inlined.at(0x1000 + at).is_empty()))
    };
    let whole = table();
    for length in 0..whole.len() {
        assert!(none(&whole[..length], &calls()), "{length}");
    }
    for length in 0..calls().len() - 4 {
        assert!(none(&whole, &calls()[..length]), "{length}");
    }
    // Within a name; a place outside of the function.
    for (at, value) in [(12, 8_u32), (16, 0x40)] {
        let mut calls = calls();
        calls[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(none(&whole, &calls), "{at}");
    }
    // A call that is inlined into itself.
    let mut circle = calls();
    circle[16..20].copy_from_slice(&0x24_u32.to_le_bytes());
    let circle = read(&whole, &circle, VERSION).unwrap();
    assert!(circle.at(0x1010).is_empty());
}

/// So many functions, each with the streams and the calls of that one.
fn sharing(count: u32) -> Vec<u8> {
    let one = table();
    let mut table = one[..120].to_vec();
    table[COUNT..COUNT + 8].copy_from_slice(&u64::from(count).to_le_bytes());
    for index in 0..count {
        for half in [index * 0x40, count * 8 + 4] {
            table.extend(half.to_le_bytes());
        }
    }
    table.extend((count * 0x40).to_le_bytes());
    table.extend(&one[120 + 12..]);
    table
}

/// Each would have copies of its own, which are more than the file has room for.
#[test]
fn functions_that_share_calls_are_none() {
    let one = read(&sharing(1), &calls(), VERSION).unwrap();
    assert_eq!(one.at(0x1010), ["main.b", "main.a"]);
    assert!(read(&sharing(2), &calls(), VERSION).is_none());
}

#[test]
fn tables_are_where_the_module_says() {
    let mut module = vec![0; 16];
    module.extend(0x5000_u64.to_le_bytes());
    module.resize(16 + 39 * 8, 0);
    module.extend(0x6000_u64.to_le_bytes());
    module.extend(0x6100_u64.to_le_bytes());
    assert_eq!(tables(&module, 0x5000, VERSION), Some(0x6100));
    assert_eq!(tables(&module, 0x5008, VERSION), None);
    assert_eq!(tables(&module[..module.len() - 1], 0x5000, VERSION), None);
    assert_eq!(tables(&module, 0x5000, "go1.27.3"), None);
}
