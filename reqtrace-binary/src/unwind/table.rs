//! Tables: the `.eh_frame` of an object in, sorted rows and their chunk index out.

mod functions;
mod rules;
mod stats;

use std::time::Instant;

use gimli::{
    BaseAddresses, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, UnwindContext,
};
use reqtrace_common::unwind::{CHUNK_SHIFT, Cfa, Rbp, Row, Rule, SEARCH_STEPS};

pub use functions::function_ranges;
pub use stats::{TableStats, Unsupported, UnsupportedCause};

use super::MAX_ROWS;
use super::object::Object;
use functions::functions;

/// A table begins on a page, so that low bits of an offset in it are those of the address: the
/// rule for procedure linkage tables looks at them.
const PAGE: u64 = 4096;
/// Bytes per chunk.
const CHUNK: u64 = 1 << CHUNK_SHIFT;
/// Size of an entry of a procedure linkage table.
const PLT_ENTRY: u64 = 16;
/// glibc's clone and clone3 have no rows between the system call and the new thread's first
/// instruction; the hole is at most this long.
const CLONE_HOLE: u64 = 16;
const _: () = assert!(
    1 << SEARCH_STEPS > CHUNK,
    "rows have different addresses, so that no chunk can hold more than a search tells apart"
);

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Section<'a> = EhFrame<Slice<'a>>;
type Fde<'a> = FrameDescriptionEntry<Slice<'a>>;

/// Why a table could not be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No function is described.
    #[error("its .eh_frame describes no function")]
    Empty,
    /// Offsets have 32 bits.
    #[error("its code spans {0} bytes; 4 GiB is the limit")]
    TooLarge(u64),
    /// All objects together can have no more.
    #[error("it has more than {MAX_ROWS} rows")]
    TooManyRows,
}

/// The unwind table of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The linked address at which offset 0 lies; a multiple of the page size.
    pub base: u64,
    /// Rows, strictly ascending by address. The first has offset 0, the last ends the table.
    pub rows: Vec<Row>,
    /// One entry more than there are chunks. Entry `i` is the number of the last row, counted from
    /// the table's first, that begins at or below chunk `i`.
    pub index: Vec<u32>,
    /// What compiling it met.
    pub stats: TableStats,
}

impl Table {
    /// Compiles the table of an object.
    ///
    /// # Errors
    ///
    /// When there is nothing to compile, the code is too large for the table's offsets, or the table for the kernel's.
    pub fn compile(object: &Object) -> Result<Self, TableError> {
        Self::within(object, MAX_ROWS as usize)
    }

    /// The same with at most so many rows.
    fn within(object: &Object, most: usize) -> Result<Self, TableError> {
        let begun = Instant::now();
        let mut stats = TableStats {
            frame_bytes: object.frames.bytes.len() as u64,
            ..TableStats::default()
        };
        let section = EhFrame::new(&object.frames.bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(object.frames.address);
        let functions = functions(&section, &bases, &object.segments, most, &mut stats);
        if functions.len() > most {
            return Err(TableError::TooManyRows);
        }
        let (Some(first), Some(last)) = (functions.first(), functions.last()) else {
            return Err(TableError::Empty);
        };
        let base = first.start & !(PAGE - 1);
        let span = last.end - base;
        if u32::try_from(span).is_err() {
            return Err(TableError::TooLarge(span));
        }
        let mut rows = Rows {
            base,
            rows: Vec::with_capacity(functions.len() * 4),
        };
        let mut context = UnwindContext::new();
        let mut pieces = Vec::new();
        let mut covered = base;
        for function in &functions {
            pieces.clear();
            function.pieces(
                &section,
                &bases,
                &mut context,
                &mut pieces,
                most,
                &mut stats,
            );
            if covered < function.start && !rows.is_clone_hole(covered, function.start, &pieces) {
                rows.push(covered, Rule::bare(Cfa::None));
            }
            for &(start, rule) in &pieces {
                rows.push(start, rule);
            }
            if pieces.len().max(rows.rows.len()) > most {
                return Err(TableError::TooManyRows);
            }
            covered = function.end;
            stats.covered_bytes += function.end - function.start;
        }
        rows.push(covered, Rule::bare(Cfa::None));
        let mut rows = rows.rows;
        rows.shrink_to_fit();
        stats.functions = functions.len() as u64;
        stats.elapsed = begun.elapsed();
        Ok(Self {
            base,
            index: chunk_index(&rows, span),
            rows,
            stats,
        })
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        // An index of 4 GiB of code has 2^24 entries.
        u32::try_from(self.index.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Bytes of the rows and the index.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.rows.as_slice()) + size_of_val(self.index.as_slice())
    }

    /// The rule at a linked address, found as the kernel programs find it.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Rule {
        self.find(address.wrapping_sub(self.base))
            .map_or(Rule::bare(Cfa::None), |row| Rule::unpack(row.rule))
    }

    fn find(&self, offset: u64) -> Option<Row> {
        let chunk = usize::try_from(offset >> CHUNK_SHIFT).ok()?;
        let (&first, &last) = (self.index.get(chunk)?, self.index.get(chunk + 1)?);
        let (mut low, mut size) = (first as usize, (last - first) as usize + 1);
        for _ in 0..SEARCH_STEPS {
            let half = size / 2;
            if u64::from(self.rows.get(low + half)?.pc) <= offset {
                low += half;
            }
            size -= half;
        }
        self.rows.get(low).copied()
    }
}

/// Entry `i`: the last row at or below chunk `i`.
fn chunk_index(rows: &[Row], span: u64) -> Vec<u32> {
    let chunks = span.div_ceil(CHUNK);
    let mut last = 0;
    (0..=chunks)
        .map(|chunk| {
            while rows
                .get(last + 1)
                .is_some_and(|row| u64::from(row.pc) <= chunk << CHUNK_SHIFT)
            {
                last += 1;
            }
            // There are no more rows than bytes of code.
            last as u32
        })
        .collect()
}

/// Rows so far.
struct Rows {
    base: u64,
    rows: Vec<Row>,
}

impl Rows {
    /// `rule` holds from `address` on; addresses do not descend.
    fn push(&mut self, address: u64, rule: Rule) {
        // The span was checked to have 32 bits.
        let pc = (address - self.base) as u32;
        if self.rows.last().is_some_and(|row| row.pc == pc) {
            self.rows.pop();
        }
        let rule = rule.pack();
        if self.rows.last().is_none_or(|row| row.rule != rule) {
            self.rows.push(Row { pc, rule });
        }
    }

    /// Whether a hole is the one in glibc's clone: its frame is still that of the code before. A
    /// thread that waits for its `CLONE_VFORK` child (`posix_spawn`, `system`) stands there.
    fn is_clone_hole(&self, start: u64, end: u64, next: &[(u64, Rule)]) -> bool {
        const LEAF: Rule = Rule {
            cfa: Cfa::Rsp,
            cfa_words: 1,
            rbp: Rbp::Same,
        };
        end - start <= CLONE_HOLE
            && next
                .first()
                .is_some_and(|(_, rule)| rule.cfa == Cfa::Outermost)
            && self.rows.last().is_some_and(|row| row.rule == LEAF.pack())
    }
}

#[cfg(test)]
mod tests;
