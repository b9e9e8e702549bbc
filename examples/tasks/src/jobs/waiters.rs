//! Jobs that wait for what another job has.

use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore, mpsc};

use super::{Kind, ends, tasks_job};

pub(super) async fn locks(number: u64, lock: Arc<Mutex<()>>) {
    tasks_job(Kind::Locks, number);
    drop(lock.lock().await);
    ends(number);
}

pub(super) async fn receives(number: u64, mut from: mpsc::Receiver<u64>) {
    tasks_job(Kind::Receives, number);
    let _ = from.recv().await;
    ends(number);
}

pub(super) async fn acquires(number: u64, permits: Arc<Semaphore>) {
    tasks_job(Kind::Acquires, number);
    drop(permits.acquire().await);
    ends(number);
}
