//! Jobs that wait for what another job has, or for a service.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::{self, Arc};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
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

pub(super) async fn asks(number: u64, upstream: SocketAddr) {
    tasks_job(Kind::Asks, number);
    let mut answer = [0];
    if let Ok(mut stream) = TcpStream::connect(upstream).await {
        let _ = stream.write_all(b"?").await;
        let _ = stream.read_exact(&mut answer).await;
    }
    ends(number);
}

/// Waits for the thread that another job has.
pub(super) async fn starves(number: u64, name: Arc<str>) {
    tasks_job(Kind::Starves, number);
    drop(black_box(name));
    ends(number);
}

/// Waits for a lock of threads, and blocks its own.
pub(super) async fn contends(number: u64, lock: Arc<sync::Mutex<()>>) {
    tasks_job(Kind::Contends, number);
    drop(lock.lock());
    ends(number);
}
