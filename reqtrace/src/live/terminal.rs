//! The terminal: taken for a screen, and given back as it was however the program ends.
//!
//! It is given back by who has taken it, by a panic, by a signal that ends the program at once, and, when
//! it is killed, by a process that has nothing else to do than to wait for that.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, tcgetattr,
    tcgetpgrp, tcsetattr,
};

use reqtrace_base::error::{Error, Result};
use reqtrace_output::outputs::give_up_privileges;

/// The other screen, empty, and no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[?25l";
/// No colours, the cursor, and the screen that was there before.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// How long a terminal that takes no bytes is waited for.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// As the terminal was before it was taken first.
static BEFORE: OnceLock<Termios> = OnceLock::new();
/// The pipe to who gives it back when we are killed; -1: there is none.
static WATCHER: AtomicI32 = AtomicI32::new(-1);
/// Whether it is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether the other screen is shown.
static SHOWN: AtomicBool = AtomicBool::new(false);
/// As the terminal is while it is taken.
static RAW: OnceLock<Termios> = OnceLock::new();

/// Whether a screen can be shown: standard input and output are terminals, of a kind that can be redrawn.
fn check() -> Result<()> {
    let next = "leave out --live, or run it on a terminal; over ssh with `ssh -t`";
    for (name, is_terminal) in [
        ("input", io::stdin().is_terminal()),
        ("output", io::stdout().is_terminal()),
    ] {
        if !is_terminal {
            let text = format!("--live needs a terminal, and standard {name} is none");
            return Err(Error::usage(text).next(next));
        }
    }
    if !is_in_foreground() {
        let text = "--live needs a terminal for itself, and this runs in the background";
        return Err(Error::usage(text).next("leave out the `&`, or leave out --live"));
    }
    let kind = std::env::var("TERM").unwrap_or_default();
    if kind.is_empty() || kind == "dumb" {
        return Err(Error::usage(format!(
            "--live needs a terminal that can be redrawn, and TERM is `{kind}`"
        ))
        .next("set TERM to what the terminal is, such as xterm, or leave out --live"));
    }
    Ok(())
}

/// A terminal that can be taken.
#[derive(Debug)]
pub(crate) struct Prepared {
    watcher: Option<Watcher>,
}

/// The terminal, taken.
#[derive(Debug)]
pub(super) struct Taken {
    _watcher: Option<Watcher>,
}

impl Prepared {
    /// Starts who gives it back when we are killed. That is cheap as long as this program is small: call
    /// it early.
    ///
    /// # Errors
    ///
    /// When there is no terminal, or none that can be redrawn.
    pub(super) fn new() -> Result<Self> {
        check()?;
        let before = tcgetattr(stdin()).map_err(|error| cannot(error.into()))?;
        let raw = RAW.get_or_init(|| raw(BEFORE.get_or_init(|| before)));
        let watcher = Watcher::start(raw);
        // Without it only `kill -9` leaves the terminal as it is.
        let watcher = watcher.inspect_err(|error| {
            log::warn!("nobody gives the terminal back after kill -9: {error}");
        });
        Ok(Self {
            watcher: watcher.ok(),
        })
    }

    /// Takes it: keys come one by one and are not shown, and what is drawn is on another screen. Ctrl-C
    /// still makes a signal; Ctrl-Z does nothing, as a stopped program could not give it back. In the
    /// background nothing is taken yet.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(super) fn take(self) -> Result<Taken> {
        restore_on_panic();
        TAKEN.store(true, Ordering::Release);
        let taken = Taken {
            _watcher: self.watcher,
        };
        if is_in_foreground() {
            show().map_err(cannot)?;
        }
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the terminal is taken.
pub(super) fn is_taken() -> bool {
    TAKEN.load(Ordering::Acquire)
}

/// Whether the terminal is this job's: one in the background may not read it and should not draw on it. A
/// terminal without jobs is everybody's.
pub(super) fn is_in_foreground() -> bool {
    tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}

/// Shows the other screen, also again: who had the terminal meanwhile has left it as they need it.
pub(super) fn show() -> io::Result<()> {
    if let Some(raw) = RAW.get() {
        tcsetattr(stdin(), OptionalActions::Now, raw)?;
    }
    SHOWN.store(true, Ordering::Release);
    write(stdout(), ENTER);
    Ok(())
}

/// Gives the screen to another job, which sets the terminal as it needs it.
pub(super) fn hide() {
    if SHOWN.swap(false, Ordering::AcqRel) {
        write(stdout(), LEAVE);
    }
}

fn cannot(error: io::Error) -> Error {
    Error::failed("the terminal cannot be used for --live").because(error)
}

/// Gives the terminal back, if it is taken. Safe in a signal handler.
pub(crate) fn restore() {
    if !TAKEN.swap(false, Ordering::AcqRel) {
        return;
    }
    hide();
    if is_in_foreground()
        && let Some(before) = BEFORE.get()
    {
        // Nothing is left to be done when the terminal is gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
    let pipe = WATCHER.load(Ordering::Acquire);
    if pipe >= 0 {
        // SAFETY: the descriptor is open until it is taken out of there.
        let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(pipe) }, b"x");
    }
}

/// A panic of any thread gives it back before it prints its message.
fn restore_on_panic() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

/// Writes to a terminal, unless it is stopped.
fn write(to: BorrowedFd<'_>, bytes: &[u8]) {
    let mut fds = [PollFd::new(&to, PollFlags::OUT)];
    if poll(&mut fds, Some(&PATIENCE)).is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(to, bytes);
    }
}

fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.make_raw();
    raw.local_modes |= LocalModes::ISIG;
    raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    raw.input_modes -= InputModes::IXON;
    raw.output_modes -= OutputModes::OPOST;
    // `_POSIX_VDISABLE`.
    for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
        raw.special_codes[key] = 0;
    }
    raw
}

/// A process that gives the terminal back when this one is killed. It is in a session of its own, so that
/// no key and no hang-up reaches it, and has nothing open but the terminal and a pipe whose other end is
/// ours. A byte in that pipe says that all is well.
#[derive(Debug)]
struct Watcher {
    pipe: OwnedFd,
    pid: libc::pid_t,
}

impl Watcher {
    fn start(raw: &Termios) -> io::Result<Self> {
        let (inside, outside) = io::pipe()?;
        let (inside, pipe) = (OwnedFd::from(inside), OwnedFd::from(outside));
        // SAFETY: the child calls only what is safe between fork and exec in a program with threads.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(&inside, raw),
            pid => {
                WATCHER.store(pipe.as_raw_fd(), Ordering::Release);
                Ok(Self { pipe, pid })
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        WATCHER.store(-1, Ordering::Release);
        // It is gone when it was killed.
        let _ = rustix::io::write(&self.pipe, b"x");
        let mut status = 0;
        // SAFETY: `status` is a valid place. The process ends at once.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
    }
}

/// The other process. Nothing here takes memory or a lock.
fn watch(pipe: &OwnedFd, raw: &Termios) -> ! {
    // SAFETY: these are the process's own descriptors, which nobody else uses. 3 is the pipe from here on.
    let is_killed = unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"reqtrace-screen".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::dup2(pipe.as_raw_fd(), 3);
        libc::close(2);
        libc::close_range(4, libc::c_uint::MAX, 0);
        give_up_privileges();
        let mut byte = 0_u8;
        loop {
            let read = libc::read(3, (&raw mut byte).cast(), 1);
            if read >= 0 || *libc::__errno_location() != libc::EINTR {
                break read == 0;
            }
        }
    };
    let now = tcgetattr(stdin());
    // Before the screen is shown, and after who came next has set the terminal as it needs it, nothing is
    // to be done.
    let is_raw =
        |now: &Termios| (now.local_modes, now.input_modes) == (raw.local_modes, raw.input_modes);
    if is_killed && now.is_ok_and(|now| is_raw(&now)) {
        write(stdout(), LEAVE);
        if let Some(before) = BEFORE.get() {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
    // SAFETY: no precondition.
    unsafe { libc::_exit(0) }
}

/// Where the screen is drawn.
pub(super) fn output() -> io::Result<File> {
    stdout().try_clone_to_owned().map(File::from)
}

#[cfg(test)]
mod tests;
