//! A recording that is written while tracing: events in, blocks to a file on a thread of their own.
//!
//! The thread compresses and writes, so that a slow disk does not keep the tracer from its ring. What
//! waits is bounded: when the disk stays behind, the tracer waits, and what its ring then loses is
//! counted as always. A write that fails ends the recording, and not the trace.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::event::{Event, Header};
use crate::file::BlockWriter;
use crate::wire::{Encoder, Payload, encode_header};

/// Blocks that may wait to be written: some MiB.
const WAITING: usize = 16;

/// Writes a recording in the background.
pub struct Recorder {
    encoder: Encoder,
    blocks: Option<SyncSender<Payload>>,
    thread: Option<JoinHandle<Recorded>>,
    failure: Option<io::Error>,
}

/// What became of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Bytes of all whole blocks.
    pub bytes: u64,
    /// Why it is not whole, if it is not.
    pub failure: Option<io::Error>,
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
        let (blocks, waiting) = sync_channel(WAITING);
        let thread = thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || {
                begin();
                write_all(writer, &waiting)
            })?;
        Ok(Self {
            encoder: Encoder::default(),
            blocks: Some(blocks),
            thread: Some(thread),
            failure: None,
        })
    }

    /// Takes an event. After a failure it does nothing.
    pub fn event(&mut self, event: &Event<'_>) {
        if self.blocks.is_some()
            && let Some(payload) = self.encoder.event(event)
        {
            self.send(payload);
        }
    }

    /// Sends what was gathered to the file: to be called now and then, since what was not sent is
    /// lost when the tracer is killed. Returns why the recording has ended, once, if it has.
    pub fn flush(&mut self) -> Option<io::Error> {
        if self.blocks.is_some()
            && let Some(payload) = self.encoder.take()
        {
            self.send(payload);
        }
        self.failure.take()
    }

    /// Writes the rest, and waits for the file.
    #[must_use]
    pub fn finish(mut self) -> Recorded {
        let failure = self.flush();
        let recorded = self.join();
        Recorded {
            failure: recorded.failure.or(failure),
            ..recorded
        }
    }

    fn send(&mut self, payload: Payload) {
        // The thread only leaves before us when it could not write.
        let sent = self.blocks.as_ref().map(|blocks| blocks.send(payload));
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
            },
            None => Recorded {
                bytes: 0,
                failure: None,
            },
        }
    }
}

/// Writes blocks until there are no more, or one cannot be written. Part of a block is taken away
/// again, so that the file ends with a whole one.
fn write_all(mut writer: BlockWriter<File>, waiting: &Receiver<Payload>) -> Recorded {
    for payload in waiting {
        if let Err(error) = writer.write(&payload) {
            let bytes = writer.written;
            // The reader leaves out what is not whole, so that this is for tidiness only.
            let _ = writer.get_mut().set_len(bytes);
            return Recorded {
                bytes,
                failure: Some(error),
            };
        }
    }
    Recorded {
        bytes: writer.written,
        failure: None,
    }
}
