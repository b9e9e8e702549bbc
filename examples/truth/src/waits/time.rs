//! Waiting for a time.

use std::io;
use std::thread;
use std::time::Duration;

use super::{Span, Wait};
use crate::partner::Woken;

/// Sleeps for so long.
pub(crate) struct Sleep(pub(crate) Duration);

impl Wait for Sleep {
    fn class(&self) -> Option<&'static str> {
        Some("sleep")
    }

    fn wait(&mut self) -> io::Result<()> {
        thread::sleep(self.0);
        Ok(())
    }

    /// A timer never fires early.
    fn woken(&mut self, span: Span) -> io::Result<Woken> {
        Ok(Woken {
            earliest_ns: span.begin_ns + self.0.as_nanos() as u64,
            latest_ns: span.end_ns,
        })
    }
}
