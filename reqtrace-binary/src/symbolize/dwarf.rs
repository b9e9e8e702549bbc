//! Debug information (DWARF) in, whether it can be handed to blazesym out.
//!
//! blazesym calls itself once for each function that is inlined into an inlined one, and reads each
//! attribute of a unit. Compilers nest some dozens of functions; whoever writes a file on purpose can nest
//! a million, and the stack ends, which nothing catches. So it is walked once before.

use gimli::{
    AbbreviationsCache, AbbreviationsCacheStrategy, DW_TAG_inlined_subroutine, DebugAbbrev,
    DebugInfo, LittleEndian,
};

/// How deep inlined functions may nest: without optimisation, too, blazesym then needs less than the 2 MiB of
/// a thread.
const MAX_NESTING: usize = 500;
/// Attributes for each byte of `.debug_info`: some have no bytes there, most have one or more.
const MAX_ATTRIBUTES: usize = 4;

/// Why it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("inlined functions nest deeper than {MAX_NESTING}")]
    Nesting,
    #[error("it has more than {MAX_ATTRIBUTES} attributes for each byte")]
    Attributes,
    #[error("it is malformed: {0}")]
    Malformed(#[from] gimli::Error),
}

/// Walks `.debug_info`.
pub(super) fn check(info: &[u8], abbreviations: &[u8]) -> Result<(), Refused> {
    let mut attributes_left = info.len().saturating_mul(MAX_ATTRIBUTES);
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
            entries.skip_attributes(entry.attributes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{abbreviations, info};

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
