//! Probes on this program itself: show that probes work here, and what one hit costs.
//!
//! In: nothing. Out: [`SelfTest`], or why a probe does not work.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::count::{Counter, Place, Whose};
use super::elsewhere::{SelfTest, elsewhere};
use super::estimate::HitCost;
use super::uprobe::file_offset_of;
use crate::kernel::{self, cpus};
use reqtrace_base::error::{Error, Result};

/// Calls of one round, and rounds, of which the fastest counts: the machine may be busy.
const CALLS: u32 = 50;
const ROUNDS: u32 = 10;

/// Calls after each of which the caches are emptied, as other work of a program does. Half of them take at most
/// what counts.
const COLD_CALLS: u32 = 25;
/// Bytes that are touched for it: more than a core has for itself.
const CACHE_BYTES: usize = 4 << 20;
const LINE_BYTES: usize = 64;

/// Held while a self-test runs: a program that uses this as a library may start several traces at once.
static RUNNING: Mutex<()> = Mutex::new(());

/// Probed at its first instruction, which is emulated.
#[unsafe(naked)]
extern "C" fn emulated() {
    core::arch::naked_asm!("nop", "ret")
}

/// Probed at its second instruction, which is stepped.
#[unsafe(naked)]
extern "C" fn stepped() {
    core::arch::naked_asm!("nop", "nop", "ret")
}

/// Has a uretprobe.
#[unsafe(naked)]
extern "C" fn returned() {
    core::arch::naked_asm!("nop", "nop", "nop", "ret")
}

/// A function, how far into it its probe is, and whether that is a uretprobe.
const PROBED: [(extern "C" fn(), u64, bool); 3] = [
    (emulated, 0, false),
    (stepped, 2, false),
    (returned, 0, true),
];

/// Sets counting probes on this program, hits them, on all CPUs at once where that matters, and
/// measures.
///
/// # Errors
///
/// When probes cannot be set, or are not hit.
pub fn run() -> Result<SelfTest> {
    match elsewhere() {
        Some(attacher) => attacher.self_test(),
        None => run_here(),
    }
}

/// The same with this process's own privileges.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_here() -> Result<SelfTest> {
    // Where they wait for one lock, a hit costs 50 times as much with 40 of them.
    let cpus = match kernel::hits_wait() {
        true => cpus::allowed(),
        false => Vec::new(),
    };
    run_on(&cpus)
}

/// The same with one thread on each of these CPUs; without any, by this thread.
fn run_on(cpus: &[usize]) -> Result<SelfTest> {
    // Another one would hit this one's probes.
    let _one_at_a_time = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let before = PROBED.map(|(function, ..)| fastest(function));
    let mut places = Vec::new();
    for (function, distance, on_return) in PROBED {
        let (object, offset) = file_offset_of(function as usize as u64)?;
        places.push(Place {
            object,
            file_offset: offset + distance,
            semaphore: None,
            on_return,
        });
    }
    let own = [std::process::id()];
    let mut counter = Counter::attach(&places, Whose::Processes(&own))?;
    let rounds = PROBED.map(|(function, ..)| together(cpus, function));
    let hits = counter.hits()?;
    let cold_after = cold(emulated);
    counter.detach();
    let cold_bare = cold(emulated);
    // Another tracer's probes may be on this program for a moment: without those, a call takes the shorter time.
    let after = PROBED.map(|(function, ..)| fastest(function));
    let threads = cpus.len().max(1);
    let expected = u64::from(CALLS * ROUNDS) * threads as u64;
    if let Some(hits) = hits.into_iter().find(|&hits| hits != expected) {
        return Err(Error::unsupported(format!(
            "a probe on this program itself was hit {expected} times, and {hits} hits arrived"
        ))
        .next("report this with the output of `uname -a` and of `reqtrace doctor`"));
    }
    let of = |index: usize| {
        let bare = before[index].min(after[index]);
        rounds[index].saturating_sub(bare) / CALLS
    };
    let (warm, cold) = (of(0), cold_after.saturating_sub(cold_bare));
    let cold_percent = cold.as_nanos() * 100 / warm.as_nanos().max(1);
    Ok(SelfTest {
        engine: counter.engine(),
        cost: HitCost {
            cold_percent: cold_percent.clamp(100, 1000) as u32,
            emulated: of(0),
            stepped: of(1),
            returned: of(2),
        },
        cpus: threads,
    })
}

/// What a round takes when all these CPUs do it at the same time: the mean of their fastest.
fn together(cpus: &[usize], function: extern "C" fn()) -> Duration {
    if cpus.is_empty() {
        return fastest(function);
    }
    let rounds = thread::scope(|scope| {
        let workers: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                scope.spawn(move || {
                    cpus::stay_on(cpu);
                    fastest(function)
                })
            })
            .collect();
        let rounds = workers.into_iter().filter_map(|worker| worker.join().ok());
        rounds.sum::<Duration>()
    });
    rounds / cpus.len() as u32
}

/// The median of calls with empty caches.
fn cold(function: extern "C" fn()) -> Duration {
    let mut memory = vec![1_u8; CACHE_BYTES];
    let mut calls: Vec<Duration> = (0..COLD_CALLS)
        .map(|_| {
            for line in memory.iter_mut().step_by(LINE_BYTES) {
                *line = line.wrapping_add(1);
            }
            black_box(&memory);
            let started = Instant::now();
            black_box(function)();
            started.elapsed()
        })
        .collect();
    calls.sort_unstable();
    calls[calls.len() / 2]
}

/// The fastest round.
fn fastest(function: extern "C" fn()) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            for _ in 0..CALLS {
                black_box(function)();
            }
            started.elapsed()
        })
        .min()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cpus_call_at_the_same_time() {
        let cpus = cpus::allowed();
        assert!(!cpus.is_empty());
        assert!(together(&cpus, emulated) > Duration::ZERO);
        assert!(together(&[], emulated) > Duration::ZERO);
    }
}
