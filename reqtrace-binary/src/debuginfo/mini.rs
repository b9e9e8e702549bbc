//! `.gnu_debugdata`: a part of an object in, the small ELF file that is packed in it out.
//!
//! Fedora and its relatives ship it: a symbol table of the functions that are not exported,
//! compressed by xz.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use lzma_rust2::XzReader;
use rustix::fs::{MemfdFlags, memfd_create};

/// The largest packed part that is read; those of the largest programs have 1 MB.
const MAX_PACKED_BYTES: u64 = 64 << 20;
/// The largest file that is unpacked, several times what those of the largest programs have: what a hostile one could make
/// of a few bytes has no end.
const MAX_BYTES: u64 = 128 << 20;
/// What is unpacked at a time.
const BLOCK: usize = 1 << 20;
/// What all that are unpacked may take at once: they are memory.
const MAX_ALL: u64 = 256 << 20;
/// Memory for unpacking, KiB; xz's default needs 8 MiB.
const MAX_MEMORY_KIB: u32 = 128 << 10;
const NAME: &str = "reqtrace-debugdata";

/// What unpacked files take now.
static ALL: Taken = Taken(AtomicU64::new(0));

/// Bytes that are taken.
#[derive(Debug)]
struct Taken(AtomicU64);

/// Some of them, which are given back with it.
#[derive(Debug)]
pub(super) struct Part {
    bytes: u64,
    of: &'static Taken,
}

/// Why nothing is unpacked.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotUnpacked {
    /// It is not xz, or larger than any real one.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Those that are unpacked take all the memory.
    #[error("those of other files take {} MiB", MAX_ALL >> 20)]
    NoRoom,
    /// There is nothing in it that is wanted.
    #[error("it has no symbol table")]
    NoSymbols,
}

impl Taken {
    /// Nothing of it yet.
    fn part(&'static self) -> Part {
        Part { bytes: 0, of: self }
    }
}

impl Part {
    /// Takes so many more.
    fn grow(&mut self, bytes: u64) -> Result<(), NotUnpacked> {
        self.bytes += bytes;
        let before = self.of.0.fetch_add(bytes, Ordering::Relaxed);
        if self.bytes > MAX_BYTES {
            Err(too_large())
        } else if before + bytes > MAX_ALL {
            Err(NotUnpacked::NoRoom)
        } else {
            Ok(())
        }
    }
}

fn too_large() -> NotUnpacked {
    NotUnpacked::Io(io::ErrorKind::FileTooLarge.into())
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Unpacks it into memory that can be read as a file, and that is taken as long as the part is there.
///
/// # Errors
///
/// When it is not xz, larger than any real one, or others take too much.
pub(super) fn unpack(object: &File, offset: u64, length: u64) -> Result<(File, Part), NotUnpacked> {
    unpack_within(&ALL, object, offset, length)
}

fn unpack_within(
    all: &'static Taken,
    object: &File,
    offset: u64,
    length: u64,
) -> Result<(File, Part), NotUnpacked> {
    if length > MAX_PACKED_BYTES {
        return Err(too_large());
    }
    let mut packed = vec![0; length as usize];
    object.read_exact_at(&mut packed, offset)?;
    let memory = memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut file = File::from(memory);
    let mut reader = XzReader::new_mem_limit(packed.as_slice(), false, MAX_MEMORY_KIB);
    let mut part = all.part();
    let mut block = vec![0; BLOCK];
    loop {
        let count = reader.read(&mut block)?;
        if count == 0 {
            return Ok((file, part));
        }
        part.grow(count as u64)?;
        file.write_all(&block[..count])?;
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// So many zeros, packed, and the bytes that they take then.
    fn packed(bytes: u64) -> (File, u64) {
        let pack = format!("head -c {bytes} /dev/zero | xz -0");
        let packed = Command::new("sh").args(["-c", &pack]).output().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&packed.stdout).unwrap();
        (file, packed.stdout.len() as u64)
    }

    /// A few kilobytes were unpacked to 256 MiB, for each file.
    #[test]
    fn what_is_unpacked_is_bounded() {
        const OTHERS: u64 = MAX_ALL - 1999;
        static ROOM: Taken = Taken(AtomicU64::new(OTHERS));
        static EMPTY: Taken = Taken(AtomicU64::new(0));
        let taken = || ROOM.0.load(Ordering::Relaxed) - OTHERS;
        let unpack = |room: &'static Taken, bytes: u64| {
            let (file, length) = packed(bytes);
            unpack_within(room, &file, 0, length)
        };
        let (file, part) = unpack(&ROOM, 1000).unwrap();
        assert_eq!((file.metadata().unwrap().len(), taken()), (1000, 1000));
        let another = unpack(&ROOM, 1000);
        assert!(matches!(another, Err(NotUnpacked::NoRoom)), "{another:?}");
        drop(part);
        assert_eq!(taken(), 0);
        assert!(unpack(&EMPTY, MAX_BYTES).is_ok());
        let larger = unpack(&EMPTY, MAX_BYTES + 1);
        assert!(matches!(larger, Err(NotUnpacked::Io(_))), "{larger:?}");
        assert_eq!(EMPTY.0.load(Ordering::Relaxed), 0);
    }
}
