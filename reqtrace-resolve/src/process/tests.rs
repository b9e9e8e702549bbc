use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command};

use super::*;
use crate::fixtures::Fixture;
use reqtrace_base::error::Kind;

const SLEEPER: &str =
    "#include <unistd.h>\nint main(void) { write(1, \"x\", 1); sleep(60); return 0; }\n";

/// A child that is killed when the test ends.
struct Running(Child);

impl Running {
    fn start(path: &Path) -> Self {
        use std::io::Read as _;
        let mut child = Command::new(path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It has been loaded once it has written.
        let mut byte = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        Self(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_program_is_found_with_its_libraries() {
    let fixture = Fixture::c(SLEEPER, &[]);
    let child = Running::start(fixture.path());
    let process = Process::open(child.0.id()).unwrap();
    assert_eq!(process.comm, "program");
    assert_eq!(process.executable.shown, fixture.path().to_str().unwrap());
    let executable = process.object(None).unwrap().open.inode().unwrap();
    let metadata = fs::metadata(fixture.path()).unwrap();
    assert_eq!(executable, (metadata.dev(), metadata.ino()));
    let libc = process.object(Some("libc.so*")).unwrap();
    assert_ne!(libc.open.inode().unwrap(), executable, "{libc:?}");
    assert_eq!(
        process.object(Some("program")).unwrap(),
        &process.executable
    );
    let error = process.object(Some("libmissing.so")).unwrap_err();
    assert!(error.advice().unwrap().contains("libc.so"), "{error:?}");
    let error = process.object(Some("*")).unwrap_err();
    assert!(error.to_string().contains("is ambiguous"), "{error}");
}

#[test]
fn a_replaced_program_is_still_the_one_that_runs() {
    let fixture = Fixture::c(SLEEPER, &[]);
    let child = Running::start(fixture.path());
    let original = fs::read(fixture.path()).unwrap();
    fs::remove_file(fixture.path()).unwrap();
    fs::write(fixture.path(), "something else").unwrap();
    let process = Process::open(child.0.id()).unwrap();
    assert_eq!(process.executable.shown, fixture.path().to_str().unwrap());
    let open = process.executable.open.open().unwrap();
    assert_eq!(fs::read(procfs::descriptor(&open)).unwrap(), original);
}

#[test]
fn what_is_no_process_is_named() {
    let error = Process::open(4_194_304).unwrap_err();
    assert_eq!(error.to_string(), "no process 4194304");
    assert_eq!(error.kind(), Kind::Usage);

    let mut child = Command::new("true").spawn().unwrap();
    let zombie = loop {
        match Process::open(child.id()) {
            Err(error) if error.to_string().contains("zombie") => break error,
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    };
    assert_eq!(zombie.exit_code(), 2);
    child.wait().unwrap();

    let thread = std::thread::spawn(|| {
        // SAFETY: gettid has no arguments and cannot fail.
        let tid = unsafe { libc::gettid() };
        Process::open(tid as u32).unwrap_err().to_string()
    });
    let text = thread.join().unwrap();
    assert!(text.contains("is a thread of process"), "{text}");

    // Not every PID namespace has kernel threads.
    let status = "Name:\tkthreadd\nState:\tS (sleeping)\nTgid:\t2\nPid:\t2\nThreads:\t1\n";
    let error = of_a_program(2, &Status::of_text(status)).unwrap_err();
    assert!(error.to_string().contains("kernel thread"), "{error}");
    assert_eq!(error.exit_code(), 2);
    let status = format!("{status}VmSize:\t    2484 kB\n");
    assert_eq!(
        of_a_program(2, &Status::of_text(&status)).unwrap(),
        "kthreadd"
    );
}
