//! An acceptor, a queue, and workers: the request begins on one thread and ends on another.
//!
//! Every third request goes through the queue twice. A worker has a slot, whose address is the request's key
//! from some point on: of one half of them while it is queued, of the other while the worker runs it.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::story::Story;
use super::work;
use crate::Result;

const WORKERS: u64 = 3;
/// The acceptor pauses after so many requests: they wait for a worker.
const BURST: u64 = 8;
const PAUSE: Duration = Duration::from_millis(1);
const QUEUED: &str = "pool_queue";

/// A request. Its address is its key at first; the heap gives it to another one at once.
#[repr(C)]
struct Item {
    number: u64,
    /// How often it has been in the queue.
    rounds: u64,
    story: Story,
}

/// What a worker works on: its address is the key of one request after the other.
#[repr(C)]
struct Slot {
    worker: u64,
}

#[derive(Default)]
struct Queue {
    items: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Box<Item>>,
    /// How many have not been done yet.
    left: u64,
}

/// Does so many requests.
pub(super) fn run(requests: u64) -> Result<String> {
    let queue = Queue::default();
    queue.lock().left = requests;
    thread::scope(|scope| {
        let queue = &queue;
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let thread = thread::Builder::new().name(format!("t-worker-{worker}"));
                thread.spawn_scoped(scope, move || serve(queue, worker))
            })
            .collect::<std::io::Result<_>>()?;
        let acceptor = thread::Builder::new().name("t-acceptor".into());
        let acceptor = acceptor.spawn_scoped(scope, || accept(queue, requests))?;
        acceptor.join().map_err(|_| "the acceptor panicked")?;
        let mut log = String::new();
        for worker in workers {
            log += &worker.join().map_err(|_| "a worker panicked")?;
        }
        Ok(log)
    })
}

fn accept(queue: &Queue, requests: u64) {
    for number in 1..=requests {
        let mut item = Box::new(Item {
            number,
            rounds: 0,
            story: Story::default(),
        });
        item.story.about();
        pool_accept(&mut item);
        work(Duration::from_micros(5));
        item.story.about();
        pool_push(queue, item);
        if number % BURST == 0 {
            thread::sleep(PAUSE);
        }
    }
}

fn serve(queue: &Queue, worker: u64) -> String {
    let mut log = String::new();
    let slot = Slot { worker };
    while let Some(mut item) = queue.pop() {
        let early = item.number % 2 == 0;
        item.rounds += 1;
        let goes_round = item.number % 3 == 0 && item.rounds == 1;
        if early && !goes_round {
            pool_assign(&item, &slot);
        }
        item.story.about();
        if early && !goes_round {
            pool_work(&raw const slot as usize, &mut item);
        } else {
            let key = &raw const *item as usize;
            pool_work(key, &mut item);
        }
        work(Duration::from_micros(20 + item.number % 7 * 20));
        if item.number % 4 == 0 {
            thread::sleep(Duration::from_micros(200));
        }
        if goes_round {
            item.story.about();
            pool_push(queue, item);
            continue;
        }
        if !early {
            pool_assign(&item, &slot);
        }
        item.story.about();
        pool_done(&slot, &mut item, &mut log);
        drop(item);
        queue.one_is_done();
    }
    log
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one; `None` when all are done.
    fn pop(&self) -> Option<Box<Item>> {
        let mut waiting = self.lock();
        loop {
            if let Some(item) = waiting.items.pop_front() {
                return Some(item);
            }
            if waiting.left == 0 {
                return None;
            }
            waiting = self
                .filled
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn one_is_done(&self) {
        let mut waiting = self.lock();
        waiting.left -= 1;
        if waiting.left == 0 {
            self.filled.notify_all();
        }
    }
}

/// `begin`: the key is the address of the item.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pool_accept(item: &mut Item) {
    let at = item.story.moment();
    item.story.begins(at);
}

/// `ready`: the request waits for a worker from here on.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pool_push(queue: &Queue, mut item: Box<Item>) {
    let at = item.story.moment();
    item.story.leaves(at);
    queue.lock().items.push_back(item);
    queue.filled.notify_one();
}

/// `adopt`: from the item to the slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pool_assign(item: &Item, slot: &Slot) {
    black_box((item.number, slot.worker));
}

/// `resume`: the key is the first argument, an item or a slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pool_work(key: usize, item: &mut Item) {
    let at = item.story.moment();
    black_box(key);
    item.story.is_back(at, QUEUED);
}

/// `end`: the key is the slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pool_done(slot: &Slot, item: &mut Item, log: &mut String) {
    let at = item.story.moment();
    black_box(slot.worker);
    item.story.write(log, "pool", item.number, at);
}
