//! One block: a head of 32 bytes, then the payload, compressed. All numbers are little-endian.

use std::io;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the format. It grows when an older reader would get a newer file wrong; new kinds and
/// new fields do not count. 1: before fields had numbers.
pub const MAJOR: u16 = 2;

/// What each block begins with.
pub(super) const MAGIC: [u8; 8] = *b"reqtrace";

/// Longest payload, before compression. A block is full at 256 KiB; one event may be as long again several times.
pub(super) const MAX_RAW: u32 = 16 << 20;

/// Longest payload in the file: what does not compress grows a little.
const MAX_STORED: u32 = MAX_RAW + (1 << 20);

/// The head of a block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Head {
    magic: [u8; 8],
    major: U16,
    kind: U16,
    number: U32,
    stored_len: U32,
    raw_len: U32,
    payload_crc: U32,
    head_crc: U32,
}

/// Bytes of a head.
pub(super) const HEAD_LEN: usize = size_of::<Head>();

/// What the last field of a head does not cover: itself.
const CHECKED: usize = HEAD_LEN - 4;

impl Head {
    /// The head of a block with these bytes.
    pub(super) fn new(kind: u16, number: u32, raw_len: u32, stored: &[u8]) -> Self {
        Self::of_version(MAJOR, kind, number, raw_len, stored)
    }

    /// The same of this version of the format.
    pub(super) fn of_version(
        major: u16,
        kind: u16,
        number: u32,
        raw_len: u32,
        stored: &[u8],
    ) -> Self {
        let mut head = Self {
            magic: MAGIC,
            major: major.into(),
            kind: kind.into(),
            number: number.into(),
            stored_len: (stored.len() as u32).into(),
            raw_len: raw_len.into(),
            payload_crc: crc32fast::hash(stored).into(),
            head_crc: 0.into(),
        };
        head.head_crc = head.crc().into();
        head
    }

    fn crc(&self) -> u32 {
        crc32fast::hash(&self.as_bytes()[..CHECKED])
    }

    /// The head in these bytes, when they are one.
    pub(super) fn find(bytes: &[u8]) -> Option<Self> {
        let (head, _) = Self::read_from_prefix(bytes).ok()?;
        let whole = head.magic == MAGIC && head.crc() == head.head_crc.get();
        let sizes = head.stored_len.get() <= MAX_STORED && head.raw_len.get() <= MAX_RAW;
        (whole && sizes).then_some(head)
    }

    pub(super) fn major(&self) -> u16 {
        self.major.get()
    }

    pub(super) fn kind(&self) -> u16 {
        self.kind.get()
    }

    pub(super) fn number(&self) -> u32 {
        self.number.get()
    }

    pub(super) fn stored_len(&self) -> usize {
        self.stored_len.get() as usize
    }

    /// Bytes of the payload before compression.
    pub(super) fn raw_len(&self) -> u64 {
        self.raw_len.get().into()
    }

    /// The payload, when the stored bytes are as they were written.
    pub(super) fn open(&self, stored: &[u8]) -> Option<Vec<u8>> {
        if crc32fast::hash(stored) != self.payload_crc.get() {
            return None;
        }
        let raw_len = self.raw_len.get() as usize;
        let raw = zstd::bulk::decompress(stored, raw_len).ok()?;
        (raw.len() == raw_len).then_some(raw)
    }

    /// The bytes.
    pub(super) fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        out.write_all(self.as_bytes())
    }
}
