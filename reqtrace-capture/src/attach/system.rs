//! The system call `bpf`, as far as aya does not make it for us.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use aya_obj::generated::bpf_attr;

/// `bpf(2)` with a command that opens a descriptor.
///
/// # Safety
///
/// `attr` points to `size` bytes that are what the command reads, and what they point to is valid.
pub(super) unsafe fn bpf_fd<T>(command: i64, attr: *const T, size: usize) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    owned(unsafe { libc::syscall(libc::SYS_bpf, command, attr, size) })
}

/// `bpf(2)` with a command that opens nothing.
///
/// # Safety
///
/// What `attr` points to is valid for what the command reads and writes.
pub(super) unsafe fn bpf(command: i64, attr: *mut bpf_attr) -> io::Result<()> {
    // SAFETY: as the caller promises.
    match unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<bpf_attr>()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The descriptor that a system call has opened, or its error.
pub(super) fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the kernel has just opened it for us.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}
