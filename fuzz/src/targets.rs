//! What is fuzzed: each reader by its name.

use std::io::Cursor;

use reqtrace_binary::fuzz::Program;
use reqtrace_profile::{Origin, Profile, Profiles};
use reqtrace_recording::{MAJOR, Reader, fuzz};

/// A reader of bytes from outside.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Reads bytes: it may refuse them, and must not panic.
    pub read: fn(&[u8]),
    /// Files that are seeds too, from this crate's folder.
    pub(super) elsewhere: &'static [&'static str],
    /// Seeds that are made.
    pub(super) made: fn() -> Vec<Vec<u8>>,
    /// What its inputs are made of.
    pub(super) words: &'static [&'static str],
}

const NONE: fn() -> Vec<Vec<u8>> = Vec::new;

/// All of them.
#[must_use]
pub fn all() -> [Target; 7] {
    [
        Target {
            name: "profile",
            read: profile,
            elsewhere: &[
                "../profiles/mysql.toml",
                "../profiles/nginx.toml",
                "../profiles/postgresql-usdt.toml",
            ],
            made: NONE,
            words: &[
                "[[request]]\n",
                "[[wait]]\n",
                "[profile]\n",
                "begin = ",
                "end = ",
                "{ function = \"",
                "\"",
                "{",
                "}",
                "[",
                "]",
                "*",
                "?",
                "{a,b}",
                "deref = ",
                "-1",
                "99999999999999999999",
                "when = ",
                "equals = ",
                "offset = ",
                "usdt = ",
                "\\u0000",
            ],
        },
        Target {
            name: "elf",
            read: reqtrace_binary::fuzz::elf,
            elsewhere: &[],
            made: programs,
            words: &[],
        },
        Target {
            name: "perf-map",
            read: reqtrace_binary::fuzz::perf_map,
            elsewhere: &[],
            made: NONE,
            words: &["ffffffffffffffff", "0x", " ", "\n", "1", "0"],
        },
        Target {
            name: "maps",
            read: reqtrace_binary::fuzz::maps,
            elsewhere: &[],
            made: NONE,
            words: &[
                "ffffffffffffffff",
                "-",
                " r-xp ",
                "[",
                "]",
                "\\012",
                " (deleted)",
                "\n",
            ],
        },
        Target {
            name: "ring",
            read: reqtrace_capture::fuzz::ring,
            elsewhere: &[],
            made: reqtrace_capture::fuzz::ring_records,
            words: &[],
        },
        Target {
            name: "recording",
            read: recording,
            elsewhere: &[
                "../reqtrace/tests/data/shop.rec",
                "../reqtrace/tests/data/mariadb.rec",
                "../reqtrace/tests/data/old/shop.rec",
            ],
            made: NONE,
            words: &[],
        },
        // What is behind the checksums of a recording.
        Target {
            name: "payload",
            read: payload,
            elsewhere: &[],
            made: payloads,
            words: &[],
        },
    ]
}

/// The one of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Target> {
    all().into_iter().find(|target| target.name == name)
}

fn profile(bytes: &[u8]) {
    // The command line reads at most as much.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(64 << 10)]);
    if let Ok(profile) = Profile::parse(&text, "fuzz", Origin::BuiltIn) {
        let _ = reqtrace_analysis::classify::Classifier::new(&profile.into());
    }
}

fn recording(bytes: &[u8]) {
    let Ok(mut reader) = Reader::open(Cursor::new(bytes)) else {
        return;
    };
    let header = reader.header().clone();
    let Ok(profiles) = Profiles::parse(header.profile_texts(), "fuzz") else {
        return;
    };
    let options = reqtrace_analysis::aggregate::Options::default();
    let Ok(mut analysis) =
        reqtrace_analysis::aggregate::Aggregator::new(&profiles, &header, options)
    else {
        return;
    };
    let read = reader.read(|event| analysis.event(&event, &mut []));
    if let Ok(Ok(ending)) = read {
        let _ = analysis.finish(&ending, &mut []);
    }
}

/// A recording of a trace with all that is recorded.
const RECORDING: &[u8] = include_bytes!("../../reqtrace/tests/data/locks.rec");

/// The bytes as they are in each version of the format.
fn payload(bytes: &[u8]) {
    for version in 1..=MAJOR {
        let header = fuzz::blocks(RECORDING).into_iter().take(1);
        let events = std::iter::once(fuzz::Block {
            version,
            kind: fuzz::EVENTS,
            payload: bytes.to_vec(),
        });
        let blocks: Vec<_> = header.chain(events).collect();
        recording(&fuzz::file(&blocks));
    }
}

fn payloads() -> Vec<Vec<u8>> {
    let recordings = [
        RECORDING,
        include_bytes!("../../reqtrace/tests/data/shop.rec"),
        include_bytes!("../../reqtrace/tests/data/old/locks.rec"),
        include_bytes!("../../reqtrace/tests/data/old/shop.rec"),
    ];
    let blocks = recordings.into_iter().flat_map(fuzz::blocks);
    let events = blocks.filter(|block| block.kind == fuzz::EVENTS);
    events.map(|block| block.payload).collect()
}

/// A small program of this machine, and two with debug information that are made: no binaries are in the
/// repository.
fn programs() -> Vec<Vec<u8>> {
    let made = |depth, wraps| {
        let program = Program {
            depth,
            wraps,
            ..Program::default()
        };
        program.image()
    };
    ["/bin/true", "/usr/bin/true"]
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .take(1)
        .chain(made(3, false))
        .chain(made(0, true))
        .collect()
}
