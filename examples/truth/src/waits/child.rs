//! Waiting for a child process.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use example_clock as clock;

use super::{Span, Wait};
use crate::partner::Woken;

/// `waitpid` for a child that lives as long as a wait takes.
#[derive(Default)]
pub(crate) struct Child {
    pid: libc::pid_t,
    last_words: Option<PipeReader>,
}

impl Wait for Child {
    fn class(&self) -> Option<&'static str> {
        Some("process")
    }

    fn prepare(&mut self, end_in: Duration) -> io::Result<()> {
        let (reader, writer) = io::pipe()?;
        // SAFETY: the child only calls what is safe after a fork of one thread of several.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => return Err(io::Error::last_os_error()),
            0 => live(end_in, writer.as_raw_fd()),
            _ => {}
        }
        self.pid = pid;
        self.last_words = Some(reader);
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        // SAFETY: no status is asked for.
        if unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) } == self.pid {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Not before the child's last words.
    fn woken(&mut self, span: Span) -> io::Result<Woken> {
        let mut clock = [0; 8];
        if let Some(mut last_words) = self.last_words.take() {
            last_words.read_exact(&mut clock)?;
        }
        Ok(Woken {
            earliest_ns: u64::from_ne_bytes(clock),
            latest_ns: span.end_ns,
        })
    }
}

/// The child: sleeps, says what time it is, and ends.
fn live(time: Duration, last_words: i32) -> ! {
    let time = libc::timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: the pointers are to values of the right size; none of these calls takes a lock.
    unsafe {
        libc::nanosleep(&raw const time, std::ptr::null_mut());
        let clock = clock::now_ns().to_ne_bytes();
        libc::write(last_words, clock.as_ptr().cast(), clock.len());
        libc::_exit(0)
    }
}

/// Starts a program and waits for it.
pub(crate) struct Spawn;

impl Wait for Spawn {
    fn class(&self) -> Option<&'static str> {
        Some("process")
    }

    fn wait(&mut self) -> io::Result<()> {
        let status = Command::new("/bin/true").status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("/bin/true: {status}")))
        }
    }
}
