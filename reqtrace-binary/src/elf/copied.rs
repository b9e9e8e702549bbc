//! Copies of files: a file in, its bytes in memory out, which nobody else can change.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use memmap2::MmapMut;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::sections::Sections;

/// The largest file that is read, and the most of it that is neither a hole nor debug information.
const MAX_BYTES: u64 = 64 << 30;
const MAX_DATA: u64 = 2 << 30;

/// A copy of a file. Its owner could cut it short while it is mapped, and that would end this program by
/// SIGBUS. What is a hole in the file takes no memory, and DWARF, which is not needed, is one in the copy.
pub(super) fn copy(file: &File, length: u64) -> io::Result<MmapMut> {
    if length > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut copy = MmapMut::map_anon(usize::try_from(length).map_err(io::Error::other)?)?;
    let left_out = information(file);
    let (mut at, mut data) = (0, 0);
    while at < length {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(length),
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            // A filesystem without holes.
            Err(_) => at,
        };
        let end = seek(file, SeekFrom::Hole(start))
            .unwrap_or(length)
            .min(length);
        if end <= start {
            break;
        }
        at = end;
        for part in without(start..end, &left_out) {
            data += part.end - part.start;
            if data > MAX_DATA {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let place = part.start as usize..part.end as usize;
            file.read_exact_at(&mut copy[place], part.start)?;
        }
    }
    Ok(copy)
}

/// A range without others, which are in order.
fn without(range: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut from = range.start;
    for other in others {
        if other.start.min(range.end) > from {
            parts.push(from..other.start.min(range.end));
        }
        from = from.max(other.end);
    }
    if from < range.end {
        parts.push(from..range.end);
    }
    parts
}

/// Where the DWARF of an ELF file stands in it, in order; nothing where that is not known.
fn information(file: &File) -> Vec<Range<u64>> {
    Sections::read(file).map_or_else(|_| Vec::new(), |sections| sections.debug_information())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_what_is_left() {
        let left = |others: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let others: Vec<_> = others.iter().map(|&(from, to)| from..to).collect();
            let parts = without(10..20, &others).into_iter();
            parts.map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(left(&[]), [(10, 20)]);
        assert_eq!(
            left(&[(0, 5), (12, 14), (13, 15), (30, 40)]),
            [(10, 12), (15, 20)]
        );
        assert_eq!(left(&[(0, 11), (18, 50)]), [(11, 18)]);
        assert!(left(&[(0, u64::MAX)]).is_empty());
    }

    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    }

    /// `functions` on a sparse file of 2 GB took as much memory.
    #[test]
    fn holes_take_no_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 30).unwrap();
        file.write_all_at(b"end", (8 << 30) - 3).unwrap();
        let before = resident();
        let copy = copy(&file, 8 << 30).unwrap();
        assert!(copy.ends_with(b"\0end"));
        assert!(resident() < before + (64 << 20), "{before}");
    }
}
