use std::fs;
use std::io::Write as _;

use proptest::prelude::*;

use super::*;
use crate::fuzz::{Program, WRAPS};

fn own() -> Vec<u8> {
    fs::read(std::env::current_exe().unwrap()).unwrap()
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn table_of(bytes: &[u8]) -> usize {
    let header = FileHeader::read(bytes).unwrap();
    usize::try_from(header.fields().e_shoff).unwrap()
}

/// A section, and the offset of its header in the file.
fn header_of(bytes: &[u8], wanted: &[u8]) -> (SectionHeader, usize) {
    let sections = Sections::read(bytes).unwrap();
    let mut headers = sections.headers().iter();
    let index = headers.position(|section| sections.name(section) == wanted);
    let index = index.unwrap();
    (
        sections.headers()[index].clone(),
        table_of(bytes) + index * 64,
    )
}

fn function_address() -> u64 {
    let maps = crate::maps::executable(std::process::id()).unwrap();
    let address = header_of as *const () as u64;
    let map = maps.iter().find(|map| map.contains(address)).unwrap();
    let offset = address - map.start + map.offset;
    let own = crate::unwind::Object::read(own().as_slice()).unwrap();
    crate::unwind::Object::address_of(&own.segments, offset).unwrap()
}

#[test]
fn names_are_those_of_the_file_and_stay_when_it_is_cut() {
    let file = written(&own());
    let address = function_address();
    let copy = Copy::of(file.as_file(), "own", true, &mut Room::default()).unwrap();
    file.as_file().set_len(0).unwrap();
    let room = &mut Room::default();
    let name = copy.symbol(address, false, room).unwrap().name.into_owned();
    assert!(name.contains("header_of"), "{name}");
    let symbol = copy.symbol(address, true, room).unwrap();
    assert!(symbol.name.contains("header_of"), "{}", symbol.name);
}

#[test]
fn what_is_too_large_is_left_out() {
    let file = written(&own());
    let mut room = Room::of(1000);
    let copy = Copy::of(file.as_file(), "own", true, &mut room).unwrap();
    assert!(copy.file.metadata().unwrap().len() < 100_000);
    assert!(copy.symbol(function_address(), false, &mut room).is_none());
}

#[test]
fn a_copy_takes_what_was_expected_and_gives_it_back() {
    let file = written(&own());
    let room = &mut Room::default();
    let all = room.left();
    for debug in [false, true] {
        let size = size(file.as_file(), debug).unwrap();
        let copy = Copy::of(file.as_file(), "own", debug, room).unwrap();
        assert_eq!(room.left(), all - size, "{debug}");
        assert!(copy.file.metadata().unwrap().len() >= size);
        drop(copy);
        assert_eq!(room.left(), all);
    }
}

/// blazesym reserves what a header states, and unpacks whatever comes.
#[test]
fn sizes_that_are_lies_do_no_harm() {
    let mut bytes = own();
    let (section, at) = header_of(&bytes, b".debug_info");
    let offset = usize::try_from(section.sh_offset).unwrap();
    let flags = section.sh_flags | u64::from(SHF_COMPRESSED);
    bytes[at + 8..at + 16].copy_from_slice(&flags.to_le_bytes());
    let zeros = vec![0; 1 << 20];
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&zeros).unwrap();
    let packed = packed.finish().unwrap();
    for size in [100, 1 << 20, u64::MAX] {
        let mut header = vec![0; SIZEOF_CHDR];
        header[0] = 1;
        header[8..16].copy_from_slice(&size.to_le_bytes());
        header.extend(&packed);
        bytes[offset..offset + header.len()].copy_from_slice(&header);
        let file = written(&bytes);
        let mut room = Room::default();
        let copy = Copy::of(file.as_file(), "own", true, &mut room).unwrap();
        let address = function_address();
        assert!(copy.symbol(address, false, &mut room).is_some());
        copy.symbol(address, true, &mut room);
    }
}

#[test]
fn what_made_blazesym_panic_is_given_up_and_counted() {
    let file = written(&own());
    let mut room = Room::default();
    let copy = Copy::of(file.as_file(), "own", true, &mut room).unwrap();
    let address = function_address();
    let broken = |_: &Symbolizer| -> u32 { panic!("on purpose") };
    assert_eq!(copy.ask(true, &mut room, broken), None);
    assert_eq!(copy.ask(true, &mut room, |_| 7), None);
    assert!(copy.symbol(address, true, &mut room).is_none());
    assert!(copy.symbol(address, false, &mut room).is_some());
    assert_eq!(room.given_up(), 1);
    // It is one file.
    assert_eq!(copy.ask(false, &mut room, broken), None);
    assert!(copy.symbol(address, false, &mut room).is_none());
    assert_eq!(room.given_up(), 1);
}

/// Each address that such a symbol covers would have a copy of its name.
#[test]
fn names_that_are_longer_than_any_real_one_are_none() {
    for (length, is_named) in [(MAX_SYMBOL_NAME - 1, true), (MAX_SYMBOL_NAME, false)] {
        let mut bytes = Program::default().image().unwrap();
        let (_, at) = header_of(&bytes, b".strtab");
        let table = [b"\0", "f".repeat(length).as_bytes(), b"\0"].concat();
        for (field, value) in [(24, bytes.len()), (32, table.len())] {
            bytes[at + field..][..8].copy_from_slice(&(value as u64).to_le_bytes());
        }
        bytes.extend(table);
        let file = written(&bytes);
        let mut room = Room::default();
        let copy = Copy::of(file.as_file(), "long", false, &mut room).unwrap();
        let symbol = copy.symbol(0x1110, false, &mut room);
        assert_eq!(symbol.is_some(), is_named, "{length}");
    }
}

/// blazesym calls itself for each level: without a bound the stack ends.
#[test]
fn functions_that_nest_too_deep_are_not_read() {
    for (depth, is_read) in [(0, true), (500, true), (1_000_000, false)] {
        let nested = Program {
            depth,
            ..Program::default()
        };
        let file = written(&nested.image().unwrap());
        let mut room = Room::default();
        let copy = Copy::of(file.as_file(), "nested", true, &mut room).unwrap();
        assert_eq!(copy.symbol(0x1110, false, &mut room).unwrap().name, "f");
        let symbol = copy.symbol(0x1110, true, &mut room);
        assert_eq!(symbol.is_some(), is_read);
        assert_eq!(room.given_up(), u64::from(!is_read));
        if let Some(symbol) = symbol {
            assert_eq!((&*symbol.name, &*symbol.inlined[0].name), ("f", "g"));
        }
    }
}

/// What is looked at must be what blazesym reads. It takes no section 0, and long tables of names.
#[test]
fn sections_that_hide_are_not_read() {
    const SECTIONS: usize = 64 + 56;
    let deep = Program {
        depth: 1_000_000,
        ..Program::default()
    };
    let image = deep.image().unwrap();
    let (_, info) = header_of(&image, b".debug_info");
    let mut decoy = image.clone();
    decoy.copy_within(info..info + 64, SECTIONS);
    decoy[SECTIONS + 32..][..8].fill(0);

    let mut nameless = image;
    for name in [".debug_info", ".debug_abbrev", ".debug_line"] {
        let (_, at) = header_of(&nameless, name.as_bytes());
        nameless[at + 4..][..4].copy_from_slice(&SHT_NOTE.to_le_bytes());
    }
    let (names, at) = header_of(&nameless, b".shstrtab");
    let size = names.sh_size + (2 << 20);
    nameless[at + 32..][..8].copy_from_slice(&size.to_le_bytes());
    nameless.resize(nameless.len() + (2 << 20), 0);
    for bytes in [decoy, nameless] {
        let file = written(&bytes);
        let mut room = Room::default();
        let copy = Copy::of(file.as_file(), "hidden", true, &mut room).unwrap();
        assert!(copy.symbol(0x1110, true, &mut room).is_none());
    }
}

/// Found by fuzzing: blazesym 0.2.7 takes for granted that the file of a line is one of the table.
#[test]
fn a_panic_of_blazesym_is_contained() {
    let file = written(include_bytes!(
        "../../../../fuzz/corpus/elf/line-of-no-file"
    ));
    let mut room = Room::default();
    let copy = Copy::of(file.as_file(), "lines", true, &mut room).unwrap();
    for address in [0x1100, 0x1120, 0x1100] {
        copy.symbol(address, true, &mut room);
    }
    assert_eq!(
        room.given_up(),
        1,
        "this blazesym stands it: take another file"
    );
}

/// blazesym adds them unchecked. Where overflow is checked it panics, elsewhere the sums wrap.
#[test]
fn functions_behind_the_last_address_are_no_names_and_no_end() {
    let wraps = Program {
        wraps: true,
        ..Program::default()
    };
    let file = written(&wraps.image().unwrap());
    let mut room = Room::default();
    let copy = Copy::of(file.as_file(), "wraps", true, &mut room).unwrap();
    for debug in [false, true] {
        assert!(copy.symbol(WRAPS, debug, &mut room).is_none());
        assert!(copy.symbol(u64::MAX, debug, &mut room).is_none());
    }
    assert_eq!(room.given_up(), u64::from(cfg!(debug_assertions)));
}

/// The file may have changed since its links were read, and what it names may be a pipe. blazesym
/// takes one that does not exist for none.
#[test]
fn no_further_file_is_looked_for() {
    let linked = Program {
        supplement: Some("/does/not/exist"),
        ..Program::default()
    };
    let file = written(&linked.image().unwrap());
    let mut room = Room::default();
    let copy = Copy::of(file.as_file(), "linked", true, &mut room).unwrap();
    assert!(copy.symbol(0x1110, false, &mut room).is_some());
    assert!(copy.symbol(0x1110, true, &mut room).is_none());
    assert_eq!(room.given_up(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_headers_are_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = fs::read("/bin/true").unwrap();
        let table = table_of(&bytes);
        for (place, value) in changes {
            let at = place.index(64 + bytes.len() - table);
            let at = if at < 64 { at } else { table + at - 64 };
            bytes[at] = value;
        }
        let file = written(&bytes);
        let mut room = Room::default();
        if let Ok(copy) = Copy::of(file.as_file(), "own", true, &mut room) {
            copy.symbol(0x2000, false, &mut room);
            copy.symbol(0x2000, true, &mut room);
        }
    }
}
