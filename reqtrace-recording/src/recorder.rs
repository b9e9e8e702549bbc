//! A recording that is written while tracing: events in, blocks to one file, or to one after the other, on a thread of
//! their own.
//!
//! The thread compresses and writes, so that a slow disk does not keep the tracer from its ring. What
//! waits is bounded: when the disk stays behind, the tracer waits, and what its ring then loses is
//! counted as always. A write that fails ends the recording, and not the trace; a recording of many files goes on in the
//! next one, which says how much is missing.

mod output;
mod rolling;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::event::{Event, Header};
use crate::file::BlockWriter;
use crate::wire::{Encoder, Payload, encode_header};

use output::{Output, Progress, write_all};
use rolling::Rolling;

pub use output::{Files, Removed};
pub use rolling::Roll;

/// Blocks that may wait to be written: some MiB.
const WAITING: usize = 16;

/// Writes a recording in the background.
pub struct Recorder {
    encoder: Encoder,
    blocks: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<Recorded>>,
    failure: Option<io::Error>,
    progress: Arc<Progress>,
    rolling: Option<Box<Rolling>>,
}

/// What became of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Bytes of all whole blocks.
    pub bytes: u64,
    /// Why it is not whole, if it is not.
    pub failure: Option<io::Error>,
    /// Files that had to go since that was asked last.
    pub removed: Removed,
}

/// What the thread is to do.
enum Message {
    Block(Payload),
    /// The file is complete; the next one begins with this.
    Next(Box<Header>, Vec<Payload>),
    /// Tests wait for it: all that was sent before is done.
    #[cfg(test)]
    Pass(SyncSender<()>),
}

impl Recorder {
    /// Writes the header of the trace, and starts the thread, which calls `begin` before it does anything
    /// else: the place to give up what writing does not need.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or no thread can be started.
    pub fn start(
        file: File,
        header: &Header,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let writer = BlockWriter::new(file, encode_header(header))?;
        Self::with(Output::one(writer), None, begin)
    }

    /// The same with many files, the first of which is made here.
    ///
    /// # Errors
    ///
    /// When the first file cannot be made or written, or no thread can be started.
    pub fn start_rolling(
        files: Box<dyn Files>,
        roll: Roll,
        header: &Header,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let rolling = Rolling::new(roll, header);
        let output = Output::first_of(files, rolling.header())?;
        Self::with(output, Some(Box::new(rolling)), begin)
    }

    fn with(
        output: Output,
        rolling: Option<Box<Rolling>>,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let progress = Arc::clone(output.progress());
        let (blocks, waiting) = sync_channel(WAITING);
        let thread = thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || {
                begin();
                write_all(output, &waiting)
            })?;
        Ok(Self {
            encoder: Encoder::default(),
            blocks: Some(blocks),
            thread: Some(thread),
            failure: None,
            progress,
            rolling,
        })
    }

    /// Takes an event. After the end of the recording it does nothing.
    pub fn event(&mut self, event: &Event<'_>) {
        if self.is_over() {
            return;
        }
        if self
            .rolling
            .as_ref()
            .is_some_and(|rolling| rolling.ends_before(event))
        {
            self.roll();
        }
        if let Some(rolling) = &mut self.rolling {
            rolling.take(event, &self.progress);
        }
        let full = self.encoder.event(event);
        if let Some(payload) = full {
            self.send(Message::Block(payload));
        }
    }

    /// Whether it waits for the sums of the kernel, to go on in the next file with those that come after.
    #[must_use]
    pub fn wants_window(&self) -> bool {
        let rolling = self.rolling.as_ref();
        rolling.is_some_and(|rolling| rolling.is_due(&self.progress))
    }

    /// Whether nothing more is recorded, because it could not be written.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.blocks.is_none()
    }

    /// Files that had to go to keep to a limit, since this was asked last.
    #[must_use]
    pub fn removed(&self) -> Removed {
        self.progress.take_removed()
    }

    /// Sends what was gathered to the file: to be called now and then, since what was not sent is
    /// lost when the tracer is killed. Returns why something could not be written, once: see
    /// [`Recorder::is_over`].
    pub fn flush(&mut self) -> Option<io::Error> {
        if let Some(payload) = self.encoder.take() {
            self.send(Message::Block(payload));
        }
        self.failure.take().or_else(|| self.progress.take_failure())
    }

    /// Writes the rest, and waits for the file.
    #[must_use]
    pub fn finish(mut self) -> Recorded {
        let failure = self.flush();
        let recorded = self.join();
        Recorded {
            failure: recorded.failure.or(failure),
            removed: self.removed(),
            ..recorded
        }
    }

    fn roll(&mut self) {
        let Some(rolling) = &mut self.rolling else {
            return;
        };
        let (end, header, head) = rolling.next();
        let last = self.encoder.event(&Event::End(&end));
        for payload in last.into_iter().chain(self.encoder.take()) {
            self.send(Message::Block(payload));
        }
        self.send(Message::Next(header, head));
    }

    fn send(&mut self, message: Message) {
        // The thread only leaves before us when it could not write.
        let sent = self.blocks.as_ref().map(|blocks| blocks.send(message));
        if let Some(Err(_)) = sent {
            self.failure = self.join().failure;
        }
    }

    fn join(&mut self) -> Recorded {
        self.blocks = None;
        let recorded = self.thread.take().map(JoinHandle::join);
        match recorded {
            Some(Ok(recorded)) => recorded,
            Some(Err(_)) => Recorded {
                bytes: 0,
                failure: Some(io::Error::other("the thread that writes it has panicked")),
                removed: Removed::default(),
            },
            None => Recorded {
                bytes: 0,
                failure: None,
                removed: Removed::default(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
