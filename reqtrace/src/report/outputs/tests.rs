use super::*;
use crate::error::Kind;

fn message(options: &OutputOptions) -> String {
    match open(options, &[]) {
        Ok(_) => panic!("it could be opened"),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.advice().is_some());
            error.to_string()
        }
    }
}

#[test]
fn a_folder_gets_all_four_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/b");
    let options = OutputOptions {
        out: Some(out.clone()),
        ..OutputOptions::default()
    };
    assert_eq!(open(&options, &[]).unwrap().len(), 4);
    for name in [
        "summary.json",
        "requests.csv",
        "stacks.folded",
        "flamegraph.svg",
    ] {
        assert!(out.join(name).is_file(), "{name}");
    }
}

#[test]
fn bad_paths_are_named_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let out = |path: &Path| OutputOptions {
        out: Some(path.to_owned()),
        ..OutputOptions::default()
    };
    assert!(message(&out(&file)).contains("is a file"));

    let made = folder.path().join("made");
    let missing = OutputOptions {
        csv: Some(Target::File(folder.path().join("no/x.csv"))),
        ..out(&made)
    };
    assert!(message(&missing).contains("there is no folder"));
    assert!(!made.exists());

    let is_folder = OutputOptions {
        json: Some(Target::File(folder.path().to_owned())),
        ..OutputOptions::default()
    };
    assert!(message(&is_folder).contains("is a folder"));
}

#[test]
fn two_outputs_never_share_a_place() {
    let options = OutputOptions {
        csv: Some(Target::Stdout),
        folded_on_stdout: true,
        ..OutputOptions::default()
    };
    assert!(options.uses_stdout());
    assert!(message(&options).contains("standard output"));
    let same = OutputOptions {
        csv: Some(Target::File("/tmp/x".into())),
        json: Some(Target::File("/tmp/x".into())),
        ..OutputOptions::default()
    };
    assert!(message(&same).contains("/tmp/x"));
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
