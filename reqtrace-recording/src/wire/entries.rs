//! The fields of the entries of a block: one after the other, each with its length in front. As a whole this is a list of
//! lists of bytes in the form of `postcard`, without memory of their own for each.

use super::Malformed;
use super::numbers;

/// Fields of entries.
#[derive(Debug, Default)]
pub(super) struct Fields {
    count: usize,
    bytes: Vec<u8>,
}

impl Fields {
    /// Adds what `put` appends. Returns how many bytes that takes.
    pub(super) fn push(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> usize {
        let before = self.bytes.len();
        numbers::put_with_length(&mut self.bytes, put);
        self.count += 1;
        self.bytes.len() - before
    }

    /// Of how many entries.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        numbers::append(out, &self.count);
        out.extend_from_slice(&self.bytes);
    }

    /// What [`Fields::put`] has written.
    pub(super) fn get(mut bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            count: numbers::take(&mut bytes)?,
            bytes: bytes.to_vec(),
        })
    }

    /// The bytes of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<&[u8], Malformed>> {
        let mut rest = &self.bytes[..];
        (0..self.count).map(move |_| numbers::take_with_length(&mut rest))
    }
}
