//! Waiting for one of several descriptors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::{Span, Wait};
use crate::partner::{Partner, Woken, wake_in};

/// `epoll_wait` on an eventfd that the partner writes.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    event: Arc<File>,
    partner: Partner,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: no pointers.
        let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
        let mut interest = libc::epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        // SAFETY: both descriptors are open; `interest` is only read.
        let failed = unsafe {
            libc::epoll_ctl(
                epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                event.as_raw_fd(),
                &raw mut interest,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            epoll,
            event: Arc::new(event.into()),
            partner: Partner::start()?,
        })
    }
}

impl Wait for Epoll {
    fn class(&self) -> Option<&'static str> {
        Some("poll")
    }

    fn prepare(&mut self, end_in: Duration) -> io::Result<()> {
        let event = Arc::clone(&self.event);
        self.partner
            .begin(move || wake_in(end_in, || (&*event).write_all(&1_u64.to_ne_bytes())))
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut ready = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `ready` has room for the one event that is asked for.
        match unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut ready, 1, -1) } {
            1 => (&*self.event).read_exact(&mut [0; 8]),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn woken(&mut self, _: Span) -> io::Result<Woken> {
        self.partner.woken()
    }
}

/// A descriptor that a call returned.
fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
