//! What the linker of Go writes into a program: its sections' bytes in, the version of Go and the functions out.

mod inlined;
pub(crate) mod program;

pub use inlined::Inlined;

use crate::elf::{DefinedSymbol, DefinedSymbols};

/// What `.go.buildinfo` begins with.
const BUILDINFO: &[u8] = b"\xff Go buildinf:";

/// Bytes of its header; the version stands behind it.
const HEADER: usize = 32;

/// Of the byte behind the size of a pointer: strings follow, and no addresses of them (from Go 1.18 on).
const INLINE: u8 = 2;

/// The version that `.go.buildinfo` names, such as `go1.26.6`.
#[must_use]
pub fn version(section: &[u8]) -> Option<String> {
    let rest = section.strip_prefix(BUILDINFO)?;
    if rest.get(1)? & INLINE == 0 {
        return None;
    }
    let behind = section.get(HEADER..)?;
    // One byte has seven bits of the length, and no version has 128 letters.
    let length = usize::from(*behind.first()?);
    let text = behind.get(1..1 + length).filter(|_| length < 0x80)?;
    let text = std::str::from_utf8(text).ok()?;
    text.starts_with("go").then(|| text.to_owned())
}

/// What `.gopclntab` begins with, of Go 1.18 and 1.19, and from 1.20 on; and the instructions' unit of x86-64 and the size of
/// a pointer, behind two zeros.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
const OF_X86_64: [u8; 4] = [0, 0, 1, 8];

/// Where `.gopclntab` has the number of functions, the address of the first, and where names and the table of functions are.
const COUNT: usize = 8;
const TEXT: usize = 24;
const NAMES: usize = 32;
const TABLE: usize = 64;

/// Where the section `.go.module` (from 1.26 on, when `.gopclntab` no longer has it) has the address of the first function.
const MODULE_TEXT: usize = 22 * 8;

/// Longest name of a function that is read.
const MAX_NAME: usize = 4096;

/// The functions that `.gopclntab` names, which is in stripped programs too. `module` is the section `.go.module`, if there is
/// one, and `text` where the first function is if neither of them says. Functions that share names are none of Go's.
#[must_use]
pub fn functions(table: &[u8], module: Option<&[u8]>, text: u64) -> Option<DefinedSymbols> {
    let magic = u32::from_le_bytes(*table.first_chunk()?);
    if !MAGICS.contains(&magic) || table.get(4..8)? != OF_X86_64 {
        return None;
    }
    let at = |offset: usize| usize::try_from(word(table, offset)?).ok();
    let first = first_function(table, module, text)?;
    let names = table.get(at(NAMES)?..)?;
    let entries = table.get(at(TABLE)?..)?;
    let count = at(COUNT)?;
    // Of each function two halves, its begin and where more of it stands; then the end of the last one.
    if count > entries.len() / 8 {
        return None;
    }
    let mut found = DefinedSymbols::default();
    let mut left = names.len();
    for index in 0..count {
        let (Some(begin), Some(more), Some(end)) = (
            half(entries, index * 8),
            half(entries, index * 8 + 4),
            half(entries, index * 8 + 8),
        ) else {
            return None;
        };
        let name = half(entries, more as usize + 4);
        let Some(name) = name.and_then(|name| names.get(name as usize..)) else {
            continue;
        };
        let name = &name[..name.len().min(MAX_NAME)];
        let length = name.iter().position(|byte| *byte == 0);
        left = left.checked_sub(length.map_or(name.len(), |length| length + 1))?;
        let Some(length) = length else {
            continue;
        };
        found.symbols.push(DefinedSymbol {
            name: found.strings.len(),
            address: first.checked_add(begin.into())?,
            size: end.saturating_sub(begin).into(),
        });
        found.strings.extend(&name[..=length]);
    }
    Some(found)
}

/// The address of the first function.
fn first_function(table: &[u8], module: Option<&[u8]>, text: u64) -> Option<u64> {
    let first = [
        word(table, TEXT)?,
        module
            .and_then(|module| word(module, MODULE_TEXT))
            .unwrap_or(0),
        text,
    ];
    first.into_iter().find(|address| *address != 0)
}

/// Whether a function of `.gopclntab` begins so many bytes behind the first one.
fn begins(table: &[u8], distance: u64) -> Option<bool> {
    let at = |offset: usize| usize::try_from(word(table, offset)?).ok();
    let entries = table.get(at(TABLE)?..)?;
    let distance = u32::try_from(distance).ok()?;
    let mut entries = entries.chunks_exact(8).take(at(COUNT)?);
    Some(entries.any(|entry| half(entry, 0) == Some(distance)))
}

/// Where the tables of functions are, of a program of this version whose `.gopclntab` is at this address: what the runtime
/// knows of the module is somewhere in these bytes. `None` where it is not found, as in one that is relocated when it begins.
#[must_use]
pub fn tables(bytes: &[u8], table_at: u64, version: &str) -> Option<u64> {
    let index = inlined::word_of_tables(version)?;
    let places = (0..bytes.len()).step_by(8);
    let mut modules = places
        .filter(|at| word(bytes, *at) == Some(table_at))
        .map(|at| &bytes[at..]);
    // Behind read-only data, which begins right before them.
    modules.find_map(|module| {
        let [data, tables] = [index - 1, index].map(|index| word(module, index * 8));
        tables.filter(|tables| data.is_some_and(|data| data > 0 && data <= *tables))
    })
}

/// The inlined calls of a program. `bytes` are those of its tables; the rest is as of [`functions`].
#[must_use]
pub fn inlined(
    table: &[u8],
    module: Option<&[u8]>,
    text: u64,
    bytes: &[u8],
    version: &str,
) -> Option<Inlined> {
    let magic = u32::from_le_bytes(*table.first_chunk()?);
    if !MAGICS.contains(&magic) || table.get(4..8)? != OF_X86_64 {
        return None;
    }
    let first = first_function(table, module, text)?;
    Inlined::read(table, bytes, first, version)
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn half(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_where_it_is_in_line() {
        let mut section = BUILDINFO.to_vec();
        section.extend([8, 2]);
        section.resize(HEADER, 0);
        section.extend(b"\x08go1.26.6rest");
        assert_eq!(version(&section).as_deref(), Some("go1.26.6"));
        for length in 0..HEADER + 9 {
            assert_eq!(version(&section[..length]), None, "{length}");
        }
        section[15] = 0;
        assert_eq!(version(&section), None);
        section[15] = 2;
        section[HEADER] = 0x88;
        assert_eq!(version(&section), None);
    }

    /// A table of two functions, of which the first stands where `text` says, or else `.text`.
    pub(super) fn table(text: u64) -> Vec<u8> {
        let mut table = MAGICS[1].to_le_bytes().to_vec();
        table.extend(OF_X86_64);
        for word in [2_u64, 0, text, 72, 0, 0, 0, 88] {
            table.extend(word.to_le_bytes());
        }
        table.extend(b"main.f\0main.(*T)");
        table.resize(88, 0);
        let entries = [0_u32, 20, 0x30, 28, 0x50, 0, 0, 0x30, 7];
        table.extend(entries.iter().flat_map(|half| half.to_le_bytes()));
        table
    }

    fn named(found: &DefinedSymbols) -> Vec<(&str, u64, u64)> {
        let sizes = found.symbols.iter().map(|symbol| symbol.size);
        let named = found.named().zip(sizes);
        named
            .map(|((name, address), size)| (name, address, size))
            .collect()
    }

    #[test]
    fn functions_have_names_and_sizes() {
        let both = |first: u64| [("main.f", first, 0x30), ("main.(*T)", first + 0x30, 0x20)];
        let found = functions(&table(0x1000), None, 0x9000).unwrap();
        assert_eq!(named(&found), both(0x1000));
        let mut module = vec![0; MODULE_TEXT];
        module.extend(0x2000_u64.to_le_bytes());
        let found = functions(&table(0), Some(&module), 0x9000).unwrap();
        assert_eq!(named(&found), both(0x2000));
        assert_eq!(
            named(&functions(&table(0), None, 0x9000).unwrap()),
            both(0x9000)
        );
    }

    /// A table of functions that all have the one name, of 105 bytes.
    fn sharing(count: u32) -> Vec<u8> {
        const AT: usize = 72;
        let name = format!("main.{}\0", "f".repeat(99));
        let mut table = MAGICS[1].to_le_bytes().to_vec();
        table.extend(OF_X86_64);
        let entries = (AT + name.len()) as u64;
        for word in [u64::from(count), 0, 0x1000, AT as u64, 0, 0, 0, entries] {
            table.extend(word.to_le_bytes());
        }
        table.extend(name.as_bytes());
        for index in 0..count {
            for half in [index * 16, count * 8 + 4] {
                table.extend(half.to_le_bytes());
            }
        }
        // The end of the last one, and what all have more: the name at 0.
        for half in [count * 16, 0, 0] {
            table.extend(half.to_le_bytes());
        }
        table
    }

    /// A copy of the name for each was gigabytes of a table of some megabytes.
    #[test]
    fn functions_that_share_a_name_are_none() {
        let one = functions(&sharing(1), None, 0).unwrap();
        assert_eq!((one.symbols.len(), one.strings.len()), (1, 105));
        assert_eq!(functions(&sharing(10), None, 0), None);
    }

    #[test]
    fn what_is_cut_off_or_of_another_version_has_none_or_fewer() {
        let whole = table(0x1000);
        for length in 0..whole.len() {
            let some = functions(&whole[..length], None, 0);
            assert!(some.is_none_or(|some| some.symbols.len() <= 2), "{length}");
        }
        let mut other = whole.clone();
        other[0] = 0xfb;
        assert_eq!(functions(&other, None, 0), None);
        let mut many = whole;
        many[COUNT..COUNT + 8].fill(0xff);
        assert_eq!(functions(&many, None, 0), None);
    }
}
