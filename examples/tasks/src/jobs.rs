//! Kinds of jobs: each a future of its own that waits for one thing, with who ends its waiting.
//!
//! In: a folder, and how many jobs of each kind. Out: their lines of the log.

mod alone;
mod holders;
mod waiters;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, Arc};
use std::time::Duration;
use std::{hint, io, thread};

use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use self::alone::{blocks, computes, has_a_child, queues, sleeps, syncs, yields};
use self::holders::{crunches, holds, keeps, owns, sends};
use self::waiters::{acquires, asks, contends, locks, receives, starves};
use crate::Result;
use crate::measured::job;

/// How long somebody has what a job waits for, ms.
static HELD_MS: AtomicU64 = AtomicU64::new(3);

/// How long a job computes, and at least keeps another one from the only thread.
const BUSY_NS: u64 = 2_000_000;

/// Of so many jobs of a kind one panics.
const ONE_PANICS_IN: u64 = 20;

/// What a job does, by the number that the profile has a name for.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Kind {
    Holds = 0,
    Sends = 1,
    Owns = 2,
    Sleeps = 3,
    Locks = 4,
    Receives = 5,
    Acquires = 6,
    Asks = 7,
    Syncs = 8,
    Computes = 9,
    Yields = 10,
    HasAChild = 11,
    Starves = 12,
    Queues = 13,
    Blocks = 14,
    Crunches = 15,
    Keeps = 16,
    Contends = 17,
}

/// How long somebody has what a job waits for.
fn held_for() -> Duration {
    Duration::from_millis(HELD_MS.load(Ordering::Relaxed))
}

/// Another time than usual, for a machine on which that is soon over.
pub(crate) fn hold_for(ms: u64) {
    HELD_MS.store(ms, Ordering::Relaxed);
}

/// A job says which one it is: where attributes are read.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn tasks_job(kind: Kind, number: u64) {
    hint::black_box((kind as u64, number));
}

/// Where a job ends, one way or another.
fn ends(number: u64) {
    assert!(number % ONE_PANICS_IN != ONE_PANICS_IN - 1, "as it is to");
}

async fn nothing() {}

/// Runs so many jobs of each kind: those of a kind one after the other, all kinds at a time.
pub(crate) async fn run(data: &Path, jobs: u64) -> Result<Vec<String>> {
    std::fs::create_dir_all(data)?;
    let file = data.join("synced");
    let upstream = upstream()?;
    let mut kinds = JoinSet::new();
    kinds.spawn(each(jobs, |n| async move {
        vec![job("sleeps", n, sleeps(n), nothing()).await]
    }));
    kinds.spawn(each(jobs, with_a_lock));
    kinds.spawn(each(jobs, with_a_channel));
    kinds.spawn(each(jobs, with_a_permit));
    kinds.spawn(each(jobs, move |n| async move {
        vec![job("asks", n, asks(n, upstream), nothing()).await]
    }));
    kinds.spawn(each(jobs, move |n| {
        let file = file.clone();
        async move { vec![job("syncs", n, syncs(n, file), nothing()).await] }
    }));
    kinds.spawn(each(jobs, |n| async move {
        vec![job("computes", n, computes(n), nothing()).await]
    }));
    kinds.spawn(each(jobs, |n| async move {
        vec![job("yields", n, yields(n), nothing()).await]
    }));
    kinds.spawn(each(jobs, |n| async move {
        vec![job("has_a_child", n, has_a_child(n), nothing()).await]
    }));
    kinds.spawn(each(jobs, behind_another));
    kinds.spawn(each(jobs, |n| async move {
        vec![job("queues", n, queues(n), nothing()).await]
    }));
    lines_of(kinds).await
}

/// The same of jobs that block the thread that runs them, after they have told the runtime, which goes on with another
/// thread, or block it behind its back; beside two kinds that need one.
pub(crate) async fn run_blocking(jobs: u64) -> Result<Vec<String>> {
    let mut kinds = JoinSet::new();
    kinds.spawn(each(jobs, |n| async move {
        vec![job("blocks", n, blocks(n), nothing()).await]
    }));
    kinds.spawn(each(jobs, with_a_lock_of_threads));
    kinds.spawn(each(jobs, |n| async move {
        vec![job("computes", n, computes(n), nothing()).await]
    }));
    kinds.spawn(each(jobs, |n| async move {
        vec![job("sleeps", n, sleeps(n), nothing()).await]
    }));
    lines_of(kinds).await
}

async fn lines_of(mut kinds: JoinSet<Vec<String>>) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    while let Some(of_kind) = kinds.join_next().await {
        lines.extend(of_kind?);
    }
    Ok(lines)
}

/// One after the other.
async fn each<F: Future<Output = Vec<String>>>(jobs: u64, one: impl Fn(u64) -> F) -> Vec<String> {
    let mut lines = Vec::new();
    for number in 0..jobs {
        lines.extend(one(number).await);
    }
    lines
}

/// A job, and another one that is spawned behind it, or once it has what the other one waits for.
async fn pair<H, W>(
    number: u64,
    (has, holder): (&str, H),
    (waits, waiter): (&str, W),
    held: impl Future,
) -> Vec<String>
where
    H: Future<Output = ()> + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let mut of_waiter = String::new();
    let of_holder = job(has, number, holder, async {
        held.await;
        of_waiter = job(waits, number, waiter, nothing()).await;
    });
    vec![of_holder.await, of_waiter]
}

async fn with_a_lock(number: u64) -> Vec<String> {
    let lock = Arc::new(Mutex::new(()));
    let (has_it, held) = oneshot::channel();
    let holder = holds(number, Arc::clone(&lock), has_it);
    pair(
        number,
        ("holds", holder),
        ("locks", locks(number, lock)),
        held,
    )
    .await
}

/// The same with a lock of threads: both block theirs.
async fn with_a_lock_of_threads(number: u64) -> Vec<String> {
    let lock = Arc::new(sync::Mutex::new(()));
    let (has_it, held) = oneshot::channel();
    let keeper = keeps(number, Arc::clone(&lock), has_it);
    pair(
        number,
        ("keeps", keeper),
        ("contends", contends(number, lock)),
        held,
    )
    .await
}

async fn with_a_permit(number: u64) -> Vec<String> {
    let permits = Arc::new(Semaphore::new(1));
    let (has_it, held) = oneshot::channel();
    let owner = owns(number, Arc::clone(&permits), has_it);
    pair(
        number,
        ("owns", owner),
        ("acquires", acquires(number, permits)),
        held,
    )
    .await
}

async fn with_a_channel(number: u64) -> Vec<String> {
    let (to, from) = mpsc::channel(1);
    let sender = sends(number, to);
    pair(
        number,
        ("sends", sender),
        ("receives", receives(number, from)),
        nothing(),
    )
    .await
}

/// One computes, and the other one is starved meanwhile.
async fn behind_another(number: u64) -> Vec<String> {
    let cruncher = crunches(number, vec![number]);
    let starved = starves(number, "starves".into());
    pair(
        number,
        ("crunches", cruncher),
        ("starves", starved),
        nothing(),
    )
    .await
}

/// A server that answers after a while, on threads of its own.
fn upstream() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::Builder::new()
        .name("upstream".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let answers = move || -> io::Result<()> {
                    let mut stream = stream;
                    stream.read_exact(&mut [0])?;
                    thread::sleep(held_for());
                    stream.write_all(b"!")
                };
                let _ = thread::Builder::new()
                    .name("upstream".to_owned())
                    .spawn(answers);
            }
        })?;
    Ok(address)
}
