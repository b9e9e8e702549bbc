//! Waiting for an event: by its descriptor, or for one of several.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use super::call::{Call, checked};

/// Reads an eventfd.
pub(crate) fn eventfd() -> io::Result<Call> {
    let event = event()?;
    let reader = Arc::clone(&event);
    Call::new("pipe", move || take(&reader), move || give(&event))
}

/// `epoll_wait` on an eventfd.
pub(crate) fn epoll() -> io::Result<Call> {
    let event = event()?;
    // SAFETY: no pointers.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    let mut interest = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: 0,
    };
    let (epoll_fd, event_fd) = (epoll.as_raw_fd(), event.as_raw_fd());
    // SAFETY: both descriptors are open; `interest` is only read.
    checked(unsafe {
        libc::epoll_ctl(epoll_fd, libc::EPOLL_CTL_ADD, event_fd, &raw mut interest)
    })?;
    let reader = Arc::clone(&event);
    let wait = move || {
        let mut ready = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `ready` has room for the one event that is asked for.
        checked(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut ready, 1, -1) })?;
        take(&reader)
    };
    Call::new("poll", wait, move || give(&event))
}

/// `poll` on an eventfd.
pub(crate) fn poll() -> io::Result<Call> {
    let event = event()?;
    let reader = Arc::clone(&event);
    let wait = move || {
        let mut interest = libc::pollfd {
            fd: reader.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer is to one entry.
        checked(unsafe { libc::poll(&raw mut interest, 1, -1) })?;
        take(&reader)
    };
    Call::new("poll", wait, move || give(&event))
}

fn event() -> io::Result<Arc<File>> {
    // SAFETY: no pointers.
    let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
    Ok(Arc::new(event.into()))
}

fn give(mut event: &File) -> io::Result<()> {
    event.write_all(&1_u64.to_ne_bytes())
}

fn take(mut event: &File) -> io::Result<()> {
    event.read_exact(&mut [0; 8])
}

/// A descriptor that a call returned.
pub(crate) fn owned(fd: i32) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
