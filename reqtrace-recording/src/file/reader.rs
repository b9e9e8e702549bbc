//! A file in, the events of all whole blocks out, and what was not whole.

use std::io::{self, Read, Seek, SeekFrom};

use super::block::{HEAD_LEN, Head, MAGIC, MAJOR};
use crate::error::{Error, Result};
use crate::event::{Event, Header, Part, SYSCALLS};
use crate::wire::{block_kind, decode_events, decode_header};

/// Bytes looked through at a time for the next block after damage.
const SEARCHED: usize = 64 << 10;

/// Bytes of payloads, before compression, that are read of any file, and for each byte of the file: real ones
/// compress to a half or a tenth. A file of some kB could otherwise keep its reader for hours.
const FREE_RAW: u64 = 8 << 20;
const RAW_PER_BYTE: u64 = 16;

/// Reads a recording.
pub struct Reader<R> {
    input: R,
    len: u64,
    header: Header,
}

/// How a recording ends, and what is missing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Blocks of events that were read.
    pub blocks: u64,
    /// The trace was recorded to its end, or to that of the file.
    pub ended: bool,
    /// Other files have what comes before.
    pub goes_before: bool,
    /// Another file has what comes after.
    pub goes_on: bool,
    /// Files between those that were read, which are not there or cannot be read.
    pub missing_files: u64,
    /// Blocks that could not be written when they came.
    pub unwritten_blocks: u64,
    /// Bytes at the end that are the beginning of a block.
    pub cut_bytes: u64,
    /// Bytes elsewhere that are no whole block.
    pub damaged_bytes: u64,
    /// Blocks that are missing or damaged, as far as their numbers tell.
    pub damaged_blocks: u64,
    /// Events of kinds that this version does not know.
    pub unknown_events: u64,
}

impl Ending {
    /// Whether all of the trace is in it: sums of the kernel are then those of the same requests.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.is_whole() && !self.goes_before && !self.goes_on
    }

    /// Whether nothing is missing of what these files had.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let bytes = self.cut_bytes + self.damaged_bytes;
        let blocks = self.damaged_blocks + self.unwritten_blocks;
        self.ended && bytes == 0 && blocks == 0 && self.missing_files == 0
    }
}

impl Ending {
    /// Adds that of the next file.
    pub(super) fn add(&mut self, next: &Self) {
        self.blocks += next.blocks;
        self.ended = next.ended;
        self.goes_on = next.goes_on;
        self.cut_bytes += next.cut_bytes;
        self.damaged_bytes += next.damaged_bytes;
        self.damaged_blocks += next.damaged_blocks;
        self.unwritten_blocks += next.unwritten_blocks;
        self.unknown_events += next.unknown_events;
    }
}

/// One step through the file.
enum Step {
    /// A block whose head is whole, and its payload if that is.
    Block(Head, Option<Vec<u8>>),
    /// Bytes that are no block.
    Damaged(u64),
    /// The beginning of a block.
    Cut(u64),
    End,
}

impl<R: Read + Seek> Reader<R> {
    /// Looks for the header of the trace.
    ///
    /// # Errors
    ///
    /// When it is no recording, one of a newer version or of another kind of machine, has no whole header, or
    /// cannot be read.
    pub fn open(mut input: R) -> Result<Self> {
        let len = input.seek(SeekFrom::End(0))?;
        let (mut at, mut raw) = (0, 0);
        let mut found = false;
        loop {
            match step(&mut input, &mut at, len, &mut raw)? {
                Step::Block(head, payload) => {
                    found = true;
                    if head.kind() == block_kind::HEADER
                        && let Some(payload) = payload
                        && let Ok(header) = decode_header(head.major(), &payload)
                    {
                        if header.syscalls != SYSCALLS {
                            return Err(Error::Foreign {
                                architecture: header.architecture,
                                syscalls: header.syscalls,
                            });
                        }
                        return Ok(Self { input, len, header });
                    }
                }
                // A head that was cut is one of a recording too.
                Step::Cut(bytes) => found |= bytes >= HEAD_LEN as u64,
                Step::Damaged(_) => {}
                Step::End => break,
            }
        }
        Err(if found {
            Error::NoHeader
        } else {
            Error::NotARecording
        })
    }

    /// The header of the trace.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Hands all events to `each`, in order. The inner error is that of `each`, which ends reading.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or has blocks of a newer version.
    pub fn read<E>(
        &mut self,
        each: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<Result<Ending, E>> {
        self.read_from(0, each)
    }

    /// The same without what the file repeats of those before.
    pub(super) fn read_on<E>(
        &mut self,
        each: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<Result<Ending, E>> {
        self.read_from(self.header.part.head_until, each)
    }

    fn read_from<E>(
        &mut self,
        first: u32,
        mut each: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<Result<Ending, E>> {
        let mut ending = Ending {
            goes_before: self.header.part.number > 1,
            unwritten_blocks: self.header.part.unwritten,
            ..Ending::default()
        };
        let (mut at, mut number, mut raw) = (0, 0, 0_u64);
        loop {
            match step(&mut self.input, &mut at, self.len, &mut raw)? {
                Step::Block(head, payload) => {
                    let missing = head.number().saturating_sub(number);
                    ending.damaged_blocks += u64::from(missing);
                    number = head.number().saturating_add(1);
                    let whole = match (head.kind(), payload) {
                        (_, None) => false,
                        (block_kind::EVENTS, _) if head.number() < first => true,
                        (block_kind::EVENTS, Some(payload)) => {
                            match events(head.major(), &payload, &mut ending, &mut each) {
                                Ok(whole) => whole,
                                Err(error) => return Ok(Err(error)),
                            }
                        }
                        // The header is known; other kinds are of a later version.
                        (_, Some(_)) => true,
                    };
                    if !whole {
                        ending.damaged_blocks += 1;
                        ending.damaged_bytes += (HEAD_LEN + head.stored_len()) as u64;
                    }
                }
                Step::Damaged(bytes) => ending.damaged_bytes += bytes,
                Step::Cut(bytes) => ending.cut_bytes = bytes,
                Step::End => return Ok(Ok(ending)),
            }
        }
    }
}

/// Reads a block of events; false when it could not be understood to its end.
fn events<E>(
    version: u16,
    payload: &[u8],
    ending: &mut Ending,
    each: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<bool, E> {
    let (mut ended, mut goes_on) = (false, false);
    let unknown = decode_events(version, payload, &mut |event| {
        if let Event::End(end) = event {
            ended = true;
            goes_on = end.ended_by == Part::GOES_ON;
        }
        each(event)
    })?;
    ending.blocks += 1;
    ending.ended |= ended;
    ending.goes_on |= goes_on;
    Ok(match unknown {
        Ok(unknown) => {
            ending.unknown_events += unknown;
            true
        }
        Err(_) => false,
    })
}

/// Reads what is at `at`, and goes on. `raw`: bytes of payloads before compression so far.
fn step<R: Read + Seek>(input: &mut R, at: &mut u64, len: u64, raw: &mut u64) -> Result<Step> {
    if *at >= len {
        return Ok(Step::End);
    }
    let left = len - *at;
    input.seek(SeekFrom::Start(*at))?;
    let mut bytes = [0; HEAD_LEN];
    let read = read_up_to(input, &mut bytes)?;
    if let Some(head) = Head::find(&bytes[..read]) {
        if head.major() > MAJOR {
            return Err(Error::Newer {
                found: head.major(),
            });
        }
        let whole = (HEAD_LEN + head.stored_len()) as u64;
        if whole > left {
            *at = len;
            return Ok(Step::Cut(left));
        }
        let mut stored = vec![0; head.stored_len()];
        input.read_exact(&mut stored)?;
        *at += whole;
        let raw_after = *raw + head.raw_len();
        if raw_after > FREE_RAW.saturating_add(at.saturating_mul(RAW_PER_BYTE)) {
            return Ok(Step::Block(head, None));
        }
        *raw = raw_after;
        return Ok(Step::Block(head, head.open(&stored)));
    }
    let next = find_next(input, *at + 1, len)?;
    let is_beginning = read < HEAD_LEN && MAGIC.starts_with(&bytes[..read.min(MAGIC.len())]);
    let bytes = next - *at;
    *at = next;
    Ok(if is_beginning {
        Step::Cut(bytes)
    } else {
        Step::Damaged(bytes)
    })
}

/// Where the next head is, from `from` on; the end of the file when there is none.
fn find_next<R: Read + Seek>(input: &mut R, mut from: u64, len: u64) -> io::Result<u64> {
    let mut bytes = vec![0; SEARCHED + HEAD_LEN];
    while from < len {
        input.seek(SeekFrom::Start(from))?;
        let read = read_up_to(input, &mut bytes)?;
        let searched = read.min(SEARCHED);
        for index in 0..searched {
            if bytes[index] == MAGIC[0] && Head::find(&bytes[index..read]).is_some() {
                return Ok(from + index as u64);
            }
        }
        from += searched.max(1) as u64;
    }
    Ok(len)
}

/// Fills the buffer as far as the file goes.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
