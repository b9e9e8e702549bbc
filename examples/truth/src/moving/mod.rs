//! Requests that change threads, or that take turns on one: three ways in which services do that.
//!
//! In: how many requests of each. Out: their lines of the log, see [`story`].
//!
//! Here the functions are marked that `moving.toml` names. Each of them reads the clock first thing, and
//! whoever calls it does so just before; what is marked at its return has the clock read last thing inside
//! and just behind. So each marker was hit between two readings.

mod coroutine;
mod event_loop;
mod pool;
mod story;

use std::hint::black_box;
use std::time::Duration;

use crate::Result;

/// Does so many requests of each kind, one kind after the other.
pub(crate) fn run(requests: u64) -> Result<Vec<String>> {
    Ok(vec![
        pool::run(requests)?,
        event_loop::run(requests)?,
        coroutine::run(requests)?,
    ])
}

/// Works for about so long.
fn work(time: Duration) {
    let end_ns = example_clock::now_ns() + time.as_nanos() as u64;
    while example_clock::now_ns() < end_ns {
        for step in 0..100 {
            black_box(step);
        }
    }
}
