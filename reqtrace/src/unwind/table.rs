//! Tables: the `.eh_frame` of an object in, sorted rows and their chunk index out.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, EhFrame, EhFrameOffset, Encoding,
    EndianSlice, FrameDescriptionEntry, LittleEndian, Operation, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection as _, UnwindTableRow, X86_64,
};
use reqtrace_common::unwind::{
    CHUNK_SHIFT, Cfa, MAX_CFA_WORDS, MAX_RBP_WORDS, Rbp, Row, Rule, SEARCH_STEPS,
};

use super::object::{Object, Segment};

/// A table begins on a page, so that low bits of an offset in it are those of the address: the
/// rule for procedure linkage tables looks at them.
const PAGE: u64 = 4096;
/// Bytes per chunk.
const CHUNK: u64 = 1 << CHUNK_SHIFT;
/// Size of an entry of a procedure linkage table.
const PLT_ENTRY: u64 = 16;
/// From this byte of an entry on, one more word is on the stack: [`Cfa::Plt`]'s meaning.
const PLT_PUSHED: u8 = 11;
/// The largest procedure linkage table that is written out entry by entry.
const MAX_PLT_BYTES: u64 = 1 << 20;
/// glibc's clone and clone3 have no rows between the system call and the new thread's first
/// instruction; the hole is at most this long.
const CLONE_HOLE: u64 = 16;
/// Where the kernel puts rsp in a signal frame, seen from the trampoline.
const SIGNAL_RSP: i64 = 160;

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
}

/// Why a row says [`Cfa::Unsupported`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnsupportedCause {
    /// The frame is found from a register other than rsp and rbp.
    CfaRegister,
    /// The frame is found by another expression than the known ones.
    CfaExpression,
    /// The frame's offset is negative, no multiple of 8, or too large.
    CfaOffset,
    /// The return address does not stand below the frame.
    ReturnAddress,
    /// rbp is lost or stands in another register. Going on with a wrong one would name functions
    /// that were never called.
    FramePointer,
    /// The instructions cannot be decoded.
    Malformed,
}

impl UnsupportedCause {
    /// All causes, in the order of [`TableStats::unsupported`].
    pub const ALL: [Self; 6] = [
        Self::CfaRegister,
        Self::CfaExpression,
        Self::CfaOffset,
        Self::ReturnAddress,
        Self::FramePointer,
        Self::Malformed,
    ];
}

/// How often a cause made rows unsupported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsupported {
    /// Rows of `.eh_frame`.
    pub rows: u64,
    /// Bytes of code that they stand for.
    pub bytes: u64,
}

/// What compiling a table met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Functions, or parts of functions, with unwind information.
    pub functions: u64,
    /// Bytes of `.eh_frame`.
    pub frame_bytes: u64,
    /// Bytes of code that have a rule, unsupported ones included.
    pub covered_bytes: u64,
    /// Rows that are unsupported, by cause in the order of [`UnsupportedCause::ALL`].
    pub unsupported: [Unsupported; UnsupportedCause::ALL.len()],
    /// Functions left out: empty, outside of executable segments, or a second one at an address.
    pub dropped: u64,
    /// Functions cut because the next one begins inside of them.
    pub overlapping: u64,
    /// Entries that could not be parsed.
    pub malformed: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl TableStats {
    /// All unsupported rows together.
    #[must_use]
    pub fn all_unsupported(&self) -> Unsupported {
        self.unsupported
            .iter()
            .fold(Unsupported::default(), |sum, one| Unsupported {
                rows: sum.rows + one.rows,
                bytes: sum.bytes + one.bytes,
            })
    }
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
    /// When there is nothing to compile, or the code is too large for the table's offsets.
    pub fn compile(object: &Object) -> Result<Self, TableError> {
        let begun = Instant::now();
        let mut stats = TableStats {
            frame_bytes: object.frames.bytes.len() as u64,
            ..TableStats::default()
        };
        let section = EhFrame::new(&object.frames.bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(object.frames.address);
        let functions = functions(&section, &bases, &object.segments, &mut stats);
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
            function.pieces(&section, &bases, &mut context, &mut pieces, &mut stats);
            if covered < function.start && !rows.is_clone_hole(covered, function.start, &pieces) {
                rows.push(covered, Rule::bare(Cfa::None));
            }
            for &(start, rule) in &pieces {
                rows.push(start, rule);
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

/// A function, or a part of one, that has rows; never empty.
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
        &mut TableStats::default(),
    )
    .iter()
    .map(|function| function.start..function.end)
    .collect()
}

struct Function<'a> {
    start: u64,
    end: u64,
    fde: Fde<'a>,
}

/// Functions in executable segments, sorted and not overlapping. As in the C++ runtime's search,
/// the one that begins last holds, until its end or the next one's start; of several that begin at
/// one address the first in the section holds.
fn functions<'a>(
    section: &Section<'a>,
    bases: &BaseAddresses,
    segments: &[Segment],
    stats: &mut TableStats,
) -> Vec<Function<'a>> {
    let mut functions = Vec::new();
    let mut cies: HashMap<usize, CommonInformationEntry<Slice<'a>>> = HashMap::new();
    let mut entries = section.entries(bases);
    loop {
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
    // Stable, hence in the section's order where the start is the same.
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

/// What a row of `.eh_frame` becomes.
enum Translated {
    Rule(Rule),
    /// A procedure linkage table, and the byte of an entry from which on one more word is pushed.
    Plt(u8),
}

impl Function<'_> {
    /// Appends where a rule begins, and the rule.
    fn pieces(
        &self,
        section: &Section<'_>,
        bases: &BaseAddresses,
        context: &mut UnwindContext<usize>,
        pieces: &mut Vec<(u64, Rule)>,
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
        while reached < self.end {
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

fn translate(
    row: &UnwindTableRow<usize>,
    section: &Section<'_>,
    fde: &Fde<'_>,
) -> Result<Translated, UnsupportedCause> {
    let return_address = row.register(X86_64::RA);
    if return_address == Some(RegisterRule::Undefined) {
        return Ok(Translated::Rule(Rule::bare(Cfa::Outermost)));
    }
    let expression = |expression: &UnwindExpression<usize>| {
        understand(expression, section, fde.cie().encoding())
    };
    if fde.is_signal_trampoline() {
        // The letter S alone does not say that the kernel's frame is here.
        return match row.cfa() {
            CfaRule::Expression(cfa)
                if expression(cfa) == Some(Known::At(X86_64::RSP, SIGNAL_RSP)) =>
            {
                Ok(Translated::Rule(Rule::bare(Cfa::Signal)))
            }
            _ => Err(UnsupportedCause::CfaExpression),
        };
    }
    if return_address != Some(RegisterRule::Offset(-8)) {
        return Err(UnsupportedCause::ReturnAddress);
    }
    let (cfa, cfa_words) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let cfa = match *register {
                X86_64::RSP => Cfa::Rsp,
                X86_64::RBP => Cfa::Rbp,
                _ => return Err(UnsupportedCause::CfaRegister),
            };
            (cfa, words(*offset).ok_or(UnsupportedCause::CfaOffset)?)
        }
        CfaRule::Expression(cfa) => match expression(cfa) {
            Some(Known::At(X86_64::RBP, offset)) => (
                Cfa::AtRbp,
                words(offset.saturating_neg()).ok_or(UnsupportedCause::CfaOffset)?,
            ),
            Some(Known::Plt(pushed)) => {
                return match row.register(X86_64::RBP) {
                    None | Some(RegisterRule::SameValue) => Ok(Translated::Plt(pushed)),
                    Some(_) => Err(UnsupportedCause::FramePointer),
                };
            }
            _ => return Err(UnsupportedCause::CfaExpression),
        },
    };
    let rbp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => Rbp::Same,
        Some(RegisterRule::Offset(offset)) => offset
            .checked_neg()
            .and_then(words)
            .and_then(|words| u8::try_from(words).ok())
            .filter(|words| (1..=MAX_RBP_WORDS).contains(words))
            .map(Rbp::BelowCfa)
            .ok_or(UnsupportedCause::FramePointer)?,
        Some(RegisterRule::Expression(place))
            if cfa == Cfa::AtRbp && expression(&place) == Some(Known::Place(X86_64::RBP, 0)) =>
        {
            Rbp::AtRbp
        }
        Some(_) => return Err(UnsupportedCause::FramePointer),
    };
    Ok(Translated::Rule(Rule {
        cfa,
        cfa_words,
        rbp,
    }))
}

/// Bytes to 8-byte words, if the row format can hold them.
fn words(offset: i64) -> Option<u32> {
    let offset = u32::try_from(offset).ok()?;
    (offset % 8 == 0 && offset / 8 <= MAX_CFA_WORDS).then_some(offset / 8)
}

/// The expressions that occur.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// Register + offset.
    Place(Register, i64),
    /// What stands at register + offset.
    At(Register, i64),
    /// rsp + 8, and 8 more from this byte of each 16-byte entry on.
    Plt(u8),
}

fn understand(
    expression: &UnwindExpression<usize>,
    section: &Section<'_>,
    encoding: Encoding,
) -> Option<Known> {
    /// One more than the longest that is known.
    const MOST: usize = 10;
    let mut operations = expression.get(section).ok()?.operations(encoding);
    let mut found = Vec::with_capacity(MOST);
    while let Some(operation) = operations.next().ok()? {
        if found.len() == MOST {
            return None;
        }
        found.push(operation);
    }
    let base = |operation: &Operation<Slice<'_>>| match *operation {
        Operation::RegisterOffset {
            register, offset, ..
        } => Some((register, offset)),
        _ => None,
    };
    let (register, offset) = base(found.first()?)?;
    match &found[1..] {
        [] => Some(Known::Place(register, offset)),
        [
            Operation::Deref {
                size: 8,
                space: false,
                ..
            },
        ] => Some(Known::At(register, offset)),
        [
            pc,
            Operation::UnsignedConstant { value: 15 },
            Operation::And,
            Operation::UnsignedConstant { value: pushed },
            Operation::Ge,
            Operation::UnsignedConstant { value: 3 },
            Operation::Shl,
            Operation::Plus,
        ] if (register, offset) == (X86_64::RSP, 8)
            && base(pc) == Some((X86_64::RA, 0))
            && (1..PLT_ENTRY).contains(pushed) =>
        {
            u8::try_from(*pushed).ok().map(Known::Plt)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
