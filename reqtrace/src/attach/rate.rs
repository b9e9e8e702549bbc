//! How often the probes would be hit, and what that would cost: planned probes in, [`Rate`] out.
//!
//! For half a second nothing but a counting program is on the places that would be probed. Its own
//! cost is in what is measured, and is taken out again by what a hit costs on this machine.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::ProbePlan;
use super::count::{Counter, Place, Whose};
use super::self_test::{HitCost, cost_of_hit};
use crate::error::Result;
use crate::kernel::clock;

/// How long is counted.
const WINDOW: Duration = Duration::from_millis(500);

/// How often it is looked whether the answer is clear already.
const GLANCE: Duration = Duration::from_millis(50);

/// Hits per second that cost next to nothing on any machine: what a hit costs is not measured.
const HARMLESS: f64 = 1000.0;

/// What the tracer's program takes longer than the one that counts. `cargo xtask bench` shows
/// what it takes in all.
const PROGRAM: Duration = Duration::from_nanos(400);

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Hits of all probes.
    pub hits: u64,
    /// For how long they were counted.
    pub elapsed: Duration,
    /// CPU time of the processes meanwhile, what counting took included.
    pub cpu: Duration,
    /// What counting took of it.
    pub counting: Duration,
    /// What tracing would have taken for as many hits.
    pub tracing: Duration,
    /// CPU time that nobody took on the whole machine meanwhile.
    pub idle: Duration,
}

impl Rate {
    /// Hits per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.hits as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    /// Share of the CPU time that the probes would take, 0 to 1. What a process leaves of one CPU
    /// counts as its own, as far as the machine has it to give.
    #[must_use]
    pub fn share(&self) -> f64 {
        let tracing = self.tracing.as_secs_f64();
        let taken = self.cpu.saturating_sub(self.counting).as_secs_f64() + tracing;
        let one_cpu = self.elapsed.as_secs_f64();
        let whole = taken.max(one_cpu.min(taken + self.idle.as_secs_f64()));
        if whole > 0.0 { tracing / whole } else { 0.0 }
    }

    /// The same if nothing more were hit until the end of the window.
    fn share_at_least(&self) -> f64 {
        let rest = WINDOW.saturating_sub(self.elapsed);
        let whole_window = Self {
            elapsed: self.elapsed + rest,
            idle: self.idle + rest,
            ..*self
        };
        whole_window.share()
    }
}

/// Measures. `limit` is a share as [`Rate::share`] gives it: the measurement ends early when it is
/// certain to be exceeded. The counting probes are out when it returns.
///
/// # Errors
///
/// When the counting program is refused, or a probe cannot be set.
pub fn measure(plans: &[ProbePlan], pids: &[u32], limit: f64) -> Result<Rate> {
    let places: Vec<Place> = plans.iter().map(place).collect();
    let stepped: Vec<bool> = places.iter().map(is_stepped).collect();
    let cpu_before = cpu_time(pids);
    let idle_before = clock::idle_time();
    let mut counter = Counter::attach(&places, Whose::Processes(pids))?;
    let started = Instant::now();
    let mut cost: Option<HitCost> = None;
    let rate = loop {
        std::thread::sleep(GLANCE);
        let hits = counter.hits()?;
        let elapsed = started.elapsed();
        let total: u64 = hits.iter().sum();
        let mut rate = Rate {
            hits: total,
            elapsed,
            cpu: cpu_time(pids).saturating_sub(cpu_before),
            counting: Duration::ZERO,
            tracing: Duration::ZERO,
            idle: clock::idle_time().saturating_sub(idle_before),
        };
        if rate.per_second() > HARMLESS && elapsed >= 4 * GLANCE {
            let cost = match cost {
                Some(cost) => cost,
                None => *cost.insert(cost_of_hit()?),
            };
            (rate.counting, rate.tracing) = costs(&hits, &stepped, cost);
            if rate.share_at_least() > limit {
                break rate;
            }
        }
        if elapsed >= WINDOW {
            break rate;
        }
    };
    counter.detach();
    Ok(rate)
}

/// A return by uretprobe is counted at the entry: as often, without rewriting a return address.
fn place(plan: &ProbePlan) -> Place {
    Place {
        object: plan.object.clone(),
        file_offset: plan.file_offset,
        semaphore: plan.semaphore,
    }
}

/// What counting took, and what tracing would.
fn costs(hits: &[u64], stepped: &[bool], cost: HitCost) -> (Duration, Duration) {
    let mut counting = 0.0;
    let mut total = 0.0;
    for (&hits, &stepped) in hits.iter().zip(stepped) {
        let one = if stepped { cost.stepped } else { cost.emulated };
        counting += hits as f64 * one.as_secs_f64();
        total += hits as f64;
    }
    let tracing = counting + total * PROGRAM.as_secs_f64();
    (
        Duration::from_secs_f64(counting),
        Duration::from_secs_f64(tracing),
    )
}

/// Whether the instruction at a place is single-stepped. A file that cannot be read is taken for
/// the worse; setting the probe will say why.
fn is_stepped(place: &Place) -> bool {
    first_bytes(&place.object, place.file_offset).is_none_or(|bytes| !is_emulated(bytes))
}

fn first_bytes(object: &Path, offset: u64) -> Option<[u8; 2]> {
    let mut bytes = [0; 2];
    let file = File::open(object).ok()?;
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Instructions that the kernel executes in place of the thread (`arch/x86/kernel/uprobes.c`): push
/// of a register, `nop`, calls, jumps and conditional jumps.
fn is_emulated(bytes: [u8; 2]) -> bool {
    matches!(
        bytes,
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, _]
            | [0x41, 0x50..=0x57]
            | [0x0f, 0x80..=0x8f]
    )
}

/// CPU time of processes, all their threads. Those that have left have none.
fn cpu_time(pids: &[u32]) -> Duration {
    pids.iter().map(|&pid| clock::cpu_time(pid)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rate(cpu: Duration, counting: Duration, tracing: Duration) -> Rate {
        Rate {
            hits: 1000,
            elapsed: 500 * MS,
            cpu,
            counting,
            tracing,
            idle: 2000 * MS,
        }
    }

    #[test]
    fn a_share_is_of_the_work_and_the_tracing_of_it() {
        // One CPU busy, half of it by counting: 250 ms of work for which tracing takes 250 ms.
        let share = rate(500 * MS, 250 * MS, 250 * MS).share();
        assert!((share - 0.5).abs() < 1e-9, "{share}");
        // Four CPUs busy.
        let share = rate(2000 * MS, 100 * MS, 100 * MS).share();
        assert!((share - 0.05).abs() < 1e-9, "{share}");
        // Nearly idle: a small part of one CPU, however little work there is.
        let share = rate(11 * MS, 10 * MS, 10 * MS).share();
        assert!((share - 0.02).abs() < 1e-9, "{share}");
        // The same on a machine that has nothing left: all of what it gets is for the probes.
        let starved = Rate {
            idle: Duration::ZERO,
            ..rate(11 * MS, 10 * MS, 10 * MS)
        };
        assert!(starved.share() > 0.9, "{}", starved.share());
        assert!(rate(MS, MS, Duration::ZERO).share() < 1e-9);
    }

    #[test]
    fn each_place_costs_what_its_instruction_does() {
        let cost = HitCost {
            emulated: Duration::from_micros(1),
            stepped: Duration::from_micros(3),
        };
        let (counting, tracing) = costs(&[1000, 500], &[false, true], cost);
        assert_eq!(counting, Duration::from_micros(1000 + 1500));
        assert_eq!(tracing, counting + 1500 * PROGRAM);
        assert!(is_emulated([0x55, 0x48]) && is_emulated([0x41, 0x57]));
        assert!(!is_emulated([0xc3, 0x90]) && !is_emulated([0x48, 0x89]));
    }
}
