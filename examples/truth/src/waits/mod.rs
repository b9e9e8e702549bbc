//! The waits, one module per way of waiting.

pub(crate) mod call;
pub(crate) mod child;
pub(crate) mod cpu;
pub(crate) mod files;
pub(crate) mod poll;
pub(crate) mod streams;
pub(crate) mod threads;
pub(crate) mod time;

use std::io;
use std::time::Duration;

use crate::partner::Woken;

/// Clock just before and just after a wait, `CLOCK_MONOTONIC` ns.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
}

/// Something that a request does again and again.
pub(crate) trait Wait {
    /// The wait class that it should be in; none for what does not wait.
    fn class(&self) -> Option<&'static str>;

    /// Outside the request: makes sure that there will be something to wait for, and that somebody
    /// ends the wait in so much time.
    fn prepare(&mut self, _end_in: Duration) -> io::Result<()> {
        Ok(())
    }

    /// Inside the request: waits.
    fn wait(&mut self) -> io::Result<()>;

    /// Outside again: when the wait was ended. Where nobody knows, some time in it.
    fn woken(&mut self, span: Span) -> io::Result<Woken> {
        Ok(Woken {
            earliest_ns: span.begin_ns,
            latest_ns: span.end_ns,
        })
    }
}
