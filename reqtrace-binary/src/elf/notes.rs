//! Notes and links: the bytes of a section or segment of notes in, its notes and the build id out; the bytes
//! of `.gnu_debuglink` in, the name and checksum of the debug file out.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use goblin::elf::note::{NT_GNU_BUILD_ID, Note, NoteDataIterator};

use super::headers::CONTEXT;

/// Where a note and its parts begin.
const ALIGNMENT: usize = 4;

/// Notes, up to the first that is cut off or contradicts itself, which is an error.
pub fn notes(bytes: &[u8]) -> impl Iterator<Item = Result<Note<'_>, goblin::error::Error>> {
    NoteDataIterator {
        data: bytes,
        size: bytes.len(),
        offset: 0,
        ctx: (ALIGNMENT, CONTEXT),
    }
}

/// The GNU build id.
pub(crate) fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    notes(bytes)
        .map_while(Result::ok)
        .find(|note| note.n_type == NT_GNU_BUILD_ID && note.name == "GNU" && !note.desc.is_empty())
        .map(|note| note.desc.to_vec())
}

/// `.gnu_debuglink`: a file name, padding to four bytes, and a CRC-32. A name with folders in it is
/// no name of this format: it could lead anywhere.
pub(crate) fn debug_link(contents: &[u8]) -> Option<(OsString, u32)> {
    let length = contents.iter().position(|&byte| byte == 0)?;
    let name = &contents[..length];
    let at = (length + 1).next_multiple_of(4);
    let sum = contents.get(at..at.checked_add(4)?)?;
    let usable = !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/');
    usable.then(|| {
        (
            OsStr::from_bytes(name).to_owned(),
            u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        let note = |kind: u32, contents: &[u8]| {
            let mut note = Vec::new();
            note.extend(4_u32.to_le_bytes());
            note.extend((contents.len() as u32).to_le_bytes());
            note.extend(kind.to_le_bytes());
            note.extend(b"GNU\0");
            note.extend(contents);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        notes.extend(note(1, &[1; 5]));
        assert_eq!(build_id(&notes), None);
        notes.extend(note(NT_GNU_BUILD_ID, &[7; 20]));
        assert_eq!(build_id(&notes), Some(vec![7; 20]));
        assert_eq!(build_id(&notes[..30]), None);
    }

    #[test]
    fn a_link_with_folders_is_none() {
        let link = |name: &[u8]| {
            let mut bytes = name.to_vec();
            bytes.resize((name.len() + 1).next_multiple_of(4), 0);
            bytes.extend([1, 0, 0, 0]);
            debug_link(&bytes)
        };
        assert_eq!(link(b"x.debug"), Some(("x.debug".into(), 1)));
        assert_eq!(link(b"abc"), Some(("abc".into(), 1)));
        for bad in [&b"/dev/watchdog"[..], b"../x", b"", b".."] {
            assert_eq!(link(bad), None, "{bad:?}");
        }
        assert_eq!(debug_link(b"abc"), None);
        assert_eq!(debug_link(b"abc\0\x01"), None);
    }
}
