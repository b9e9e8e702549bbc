//! Kinds of jobs: each a future of its own that waits for one thing, with who ends its waiting.
//!
//! In: a folder, and how many jobs of each kind. Out: their lines of the log.

mod alone;
mod holders;
mod waiters;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
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

/// How long somebody has what a job waits for.
const HELD: Duration = Duration::from_millis(3);

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

/// One has a lock, and another one that begins then waits for it.
async fn with_a_lock(number: u64) -> Vec<String> {
    let lock = Arc::new(Mutex::new(()));
    let (has_it, held) = oneshot::channel();
    let mut waiter = String::new();
    let holder = holds(number, Arc::clone(&lock), has_it);
    let holder = job("holds", number, holder, async {
        let _ = held.await;
        waiter = job("locks", number, locks(number, lock), nothing()).await;
    });
    vec![holder.await, waiter]
}

/// The same with a lock of threads: both block theirs.
async fn with_a_lock_of_threads(number: u64) -> Vec<String> {
    let lock = Arc::new(sync::Mutex::new(()));
    let (has_it, held) = oneshot::channel();
    let mut waiter = String::new();
    let keeper = keeps(number, Arc::clone(&lock), has_it);
    let keeper = job("keeps", number, keeper, async {
        let _ = held.await;
        waiter = job("contends", number, contends(number, lock), nothing()).await;
    });
    vec![keeper.await, waiter]
}

async fn with_a_permit(number: u64) -> Vec<String> {
    let permits = Arc::new(Semaphore::new(1));
    let (has_it, held) = oneshot::channel();
    let mut waiter = String::new();
    let owner = owns(number, Arc::clone(&permits), has_it);
    let owner = job("owns", number, owner, async {
        let _ = held.await;
        waiter = job("acquires", number, acquires(number, permits), nothing()).await;
    });
    vec![owner.await, waiter]
}

async fn with_a_channel(number: u64) -> Vec<String> {
    let (sender, receiver) = mpsc::channel(1);
    let mut receiver_line = String::new();
    let sends = job("sends", number, sends(number, sender), async {
        receiver_line = job("receives", number, receives(number, receiver), nothing()).await;
    });
    vec![sends.await, receiver_line]
}

/// One computes, and another one is spawned behind it.
async fn behind_another(number: u64) -> Vec<String> {
    let mut starved = String::new();
    let crunches = job("crunches", number, crunches(number, vec![number]), async {
        let future = starves(number, "starves".into());
        starved = job("starves", number, future, nothing()).await;
    });
    vec![crunches.await, starved]
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
                    thread::sleep(HELD);
                    stream.write_all(b"!")
                };
                let _ = thread::Builder::new()
                    .name("upstream".to_owned())
                    .spawn(answers);
            }
        })?;
    Ok(address)
}
