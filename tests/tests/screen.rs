//! A program on a terminal of its own.
//!
//! In: a command, keys, signals. Out: what is to be seen on the screen, and how the terminal is left.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How often it is looked at the screen.
const LOOK: Duration = Duration::from_millis(20);

/// A terminal, and the program on it.
pub(crate) struct Screen {
    child: Child,
    ours: File,
    /// Kept open, so that the terminal stays when the program has ended.
    theirs: OwnedFd,
    before: Modes,
    shown: Arc<Mutex<Shown>>,
}

/// What was written to the terminal.
struct Shown {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

/// How a terminal treats what is written and typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes([libc::tcflag_t; 4], [libc::cc_t; libc::NCCS]);

impl Screen {
    /// Starts a program on a terminal of this size, of the kind `xterm`.
    ///
    /// # Errors
    ///
    /// When there are no more terminals, or the program does not start.
    pub(crate) fn start(mut command: Command, rows: u16, columns: u16) -> Result<Self> {
        let (mut ours, mut theirs) = (0, 0);
        let size = size(rows, columns);
        // SAFETY: the descriptors have valid places; the size is one; the rest may be none.
        let made = unsafe {
            libc::openpty(
                &raw mut ours,
                &raw mut theirs,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        ensure!(made == 0, "openpty: {}", std::io::Error::last_os_error());
        // No program that is started has the other end.
        for end in [ours, theirs] {
            // SAFETY: it is open.
            unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: both are open and nobody else's.
        let (ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        command
            .env("TERM", "xterm")
            .stdin(theirs.try_clone()?)
            .stdout(theirs.try_clone()?)
            .stderr(theirs.try_clone()?);
        // SAFETY: both calls are safe between fork and exec. The terminal becomes that of the program.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let before = modes(&theirs)?;
        let child = command.spawn().context("it does not start")?;
        let shown = Arc::new(Mutex::new(Shown {
            screen: vt100::Parser::new(at_least_one(rows), at_least_one(columns), 0),
            bytes: Vec::new(),
        }));
        let (mut reader, mine) = (ours.try_clone()?, Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let mut shown = mine.lock().unwrap_or_else(PoisonError::into_inner);
                shown.screen.process(&bytes[..count]);
                shown.bytes.extend(&bytes[..count]);
            }
        });
        Ok(Self {
            child,
            ours,
            theirs,
            before,
            shown,
        })
    }

    /// Process number of the program.
    #[must_use]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What is to be seen now, without spaces at the ends of lines.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let text = self.with(|shown| shown.screen.screen().contents());
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    /// All that was written so far, escapes included.
    #[must_use]
    pub(crate) fn bytes(&self) -> String {
        self.with(|shown| String::from_utf8_lossy(&shown.bytes).into_owned())
    }

    /// Waits until the screen is as wanted, and returns it.
    ///
    /// # Errors
    ///
    /// With the screen, when it is not within `limit`.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if is_wanted(&text) {
                return Ok(text);
            }
            if begun.elapsed() > limit {
                bail!("{what} does not come within {limit:?}:\n{text}");
            }
            thread::sleep(LOOK);
        }
    }

    /// Types keys.
    ///
    /// # Errors
    ///
    /// When the terminal does not take them.
    pub(crate) fn press(&mut self, keys: &str) -> Result<()> {
        self.ours.write_all(keys.as_bytes()).context("keys")
    }

    /// Changes the size of the terminal.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) -> Result<()> {
        let [lines, cells] = [rows, columns].map(at_least_one);
        self.with(|shown| shown.screen.screen_mut().set_size(lines, cells));
        let size = size(rows, columns);
        // SAFETY: the size is one.
        let set = unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        ensure!(set == 0, "TIOCSWINSZ: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn signal(&self, signal: libc::c_int) -> Result<()> {
        let pid = libc::pid_t::try_from(self.pid())?;
        // SAFETY: no precondition; the program was not waited for.
        let sent = unsafe { libc::kill(pid, signal) };
        ensure!(sent == 0, "kill: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    ///
    /// With the screen, when it has not within `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.take_the_rest();
                return Ok(status);
            }
            ensure!(begun.elapsed() < limit, "it does not end:\n{}", self.text());
            thread::sleep(LOOK);
        }
    }

    /// Waits for what the program has written and nobody has read yet.
    fn take_the_rest(&self) {
        let mut before = usize::MAX;
        loop {
            let mut unread: libc::c_int = 0;
            // SAFETY: the number is one.
            unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::FIONREAD, &raw mut unread) };
            let read = self.with(|shown| shown.bytes.len());
            if unread == 0 && read == before {
                return;
            }
            before = read;
            thread::sleep(LOOK);
        }
    }

    /// Checks that the terminal is what it was before, waiting a moment for it: the screen, the cursor, and
    /// how it treats keys.
    ///
    /// # Errors
    ///
    /// With what is not.
    pub(crate) fn is_restored(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let (other, hidden) = self.with(|shown| {
                let screen = shown.screen.screen();
                (screen.alternate_screen(), screen.hide_cursor())
            });
            let modes = modes(&self.theirs)?;
            if !other && !hidden && modes == self.before {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(2),
                "other screen: {other}, cursor hidden: {hidden}, {modes:?} was {:?}",
                self.before
            );
            thread::sleep(LOOK);
        }
    }

    /// Whether a program has taken the terminal.
    #[must_use]
    pub(crate) fn is_taken(&self) -> bool {
        self.with(|shown| shown.screen.screen().alternate_screen())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Shown) -> T) -> T {
        look(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It has mostly ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn at_least_one(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap_or(NonZero::<u16>::MIN)
}

fn size(rows: u16, columns: u16) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn modes(terminal: &OwnedFd) -> Result<Modes> {
    // SAFETY: all zeros is a valid value.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: it is a valid place.
    let read = unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes) };
    ensure!(read == 0, "tcgetattr: {}", std::io::Error::last_os_error());
    let flags = [modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag];
    Ok(Modes(flags, modes.c_cc))
}
