//! Jobs that wait for one thing each, which no other job has.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use tokio::task::{block_in_place, spawn_blocking, yield_now};
use tokio::time::sleep;

use super::{BUSY_NS, Kind, ends, held_for, tasks_job};
use crate::measured::busy;

/// How often a job yields.
const YIELDS: u32 = 3;

pub(super) async fn sleeps(number: u64) {
    tasks_job(Kind::Sleeps, number);
    sleep(held_for()).await;
    ends(number);
}

pub(super) async fn syncs(number: u64, file: PathBuf) {
    tasks_job(Kind::Syncs, number);
    let _ = spawn_blocking(move || -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(file)?;
        file.write_all(b"a line\n")?;
        file.sync_all()
    })
    .await;
    ends(number);
}

/// Goes on after it, on a thread that may serve the runtime no more.
pub(super) async fn blocks(number: u64) {
    tasks_job(Kind::Blocks, number);
    block_in_place(|| thread::sleep(held_for()));
    sleep(held_for()).await;
    ends(number);
}

pub(super) async fn computes(number: u64) {
    tasks_job(Kind::Computes, number);
    busy(BUSY_NS);
    ends(number);
}

pub(super) async fn yields(number: u64) {
    tasks_job(Kind::Yields, number);
    for _ in 0..YIELDS {
        yield_now().await;
    }
    ends(number);
}

/// Waits for a child, which is no job.
pub(super) async fn has_a_child(number: u64) {
    tasks_job(Kind::HasAChild, number);
    let _ = tokio::spawn(sleep(held_for())).await;
    ends(number);
}

/// Its blocking job waits until the pool's only thread has slept for somebody else, and then sleeps itself.
pub(super) async fn queues(number: u64) {
    tasks_job(Kind::Queues, number);
    drop(spawn_blocking(|| thread::sleep(held_for())));
    let _ = spawn_blocking(|| thread::sleep(held_for())).await;
    ends(number);
}
