//! Uploads: a table and its place in, blocks for the kernel programs' arrays out.

use std::sync::Arc;

use reqtrace_common::unwind::{BLOCK, BLOCK_SHIFT, Row};

use crate::unwind::Table;

/// A table to be put into the kernel programs' arrays.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Position of its first row; a multiple of [`BLOCK`].
    pub rows_start: u32,
    /// Position of its first index entry; a multiple of [`BLOCK`].
    pub index_start: u32,
    /// The table.
    pub table: Arc<Table>,
}

impl Upload {
    /// Rows as blocks: the block's number and its contents.
    pub fn row_blocks(&self) -> impl Iterator<Item = (u32, [Row; BLOCK])> {
        blocks(self.rows_start, &self.table.rows, |&row| row)
    }

    /// Index entries as blocks, counted from the array's first row and not the table's.
    pub fn index_blocks(&self) -> impl Iterator<Item = (u32, [u32; BLOCK])> {
        blocks(self.index_start, &self.table.index, |&entry| {
            entry + self.rows_start
        })
    }
}

fn blocks<T, U: Copy + Default>(
    start: u32,
    all: &[T],
    entry: impl Fn(&T) -> U,
) -> impl Iterator<Item = (u32, [U; BLOCK])> {
    (start >> BLOCK_SHIFT..)
        .zip(all.chunks(BLOCK))
        .map(move |(number, chunk)| {
            let mut block = [U::default(); BLOCK];
            for (place, value) in block.iter_mut().zip(chunk) {
                *place = entry(value);
            }
            (number, block)
        })
}
