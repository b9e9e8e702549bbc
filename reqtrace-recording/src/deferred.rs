//! Events that wait to be analysed: in on the thread that traces, out on another one. In between they are in memory, as
//! the compressed blocks of a recording: some ten bytes a request, and some forty with blame.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::event::Event;
use crate::file::{Compressor, MAJOR};
use crate::wire::{Encoder, Payload, decode_events};

/// Begins with nothing. Whoever feeds it waits while it has so many bytes or more.
///
/// # Errors
///
/// When there is no memory to compress with.
pub fn deferred(most: usize) -> io::Result<(Feeder, Deferred)> {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
        most,
    });
    let feeder = Feeder {
        encoder: Encoder::default(),
        compressor: Compressor::new()?,
        shared: Arc::clone(&shared),
    };
    Ok((feeder, Deferred { shared }))
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
}

#[derive(Default)]
struct State {
    blocks: VecDeque<Block>,
    bytes: usize,
    /// Blocks may be read before the end.
    is_open: bool,
    /// How it ends; `None` while more may come.
    end: Option<End>,
    /// Nobody reads it.
    is_left: bool,
}

#[derive(Clone, Copy)]
enum End {
    /// All has come.
    Whole,
    /// Nobody will feed the rest.
    Cut,
}

struct Block {
    raw_len: usize,
    /// Without spare memory: what waits is counted by its length.
    stored: Box<[u8]>,
}

impl State {
    fn next(&mut self) -> Option<Block> {
        let may = self.is_open || self.end.is_some();
        may.then(|| self.blocks.pop_front()).flatten()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes events.
pub struct Feeder {
    encoder: Encoder,
    compressor: Compressor,
    shared: Arc<Shared>,
}

impl Feeder {
    /// Takes an event.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::BrokenPipe`] when nobody reads any more.
    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match self.encoder.event(event) {
            Some(payload) => self.push(&payload),
            None => Ok(()),
        }
    }

    /// Lets the reader have what was gathered.
    ///
    /// # Errors
    ///
    /// As [`Feeder::event`].
    pub fn flush(&mut self) -> io::Result<()> {
        match self.encoder.take() {
            Some(payload) => self.push(&payload),
            None => Ok(()),
        }
    }

    /// Whether blocks are read before the end. Where there is no room for more they are, all the same.
    pub fn open(&mut self, is_open: bool) {
        self.shared.lock().is_open = is_open;
        self.shared.changed.notify_all();
    }

    /// All has come.
    ///
    /// # Errors
    ///
    /// As [`Feeder::event`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.shared.lock().end = Some(End::Whole);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Bytes that wait in memory.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lock().bytes
    }

    fn push(&mut self, payload: &Payload) -> io::Result<()> {
        let block = Block {
            raw_len: payload.bytes.len(),
            stored: self.compressor.compress(&payload.bytes)?.into(),
        };
        let mut state = self.shared.lock();
        while state.bytes >= self.shared.most && !state.is_left {
            state.is_open = true;
            self.shared.changed.notify_all();
            state = self.shared.wait(state);
        }
        if state.is_left {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.bytes += block.stored.len();
        state.blocks.push_back(block);
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.shared.lock().end.get_or_insert(End::Cut);
        self.shared.changed.notify_all();
    }
}

/// Hands events out.
pub struct Deferred {
    shared: Arc<Shared>,
}

impl Deferred {
    /// Hands all events to `each`, in order, up to [`Feeder::finish`]. The inner error is that of `each`, which ends
    /// reading.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] when the [`Feeder`] is gone before that. Any other kind when memory has changed:
    /// what comes out is not what went in.
    pub fn read<E>(
        self,
        mut each: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> io::Result<Result<(), E>> {
        let malformed = || io::Error::other("events that waited in memory have changed");
        let mut decompressor = zstd::bulk::Decompressor::new()?;
        let mut raw = Vec::new();
        while let Some(block) = self.next()? {
            raw.clear();
            raw.reserve(block.raw_len);
            decompressor.decompress_to_buffer(&block.stored, &mut raw)?;
            match decode_events(MAJOR, &raw, &mut each) {
                Ok(Ok(0)) => {}
                Ok(_) => return Err(malformed()),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    /// Waits for the next block; `None` at the end.
    fn next(&self) -> io::Result<Option<Block>> {
        let mut state = self.shared.lock();
        loop {
            match state.end {
                Some(End::Cut) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(End::Whole) if state.blocks.is_empty() => return Ok(None),
                _ => {}
            }
            if let Some(block) = state.next() {
                state.bytes -= block.stored.len();
                self.shared.changed.notify_all();
                return Ok(Some(block));
            }
            state = self.shared.wait(state);
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.shared.lock().is_left = true;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::file::tests::{Owned, any_events};

    const ROOMY: usize = 1 << 30;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_goes_in_comes_out(events in any_events(), every in 1_usize..50) {
            let (mut feeder, deferred) = deferred(ROOMY).unwrap();
            for (index, event) in events.iter().enumerate() {
                event.with(|event| feeder.event(event)).unwrap();
                if (index + 1) % every == 0 {
                    feeder.flush().unwrap();
                }
            }
            feeder.finish().unwrap();
            let mut read = Vec::new();
            let done = deferred.read(|event| {
                read.push(Owned::of(&event));
                Ok::<_, ()>(())
            });
            prop_assert_eq!(done.unwrap(), Ok(()));
            prop_assert_eq!(read, events);
        }
    }

    /// Feeds a tick in a block of its own.
    fn feed(feeder: &mut Feeder, number: u64) -> io::Result<()> {
        feeder.event(&Event::Tick(number))?;
        feeder.flush()
    }

    #[test]
    fn who_feeds_waits_where_there_is_no_room() {
        const TICKS: u64 = 100;
        let (mut feeder, deferred) = deferred(1).unwrap();
        let (fed, has_fed) = channel();
        let feeding = thread::spawn(move || {
            for number in 0..TICKS {
                feed(&mut feeder, number).unwrap();
                assert!(feeder.waiting() < 200);
                fed.send(number).unwrap();
            }
            feeder.finish().unwrap();
        });
        // The first has room; no other one before somebody reads.
        assert_eq!(has_fed.recv(), Ok(0));
        while deferred.shared.lock().bytes == 0 {}
        assert!(has_fed.try_recv().is_err());
        let mut next = 0;
        let read = deferred.read(|event| {
            assert_eq!(event, Event::Tick(next));
            next += 1;
            Ok::<_, ()>(())
        });
        assert_eq!((read.unwrap(), next), (Ok(()), TICKS));
        feeding.join().unwrap();
    }

    #[test]
    fn who_feeds_nobody_knows_it() {
        let (mut feeder, deferred) = deferred(ROOMY).unwrap();
        feed(&mut feeder, 0).unwrap();
        feed(&mut feeder, 1).unwrap();
        feeder.open(true);
        let mut seen = 0;
        let read = deferred.read(|_| {
            seen += 1;
            Err("no room on the disk")
        });
        assert_eq!((read.unwrap(), seen), (Err("no room on the disk"), 1));
        let error = feed(&mut feeder, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_was_cut_off_is_not_whole() {
        let (mut feeder, deferred) = deferred(ROOMY).unwrap();
        feed(&mut feeder, 0).unwrap();
        drop(feeder);
        let error = deferred.read(|_| Ok::<_, ()>(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn nothing_is_read_before_the_end_unless_it_is_open() {
        let (mut feeder, deferred) = deferred(ROOMY).unwrap();
        let (seen, has_seen) = channel();
        let reading = thread::spawn(move || {
            deferred.read(|event| {
                seen.send(Owned::of(&event)).unwrap();
                Ok::<_, ()>(())
            })
        });
        let tick = |number| Owned::of(&Event::Tick(number));
        feed(&mut feeder, 0).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(has_seen.try_recv().is_err());
        feeder.open(true);
        assert_eq!(has_seen.recv().unwrap(), tick(0));
        feeder.open(false);
        feed(&mut feeder, 1).unwrap();
        feeder.finish().unwrap();
        assert_eq!(has_seen.recv().unwrap(), tick(1));
        assert_eq!(reading.join().unwrap().unwrap(), Ok(()));
    }
}
