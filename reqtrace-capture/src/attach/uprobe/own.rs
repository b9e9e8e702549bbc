//! This program's own code: an address in, its file and the offset there out. Probes are tried on it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::kernel::processes::text_of;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::lazy::LazyFile;

/// The file that an address of this process is mapped from, and its offset in it.
pub(in super::super) fn file_offset_of(address: u64) -> Result<(LazyFile, u64)> {
    let maps = text_of("/proc/self/maps")
        .map_err(|error| Error::failed("/proc/self/maps cannot be read").because(error))?;
    let exe = Path::new("/proc/self/exe");
    let inode = fs::metadata(exe).map(|file| file.ino()).unwrap_or(0);
    maps.lines()
        .find_map(|line| mapped_at(line, address, inode))
        .map(|offset| (LazyFile::at(exe), offset))
        .ok_or_else(|| Error::failed("this program's own code is not found in /proc/self/maps"))
}

/// The file offset of an address in one line of `/proc/PID/maps`, if it is there and the file has
/// this inode.
fn mapped_at(line: &str, address: u64, inode: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let offset = hex(fields.nth(1)?)?;
    let of_file: u64 = fields.nth(1)?.parse().ok()?;
    ((start..end).contains(&address) && of_file == inode).then(|| address - start + offset)
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(naked)]
    extern "C" fn known() {
        core::arch::naked_asm!("nop", "ret")
    }

    #[test]
    fn its_own_code_is_found_in_its_file() {
        let (file, offset) = file_offset_of(known as extern "C" fn() as usize as u64).unwrap();
        let bytes = fs::read(file.path()).unwrap();
        let at = usize::try_from(offset).unwrap();
        assert_eq!(bytes[at..at + 2], [0x90, 0xc3]);
        assert_eq!(mapped_at("garbage", 0, 0), None);
    }
}
