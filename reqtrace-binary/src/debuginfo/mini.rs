//! `.gnu_debugdata`: a part of an object in, the small ELF file that is packed in it out.
//!
//! Fedora and its relatives ship it: a symbol table of the functions that are not exported,
//! compressed by xz.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;

use lzma_rust2::XzReader;
use rustix::fs::{MemfdFlags, memfd_create};

/// The largest packed part that is read; those of the largest programs have 1 MB.
const MAX_PACKED_BYTES: u64 = 64 << 20;
/// The largest file that is unpacked: what a hostile one could make of a few bytes has no end.
const MAX_BYTES: u64 = 256 << 20;
/// Memory for unpacking, KiB; xz's default needs 8 MiB.
const MAX_MEMORY_KIB: u32 = 128 << 10;
const NAME: &str = "reqtrace-debugdata";

/// Unpacks it into memory that can be read as a file.
///
/// # Errors
///
/// When it is not xz, or larger than any real one.
pub(super) fn unpack(object: &File, offset: u64, length: u64) -> io::Result<File> {
    if length > MAX_PACKED_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut packed = vec![0; length as usize];
    object.read_exact_at(&mut packed, offset)?;
    let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    let mut reader = XzReader::new_mem_limit(packed.as_slice(), false, MAX_MEMORY_KIB);
    let count = io::copy(&mut (&mut reader).take(MAX_BYTES + 1), &mut file)?;
    if count > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    file.flush()?;
    Ok(file)
}
