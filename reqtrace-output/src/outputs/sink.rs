//! Bytes in, written by a thread of its own: a disk that hangs or a reader that does not read keeps
//! nobody.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Bytes that wait at most to be written; what comes then is not taken.
const MAX_WAITING: usize = 32 << 20;
/// How long nothing may be written at the end before a live trace gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same when a signal has ended the trace.
const IN_A_HURRY: Duration = Duration::from_secs(3);
/// How often it is looked whether a signal has come.
const LOOK: Duration = Duration::from_millis(100);

/// Whether a signal asks for the end. A trace that runs has one; a report of a recording waits.
pub type Asked = fn() -> bool;

/// Since when nothing was written.
struct Standstill {
    written: u64,
    since: Instant,
}

impl Standstill {
    fn new(written: u64) -> Self {
        let since = Instant::now();
        Self { written, since }
    }
}

/// Writes in the background.
pub(super) struct Sink {
    shared: Arc<Shared>,
    asked: Option<Asked>,
    is_stdout: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    waiting: usize,
    written: u64,
    /// What comes is the end, and waits for room.
    is_last: bool,
    /// Nothing more will come.
    closed: bool,
    /// The thread has ended.
    done: bool,
    /// The reader has left: nobody wants the rest.
    unread: bool,
    failure: Option<io::Error>,
}

impl Shared {
    /// Numbers and chunks are whole whoever has panicked.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Sink {
    /// Writes to a file, a pipe or a device. With `asked` it never waits while it takes bytes. An `own`
    /// file is empty, and nobody else writes to it.
    pub(super) fn start(
        file: File,
        own: bool,
        is_stdout: bool,
        asked: Option<Asked>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                give_up_privileges();
                write_all(file, own, &mine);
            })?;
        Ok(Self {
            shared,
            asked,
            is_stdout,
        })
    }

    /// The trace is over: what comes now is the end of the output, and waits for room as [`Sink::finish`] does.
    pub(super) fn expect_end(&self) {
        self.shared.lock().is_last = true;
    }

    /// Waits until all is written, as long as that makes sense; then says what went wrong.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.changed.notify_all();
        let mut still = Standstill::new(state.written);
        while !state.done {
            state = self.wait(state, &mut still)?;
        }
        state.failure.take().map_or(Ok(()), Err)
    }

    /// Waits a while for something to be written; an error when nothing was for too long.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        still: &mut Standstill,
    ) -> io::Result<MutexGuard<'a, State>> {
        let waited = self.shared.changed.wait_timeout(state, LOOK);
        let state = waited.map_or_else(|error| error.into_inner().0, |(state, _)| state);
        if state.written != still.written {
            *still = Standstill::new(state.written);
        }
        let patience = match self.asked {
            None => return Ok(state),
            Some(asked) if asked() => IN_A_HURRY,
            // A pager shows a page and waits for its user.
            Some(_) if self.is_stdout => return Ok(state),
            Some(_) => PATIENCE,
        };
        if still.since.elapsed() < patience {
            return Ok(state);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "nothing could be written for {} s; {} bytes are missing",
                patience.as_secs(),
                state.waiting
            ),
        ))
    }

    /// Whether nothing has been given to it, and nothing will be.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.shared.lock();
        state.written == 0 && state.waiting == 0
    }
}

/// What writes has its file open, and needs no privilege of this program's user. Safe between fork and exec.
pub fn give_up_privileges() {
    keep_privileges(CapabilitySet::empty());
}

/// The same, but for the right to make files in a folder of another user.
pub fn give_up_privileges_but_files() {
    let own = capabilities(None).map(|own| own.permitted);
    let own = own.unwrap_or(CapabilitySet::empty());
    keep_privileges(own.intersection(CapabilitySet::DAC_OVERRIDE));
}

fn keep_privileges(kept: CapabilitySet) {
    let kept = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    // The kernel refuses neither; a test reads what is left.
    let _ = set_capabilities(None, kept);
    let _ = set_no_new_privs(true);
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

/// All of the bytes are taken, or none: [`io::ErrorKind::WouldBlock`] when too much waits, until the end is expected.
impl Write for &Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        let mut still = Standstill::new(state.written);
        loop {
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            if state.unread || state.done {
                return Ok(bytes.len());
            }
            if state.waiting == 0 || state.waiting + bytes.len() <= MAX_WAITING {
                break;
            }
            if self.asked.is_some() && !state.is_last {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            state = self.wait(state, &mut still)?;
        }
        state.waiting += bytes.len();
        state.chunks.push_back(bytes.to_vec());
        self.shared.changed.notify_all();
        Ok(bytes.len())
    }

    /// Written is what [`Sink::finish`] has waited for.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(mut file: File, own: bool, shared: &Shared) {
    let mut state = shared.lock();
    loop {
        let Some(chunk) = state.chunks.pop_front() else {
            if state.closed {
                break;
            }
            let waited = shared.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let before = state.written;
        drop(state);
        let result = write_chunk(&mut file, &chunk, shared);
        state = shared.lock();
        state.waiting -= chunk.len();
        match result {
            Ok(()) => state.written = before + chunk.len() as u64,
            Err(error) => {
                // So that it ends with a whole row. There is nothing to be done where that fails.
                if own {
                    let _ = file.set_len(before);
                }
                (state.written, state.waiting) = (before, 0);
                state.unread = true;
                if error.kind() != io::ErrorKind::BrokenPipe {
                    state.failure = Some(error);
                }
                break;
            }
        }
        shared.changed.notify_all();
    }
    state.done = true;
    state.chunks.clear();
    shared.changed.notify_all();
}

/// Says after each part that it was written, so that a slow reader is not taken for one that has
/// stopped.
fn write_chunk(file: &mut File, mut chunk: &[u8], shared: &Shared) -> io::Result<()> {
    while !chunk.is_empty() {
        match file.write(chunk) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                chunk = &chunk[count..];
                shared.lock().written += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn pipe() -> (io::PipeReader, File) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, File::from(std::os::fd::OwnedFd::from(writer)))
    }

    #[test]
    fn bytes_arrive_in_order() {
        let (mut reader, file) = pipe();
        let sink = Sink::start(file, false, false, None).unwrap();
        let thread = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        let mut expected = Vec::new();
        for number in 0..10_000_u32 {
            (&sink).write_all(&number.to_le_bytes()).unwrap();
            expected.extend(number.to_le_bytes());
        }
        sink.finish().unwrap();
        assert_eq!(thread.join().unwrap(), expected);
    }

    #[test]
    fn a_reader_that_stands_still_keeps_nobody() {
        let (reader, file) = pipe();
        let sink = Sink::start(file, false, true, Some(|| true)).unwrap();
        let chunk = vec![0; 1 << 20];
        let taken = (0..100).filter(|_| (&sink).write(&chunk).is_ok()).count();
        assert!((32..40).contains(&taken), "{taken}");
        let begun = Instant::now();
        let error = sink.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < IN_A_HURRY * 2, "{:?}", begun.elapsed());
        drop(reader);
    }

    #[test]
    fn the_end_waits_for_a_reader_that_is_behind() {
        let (mut reader, file) = pipe();
        let sink = Sink::start(file, false, false, Some(|| false)).unwrap();
        let chunk = vec![0; 1 << 20];
        let mut taken = 0;
        while (&sink).write(&chunk).is_ok() {
            taken += chunk.len();
        }
        let reading = thread::spawn(move || {
            thread::sleep(LOOK * 3);
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all.len())
        });
        sink.expect_end();
        (&sink).write_all(b"end").unwrap();
        sink.finish().unwrap();
        drop(sink);
        assert_eq!(reading.join().unwrap().unwrap(), taken + 3);
    }

    #[test]
    fn a_reader_that_leaves_is_no_error() {
        let (reader, file) = pipe();
        let sink = Sink::start(file, false, true, Some(|| false)).unwrap();
        drop(reader);
        for _ in 0..100 {
            (&sink).write_all(b"x").unwrap();
        }
        sink.finish().unwrap();
        assert!(sink.is_empty());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let sink = Sink::start(full, false, false, Some(|| false)).unwrap();
        (&sink).write_all(b"x").unwrap();
        let error = sink.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
