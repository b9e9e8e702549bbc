//! What handlers do.
//!
//! In: a kind, and the number of the request. Out: when the handler began, since when it waited for something and when
//! that came, and when it ended.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use example_clock::now_ns;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::time::sleep;

use crate::upstream;

/// How long a handler of the kind `works` takes, and one that sleeps.
const WORKS: Duration = Duration::from_millis(10);
const SLEEPS: Duration = Duration::from_millis(20);

/// How long the task of a handler of the kind `joins`, `rings` or `answers` sleeps, and the thread of one that `blocks`.
const JOINS: Duration = Duration::from_millis(15);

/// How long one of the kind `holds` has the lock: it sleeps, and then computes.
const HOLDS: Duration = Duration::from_millis(15);
const COMPUTES_NS: u64 = 3_000_000;

/// The request of whose number the handler panics ends in this.
pub(crate) const PANICS: u64 = 19;

/// What handlers of the kind `locks` wait for.
static LOCK: Mutex<()> = Mutex::const_new(());

/// When the lock was given back last.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

/// Readings of the clock: the handler began, it waited for somebody from here on, what it waited for came, it ended.
pub(crate) type Clocks = [u64; 4];

/// A handler says what it does: where attributes are read.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn web_handles(kind: *const u8, length: usize) {
    hint::black_box((kind, length));
}

/// What each handler does.
///
/// # Panics
///
/// If the number of the request is so, or there is no upstream to ask.
pub(crate) async fn handle(kind: &str, number: u64) -> Clocks {
    let begin = now_ns();
    web_handles(kind.as_ptr(), kind.len());
    let (waits, came) = match kind {
        "at-once" => (begin, begin),
        "holds" => {
            let held = LOCK.lock().await;
            let waits = now_ns();
            sleep(HOLDS).await;
            compute();
            GIVEN_BACK.store(now_ns(), Ordering::Relaxed);
            drop(held);
            (waits, waits + HOLDS.as_nanos() as u64)
        }
        "locks" => {
            drop(LOCK.lock().await);
            // The one that had it has signalled so before.
            (begin, GIVEN_BACK.load(Ordering::Relaxed).max(begin))
        }
        "joins" => {
            let task = tokio::spawn(sleep(JOINS));
            assert!(task.await.is_ok(), "it does not panic");
            (begin, begin + JOINS.as_nanos() as u64)
        }
        "blocks" => {
            let job = tokio::task::spawn_blocking(|| std::thread::sleep(JOINS));
            assert!(job.await.is_ok(), "it does not panic");
            (begin, begin + JOINS.as_nanos() as u64)
        }
        "rings" => {
            let bell = Arc::new(Notify::new());
            let rings = Arc::clone(&bell);
            tokio::spawn(async move {
                sleep(JOINS).await;
                rings.notify_one();
            });
            bell.notified().await;
            (begin, begin + JOINS.as_nanos() as u64)
        }
        "answers" => {
            let (sends, answer) = oneshot::channel();
            tokio::spawn(async move {
                sleep(JOINS).await;
                _ = sends.send(());
            });
            assert!(answer.await.is_ok(), "it is sent");
            (begin, begin + JOINS.as_nanos() as u64)
        }
        "asks" => match upstream::ask(number).await {
            Ok(clocks) => clocks,
            Err(error) => panic!("{error}"),
        },
        "sleeps" => {
            sleep(SLEEPS).await;
            (begin, begin + SLEEPS.as_nanos() as u64)
        }
        _ => {
            sleep(WORKS).await;
            assert!(number % 20 != PANICS, "as it is to");
            (begin, begin + WORKS.as_nanos() as u64)
        }
    };
    [begin, waits, came, now_ns()]
}

/// By the clock, so that it may lose its turn meanwhile.
fn compute() {
    let end = now_ns() + COMPUTES_NS;
    while now_ns() < end {}
}
