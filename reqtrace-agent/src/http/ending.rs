//! The end of a sender: the word of the agent in; a wait that it cuts short out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How soon the word is heard.
const GLANCE: Duration = Duration::from_millis(100);

/// Whether the agent ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending(Arc<AtomicBool>);

impl Ending {
    /// It does.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether the agent still runs after this time.
    pub(crate) fn waits(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.has_begun() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(GLANCE));
        }
        false
    }
}
