//! Notes: the bytes of a `.note.stapsdt` section in, its notes out, and of each the probe and the place
//! that it describes.

use super::UsdtSite;
use super::argument::argument;
use reqtrace_binary::elf::Object;

/// Type of a probe's note (`_SDT_NOTE_TYPE`).
const NOTE_TYPE: u32 = 3;

/// Owner of the notes.
pub(super) const NOTE_OWNER: &[u8] = b"stapsdt\0";

/// One note of a section.
pub(super) enum Note<'a> {
    /// The description of a probe.
    Probe(&'a [u8]),
    /// Another owner's or another type.
    Other,
}

/// The first note of a section, and what follows it; `None` when it is cut off.
pub(super) fn next_note(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let (owner_size, rest) = u32_at(bytes)?;
    let (size, rest) = u32_at(rest)?;
    let (kind, rest) = u32_at(rest)?;
    let (owner, rest) = padded(rest, owner_size)?;
    let (description, rest) = padded(rest, size)?;
    let note = if kind == NOTE_TYPE && owner == NOTE_OWNER {
        Note::Probe(description)
    } else {
        Note::Other
    };
    Some((note, rest))
}

fn u32_at(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}

fn u64_at(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*word), rest))
}

/// The first `size` bytes, and what follows them at the next multiple of four.
fn padded(bytes: &[u8], size: u32) -> Option<(&[u8], &[u8])> {
    let size = usize::try_from(size).ok()?;
    let content = bytes.get(..size)?;
    let next = size.checked_next_multiple_of(4)?;
    // The padding of the last note may be missing.
    Some((content, bytes.get(next..).unwrap_or_default()))
}

fn string(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    Some((text, &bytes[end + 1..]))
}

/// Provider, name and place from a note's description.
pub(super) fn probe<'a>(
    object: &Object,
    description: &'a [u8],
) -> Option<(&'a str, &'a str, UsdtSite)> {
    let (location, rest) = u64_at(description)?;
    let (base, rest) = u64_at(rest)?;
    let (semaphore, rest) = u64_at(rest)?;
    let (provider, rest) = string(rest)?;
    let (name, rest) = string(rest)?;
    let (arguments, _) = string(rest)?;
    if provider.is_empty() || name.is_empty() {
        return None;
    }
    // A prelinked file has been moved, and its notes have not.
    let moved = object
        .usdt_base()
        .map_or(0, |actual| actual.wrapping_sub(base));
    let address = location.wrapping_add(moved);
    let semaphore = match semaphore {
        0 => None,
        linked => Some(object.data_offset(linked.wrapping_add(moved))?),
    };
    let site = UsdtSite {
        address,
        file_offset: object.file_offset(address)?,
        semaphore,
        arguments: arguments
            .split_ascii_whitespace()
            .map(|text| argument(object, address, text))
            .collect(),
    };
    Some((provider, name, site))
}
