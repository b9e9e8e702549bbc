//! Work that is begun before its result is wanted: a function in, what it returns out. A trace begins
//! sooner so, and ends at once when something is wrong: nobody waits for what is not wanted any more.

use std::thread::{self, JoinHandle};

use crate::kernel::priority;
use reqtrace_base::error::{Error, Result};

/// Work in a thread of its own.
pub(super) struct Ahead<T> {
    what: &'static str,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Ahead<T> {
    /// Begins it; `what` is its name in errors.
    pub(super) fn begin(what: &'static str, work: impl FnOnce() -> T + Send + 'static) -> Self {
        Self {
            what,
            thread: thread::spawn(move || {
                priority::come_as_others();
                work()
            }),
        }
    }

    /// Whether nobody has to wait for its result.
    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its result.
    ///
    /// # Errors
    ///
    /// When it panicked.
    pub(super) fn wait(self) -> Result<T> {
        let what = self.what;
        let panicked = |_| Error::failed(format!("{what}: a thread panicked"));
        self.thread.join().map_err(panicked)
    }
}
