use std::fs;

use super::*;
use reqtrace_base::error::Kind;

fn targets(of: &[(&str, Target)]) -> Vec<(&'static Format, Target)> {
    let format = |option| Format::of(option).unwrap();
    of.iter()
        .map(|(option, target)| (format(option), target.clone()))
        .collect()
}

fn message(options: &OutputSpec) -> String {
    match open(options, &Columns::default()) {
        Ok(_) => panic!("it could be opened"),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.advice().is_some());
            error.to_string()
        }
    }
}

#[test]
fn a_folder_gets_all_five_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/b");
    let options = OutputSpec {
        out: Some(out.clone()),
        ..OutputSpec::default()
    };
    let mut exporters = settled(open(&options, &Columns::default()).unwrap());
    assert_eq!(exporters.len(), 5);
    finish(&mut Report::default(), &mut exporters).unwrap();
    for name in [
        "report.html",
        "summary.json",
        "requests.csv",
        "stacks.folded",
        "flamegraph.svg",
    ] {
        assert!(out.join(name).is_file(), "{name}");
    }
}

/// A trace that is refused after its outputs were opened.
#[test]
fn what_was_there_stays_when_nothing_comes() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("requests.csv");
    fs::write(&old, "yesterday").unwrap();
    let options = OutputSpec {
        out: Some(folder.path().to_owned()),
        ..OutputSpec::default()
    };
    check(&options).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    drop(open(&options, &Columns::default()).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&old).unwrap(), "yesterday");
}

#[test]
fn one_that_fails_does_not_keep_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("summary.json");
    let options = OutputSpec {
        targets: targets(&[
            ("csv", Target::File("/dev/full".into())),
            (
                "folded",
                Target::File(folder.path().join("gone/stacks.folded")),
            ),
            ("json", Target::File(path.clone())),
        ]),
        ..OutputSpec::default()
    };
    fs::create_dir(folder.path().join("gone")).unwrap();
    let mut exporters = settled(open(&options, &Columns::default()).unwrap());
    fs::remove_dir_all(folder.path().join("gone")).unwrap();
    let error = finish(&mut Report::default(), &mut exporters).unwrap_err();
    assert!(
        error.to_string().contains("could not be written"),
        "{error}"
    );
    assert!(path.is_file());
}

#[test]
fn bad_paths_are_named_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let out = |path: &Path| OutputSpec {
        out: Some(path.to_owned()),
        ..OutputSpec::default()
    };
    assert!(message(&out(&file)).contains("is a file"));

    let made = folder.path().join("made");
    let missing = OutputSpec {
        targets: targets(&[("csv", Target::File(folder.path().join("no/x.csv")))]),
        ..out(&made)
    };
    assert!(message(&missing).contains("there is no folder"));
    assert!(!made.exists());

    let is_folder = OutputSpec {
        targets: targets(&[("json", Target::File(folder.path().to_owned()))]),
        ..OutputSpec::default()
    };
    assert!(message(&is_folder).contains("is a folder"));
}

#[test]
fn two_outputs_never_share_a_place() {
    let options = OutputSpec {
        targets: targets(&[("csv", Target::Stdout), ("folded", Target::Stdout)]),
        ..OutputSpec::default()
    };
    assert!(message(&options).contains("standard output"));
    let same = OutputSpec {
        targets: targets(&[
            ("csv", Target::File("/tmp/x".into())),
            ("json", Target::File("/tmp/x".into())),
        ]),
        ..OutputSpec::default()
    };
    assert!(message(&same).contains("/tmp/x"));
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("x.rec");
    let taken = OutputSpec {
        targets: targets(&[("csv", Target::File(folder.path().join("./x.rec")))]),
        taken: vec![("--record", recording)],
        ..OutputSpec::default()
    };
    assert!(message(&taken).contains("--record and --csv would both go to"));
}

#[test]
fn standard_output_is_known_by_all_its_names() {
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert_eq!(Target::from(PathBuf::from(name)), Target::Stdout);
    }
    let file = PathBuf::from("/dev/fd/3");
    assert_eq!(Target::from(file.clone()), Target::File(file));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let mut out = UntilClosed::new(Closed);
    out.write_all(b"x").unwrap();
    out.flush().unwrap();
}
