//! One stream of events into one file and into many: what is made of them is the same, byte for byte.

use std::fs::{self, File};
use std::io;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_analysis::aggregate::Options;
use reqtrace_recording::{
    Ending, Event, Files, Header, Reader, Recorder, Removed, Roll, Series, Window, Writer,
};

use crate::replayed::{Replayed, analysed, recorded, run};

/// Files with their number for a name.
struct Numbered(PathBuf);

impl Files for Numbered {
    fn begin(&mut self, header: &Header) -> io::Result<File> {
        File::create_new(self.0.join(format!("{:04}.rec", header.part.number)))
    }

    fn complete(&mut self, _: File) -> io::Result<Removed> {
        Ok(Removed::default())
    }
}

/// The events of a recording, with a window after each so many, as a trace with `--roll` asks for them.
fn with_windows(recording: &[u8], every: u64, mut take: impl FnMut(&Event<'_>)) {
    let mut reader = Reader::open(Cursor::new(recording)).unwrap();
    let (mut count, mut now_ns) = (0_u64, reader.header().start_ns);
    let read = reader.read(|event| {
        take(&event);
        count += 1;
        match event {
            Event::Request(request) => now_ns = now_ns.max(request.end_ns),
            Event::Tick(ns) => now_ns = now_ns.max(ns),
            _ => {}
        }
        if count.is_multiple_of(every) {
            take(&Event::Window(&Window {
                until_ns: now_ns,
                longest_apart: true,
                ..Window::default()
            }));
        }
        Ok::<_, ()>(())
    });
    read.unwrap().unwrap();
}

/// The same in one file and in many.
fn both(name: &str, every: u64, folder: &Path) -> (Vec<u8>, Vec<PathBuf>) {
    let source = recorded(name);
    let reader = Reader::open(Cursor::new(&source)).unwrap();
    let mut one = Writer::new(Vec::new(), reader.header()).unwrap();
    let roll = Roll {
        every: Some(Duration::from_nanos(1)),
        bytes: None,
    };
    let files = Box::new(Numbered(folder.to_owned()));
    let mut many = Recorder::start_rolling(files, roll, reader.header(), || {}).unwrap();
    with_windows(&source, every, |event| {
        one.event(event).unwrap();
        many.event(event);
    });
    one.flush().unwrap();
    assert!(many.finish().failure.is_none());
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    (one.into_inner(), files)
}

fn replayed(files: &[PathBuf]) -> (Replayed, Ending) {
    let series = Series::open(files.iter().cloned()).unwrap();
    let mut ending = Ending::default();
    let replayed = analysed(series.header(), Options::default(), |take| {
        ending = series.read(take).unwrap().unwrap();
        ending.clone()
    });
    (replayed, ending)
}

#[test]
fn many_files_give_what_one_file_gives() {
    for (name, every) in [("shop", 37), ("mariadb", 23), ("locks", 7)] {
        let folder = tempfile::tempdir().unwrap();
        let (one, files) = both(name, every, folder.path());
        assert!(files.len() >= 10, "{name}: {}", files.len());
        let (whole, (parts, ending)) = (run(&one, 0), replayed(&files));
        assert!(ending.is_all(), "{name}: {ending:?}");
        for (file, text) in &whole.files {
            assert!(parts.files[file] == *text, "{name}: {file} differs");
        }
        assert_eq!(whole.files.len(), parts.files.len());
    }
}

#[test]
fn each_file_is_a_recording_and_all_of_them_add_up() {
    for (name, every) in [("shop", 37), ("mariadb", 23), ("locks", 7)] {
        let folder = tempfile::tempdir().unwrap();
        let (one, files) = both(name, every, folder.path());
        let whole = run(&one, 0);
        let mut rows = vec![0; whole.report.requests.len()];
        let mut lines = Vec::new();
        for file in &files {
            let part = run(&fs::read(file).unwrap(), 0);
            let losses: Vec<_> = part.report.losses.iter().map(|loss| &loss.name).collect();
            assert!(losses.is_empty(), "{name}: {losses:?}");
            for (sum, request) in rows.iter_mut().zip(&part.report.requests) {
                assert!(request.classes_exact && request.count == request.rows);
                *sum += request.rows;
            }
            let text = &part.files["requests.csv"];
            lines.extend(text.lines().skip(1).map(ToOwned::to_owned));
        }
        let wanted: Vec<u64> = whole.report.requests.iter().map(|of| of.rows).collect();
        assert_eq!(rows, wanted, "{name}");
        // Each request is in one file, with the class of each place; causes need what came before, too.
        if name != "locks" {
            let text = &whole.files["requests.csv"];
            let mut wanted: Vec<_> = text.lines().skip(1).map(ToOwned::to_owned).collect();
            wanted.sort();
            lines.sort();
            assert!(lines == wanted, "{name}");
        }
    }
}

#[test]
fn what_is_missing_between_files_is_counted_and_the_rest_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (_, mut files) = both("shop", 37, folder.path());
    files.swap(0, 3);
    let gone = files.remove(4);
    let of_gone = run(&fs::read(gone).unwrap(), 0).report.requests[0].rows;
    let (parts, ending) = replayed(&files);
    assert_eq!(ending.missing_files, 1);
    assert!(!ending.is_whole() && !ending.is_all());
    assert_eq!(parts.report.requests[0].rows + of_gone, 250);
    let losses = parts.report.losses.iter();
    let names: Vec<_> = losses.map(|loss| loss.name.as_str()).collect();
    assert_eq!(names, ["recording_missing_files"]);
    // Those before the first and after the last may be gone: it is a part of the trace.
    let mut sorted = files.clone();
    sorted.sort();
    let (_, ending) = replayed(&sorted[1..3]);
    assert!(ending.is_whole() && ending.goes_before && ending.goes_on);

    let other = tempfile::tempdir().unwrap();
    let (one, others) = both("mariadb", 23, other.path());
    let single = other.path().join("one.rec");
    fs::write(&single, one).unwrap();
    for (second, words) in [
        (&others[1], "not of one trace"),
        (&single, "not of one trace"),
        (&files[0], "same part"),
    ] {
        let mixed = Series::open([files[0].clone(), second.clone()]);
        let (_, error) = mixed.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}
