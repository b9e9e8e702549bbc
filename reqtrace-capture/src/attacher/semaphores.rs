//! Semaphores of USDT probes: a file and offsets in, whether its notes have all of them out.
//!
//! The kernel adds one to what is at such an offset, in the data of each process that is probed: nothing else may be there. The
//! file is a traced process's, and this process has privileges: only fields at known places are read, of bounded length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes of the notes of a file that are read, and of each of its tables.
const MOST_NOTES: u64 = 16 << 20;
const MOST_TABLE: u64 = 1 << 20;

const HEADER: usize = 64;
const SEGMENT: u16 = 56;
const SECTION: u16 = 64;
/// `SHT_NOTE`, `PT_LOAD`, `NT_STAPSDT`.
const NOTE: u32 = 7;
const LOAD: u32 = 1;
const STAPSDT: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";
/// The section whose address tells how far a file was moved since its notes were written.
const BASE: &[u8] = b".stapsdt.base\0";

/// Whether there is a semaphore at each of these offsets in a file.
///
/// # Errors
///
/// When it cannot be read.
pub(super) fn are_semaphores(file: &File, offsets: &[u64]) -> io::Result<bool> {
    if offsets.is_empty() {
        return Ok(true);
    }
    let known = semaphores(file)?;
    Ok(offsets.iter().all(|offset| known.contains(offset)))
}

/// Offsets in the file.
fn semaphores(file: &File) -> io::Result<Vec<u64>> {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0)?;
    let Some(header) = Header::of(&header) else {
        return Ok(Vec::new());
    };
    let segments = table(file, header.segments_at, header.segments, SEGMENT)?;
    let sections = table(file, header.sections_at, header.sections, SECTION)?;
    let sections = || sections.chunks_exact(SECTION.into());
    let names = match sections().nth(header.names.into()) {
        Some(section) => part(file, section, MOST_TABLE)?,
        None => Vec::new(),
    };
    let is_base = |section: &&[u8]| {
        let name = word(section, 0).and_then(|at| names.get(at as usize..));
        name.is_some_and(|name| name.starts_with(BASE))
    };
    let base = sections()
        .find(is_base)
        .and_then(|section| long(section, 16));
    let mut found = Vec::new();
    for section in sections().filter(|section| word(section, 4) == Some(NOTE)) {
        let notes = part(file, section, MOST_NOTES)?;
        let addresses = in_notes(&notes).map(|(of_note, address)| {
            let moved = base.map_or(0, |base| base.wrapping_sub(of_note));
            address.wrapping_add(moved)
        });
        found.extend(addresses.filter_map(|address| offset_of(&segments, address)));
    }
    Ok(found)
}

struct Header {
    segments_at: u64,
    segments: u16,
    sections_at: u64,
    sections: u16,
    names: u16,
}

impl Header {
    /// Of a little-endian file of 64 bits.
    fn of(bytes: &[u8; HEADER]) -> Option<Self> {
        let is_it = bytes.starts_with(b"\x7fELF\x02\x01");
        let sizes = (half(bytes, 54)?, half(bytes, 58)?);
        (is_it && sizes == (SEGMENT, SECTION)).then_some(Self {
            segments_at: long(bytes, 32)?,
            segments: half(bytes, 56)?,
            sections_at: long(bytes, 40)?,
            sections: half(bytes, 60)?,
            names: half(bytes, 62)?,
        })
    }
}

fn table(file: &File, at: u64, count: u16, size: u16) -> io::Result<Vec<u8>> {
    read(file, at, u64::from(count) * u64::from(size), MOST_TABLE)
}

/// What a section has.
fn part(file: &File, section: &[u8], most: u64) -> io::Result<Vec<u8>> {
    let (at, length) = (long(section, 24), long(section, 32));
    read(file, at.unwrap_or(0), length.unwrap_or(0), most)
}

fn read(file: &File, at: u64, length: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length.min(most) as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Of probes that have a semaphore, the base that their note knows, and its address.
fn in_notes(notes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let mut rest = notes;
    std::iter::from_fn(move || {
        loop {
            let (name, length, kind) = (word(rest, 0)?, word(rest, 4)?, word(rest, 8)?);
            let padded = |length: u32| usize::try_from(length.checked_next_multiple_of(4)?).ok();
            let name_end = padded(name)?.checked_add(12)?;
            let end = padded(length)?.checked_add(name_end)?;
            let (named, described) = (rest.get(12..name_end)?, rest.get(name_end..end)?);
            rest = rest.get(end..)?;
            // Of the probe, of the base, of the semaphore.
            let found = long(described, 8).zip(long(described, 16));
            if kind == STAPSDT
                && named.starts_with(OWNER)
                && let Some((_, 1..)) = found
            {
                return found;
            }
        }
    })
}

fn offset_of(segments: &[u8], address: u64) -> Option<u64> {
    let mut segments = segments.chunks_exact(SEGMENT.into());
    segments.find_map(|segment| {
        let (kind, at) = (word(segment, 0)?, long(segment, 8)?);
        let (begins, length) = (long(segment, 16)?, long(segment, 32)?);
        let inside = address.checked_sub(begins)?;
        (kind == LOAD && inside < length).then(|| at.checked_add(inside))?
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn note(owner: &[u8], kind: u32, semaphore: u64) -> Vec<u8> {
        let description = [1_u64, 2, semaphore].map(u64::to_le_bytes).concat();
        let head = [owner.len() as u32, description.len() as u32, kind].map(u32::to_le_bytes);
        [head.concat(), owner.to_vec(), description].concat()
    }

    #[test]
    fn only_notes_of_probes_have_semaphores() {
        let notes = [
            note(OWNER, STAPSDT, 0),
            note(OWNER, STAPSDT, 0x1234),
            note(b"GNU\0", STAPSDT, 0x99),
            note(OWNER, 1, 0x99),
            note(OWNER, STAPSDT, 0x5678),
        ];
        let notes = notes.concat();
        let found: Vec<_> = in_notes(&notes).collect();
        assert_eq!(found, [(2, 0x1234), (2, 0x5678)]);
        assert_eq!(in_notes(&notes[..notes.len() - 1]).count(), 1);
    }

    #[test]
    fn a_program_without_such_probes_has_none() {
        let own = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(are_semaphores(&own, &[]).unwrap());
        assert!(!are_semaphores(&own, &[0x1000]).unwrap());
    }

    proptest! {
        #[test]
        fn whatever_a_file_has_is_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..300), is_elf: bool) {
            let mut file = tempfile::tempfile().unwrap();
            if is_elf {
                let mut header = [0; HEADER];
                header[..6].copy_from_slice(b"\x7fELF\x02\x01");
                header[54] = SEGMENT as u8;
                header[58] = SECTION as u8;
                file.write_all(&header).unwrap();
            }
            file.write_all(&bytes).unwrap();
            let _ = are_semaphores(&file, &[7]);
            let _ = in_notes(&bytes).count();
        }
    }
}
