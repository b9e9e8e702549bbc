//! The files of a recording: blocks in, whole files out.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Message, Recorded};
use crate::event::Header;
use crate::file::{BlockWriter, head_until};
use crate::wire::{Payload, encode_header};

/// Where the files of a recording are.
pub trait Files: Send {
    /// Makes the file that begins with this header. It is not complete yet.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or is there already.
    fn begin(&mut self, header: &Header) -> io::Result<File>;

    /// The file that was made last is complete. Returns what had to go for it.
    ///
    /// # Errors
    ///
    /// When it cannot be given its name, or none can be removed.
    fn complete(&mut self, file: File) -> io::Result<Removed>;
}

/// Files that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What the thread that writes tells the one that records.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The number of the file that it has come to, from 1 on.
    pub(super) number: AtomicU32,
    /// Bytes of that file.
    pub(super) written: AtomicU64,
    /// Bytes of its head.
    pub(super) head: AtomicU64,
    /// Nothing can be written until the next file.
    pub(super) is_stuck: AtomicBool,
    failure: Mutex<Option<io::Error>>,
    removed: Mutex<Removed>,
}

impl Progress {
    pub(super) fn take_failure(&self) -> Option<io::Error> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    pub(super) fn take_removed(&self) -> Removed {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *removed)
    }

    fn fail(&self, error: io::Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// What is written to.
pub(super) struct Output {
    /// `None` when it could not be written, until the next file.
    writer: Option<BlockWriter<File>>,
    /// Only of a recording of many files.
    files: Option<Box<dyn Files>>,
    progress: Arc<Progress>,
    /// Bytes of the files before.
    before: u64,
    /// Blocks that are in no file since the last one.
    unwritten: u64,
    /// Blocks that are in no file.
    all_unwritten: u64,
}

impl Output {
    /// One file.
    pub(super) fn one(writer: BlockWriter<File>) -> Self {
        Self {
            writer: Some(writer),
            files: None,
            progress: Arc::default(),
            before: 0,
            unwritten: 0,
            all_unwritten: 0,
        }
    }

    /// The first of many.
    pub(super) fn first_of(mut files: Box<dyn Files>, header: &Header) -> io::Result<Self> {
        let writer = BlockWriter::new(files.begin(header)?, encode_header(header))?;
        let one = Self::one(writer);
        one.progress
            .number
            .store(header.part.number, Ordering::Relaxed);
        Ok(Self {
            files: Some(files),
            ..one
        })
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    fn write(&mut self, payload: &Payload) -> io::Result<()> {
        let Some(writer) = &mut self.writer else {
            self.unwritten += 1;
            self.all_unwritten += 1;
            return Ok(());
        };
        let written = writer.write(payload);
        self.progress
            .written
            .store(writer.written, Ordering::Relaxed);
        if written.is_err() {
            self.unwritten += 1;
            self.all_unwritten += 1;
            // The reader leaves out what is not whole, so that this is for tidiness only.
            let bytes = writer.written;
            let _ = writer.get_mut().set_len(bytes);
        }
        written
    }

    /// The file is complete.
    fn complete(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        self.before += writer.written;
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let removed = files.complete(writer.into_inner())?;
        let mut all = self
            .progress
            .removed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.files += removed.files;
        all.bytes += removed.bytes;
        Ok(())
    }

    /// Goes on in the next file.
    fn next(&mut self, mut header: Header, head: &[Payload]) -> io::Result<()> {
        // A failure is of the file before; the next one may do.
        if let Err(error) = self.complete() {
            self.progress.fail(error);
        }
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        header.part.head_until = head_until(head.len());
        header.part.unwritten = self.unwritten;
        let file = files.begin(&header)?;
        let mut writer = BlockWriter::new(file, encode_header(&header))?;
        let whole = head.iter().try_for_each(|payload| writer.write(payload));
        let progress = &self.progress;
        progress.head.store(writer.written, Ordering::Relaxed);
        progress.written.store(writer.written, Ordering::Relaxed);
        progress.number.store(header.part.number, Ordering::Release);
        self.writer = Some(writer);
        whole?;
        self.unwritten = 0;
        progress.is_stuck.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let written = self.writer.as_ref().map_or(0, |writer| writer.written);
        self.before + written
    }
}

/// Writes blocks until there are no more, or one cannot be written and no other file follows.
pub(super) fn write_all(mut output: Output, waiting: &Receiver<Message>) -> Recorded {
    for message in waiting {
        let done = match message {
            Message::Block(payload) => output.write(&payload),
            Message::Next(header, head) => output.next(*header, &head),
            #[cfg(test)]
            Message::Pass(passed) => {
                passed.send(()).expect("who waits for it is there");
                Ok(())
            }
        };
        let Err(error) = done else { continue };
        if output.files.is_none() {
            return Recorded {
                bytes: output.bytes(),
                failure: Some(error),
                removed: Removed::default(),
            };
        }
        output.progress.is_stuck.store(true, Ordering::Relaxed);
        output.progress.fail(error);
        // What is in it can be read.
        if let Err(error) = output.complete() {
            output.progress.fail(error);
        }
    }
    let bytes = output.bytes();
    let complete = output.complete();
    let all_unwritten = output.all_unwritten;
    let missing = || io::Error::other(format!("{all_unwritten} blocks could not be written"));
    Recorded {
        bytes,
        failure: complete.err().or_else(|| (all_unwritten > 0).then(missing)),
        removed: Removed::default(),
    }
}
