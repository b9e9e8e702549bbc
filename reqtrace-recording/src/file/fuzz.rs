//! For fuzzers and tests of forged files: the blocks of a file in, a file of any payloads with right lengths
//! and checksums out.

use super::block::{HEAD_LEN, Head};
use crate::wire::block_kind;

/// The kind of a block of events.
pub const EVENTS: u16 = block_kind::EVENTS;

/// As in the file writer: what one forges is mostly alike.
const LEVEL: i32 = 1;

/// What is in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Version of the format.
    pub version: u16,
    /// Its kind.
    pub kind: u16,
    /// Its payload before compression.
    pub payload: Vec<u8>,
}

/// The whole blocks at the beginning of a file.
#[must_use]
pub fn blocks(mut file: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    while let Some(head) = Head::find(file)
        && let Some(stored) = file.get(HEAD_LEN..HEAD_LEN + head.stored_len())
    {
        blocks.extend(head.open(stored).map(|payload| Block {
            version: head.major(),
            kind: head.kind(),
            payload,
        }));
        file = &file[HEAD_LEN + head.stored_len()..];
    }
    blocks
}

/// A file of these blocks.
#[must_use]
pub fn file(blocks: &[Block]) -> Vec<u8> {
    let mut file = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let stored = zstd::bulk::compress(&block.payload, LEVEL).unwrap_or_default();
        let (number, raw_len) = (number as u32, block.payload.len() as u32);
        let head = Head::of_version(block.version, block.kind, number, raw_len, &stored);
        // Writing to memory does not fail.
        let _ = head.write(&mut file);
        file.extend_from_slice(&stored);
    }
    file
}
