//! Functions that Go's compiler has inlined: what the runtime needs of them for its own traces in; at an address, their
//! names out. Stripped programs have it too.
//!
//! Each function has a table of calls that were inlined into it, and a stream of deltas that tells for each instruction
//! which of these it belongs to (`runtime/symtab.go`, `runtime/symtabinl.go`). What does not fit together is left out.

use std::collections::HashMap;
use std::ops::Range;

use super::{COUNT, MAX_NAME, NAMES, TABLE, half, word};

/// Minor versions of Go 1 whose tables are known.
const KNOWN: std::ops::RangeInclusive<u32> = 19..=27;

/// Where `.gopclntab` has the streams of deltas.
const STREAMS: usize = 56;

/// Where a function's entry has the number of its streams; which of these, and which of its tables, are about inlined calls.
const STREAM_COUNT: usize = 28;
const STREAM: usize = 2;
const CALLS: usize = 3;

/// How deep calls are inlined, at most; how many into one function; bytes of all streams.
const MAX_DEPTH: usize = 64;
const MAX_CALLS: usize = 1 << 15;
const MAX_STREAMS: usize = 64 << 20;

/// How one version lays out what is read.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bytes of a function's entry before its streams; the last one is the number of its tables.
    entry: usize,
    /// Bytes of a call, and where its name is.
    call: usize,
    name: usize,
    /// Word of the module's data that has the address which tables are relative to.
    tables: usize,
    /// Whether a call has the index of the one that it was inlined into, at 0; else a place in that one, at 8.
    has_index: bool,
}

impl Layout {
    /// Of a version such as `go1.26.6`.
    fn of(version: &str) -> Option<Self> {
        let rest = version.strip_prefix("go1.")?;
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        let minor: u32 = minor.parse().ok()?;
        if !KNOWN.contains(&minor) {
            return None;
        }
        let has_index = minor < 20;
        Some(Self {
            entry: if has_index { 40 } else { 44 },
            call: if has_index { 20 } else { 16 },
            name: if has_index { 12 } else { 4 },
            tables: match minor {
                ..20 => 38,
                20..=26 => 40,
                _ => 43,
            },
            has_index,
        })
    }
}

/// The inlined calls of a program.
#[derive(Debug)]
pub struct Inlined {
    functions: Vec<Function>,
    calls: Vec<Call>,
    streams: Vec<u8>,
    /// Names, each ended by NUL.
    strings: Vec<u8>,
    has_index: bool,
}

#[derive(Debug)]
struct Function {
    range: Range<u64>,
    stream: usize,
    calls: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    name: usize,
    /// What it was inlined into: an index, or a place in it.
    into: i32,
}

/// The word of the module's data that says where tables are, of a program of this version.
pub(crate) fn word_of_tables(version: &str) -> Option<usize> {
    Layout::of(version).map(|layout| layout.tables)
}

/// What may still be read of a program; if nothing is left, there was more than any has.
struct Left {
    /// Bytes of streams.
    streams: usize,
    /// Calls: each function has its own.
    calls: usize,
}

/// Names that are copied, each once.
struct Names<'a> {
    from: &'a [u8],
    /// Where they stand in the copy; `None` of what is no name.
    known: HashMap<usize, Option<usize>>,
    copied: Vec<u8>,
}

impl Names<'_> {
    /// Where the copy of a name stands.
    fn place(&mut self, name: usize) -> Option<usize> {
        if let Some(known) = self.known.get(&name) {
            return *known;
        }
        let is_first = name == 0 || self.from.get(name - 1) == Some(&0);
        let text = is_first.then(|| name_at(self.from, name)).flatten();
        let place = text.map(|text| {
            let place = self.copied.len();
            self.copied.extend(text.as_bytes());
            self.copied.push(0);
            place
        });
        self.known.insert(name, place);
        place
    }
}

impl Inlined {
    /// Of `.gopclntab`, whose first function is at `first`, and the bytes that tables are in.
    #[must_use]
    pub fn read(table: &[u8], tables: &[u8], first: u64, version: &str) -> Option<Self> {
        let layout = Layout::of(version)?;
        let at = |offset: usize| usize::try_from(word(table, offset)?).ok();
        let mut names = Names {
            from: table.get(at(NAMES)?..)?,
            known: HashMap::new(),
            copied: Vec::new(),
        };
        let streams = table.get(at(STREAMS)?..)?;
        let entries = table.get(at(TABLE)?..)?;
        let mut left = Left {
            streams: MAX_STREAMS + 1,
            calls: tables.len() / layout.call + 1,
        };
        let mut found = Self {
            functions: Vec::new(),
            calls: Vec::new(),
            streams: Vec::new(),
            strings: Vec::new(),
            has_index: layout.has_index,
        };
        for index in 0..at(COUNT)?.min(entries.len() / 8) {
            let begin = half(entries, index * 8)?;
            let more = half(entries, index * 8 + 4)? as usize;
            let size = half(entries, index * 8 + 8)?.saturating_sub(begin);
            let range = first.checked_add(begin.into())?;
            let range = range..range.checked_add(size.into())?;
            let parts = entries
                .get(more..)
                .and_then(|entry| of_function(entry, layout, streams, tables, &mut left));
            if left.streams == 0 || left.calls == 0 {
                return None;
            }
            let Some((stream, calls)) = parts else {
                continue;
            };
            let into = if layout.has_index {
                i32::try_from(calls.len()).unwrap_or(0)
            } else {
                i32::try_from(size).unwrap_or(0)
            };
            let calls = calls.into_iter().map(|call| {
                let name = names.place(call.name)?;
                (call.into < into).then_some(Call { name, ..call })
            });
            let Some(calls) = calls.collect::<Option<Vec<Call>>>() else {
                continue;
            };
            let from = found.calls.len();
            found.calls.extend(calls);
            found.functions.push(Function {
                range,
                stream: found.streams.len(),
                calls: from..found.calls.len(),
            });
            found.streams.extend(stream);
        }
        found.strings = names.copied;
        found
            .functions
            .sort_unstable_by_key(|function| function.range.start);
        Some(found)
    }

    /// The functions that were inlined at an address, the innermost first; what they are in is not among them.
    #[must_use]
    pub fn at(&self, address: u64) -> Vec<&str> {
        let behind = self
            .functions
            .partition_point(|function| function.range.start <= address);
        let function = self.functions[..behind].last();
        let Some(function) = function.filter(|function| function.range.contains(&address)) else {
            return Vec::new();
        };
        let calls = &self.calls[function.calls.clone()];
        let call = |index: i32| calls.get(usize::try_from(index).ok()?);
        let by_place = |place: u64| value_at(&self.streams[function.stream..], place);
        let mut index = by_place(address - function.range.start).unwrap_or(-1);
        let mut found = Vec::new();
        while let Some(one) = call(index) {
            if found.len() == MAX_DEPTH {
                return Vec::new();
            }
            found.extend(name_at(&self.strings, one.name));
            index = match (self.has_index, u64::try_from(one.into)) {
                (true, _) => one.into,
                (false, Ok(place)) => by_place(place).unwrap_or(-1),
                (false, Err(_)) => -1,
            };
        }
        found
    }
}

/// The stream and the calls of a function; none if nothing was inlined into it, or if they do not fit together.
fn of_function<'a>(
    entry: &[u8],
    layout: Layout,
    streams: &'a [u8],
    tables: &[u8],
    left: &mut Left,
) -> Option<(&'a [u8], Vec<Call>)> {
    let count = half(entry, STREAM_COUNT)? as usize;
    let tables_count = usize::from(*entry.get(layout.entry - 1)?);
    if count <= STREAM || tables_count <= CALLS {
        return None;
    }
    let stream = half(entry, layout.entry + STREAM * 4)?;
    let behind = layout.entry.checked_add(count.checked_mul(4)?)?;
    let calls = half(entry, behind.checked_add(CALLS * 4)?)?;
    if stream == 0 || calls == u32::MAX {
        return None;
    }
    let stream = streams.get(stream as usize..)?;
    let stream = &stream[..stream.len().min(left.streams)];
    let mut steps = Steps::new(stream);
    let mut most = -1;
    while let Some((_, value)) = steps.step() {
        most = most.max(value);
    }
    left.streams -= steps.at;
    let stream = stream.get(..steps.ended?)?;
    let table = tables.get(calls as usize..)?;
    let mut all = Vec::new();
    // One may be inlined into another that has no instruction of its own.
    while i32::try_from(all.len()).ok()? <= most {
        if all.len() == MAX_CALLS {
            return None;
        }
        left.calls = left.calls.checked_sub(1)?;
        let call = table.get(all.len() * layout.call..)?;
        let first = half(call, 0)?.to_le_bytes();
        let into = if layout.has_index {
            i16::from_le_bytes([first[0], first[1]]).into()
        } else {
            half(call, 8)?.cast_signed()
        };
        if layout.has_index {
            most = most.max(into);
        }
        all.push(Call {
            name: half(call, layout.name)? as usize,
            into,
        });
    }
    (!all.is_empty()).then_some((stream, all))
}

/// Deltas of values and of places, in turn.
struct Steps<'a> {
    bytes: &'a [u8],
    at: usize,
    value: i32,
    place: u64,
    /// Bytes of it, once its end was met.
    ended: Option<usize>,
}

impl<'a> Steps<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            value: -1,
            place: 0,
            ended: None,
        }
    }

    /// The place up to which a value holds, and the value.
    fn step(&mut self) -> Option<(u64, i32)> {
        let is_first = self.at == 0;
        let delta = self.number()?;
        if delta == 0 && !is_first {
            self.ended = Some(self.at);
            return None;
        }
        let half = (delta >> 1).cast_signed();
        self.value = self
            .value
            .wrapping_add(if delta & 1 == 1 { !half } else { half });
        self.place += u64::from(self.number()?);
        Some((self.place, self.value))
    }

    /// A number in groups of seven bits.
    fn number(&mut self) -> Option<u32> {
        let mut number = 0_u32;
        for shift in (0..32).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

fn value_at(stream: &[u8], place: u64) -> Option<i32> {
    let mut steps = Steps::new(stream);
    loop {
        let (until, value) = steps.step()?;
        if place < until {
            return Some(value);
        }
    }
}

fn name_at(names: &[u8], at: usize) -> Option<&str> {
    let names = names.get(at..)?;
    let name = &names[..names.len().min(MAX_NAME)];
    let length = name.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&name[..length]).ok()?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;
