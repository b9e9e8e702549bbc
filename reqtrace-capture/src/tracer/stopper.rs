//! Waiting for the kernel's ring, for a stop, or for some time to pass.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use reqtrace_base::error::{Error, Result};

/// Ends a trace from another thread, or from a signal handler.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Readable once it is stopped.
    event: OwnedFd,
    is_stopped: AtomicBool,
}

impl Stopper {
    /// One that stops nothing yet.
    ///
    /// # Errors
    ///
    /// When there can be no more descriptors.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|event| {
                Self(Arc::new(Inner {
                    event,
                    is_stopped: AtomicBool::new(false),
                }))
            })
            .map_err(|error| Error::failed("a trace could not be made stoppable").because(error))
    }

    /// Ends the trace; it reports what it has. May be called at any time, more than once, and in a
    /// signal handler.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
        // It cannot fail: only 2^64 calls would fill the counter.
        let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
    }

    /// Whether it is stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Acquire)
    }

    /// Waits until it is stopped, but no longer than this; whether it is. A signal may end the wait.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.0.event, PollFlags::IN)];
        poll(&mut fds, Some(&timespec(timeout))).is_ok_and(|ready| ready > 0)
    }
}

/// Waits for a ring and for a stop at the same time.
pub(super) struct Waiting {
    epoll: OwnedFd,
    stopper: Stopper,
}

impl Waiting {
    /// Of the ring only new notices count, not data that is there: the kernel programs give a notice
    /// when it is time to read, and until then records are to gather.
    pub(super) fn new(ring: BorrowedFd<'_>, stopper: &Stopper) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(not_polled)?;
        let add = |file: BorrowedFd<'_>, flags| {
            epoll::add(&epoll, file, EventData::new_u64(0), flags).map_err(not_polled)
        };
        add(ring, EventFlags::IN | EventFlags::ET)?;
        // It stays readable: nothing reads it.
        add(stopper.0.event.as_fd(), EventFlags::IN)?;
        Ok(Self {
            epoll,
            stopper: stopper.clone(),
        })
    }

    /// Waits no longer than this; whether the trace is stopped. A signal may end the wait.
    pub(super) fn wait(&self, longest: Duration) -> Result<bool> {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 2];
        match epoll::wait(&self.epoll, &mut events, Some(&timespec(longest))) {
            Ok(_) | Err(Errno::INTR) => Ok(self.stopper.is_stopped()),
            Err(error) => Err(not_polled(error)),
        }
    }
}

fn not_polled(error: Errno) -> Error {
    Error::failed("the ring buffer cannot be polled").because(error)
}

fn timespec(duration: Duration) -> Timespec {
    // A time that does not fit is longer than anybody waits.
    duration.try_into().unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_stop_ends_every_wait() {
        let (ring, _other) = io::pipe().unwrap();
        let stopper = Stopper::new().unwrap();
        let waiting = Waiting::new(ring.as_fd(), &stopper).unwrap();
        assert!(!waiting.wait(Duration::from_millis(1)).unwrap());
        assert!(!stopper.wait(Duration::ZERO) && !stopper.is_stopped());
        stopper.clone().stop();
        assert!(stopper.is_stopped());
        for _ in 0..2 {
            assert!(waiting.wait(Duration::from_secs(60)).unwrap());
            assert!(stopper.wait(Duration::from_secs(60)));
        }
    }

    #[test]
    fn data_that_is_there_wakes_once() {
        use std::io::Write as _;
        use std::time::Instant;
        let (ring, mut kernel) = io::pipe().unwrap();
        let stopper = Stopper::new().unwrap();
        let waiting = Waiting::new(ring.as_fd(), &stopper).unwrap();
        kernel.write_all(&[1]).unwrap();
        assert!(!waiting.wait(Duration::from_secs(60)).unwrap());
        let begin = Instant::now();
        assert!(!waiting.wait(Duration::from_millis(20)).unwrap());
        assert!(begin.elapsed() >= Duration::from_millis(15));
    }
}
