//! A job that measures itself: a future in; when it was spawned, polled, left and woken out.
//!
//! A line of the log is `kind number begin end parked queued`, the last four `least..most` in nanoseconds: moments of
//! `CLOCK_MONOTONIC`, and sums. A task is resumed after whatever its thread polled before, and before its first
//! reading of the clock; it is left after its last one; it becomes ready between the readings around the first
//! call of its waker, unless tokio takes it for running still: then the thread that leaves it queues it, whenever that
//! is.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use example_clock::now_ns;

thread_local! {
    /// When this thread was last done with a poll that is measured.
    static LAST_EXIT: Cell<u64> = const { Cell::new(0) };
}

/// A range that holds what a trace says.
#[derive(Clone, Copy, Default)]
struct Range {
    least: u64,
    most: u64,
}

/// A call of the waker: readings of the clock around it.
struct Call {
    before: u64,
    /// 0 while it lasts.
    after: u64,
    /// Whether nothing ran the job when it began.
    idle: bool,
}

#[derive(Default)]
struct Noted {
    /// Since the last poll began.
    calls: Vec<Call>,
    /// When the last poll ended; of none, before it was spawned.
    exit: u64,
    parked: Range,
    queued: Range,
}

/// What is known of one job.
pub(crate) struct Story {
    noted: Mutex<Noted>,
    waker: Mutex<Option<Waker>>,
}

impl Story {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A poll begins.
    fn enters(&self) {
        let entry = now_ns();
        let resumed = LAST_EXIT.get();
        let mut noted = self.noted();
        let exit = noted.exit;
        let is_first = self.waker().is_none();
        // It is ready when it is spawned.
        let ready = if is_first {
            Range {
                least: exit,
                most: exit,
            }
        } else {
            let ends = |call: &Call| match call.after {
                after if after != 0 && call.idle => after,
                _ => entry,
            };
            Range {
                least: noted
                    .calls
                    .iter()
                    .map(|call| call.before)
                    .min()
                    .unwrap_or(exit),
                most: noted.calls.iter().map(ends).min().unwrap_or(entry),
            }
        };
        noted.parked.most += ready.most.saturating_sub(exit);
        noted.queued.most += entry - ready.least.max(exit);
        // Woken while it ran, it is queued when it is left, and nobody knows when that was.
        if !is_first && ready.least > exit {
            noted.queued.least += resumed.saturating_sub(ready.most);
        }
        noted.calls.retain(|call| call.after == 0);
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Story {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = self.waker().clone();
        let idle = waker.as_ref().is_some_and(|waker| !is_running(waker));
        let before = now_ns();
        let after = 0;
        let call = Call {
            before,
            after,
            idle,
        };
        self.noted().calls.push(call);
        if let Some(waker) = waker {
            waker.wake();
        }
        let after = now_ns();
        let mut noted = self.noted();
        if let Some(call) = noted.calls.iter_mut().find(|call| call.before == before) {
            call.after = after;
        }
    }
}

/// Whether tokio takes the task of this waker for running: a bit of its state, the first word of its header, to which
/// the waker's data points (as in tokio 1.54, `runtime/task/state.rs`).
fn is_running(waker: &Waker) -> bool {
    const RUNNING: usize = 1;
    // SAFETY: the waker has a reference to the task, whose header begins with this word.
    let state = unsafe { &*waker.data().cast::<AtomicUsize>() };
    state.load(Ordering::Acquire) & RUNNING != 0
}

/// A poll that lasts: its end is noted although it may panic.
struct Polled<'a>(&'a Story);

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        let exit = now_ns();
        LAST_EXIT.set(exit);
        self.0.noted().exit = exit;
    }
}

/// The future of a job, with clocks around each of its polls.
pub(crate) struct Measured<F> {
    future: Pin<Box<F>>,
    story: Arc<Story>,
}

impl<F: Future<Output = ()>> Future for Measured<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let story = Arc::clone(&self.story);
        story.enters();
        *story.waker() = Some(context.waker().clone());
        let _polled = Polled(&story);
        let own = Waker::from(Arc::clone(&story));
        self.future.as_mut().poll(&mut Context::from_waker(&own))
    }
}

/// The thread is busy for a moment, and polls nothing else meanwhile.
pub(crate) fn busy(ns: u64) {
    let end = now_ns() + ns;
    while now_ns() < end {
        std::hint::spin_loop();
    }
    LAST_EXIT.set(now_ns());
}

/// Spawns a job, does `meanwhile`, waits for the job and gives its line of the log.
pub(crate) async fn job<F>(
    kind: &str,
    number: u64,
    future: F,
    meanwhile: impl Future<Output = ()>,
) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let before = now_ns();
    let story = Arc::new(Story {
        noted: Mutex::new(Noted {
            exit: before,
            ..Noted::default()
        }),
        waker: Mutex::new(None),
    });
    let measured = Measured {
        future: Box::pin(future),
        story: Arc::clone(&story),
    };
    let task = tokio::spawn(measured);
    let after = now_ns();
    meanwhile.await;
    // Of one that panicked it is an error.
    let _ = task.await;
    let end = now_ns();
    let noted = story.noted();
    let (parked, queued) = (noted.parked, noted.queued);
    format!(
        "{kind} {number} {before}..{after} {}..{end} {}..{} {}..{}\n",
        noted.exit, parked.least, parked.most, queued.least, queued.most
    )
}
