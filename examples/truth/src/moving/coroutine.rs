//! Coroutines by hand: state machines that any of several threads may run, a step at a time.
//!
//! A step ends with "not yet", and somebody wakes the coroutine later, or with "done". It may be woken while its
//! step still runs: then it is ready again at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::story::{Moment, Story};
use super::work;
use crate::Result;

const THREADS: u64 = 3;
/// How many live at a time.
const LIVE: u64 = 24;
/// When a coroutine is woken: some are while they still run.
const DELAYS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_micros(60),
    Duration::ZERO,
    Duration::from_micros(150),
];

/// What [`co_poll`] returns.
const NOT_YET: u64 = 0;
const DONE: u64 = 1;

/// Nobody runs it, and nobody has woken it.
const IDLE: u64 = 0;
/// A thread runs its step.
const RUNNING: u64 = 1;
/// A thread runs its step, and it has been woken since.
const WOKEN: u64 = 2;
/// It is among those that are ready.
const READY: u64 = 3;

/// A coroutine. Its address is its key.
#[repr(C)]
struct Coroutine {
    number: u64,
    state: AtomicU64,
    /// When it was woken last.
    woken: [AtomicU64; 2],
    inner: Mutex<Inner>,
    executor: Arc<Executor>,
}

struct Inner {
    steps: u64,
    story: Story,
    wake_by: Sender<(Arc<Coroutine>, Duration)>,
}

struct Executor {
    ready: Mutex<Ready>,
    filled: Condvar,
}

struct Ready {
    coroutines: VecDeque<Arc<Coroutine>>,
    /// The number of the next one to be made.
    next: u64,
    /// How many have not ended yet.
    left: u64,
}

/// Does so many requests.
pub(super) fn run(requests: u64) -> Result<String> {
    let executor = Arc::new(Executor {
        ready: Mutex::new(Ready {
            coroutines: VecDeque::new(),
            next: 1,
            left: requests,
        }),
        filled: Condvar::new(),
    });
    let (wake_by, to_wake) = channel();
    thread::scope(|scope| {
        let waker = thread::Builder::new().name("t-waker".into());
        let waker = waker.spawn_scoped(scope, move || wake_all(&to_wake))?;
        for _ in 0..LIVE {
            executor.make_one(&wake_by, requests);
        }
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let thread = thread::Builder::new().name(format!("t-executor-{number}"));
            let (executor, wake_by) = (Arc::clone(&executor), wake_by.clone());
            threads
                .push(thread.spawn_scoped(scope, move || execute(&executor, &wake_by, requests))?);
        }
        drop(wake_by);
        let mut log = String::new();
        for thread in threads {
            log += &thread.join().map_err(|_| "an executor panicked")?;
        }
        waker.join().map_err(|_| "the waker panicked")?;
        Ok(log)
    })
}

fn execute(
    executor: &Arc<Executor>,
    wake_by: &Sender<(Arc<Coroutine>, Duration)>,
    requests: u64,
) -> String {
    let mut log = String::new();
    while let Some(coroutine) = executor.take() {
        coroutine.state.store(RUNNING, SeqCst);
        coroutine.inner().story.about();
        let answer = co_poll(&coroutine, &coroutine);
        let at = coroutine.inner().story.moment();
        if answer == DONE {
            let inner = coroutine.inner();
            inner
                .story
                .write(&mut log, "coroutine", coroutine.number, at);
            drop(inner);
            drop(coroutine);
            executor.make_one(wake_by, requests);
            executor.one_has_ended();
            continue;
        }
        coroutine.inner().story.leaves(at);
        let change = coroutine
            .state
            .compare_exchange(RUNNING, IDLE, SeqCst, SeqCst);
        if change.is_err() {
            executor.push(coroutine);
        }
    }
    log
}

fn wake_all(to_wake: &Receiver<(Arc<Coroutine>, Duration)>) {
    for (coroutine, after) in to_wake {
        if !after.is_zero() {
            thread::sleep(after);
        }
        co_wake(&coroutine, &coroutine, example_clock::now_ns());
    }
}

impl Executor {
    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next coroutine, if there is to be one.
    fn make_one(self: &Arc<Self>, wake_by: &Sender<(Arc<Coroutine>, Duration)>, requests: u64) {
        let number = {
            let mut ready = self.lock();
            if ready.next > requests {
                return;
            }
            ready.next += 1;
            ready.next - 1
        };
        self.push(Arc::new(Coroutine {
            number,
            state: AtomicU64::new(IDLE),
            woken: [AtomicU64::new(0), AtomicU64::new(0)],
            inner: Mutex::new(Inner {
                steps: 0,
                story: Story::default(),
                wake_by: wake_by.clone(),
            }),
            executor: Arc::clone(self),
        }));
    }

    fn push(&self, coroutine: Arc<Coroutine>) {
        coroutine.state.store(READY, SeqCst);
        self.lock().coroutines.push_back(coroutine);
        self.filled.notify_one();
    }

    /// The next one that is ready; `None` when all have ended.
    fn take(&self) -> Option<Arc<Coroutine>> {
        let mut ready = self.lock();
        loop {
            if let Some(coroutine) = ready.coroutines.pop_front() {
                return Some(coroutine);
            }
            if ready.left == 0 {
                return None;
            }
            ready = self
                .filled
                .wait(ready)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn one_has_ended(&self) {
        let mut ready = self.lock();
        ready.left -= 1;
        if ready.left == 0 {
            self.filled.notify_all();
        }
    }
}

impl Coroutine {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn woken(&self) -> Moment {
        let [before, after] = &self.woken;
        Moment::of([before.load(SeqCst), after.load(SeqCst)])
    }
}

/// `begin` and `resume` at its entry; at its return `park` when it returns 0, and `end` when it returns 1.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn co_poll(coroutine: &Coroutine, shared: &Arc<Coroutine>) -> u64 {
    let mut inner = coroutine.inner();
    let at = inner.story.moment();
    if inner.steps == 0 {
        inner.story.begins(at);
    } else {
        let ready = coroutine.woken();
        let story = &mut inner.story;
        story.is_back_from_two("event", ready, "executor", at);
    }
    inner.steps += 1;
    let (step, number) = (inner.steps, coroutine.number);
    work(Duration::from_micros(10 + number % 5 * 10));
    if step == 2 + number % 4 {
        inner.story.about();
        return DONE;
    }
    let after = DELAYS[(step + number) as usize % DELAYS.len()];
    // The waker lives as long as there are senders.
    let _ = inner.wake_by.send((Arc::clone(shared), after));
    work(Duration::from_micros(number % 3 * 15));
    inner.story.about();
    NOT_YET
}

/// `ready`: the coroutine waits for a thread from here on.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn co_wake(coroutine: &Coroutine, shared: &Arc<Coroutine>, before_ns: u64) {
    let [before, after] = Moment::since(before_ns).readings();
    coroutine.woken[0].store(before, SeqCst);
    coroutine.woken[1].store(after, SeqCst);
    let state = &coroutine.state;
    if state
        .compare_exchange(RUNNING, WOKEN, SeqCst, SeqCst)
        .is_err()
    {
        coroutine.executor.push(Arc::clone(shared));
    }
}
