//! Events in, blocks out.

use std::io::{self, Write};

use super::block::{HEAD_LEN, Head, MAX_RAW};
use crate::event::{Event, Header};
use crate::wire::{Encoder, Payload, encode_header};

/// Fast, and half the size: what is written is mostly numbers without a pattern.
const LEVEL: i32 = 1;

/// Compresses payloads, one after the other in the same memory.
pub(crate) struct Compressor {
    zstd: zstd::bulk::Compressor<'static>,
    stored: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            zstd: zstd::bulk::Compressor::new(LEVEL)?,
            stored: Vec::new(),
        })
    }

    pub(crate) fn compress(&mut self, payload: &[u8]) -> io::Result<&[u8]> {
        self.stored.clear();
        self.stored
            .reserve(zstd::zstd_safe::compress_bound(payload.len()));
        self.zstd.compress_to_buffer(payload, &mut self.stored)?;
        Ok(&self.stored)
    }
}

/// Writes a recording, straight to `W`. [`crate::Recorder`] does it on a thread of its own.
pub struct Writer<W> {
    blocks: BlockWriter<W>,
    encoder: Encoder,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// When `out` cannot be written.
    pub fn new(out: W, header: &Header) -> io::Result<Self> {
        Ok(Self {
            blocks: BlockWriter::new(out, encode_header(header))?,
            encoder: Encoder::default(),
        })
    }

    /// Takes an event. It is in the file when its block is full, or after [`Writer::flush`].
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match self.encoder.event(event) {
            Some(payload) => self.blocks.write(&payload),
            None => Ok(()),
        }
    }

    /// Writes what was gathered.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(payload) = self.encoder.take() {
            self.blocks.write(&payload)?;
        }
        self.blocks.flush()
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.blocks.out
    }
}

/// The number of the block after the header and so many blocks, with the headers between them.
pub(crate) fn head_until(blocks: usize) -> u32 {
    (0..blocks).fold(1, |number: u32, _| {
        let next = number.saturating_add(1);
        next.saturating_add(u32::from(next.is_power_of_two()))
    })
}

/// Writes payloads as blocks.
pub(crate) struct BlockWriter<W> {
    out: W,
    header: Payload,
    compressor: Compressor,
    /// Number of the next block.
    number: u32,
    /// Bytes of all whole blocks.
    pub(crate) written: u64,
}

impl<W: Write> BlockWriter<W> {
    pub(crate) fn new(out: W, header: Payload) -> io::Result<Self> {
        let mut writer = Self {
            out,
            header: header.clone(),
            compressor: Compressor::new()?,
            number: 0,
            written: 0,
        };
        writer.block(&header)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Writes one block. The header is written again before blocks 2, 4, 8, …, so that it outlives
    /// damage to one place.
    pub(crate) fn write(&mut self, payload: &Payload) -> io::Result<()> {
        self.block(payload)?;
        if self.number.is_power_of_two() {
            let header = self.header.clone();
            self.block(&header)?;
        }
        Ok(())
    }

    fn block(&mut self, payload: &Payload) -> io::Result<()> {
        let too_long = || io::Error::other("a block would be longer than the format allows");
        let raw_len = u32::try_from(payload.bytes.len()).map_err(|_| too_long())?;
        if raw_len > MAX_RAW {
            return Err(too_long());
        }
        let stored = self.compressor.compress(&payload.bytes)?;
        Head::new(payload.kind, self.number, raw_len, stored).write(&mut self.out)?;
        self.out.write_all(stored)?;
        self.number = self.number.wrapping_add(1);
        self.written += (HEAD_LEN + stored.len()) as u64;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(crate) fn into_inner(self) -> W {
        self.out
    }

    pub(crate) fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }
}
