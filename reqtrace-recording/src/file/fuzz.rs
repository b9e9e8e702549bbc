//! For fuzzers and tests of forged files: the blocks of a file in, a file of any payloads with right lengths
//! and checksums out.

use super::block::{HEAD_LEN, Head};
use crate::wire::block_kind;

/// The kind of a block of events.
pub const EVENTS: u16 = block_kind::EVENTS;

/// As in the file writer: what one forges is mostly alike.
const LEVEL: i32 = 1;

/// What is in a block: its kind, and its payload before compression.
pub type Block = (u16, Vec<u8>);

/// The whole blocks at the beginning of a file.
#[must_use]
pub fn blocks(mut file: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    while let Some(head) = Head::find(file)
        && let Some(stored) = file.get(HEAD_LEN..HEAD_LEN + head.stored_len())
    {
        blocks.extend(head.open(stored).map(|payload| (head.kind(), payload)));
        file = &file[HEAD_LEN + head.stored_len()..];
    }
    blocks
}

/// A file of these blocks.
#[must_use]
pub fn file(blocks: &[Block]) -> Vec<u8> {
    let mut file = Vec::new();
    for (number, (kind, payload)) in blocks.iter().enumerate() {
        let stored = zstd::bulk::compress(payload, LEVEL).unwrap_or_default();
        // Writing to memory does not fail.
        let _ = Head::new(*kind, number as u32, payload.len() as u32, &stored).write(&mut file);
        file.extend_from_slice(&stored);
    }
    file
}
