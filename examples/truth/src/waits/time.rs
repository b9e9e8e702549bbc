//! Waiting for a time.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use super::call::checked;
use super::poll::owned;
use super::{Span, Wait};
use crate::partner::Woken;

/// Sleeps for so long.
pub(crate) struct Sleep(pub(crate) Duration);

impl Wait for Sleep {
    fn class(&self) -> Option<&'static str> {
        Some("sleep")
    }

    fn wait(&mut self) -> io::Result<()> {
        thread::sleep(self.0);
        Ok(())
    }

    fn woken(&mut self, span: Span) -> io::Result<Woken> {
        Ok(not_before(span, self.0))
    }
}

/// Reads a timer's descriptor.
pub(crate) struct Timer {
    timer: File,
    time: Duration,
}

impl Timer {
    pub(crate) fn new(time: Duration) -> io::Result<Self> {
        // SAFETY: no pointers.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        Ok(Self {
            timer: owned(timer)?.into(),
            time,
        })
    }
}

impl Wait for Timer {
    fn class(&self) -> Option<&'static str> {
        Some("sleep")
    }

    fn wait(&mut self) -> io::Result<()> {
        let once = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: self.time.as_secs().cast_signed(),
                tv_nsec: self.time.subsec_nanos().into(),
            },
        };
        // SAFETY: `once` is only read, and the old value is not asked for.
        checked(unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                0,
                &raw const once,
                std::ptr::null_mut(),
            )
        })?;
        self.timer.read_exact(&mut [0; 8])
    }

    fn woken(&mut self, span: Span) -> io::Result<Woken> {
        Ok(not_before(span, self.time))
    }
}

/// A timer never fires early.
fn not_before(span: Span, time: Duration) -> Woken {
    Woken {
        earliest_ns: span.begin_ns + time.as_nanos() as u64,
        latest_ns: span.end_ns,
    }
}
