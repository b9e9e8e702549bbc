//! Jobs that have what others wait for, for a while.

use std::hint::black_box;
use std::sync::{self, Arc};
use std::thread;

use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::{BUSY_NS, Kind, ends, held_for, tasks_job};
use crate::measured::busy;

/// Has a lock, and lets it go.
pub(super) async fn holds(number: u64, lock: Arc<Mutex<()>>, has_it: oneshot::Sender<()>) {
    tasks_job(Kind::Holds, number);
    let held = lock.lock().await;
    let _ = has_it.send(());
    sleep(held_for()).await;
    drop(held);
    ends(number);
}

/// Sends after a while.
pub(super) async fn sends(number: u64, to: mpsc::Sender<u64>) {
    tasks_job(Kind::Sends, number);
    sleep(held_for()).await;
    let _ = to.send(number).await;
    ends(number);
}

/// Has the only permit for a while.
pub(super) async fn owns(number: u64, permits: Arc<Semaphore>, has_it: oneshot::Sender<()>) {
    tasks_job(Kind::Owns, number);
    let permit = permits.acquire().await;
    let _ = has_it.send(());
    sleep(held_for()).await;
    drop(permit);
    ends(number);
}

/// Has the only thread of a runtime with one. What it is given is unlike what other jobs have: a linker may take two that
/// differ in nothing else for one.
pub(super) async fn crunches(number: u64, numbers: Vec<u64>) {
    tasks_job(Kind::Crunches, number);
    busy(BUSY_NS);
    drop(black_box(numbers));
    ends(number);
}

/// Has a lock of threads, and its own thread, for a while.
pub(super) async fn keeps(number: u64, lock: Arc<sync::Mutex<()>>, has_it: oneshot::Sender<()>) {
    tasks_job(Kind::Keeps, number);
    let held = lock.lock();
    let _ = has_it.send(());
    // Its waiter is queued for this thread.
    block_in_place(|| thread::sleep(held_for()));
    drop(held);
    ends(number);
}
