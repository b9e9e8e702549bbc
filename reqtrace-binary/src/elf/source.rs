//! What an ELF file is read from: an offset in, bytes out.
//!
//! A file is read piece by piece and never mapped: one that shrinks meanwhile is an error and no signal. No
//! size that a file states is taken without a bound.

use std::fs::File;
use std::io;

/// Something to read an ELF file from.
pub trait ReadAt {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    ///
    /// When the bytes are not there.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// How many bytes there are.
    ///
    /// # Errors
    ///
    /// When that is not known.
    fn length(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buffer.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// Reads a part of at most `most` bytes.
///
/// # Errors
///
/// [`io::ErrorKind::FileTooLarge`] when it has more, or more than there are.
pub(crate) fn read<S: ReadAt + ?Sized>(
    source: &S,
    offset: u64,
    length: u64,
    most: u64,
) -> io::Result<Vec<u8>> {
    if length > most || length > source.length()? {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    source.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
