//! Frames: a message in, its length (4 bytes, little-endian) and its bytes in the form of `postcard` on a stream out; and the
//! reverse. The other end may write anything: what is too long or no message is an error, and takes no memory.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the length.
const HEAD: usize = 4;

/// Writes a message.
///
/// # Errors
///
/// When the other end is gone, or does not read in time where there is a limit.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; HEAD];
    bytes = postcard::to_extend(message, bytes).map_err(io::Error::other)?;
    send_filled(to, bytes)
}

/// Writes a message of one of several threads.
///
/// # Errors
///
/// As [`send`].
pub fn send_whole(to: &Mutex<UnixStream>, message: &impl Serialize) -> io::Result<()> {
    // A message is written whole, or the other end is gone.
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    send(&mut *to, message)
}

/// Writes bytes behind [`HEAD`] bytes that are replaced.
fn send_filled(to: &mut impl Write, mut bytes: Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(bytes.len() - HEAD).map_err(io::Error::other)?;
    bytes[..HEAD].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)
}

/// Writes bytes as they are.
///
/// # Errors
///
/// As [`send`].
pub fn send_bytes(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    send_filled(to, [&[0; HEAD], message].concat())
}

/// Reads a message of at most so many bytes; `None` when the other end has no more.
///
/// # Errors
///
/// [`ErrorKind::InvalidData`]: it is longer, or no message; [`ErrorKind::UnexpectedEof`]: it ends in its middle.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read, most: u32) -> io::Result<Option<T>> {
    let bytes = receive_bytes(from, most)?;
    bytes.map(|bytes| decode(&bytes)).transpose()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, "bytes are left")),
        Err(error) => Err(io::Error::new(ErrorKind::InvalidData, error)),
    }
}

/// Reads bytes as they were written.
///
/// # Errors
///
/// As [`receive`].
pub fn receive_bytes(from: &mut impl Read, most: u32) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::with_capacity(HEAD);
    from.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(None);
    }
    let head: [u8; HEAD] = head.try_into().map_err(|_| ErrorKind::UnexpectedEof)?;
    let length = u32::from_le_bytes(head);
    if length > most {
        let what = format!("a message of {length} bytes, where {most} are allowed");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    // It grows as bytes come.
    let mut bytes = Vec::new();
    from.by_ref().take(length.into()).read_to_end(&mut bytes)?;
    match bytes.len() == length as usize {
        true => Ok(Some(bytes)),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
