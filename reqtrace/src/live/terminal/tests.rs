//! A panic while the screen is shown: the terminal is given back before its message is printed.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

const MESSAGE: &str = "the screen has a mistake";

/// A terminal: our end, and that of a program.
fn open_terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: the descriptors have valid places; the rest may be none.
    let made = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    for end in [ours, theirs] {
        // SAFETY: it is open.
        unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: both are open and nobody else's.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Modes that taking a terminal changes.
fn modes(terminal: &Termios) -> (LocalModes, InputModes, OutputModes) {
    (
        terminal.local_modes,
        terminal.input_modes,
        terminal.output_modes,
    )
}

#[test]
fn a_panic_gives_the_terminal_back_and_then_says_what_it_is() {
    let (mut ours, theirs) = open_terminal();
    let before = tcgetattr(&theirs).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "live::terminal::tests::a_program_takes_the_terminal_and_panics";
    command
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("TERM", "xterm")
        .env("RUST_BACKTRACE", "0")
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs.try_clone().unwrap());
    // SAFETY: both calls are safe between fork and exec. The terminal becomes that of the program.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    let mut child = command.spawn().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = ours.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    let mut printed = String::new();
    while !printed.contains("test result: ") {
        let next = receiver.recv_timeout(Duration::from_secs(20));
        printed += &next.unwrap_or_else(|error| panic!("{error}: {printed}"));
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{printed}");
    assert_eq!(modes(&tcgetattr(&theirs).unwrap()), modes(&before));
    // It was taken once and given back once, and what went wrong is on the screen that stays.
    let [enter, leave] = [ENTER, LEAVE].map(|bytes| std::str::from_utf8(bytes).unwrap());
    assert_eq!(printed.matches(enter).count(), 1, "{printed}");
    assert_eq!(printed.matches(leave).count(), 1, "{printed}");
    let at = |text: &str| {
        printed
            .find(text)
            .unwrap_or_else(|| panic!("no {text}: {printed}"))
    };
    assert!(
        at(enter) < at(leave) && at(leave) < at(MESSAGE),
        "{printed}"
    );
}

#[test]
#[ignore = "the program of the test above, which starts it on a terminal"]
fn a_program_takes_the_terminal_and_panics() {
    let before = tcgetattr(stdin()).unwrap();
    let taken = Prepared::new().unwrap().take().unwrap();
    assert!(is_taken());
    assert_ne!(modes(&tcgetattr(stdin()).unwrap()), modes(&before));
    // As the thread that draws: this one still has the terminal, and has not ended.
    let screen = thread::spawn(|| panic!("{MESSAGE}"));
    assert!(screen.join().is_err());
    assert!(!is_taken());
    assert_eq!(modes(&tcgetattr(stdin()).unwrap()), modes(&before));
    drop(taken);
}
