//! Waiting for the kernel's ring, for a stop, or for some time to pass.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

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
    ring: AsyncFd<OwnedFd>,
    stop: AsyncFd<OwnedFd>,
    /// Last, so that it outlives what is registered with it.
    runtime: Runtime,
}

impl Waiting {
    /// Of the ring only new notices count, not data that is there: the kernel programs give a notice
    /// when it is time to read, and until then records are to gather.
    pub(super) fn new(ring: BorrowedFd<'_>, stopper: &Stopper) -> Result<Self> {
        let cannot =
            |error: io::Error| Error::failed("the ring buffer cannot be polled").because(error);
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(cannot)?;
        let guard = runtime.enter();
        let watched = |file: BorrowedFd<'_>| {
            let file = file.try_clone_to_owned()?;
            // SAFETY: it owns the descriptor, which stays open as long.
            unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }
                .map_err(io::Error::from)
        };
        let (ring, stop) = (
            watched(ring).map_err(cannot)?,
            watched(stopper.0.event.as_fd()).map_err(cannot)?,
        );
        drop(guard);
        Ok(Self {
            ring,
            stop,
            runtime,
        })
    }

    /// Waits no longer than this; whether the trace is stopped.
    pub(super) fn wait(&self, longest: Duration) -> Result<bool> {
        let either = async {
            tokio::select! {
                // It stays readable: nothing reads it.
                stop = self.stop.readable() => stop.map(|_| true),
                notice = self.ring.readable() => notice.map(|mut notice| {
                    notice.clear_ready();
                    false
                }),
            }
        };
        match self
            .runtime
            .block_on(async { timeout(longest, either).await })
        {
            Ok(Ok(is_stopped)) => Ok(is_stopped),
            Ok(Err(error)) => Err(Error::failed("the ring buffer cannot be polled").because(error)),
            Err(_) => Ok(false),
        }
    }
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
