//! When the one thread of a runtime slept: the rest of the time it was busy, or waited for a CPU.
//!
//! In: the thread's parks, and how long it has waited for a CPU until then. Out: spans of time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use example_clock::now_ns;
use tokio::runtime::{Builder, Runtime};

/// From when to when, `CLOCK_MONOTONIC` ns.
pub(crate) type Span = [u64; 2];

struct Thread {
    schedstat: File,
    spans: Vec<Span>,
    /// When it was parked last, and how long it had waited for a CPU by then.
    parked: Span,
}

/// A runtime with the thread that calls this, and when that has slept since.
#[derive(Clone)]
pub(crate) struct Asleep(Arc<Mutex<Thread>>);

impl Asleep {
    pub(crate) fn runtime() -> io::Result<(Runtime, Self)> {
        let asleep = Self(Arc::new(Mutex::new(Thread {
            schedstat: File::open("/proc/thread-self/schedstat")?,
            spans: Vec::new(),
            parked: [0; 2],
        })));
        let [parks, unparks] = [asleep.clone(), asleep.clone()];
        let mut builder = Builder::new_current_thread();
        builder
            .enable_all()
            .on_thread_park(move || parks.with(Thread::parks))
            .on_thread_unpark(move || unparks.with(Thread::unparks));
        Ok((builder.build()?, asleep))
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.with(|thread| std::mem::take(&mut thread.spans))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Thread) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Thread {
    fn parks(&mut self) {
        let waited_ns = self.waited_ns();
        self.parked = [now_ns(), waited_ns];
    }

    /// It slept until it was woken, and waited for a CPU from then on.
    fn unparks(&mut self) {
        let now = now_ns();
        let [since, waited_ns] = self.parked;
        let until = now - (self.waited_ns() - waited_ns).min(now);
        if since < until {
            self.spans.push([since, until]);
        }
    }

    /// The second number of schedstat. The first one, its time on a CPU, is as old as the last tick while it runs.
    fn waited_ns(&self) -> u64 {
        let mut bytes = [0; 80];
        let length = self.schedstat.read_at(&mut bytes, 0).unwrap_or(0);
        let text = str::from_utf8(&bytes[..length]).unwrap_or_default();
        let number = text.split_whitespace().nth(1).map(str::parse);
        // Without it all waits for a CPU are sleep, of which nothing is the client's.
        number.and_then(Result::ok).unwrap_or(0)
    }
}
