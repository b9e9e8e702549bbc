//! Round trips, and files that are cut, damaged, newer, or hold what this version does not know.

mod events;

use std::io::Cursor;

use proptest::prelude::*;

use super::block::Head;
use super::{Ending, MAJOR, Reader, Writer};
use crate::error::Error;
use crate::event::{Event, Header};
use crate::wire::block_kind;
pub(crate) use events::{Owned, any_events};
use events::{header, some_events};

/// A recording of these events. A block ends after each number of `flushes`.
fn recorded(events: &[Owned], every: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for (index, event) in events.iter().enumerate() {
        event.with(|event| writer.event(event)).unwrap();
        if (index + 1) % every == 0 {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
    writer.into_inner()
}

/// What is in a recording.
fn read(bytes: &[u8]) -> Result<(Header, Vec<Owned>, Ending), Error> {
    let mut reader = Reader::open(Cursor::new(bytes))?;
    let mut events = Vec::new();
    let ending = reader.read(|event| {
        events.push(Owned::of(&event));
        Ok::<_, ()>(())
    })?;
    Ok((reader.header().clone(), events, ending.unwrap()))
}

/// Whether `part` is `whole` with some of it left out.
fn is_part_of(part: &[Owned], whole: &[Owned]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|event| whole.any(|other| other == event))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_read(events in any_events(), every in 1_usize..50) {
        let (read_header, read_events, ending) = read(&recorded(&events, every)).unwrap();
        prop_assert_eq!(read_header, header());
        prop_assert_eq!(&read_events, &events);
        prop_assert_eq!(ending.ended, events.iter().any(|event| matches!(event, Owned::End(_))));
        prop_assert_eq!(ending.damaged_bytes + ending.damaged_blocks + ending.cut_bytes, 0);
    }

    /// Whatever the bytes are: an error or what can be read, and no panic.
    #[test]
    fn noise_is_no_recording(mut bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..400) {
        prop_assert!(matches!(read(&bytes), Err(Error::NotARecording)));
        let mut whole = recorded(&some_events(), 3);
        whole.truncate(cut);
        bytes.extend_from_slice(&whole);
        let _ = read(&bytes);
    }
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_its_last_whole_block() {
    let events = some_events();
    let whole = recorded(&events, 3);
    let mut read_before = 0;
    for len in 0..whole.len() {
        match read(&whole[..len]) {
            Ok((read_header, read_events, ending)) => {
                assert_eq!(read_header, header());
                assert_eq!(read_events, events[..read_events.len()], "cut at {len}");
                assert!(read_events.len() >= read_before && !ending.is_whole());
                assert_eq!((ending.damaged_bytes, ending.damaged_blocks), (0, 0));
                read_before = read_events.len();
            }
            Err(Error::NotARecording | Error::NoHeader) => assert_eq!(read_before, 0),
            Err(other) => panic!("cut at {len}: {other}"),
        }
    }
    assert!(read_before > 0);
    let (_, all, ending) = read(&whole).unwrap();
    assert_eq!(all, events);
    assert!(ending.is_whole());
}

#[test]
fn a_flipped_bit_costs_one_block() {
    let events = some_events();
    let whole = recorded(&events, 3);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let (read_header, read_events, ending) = read(&bytes).unwrap();
        assert_eq!(read_header, header());
        assert!(
            read_events.len() + 3 >= events.len() && is_part_of(&read_events, &events),
            "byte {at}: {} of {} events",
            read_events.len(),
            events.len()
        );
        assert!(!ending.is_whole(), "byte {at}: {ending:?}");
    }
}

#[test]
fn what_a_later_version_adds_is_left_out() {
    let events = some_events();
    let mut bytes = recorded(&events, 3);
    let (_, _, before) = read(&bytes).unwrap();
    // A kind of block.
    let stored = zstd::bulk::compress(b"of a later version", 1).unwrap();
    let number = (before.blocks + 64) as u32;
    Head::new(77, number, 18, &stored)
        .write(&mut bytes)
        .unwrap();
    bytes.extend_from_slice(&stored);
    // A kind of event, between two that are known, and fields that are not: 1: 5, 77: 6, 78: three bytes.
    let tick = [
        1 << 1,
        5,
        77 << 1 & 0x7f | 0x80,
        1,
        6,
        78 << 1 & 0x7f | 1 | 0x80,
        1,
        3,
        9,
        9,
        9,
    ];
    let fields = postcard::to_stdvec(&[&tick[..], b"wake", &tick][..]).unwrap();
    let mut payload = vec![
        1 << 1 | 1,
        4,
        3,
        0,
        0,
        0,
        2 << 1 | 1,
        4,
        3,
        17,
        12,
        17,
        3 << 1 | 1,
    ];
    payload.push(fields.len() as u8);
    payload.extend_from_slice(&fields);
    // No columns at all: they are missing, and so empty.
    let stored = zstd::bulk::compress(&payload, 1).unwrap();
    let raw_len = payload.len() as u32;
    Head::new(block_kind::EVENTS, number + 1, raw_len, &stored)
        .write(&mut bytes)
        .unwrap();
    bytes.extend_from_slice(&stored);
    let (_, read_events, ending) = read(&bytes).unwrap();
    assert_eq!(read_events[..events.len()], events);
    assert_eq!(
        read_events[events.len()..],
        [Owned::Tick(5), Owned::Tick(5)]
    );
    assert_eq!((ending.unknown_events, ending.damaged_bytes), (1, 0));
}

#[test]
fn a_newer_version_is_refused_by_its_number() {
    let mut bytes = recorded(&some_events(), 3);
    bytes[8] = MAJOR as u8 + 1;
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    match read(&bytes) {
        Err(error @ Error::Newer { found }) => {
            assert_eq!(found, MAJOR + 1);
            assert!(error.to_string().contains("version 3"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_recording_of_another_kind_of_machine_is_refused() {
    let foreign = Header {
        architecture: "aarch64".to_owned(),
        syscalls: "aarch64".to_owned(),
        ..header()
    };
    let bytes = Writer::new(Vec::new(), &foreign).unwrap().into_inner();
    match read(&bytes) {
        Err(error @ Error::Foreign { .. }) => {
            assert!(error.to_string().contains("`aarch64`"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// Recordings of version 1, of which each event is the same when it is written again.
#[test]
fn old_recordings_are_read_and_take_no_more_as_new_ones() {
    for (name, old) in [
        (
            "locks",
            &include_bytes!("../../../../reqtrace/tests/data/old/locks.rec")[..],
        ),
        (
            "mariadb",
            include_bytes!("../../../../reqtrace/tests/data/old/mariadb.rec"),
        ),
        (
            "shop",
            include_bytes!("../../../../reqtrace/tests/data/old/shop.rec"),
        ),
    ] {
        let (header, events, ending) = read(old).unwrap();
        assert!(ending.is_whole(), "{name}: {ending:?}");
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for event in &events {
            event.with(|event| writer.event(event)).unwrap();
        }
        writer.flush().unwrap();
        let new = writer.into_inner();
        let requests = events.iter().filter(|it| matches!(it, Owned::Request(_)));
        println!(
            "{name}: {} bytes of version 1, {} of version {MAJOR}, {} requests",
            old.len(),
            new.len(),
            requests.count()
        );
        let (again, same, _) = read(&new).unwrap();
        assert_eq!(again, header);
        assert_eq!(same, events);
        assert!(
            new.len() <= old.len() + old.len() / 10,
            "{name}: {}",
            new.len()
        );
    }
}

#[test]
fn memory_and_blocks_do_not_grow_with_the_trace() {
    /// Remembers how much is written at a time.
    #[derive(Default)]
    struct Longest {
        longest: usize,
        all: usize,
    }
    impl std::io::Write for Longest {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.longest = self.longest.max(bytes.len());
            self.all += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Longest::default(), &header()).unwrap();
    for id in 0..300_000_u64 {
        let request = events::request(id + 1);
        writer.event(&Event::Request(request.request())).unwrap();
    }
    writer.flush().unwrap();
    let written = writer.into_inner();
    assert!(written.all > 2 << 20, "{}", written.all);
    assert!(written.longest < 512 << 10, "{}", written.longest);
}
