//! Debug information (DWARF) in, whether it can be handed to blazesym out.
//!
//! blazesym calls itself once for each function that is inlined into an inlined one, and reads each
//! attribute of a unit. Compilers nest some dozens of functions; whoever writes a file on purpose can nest
//! a million, and the stack ends, which nothing catches. It also keeps every range of addresses of each function,
//! and all functions can have one long list. So it is walked once before.

use gimli::{
    Abbreviation, AbbreviationsCache, AbbreviationsCacheStrategy, AttributeValue, DW_AT_ranges,
    DW_TAG_inlined_subroutine, DebugAbbrev, DebugInfo, DebugRanges, DebugRngLists, Encoding,
    EndianSlice, EntriesRaw, LittleEndian, RangeLists, RangeListsOffset,
};

/// How deep inlined functions may nest: without optimisation, too, blazesym then needs less than the 2 MiB of
/// a thread.
const MAX_NESTING: usize = 500;
/// Attributes for each byte of `.debug_info`: some have no bytes there, most have one or more.
const MAX_ATTRIBUTES: usize = 4;
/// Ranges of all functions and units, for each byte of the lists: a range takes three bytes or more, and few functions
/// share a list.
const MAX_RANGES: usize = 4;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Why it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("inlined functions nest deeper than {MAX_NESTING}")]
    Nesting,
    #[error("it has more than {MAX_ATTRIBUTES} attributes for each byte")]
    Attributes,
    #[error("its functions have more than {MAX_RANGES} ranges for each byte of the lists")]
    Ranges,
    #[error("it is malformed: {0}")]
    Malformed(#[from] gimli::Error),
}

/// Walks `.debug_info`. `lists` are `.debug_ranges` and `.debug_rnglists`.
pub(super) fn check(info: &[u8], abbreviations: &[u8], lists: [&[u8]; 2]) -> Result<(), Refused> {
    let mut attributes_left = info.len().saturating_mul(MAX_ATTRIBUTES);
    let mut ranges = Ranges::of(lists);
    let abbreviations = DebugAbbrev::new(abbreviations, LittleEndian);
    let info = DebugInfo::new(info, LittleEndian);
    let mut known = AbbreviationsCache::new();
    known.populate(
        AbbreviationsCacheStrategy::Duplicates,
        &abbreviations,
        info.units(),
    );
    let mut units = info.units();
    while let Some(unit) = units.next()? {
        let known = known.get(&abbreviations, unit.debug_abbrev_offset())?;
        let mut entries = unit.entries_raw(&known, None)?;
        // Depths of the inlined functions around an entry.
        let mut around = Vec::new();
        let mut is_first = true;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            while around.last().is_some_and(|outer| *outer >= depth) {
                around.pop();
            }
            let Some(entry) = entries.read_abbreviation()? else {
                continue;
            };
            if entry.tag() == DW_TAG_inlined_subroutine {
                around.push(depth);
                if around.len() > MAX_NESTING {
                    return Err(Refused::Nesting);
                }
            }
            attributes_left = attributes_left
                .checked_sub(entry.attributes().len())
                .ok_or(Refused::Attributes)?;
            if is_first || has_ranges(entry) {
                ranges.read(&mut entries, entry, unit.encoding(), is_first)?;
            } else {
                entries.skip_attributes(entry.attributes())?;
            }
            is_first = false;
        }
    }
    Ok(())
}

/// Whether an entry is one whose ranges blazesym keeps, besides that of the unit.
fn has_ranges(entry: &Abbreviation) -> bool {
    let mut attributes = entry.attributes().iter();
    [gimli::DW_TAG_subprogram, DW_TAG_inlined_subroutine].contains(&entry.tag())
        && attributes.any(|attribute| attribute.name() == DW_AT_ranges)
}

/// Lists of ranges of addresses.
struct Ranges<'a> {
    lists: RangeLists<Slice<'a>>,
    /// `.debug_rnglists`, and where in it the unit has the offsets of its lists.
    indexed: &'a [u8],
    base: usize,
    /// How many more there may be.
    left: usize,
}

impl<'a> Ranges<'a> {
    fn of([bare, indexed]: [&'a [u8]; 2]) -> Self {
        let bytes = bare.len().saturating_add(indexed.len());
        Self {
            lists: RangeLists::new(
                DebugRanges::new(bare, LittleEndian),
                DebugRngLists::new(indexed, LittleEndian),
            ),
            indexed,
            base: 0,
            left: bytes.saturating_mul(MAX_RANGES),
        }
    }

    /// Reads the attributes of an entry, and counts its ranges. The first one of a unit says where the offsets of
    /// lists are.
    fn read(
        &mut self,
        entries: &mut EntriesRaw<'_, Slice<'_>>,
        entry: &Abbreviation,
        encoding: Encoding,
        is_first: bool,
    ) -> Result<(), Refused> {
        if is_first {
            self.base = 0;
        }
        let mut list = None;
        for attribute in entry.attributes() {
            let attribute = entries.read_attribute(*attribute)?;
            let value = attribute.value();
            if attribute.name() == DW_AT_ranges {
                list = Some(value);
            } else if is_first && let AttributeValue::DebugRngListsBase(base) = value {
                self.base = base.0;
            }
        }
        match list {
            Some(AttributeValue::RangeListsRef(offset)) => self.count(offset.0, encoding),
            Some(AttributeValue::DebugRngListsIndex(index)) => {
                let offset = self.offset_of(index.0, encoding);
                offset.map_or(Ok(()), |offset| self.count(offset, encoding))
            }
            _ => Ok(()),
        }
    }

    /// Where the list of an index is. gimli adds what the file states unchecked.
    fn offset_of(&self, index: usize, encoding: Encoding) -> Option<usize> {
        let size = usize::from(encoding.format.word_size());
        let at = self.base.checked_add(index.checked_mul(size)?)?;
        let mut word = [0; 8];
        word[..size].copy_from_slice(self.indexed.get(at..at.checked_add(size)?)?);
        let offset = usize::try_from(u64::from_le_bytes(word)).ok()?;
        self.base.checked_add(offset)
    }

    /// Counts the ranges of a list; it ends where it is malformed.
    fn count(&mut self, offset: usize, encoding: Encoding) -> Result<(), Refused> {
        let Ok(list) = self.lists.raw_ranges(RangeListsOffset(offset), encoding) else {
            return Ok(());
        };
        let most = self.left.saturating_add(1);
        let count = list.take(most).take_while(Result::is_ok).count();
        self.left = self.left.checked_sub(count).ok_or(Refused::Ranges)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{abbreviations, info};

    fn check(info: &[u8], abbreviations: &[u8]) -> Result<(), Refused> {
        super::check(info, abbreviations, [&[], &[]])
    }

    #[test]
    fn nesting_is_bounded() {
        let most = u32::try_from(MAX_NESTING).unwrap();
        assert_eq!(check(&info(0, false), &abbreviations(0)), Ok(()));
        assert_eq!(check(&info(most, false), &abbreviations(0)), Ok(()));
        let deeper = check(&info(most + 1, false), &abbreviations(0));
        assert_eq!(deeper, Err(Refused::Nesting));
        let deepest = check(&info(1_000_000, false), &abbreviations(0));
        assert_eq!(deepest, Err(Refused::Nesting));
    }

    /// A flag takes no byte where it is used.
    #[test]
    fn attributes_are_bounded() {
        let unit = info(100, false);
        assert_eq!(check(&unit, &abbreviations(2)), Ok(()));
        assert_eq!(check(&unit, &abbreviations(100)), Err(Refused::Attributes));
    }

    /// How an entry says where its list is: `DW_FORM_sec_offset`, `DW_FORM_rnglistx`.
    const OFFSET: u8 = 0x17;
    const INDEX: u8 = 0x23;
    /// Where the offsets of lists are, and the list.
    const BASE: u8 = 8;
    const LIST: u8 = BASE + 4;

    /// A unit of functions that have one list, and its abbreviations.
    fn sharing(functions: usize, version: u8, form: u8) -> [Vec<u8>; 2] {
        let mut unit = vec![version, 0];
        // The kind of the unit, the size of an address, and the offset of its abbreviations; before version 5 the
        // latter two, the other way round.
        if version >= 5 {
            unit.extend([1, 8, 0, 0, 0, 0]);
        } else {
            unit.extend([0, 0, 0, 0, 8]);
        }
        unit.extend([1, BASE, 0, 0, 0]);
        for _ in 0..functions {
            match form {
                INDEX => unit.extend([2, 0]),
                _ => unit.extend([2, LIST, 0, 0, 0]),
            }
        }
        unit.push(0);
        let length = u32::try_from(unit.len()).unwrap().to_le_bytes();
        // A unit with the place of offsets and children, and a function with ranges.
        let abbreviations = [
            1, 0x11, 1, 0x74, OFFSET, 0, 0, 2, 0x2e, 0, 0x55, form, 0, 0, 0,
        ];
        [[length.as_slice(), &unit].concat(), abbreviations.to_vec()]
    }

    /// All of them are kept: a file of a megabyte would take more memory than there is.
    #[test]
    fn ranges_are_bounded() {
        let none: &[u8] = &[];
        let mut bare = vec![0_u8; usize::from(LIST)];
        // A hundred times from 1 to 2, and the end.
        let range = [1_u64, 2].map(u64::to_le_bytes).concat();
        bare.extend(range.repeat(100));
        bare.extend([0; 16]);
        let mut indexed = vec![0_u8; usize::from(BASE)];
        indexed.extend([LIST - BASE, 0, 0, 0]);
        // The same by `DW_RLE_offset_pair`.
        indexed.extend([4_u8, 1, 2].repeat(100));
        indexed.push(0);
        for (lists, version, form, most) in [
            ([bare.as_slice(), none], 4, OFFSET, 65),
            ([none, indexed.as_slice()], 5, OFFSET, 12),
            ([none, indexed.as_slice()], 5, INDEX, 12),
        ] {
            let checked = |functions: usize| {
                let [info, abbreviations] = sharing(functions, version, form);
                super::check(&info, &abbreviations, lists)
            };
            assert_eq!(checked(most), Ok(()), "{version} {form}");
            assert_eq!(checked(most + 1), Err(Refused::Ranges), "{version} {form}");
            // Without the lists there are none.
            let [info, abbreviations] = sharing(1000, version, form);
            assert_eq!(check(&info, &abbreviations), Ok(()));
        }
    }

    #[test]
    fn what_is_cut_is_refused() {
        let unit = info(3, false);
        for length in 1..unit.len() {
            let cut = check(&unit[..length], &abbreviations(0));
            assert!(
                matches!(cut, Err(Refused::Malformed(_))),
                "{length} {cut:?}"
            );
        }
        assert_eq!(check(&[], &[]), Ok(()));
    }
}
