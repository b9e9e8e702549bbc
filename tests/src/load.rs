//! Load beside what a test does: ended with it, also when it panics, so that a test fails instead of hanging.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Sets its flag when it goes.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Repeats `load` on a thread of its own as long as `work` runs, and until its last run is over.
pub fn beside<T>(load: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                load();
            }
        });
        work()
    })
}
