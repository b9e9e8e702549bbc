//! Functions: an `.eh_frame` in, its functions in order and without overlaps out, and the rules of
//! each.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EhFrameOffset, LittleEndian,
    UnwindContext, UnwindSection as _,
};
use reqtrace_common::unwind::{Cfa, Rbp, Rule};

use super::rules::{Translated, translate};
use super::stats::{TableStats, UnsupportedCause};
use super::{Fde, PLT_ENTRY, Section, Slice};
use crate::unwind::MAX_ROWS;
use crate::unwind::object::{Object, Segment};

/// From this byte of an entry on, one more word is on the stack: [`Cfa::Plt`]'s meaning.
const PLT_PUSHED: u8 = 11;
/// The largest procedure linkage table that is written out entry by entry.
const MAX_PLT_BYTES: u64 = 1 << 20;

/// Where the functions of an object begin and end, by its unwind information: sorted, not
/// overlapping. Known for functions without a symbol too.
#[must_use]
pub fn function_ranges(object: &Object) -> Vec<Range<u64>> {
    let section = EhFrame::new(&object.frames.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(object.frames.address);
    functions(
        &section,
        &bases,
        &object.segments,
        MAX_ROWS as usize,
        &mut TableStats::default(),
    )
    .iter()
    .map(|function| function.start..function.end)
    .collect()
}

/// A function, or a part of one, that has rows; never empty.
pub(super) struct Function<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    fde: Fde<'a>,
}

/// Functions in executable segments, sorted and not overlapping. As in the C++ runtime's search,
/// the one that begins last holds, until its end or the next one's start; of several that begin at
/// one address the first in the section holds. Behind the first one beyond `most` no more are looked for.
pub(super) fn functions<'a>(
    section: &Section<'a>,
    bases: &BaseAddresses,
    segments: &[Segment],
    most: usize,
    stats: &mut TableStats,
) -> Vec<Function<'a>> {
    let mut functions = Vec::new();
    let mut cies: HashMap<usize, CommonInformationEntry<Slice<'a>>> = HashMap::new();
    let mut entries = section.entries(bases);
    while functions.len() <= most {
        let partial = match entries.next() {
            Ok(Some(CieOrFde::Fde(partial))) => partial,
            Ok(Some(CieOrFde::Cie(_))) => continue,
            Ok(None) => break,
            Err(_) => {
                stats.malformed += 1;
                break;
            }
        };
        let parsed = partial.parse(|section, bases, offset: EhFrameOffset| {
            if let Some(cie) = cies.get(&offset.0) {
                return Ok(cie.clone());
            }
            let cie = section.cie_from_offset(bases, offset)?;
            cies.insert(offset.0, cie.clone());
            Ok(cie)
        });
        let Ok(fde) = parsed else {
            stats.malformed += 1;
            continue;
        };
        // What a linker has thrown away stands at address 0.
        let start = fde.initial_address();
        let segment = segments.iter().find(|segment| {
            segment.executable
                && start != 0
                && segment.address <= start
                && start - segment.address < segment.memory_size
        });
        let end = segment.and_then(|segment| {
            let end = start.checked_add(fde.len())?;
            Some(end.min(segment.address.saturating_add(segment.memory_size)))
        });
        match end {
            Some(end) if end > start => functions.push(Function { start, end, fde }),
            _ => stats.dropped += 1,
        }
    }
    // Stable, so in the section's order where the start is the same.
    functions.sort_by_key(|function| function.start);
    let before = functions.len();
    functions.dedup_by_key(|function| function.start);
    stats.dropped += (before - functions.len()) as u64;
    for index in 1..functions.len() {
        let next = functions[index].start;
        let function = &mut functions[index - 1];
        if function.end > next {
            function.end = next;
            stats.overlapping += 1;
        }
    }
    functions
}

impl Function<'_> {
    /// Appends where a rule begins, and the rule; stops when there are more than `most`.
    pub(super) fn pieces(
        &self,
        section: &Section<'_>,
        bases: &BaseAddresses,
        context: &mut UnwindContext<usize>,
        pieces: &mut Vec<(u64, Rule)>,
        most: usize,
        stats: &mut TableStats,
    ) {
        let mut unsupported = |start: u64, end: u64, cause: UnsupportedCause| {
            let one = &mut stats.unsupported[cause as usize];
            one.rows += 1;
            one.bytes += end.saturating_sub(start);
            (start, Rule::bare(Cfa::Unsupported))
        };
        let mut reached = self.start;
        let Ok(mut rows) = self.fde.rows(section, bases, context) else {
            pieces.push(unsupported(
                self.start,
                self.end,
                UnsupportedCause::Malformed,
            ));
            return;
        };
        while reached < self.end && pieces.len() <= most {
            let row = match rows.next_row() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(_) => {
                    pieces.push(unsupported(reached, self.end, UnsupportedCause::Malformed));
                    return;
                }
            };
            let (start, end) = (row.start_address(), row.end_address().min(self.end));
            if start >= end {
                continue;
            }
            reached = end;
            match translate(row, section, &self.fde) {
                Ok(Translated::Rule(rule)) => pieces.push((start, rule)),
                Ok(Translated::Plt(PLT_PUSHED)) => pieces.push((start, Rule::bare(Cfa::Plt))),
                Ok(Translated::Plt(pushed)) if end - start <= MAX_PLT_BYTES => {
                    plt_entries(start, end, pushed, pieces);
                }
                Ok(Translated::Plt(_)) => {
                    pieces.push(unsupported(start, end, UnsupportedCause::CfaExpression));
                }
                Err(cause) => pieces.push(unsupported(start, end, cause)),
            }
        }
    }
}

/// Linkage tables with another layout of their entries, as for indirect branch tracking.
fn plt_entries(start: u64, end: u64, pushed: u8, pieces: &mut Vec<(u64, Rule)>) {
    let rule = |cfa_words| Rule {
        cfa: Cfa::Rsp,
        cfa_words,
        rbp: Rbp::Same,
    };
    let mut entry = start & !(PLT_ENTRY - 1);
    while entry < end {
        for (address, words) in [(entry, 1), (entry + u64::from(pushed), 2)] {
            let next = if words == 1 {
                entry + u64::from(pushed)
            } else {
                entry + PLT_ENTRY
            };
            if next > start && address < end {
                pieces.push((address.max(start), rule(words)));
            }
        }
        entry += PLT_ENTRY;
    }
}
