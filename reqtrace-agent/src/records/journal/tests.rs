//! Journals that end anywhere, and in which any byte is another one.

use std::fs;

use proptest::prelude::*;
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::KeptFor;

use super::*;
use crate::choice::Kept;
use crate::rows::Row;
use crate::rows::tests_of_waiting as waiting;

fn head() -> Head {
    let of = Of {
        service: "shop".to_owned(),
        profile: "shop".to_owned(),
        kernel: "6.18".to_owned(),
        columns: Columns::default(),
        has_causes: false,
        texts: false,
        most_groups: None,
    };
    Head {
        of,
        slow_ns: Some(7),
        one_in: 10,
        hour: 1,
    }
}

fn row(id: u64) -> Row {
    let kept = Kept {
        weight: 1,
        is_slow: None,
        why: KeptFor::Drawn,
    };
    waiting::row(id, 1_000 + id, kept)
}

/// Batches of 3, 1 and 5 rows, and the length of the journal behind each.
fn journal(path: &Path) -> (Journal, Vec<(u64, u64)>) {
    let mut journal = Journal::begin(path.to_owned(), &head()).unwrap();
    let mut lengths = vec![(journal.bytes(), 0)];
    for ids in [0..3, 3..4, 4..9] {
        let last = ids.end;
        journal.add(&ids.map(row).collect::<Vec<_>>()).unwrap();
        lengths.push((journal.bytes(), last));
    }
    (journal, lengths)
}

fn ids(left: &Left) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    left.records(|row: Row| {
        ids.push(row.since_start_ns as u64);
        Ok(())
    })?;
    Ok(ids)
}

#[test]
fn whatever_was_written_whole_is_there_and_it_goes_on_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.journal");
    let (_, lengths) = journal(&path);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, lengths[3].0);
    for length in 0..=bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let whole = lengths.iter().rev().find(|(at, _)| *at <= length as u64);
        let Some((at, rows)) = whole else {
            assert!(Left::open(&path).unwrap().is_none(), "{length}");
            continue;
        };
        let left = Left::open(&path).unwrap().unwrap();
        assert_eq!(left.bytes(), *at, "{length}");
        assert_eq!(ids(&left).unwrap(), (0..*rows).collect::<Vec<_>>());
        assert!(!left.is_whole);
        assert_eq!((left.head.one_in, &*left.head.of.service), (10, "shop"));
        let mut on = left.go_on().unwrap();
        on.add(&[row(*rows)]).unwrap();
        on.note_whole().unwrap();
        let left = Left::open(&path).unwrap().unwrap();
        assert_eq!(ids(&left).unwrap(), (0..=*rows).collect::<Vec<_>>());
        assert!(left.is_whole, "{length}");
    }
}

#[test]
fn one_of_another_version_is_an_error_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.journal");
    let mut journal = Journal::begin(path.clone(), &head()).unwrap();
    journal.file.set_len(0).unwrap();
    journal.file = File::create(&path).unwrap();
    journal.add_frame(HEAD + 100, b"what nobody knows").unwrap();
    let refused = Left::open(&path).unwrap_err();
    assert!(refused.to_string().contains("another version"), "{refused}");
    assert!(path.exists());
}

proptest! {
    #[test]
    fn a_changed_byte_ends_the_journal_before_it(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.journal");
        let (_, lengths) = journal(&path);
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        fs::write(&path, &bytes).unwrap();
        let before = lengths.iter().rev().find(|(length, _)| *length <= at as u64);
        match (before, Left::open(&path)) {
            (Some((length, rows)), Ok(Some(left))) => {
                prop_assert_eq!(left.bytes(), *length);
                prop_assert_eq!(ids(&left).unwrap(), (0..*rows).collect::<Vec<_>>());
            }
            (None, left) => prop_assert!(!matches!(left, Ok(Some(_)))),
            (before, left) => prop_assert!(false, "{before:?} {left:?}"),
        }
    }
}
