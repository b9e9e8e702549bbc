//! Descriptors over a socket: open files in, the same files in another process out.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most that are handed over at a time; the kernel's own limit is 253.
pub const MOST: usize = 128;
/// They come with this byte.
const MARK: u8 = b'+';

/// Hands these over.
///
/// # Errors
///
/// When the other end is gone.
pub fn send(to: impl AsFd, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    if files.len() > MOST {
        return Err(io::Error::new(ErrorKind::InvalidInput, "too many files"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "too many files"));
    }
    let mark = [MARK];
    let sent = sendmsg(
        to,
        &[IoSlice::new(&mark)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    match sent {
        1 => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

/// Takes those that come; no program that is started inherits them.
///
/// # Errors
///
/// When none come.
pub fn receive(from: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut mark = [0];
    let mut into = [IoSliceMut::new(&mut mark)];
    let received = recvmsg(from, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(handed) = message {
            files.extend(handed);
        }
    }
    match (received.bytes, mark, files.is_empty()) {
        (1, [MARK], false) => Ok(files),
        _ => Err(io::Error::new(
            ErrorKind::InvalidData,
            "no files were handed over",
        )),
    }
}
