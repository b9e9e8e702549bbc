//! Mappings: those of a process and their tables' places in, the kernel programs' sorted array out.

use std::path::PathBuf;

use reqtrace_common::unwind::{MAX_MAPPINGS, Mapping, Mappings};

use super::{Known, Without};
use crate::maps::Mapped;
use crate::unwind::object::Object;
use crate::unwind::process::NoTable;

/// The entry of a mapping, if it has a table.
pub(super) fn mapping(line: &Mapped, known: &Known) -> Result<Mapping, NoTable> {
    let (place, segments) = match known {
        Known::Placed(place, segments) => (place, segments),
        Known::Without(cause) => return Err(*cause),
    };
    // Executable pages of a segment that is not: nothing is known about them.
    let linked = Object::address_of(segments, line.offset).ok_or(NoTable::NoFrames)?;
    Ok(Mapping {
        start: line.start,
        end: line.end,
        bias: line.start.wrapping_sub(linked).wrapping_add(place.base),
        index_start: place.index_start,
        chunks: place.chunks,
    })
}

/// Joins what belongs together, and leaves out the smallest if there are too many; those without a
/// table first.
pub(super) fn fit(mut entries: Vec<Mapping>, without: &mut Vec<Without>) -> Box<Mappings> {
    entries.sort_by_key(|mapping| mapping.start);
    entries.dedup_by(|next, mapping| {
        let joined = mapping.end == next.start
            && (mapping.bias, mapping.index_start, mapping.chunks)
                == (next.bias, next.index_start, next.chunks);
        if joined {
            mapping.end = next.end;
        }
        joined
    });
    if entries.len() > MAX_MAPPINGS {
        entries.sort_by_key(|mapping| {
            let size = mapping.end - mapping.start;
            std::cmp::Reverse((mapping.chunks > 0, size, mapping.start))
        });
        without.extend(entries.drain(MAX_MAPPINGS..).map(|mapping| Without {
            name: PathBuf::new(),
            cause: NoTable::TooManyMappings,
            bytes: mapping.end - mapping.start,
        }));
        entries.sort_by_key(|mapping| mapping.start);
    }
    let mut mappings = Box::new(Mappings {
        // At most MAX_MAPPINGS.
        len: entries.len() as u32,
        generation: 0,
        entries: [Mapping::default(); MAX_MAPPINGS],
    });
    for (place, mapping) in mappings.entries.iter_mut().zip(entries) {
        *place = mapping;
    }
    mappings
}
