//! How often the probes would be hit, and what that would cost: planned probes in, a [`Rate`] out.
//!
//! For a moment nothing but a counting program is on the places that would be probed. Its own
//! cost is in what is measured, and is taken out again by what a hit costs on this machine.

use std::time::{Duration, Instant};

use super::ProbePlan;
use super::count::{Counter, Place, Whose};
use super::estimate::{HitCost, Kind, PROGRAM, Rate};
use crate::kernel::clock;
use crate::kernel::threads::Threads;
use reqtrace_base::error::Result;

/// How long is counted.
const WINDOW: Duration = Duration::from_millis(500);

/// How long is counted when next to nothing is hit.
const QUIET_WINDOW: Duration = Duration::from_millis(150);

/// How often it is looked whether the answer is clear already.
const GLANCE: Duration = Duration::from_millis(50);

/// Looks before an answer is believed.
const GLANCES: u32 = 3;

/// Measures, with what a hit costs here. `limit` is a share as [`Rate::share`] gives it: the
/// measurement ends early when it is certain to be exceeded, and when hardly anything is hit. The
/// counting probes are out when it returns. A place that cannot be probed is not counted: setting
/// the trace's own probe will say why. `meanwhile` is done while it counts, and its
/// result given back.
///
/// # Errors
///
/// When the counting program or all of its probes are refused.
pub fn measure<T>(
    plans: &[ProbePlan],
    pids: &[u32],
    limit: f64,
    cost: HitCost,
    meanwhile: impl FnOnce() -> T,
) -> Result<(Rate, T)> {
    let places: Vec<Place> = plans.iter().map(place).collect();
    // What a uretprobe costs is not what counting at the entry does.
    let counted: Vec<Kind> = plans.iter().map(|plan| kind(plan.instruction)).collect();
    let kinds: Vec<Kind> = plans
        .iter()
        .zip(&counted)
        .map(|(plan, &counted)| match plan.on_return() {
            true => Kind::Returned,
            false => counted,
        })
        .collect();
    let mut watch = Watch::start(&places, Whose::Runners(pids), pids, cost)?;
    let result = meanwhile();
    let rate = loop {
        std::thread::sleep(GLANCE);
        let hits = watch.counter.hits()?;
        let mut rate = watch.look(&hits, &counted);
        rate.traps = traps(&hits, &kinds, cost);
        rate.program = PROGRAM;
        let quiet = rate.elapsed >= QUIET_WINDOW && rate.is_harmless();
        if is_certain(&rate, limit) || quiet || rate.elapsed >= WINDOW {
            break rate;
        }
    };
    watch.counter.detach();
    Ok((rate, result))
}

/// Whether a share is above its limit whatever comes in the rest of the window.
#[must_use]
pub fn is_certain(rate: &Rate, limit: f64) -> bool {
    rate.elapsed >= GLANCES * GLANCE && rate.share_at_least(WINDOW) > limit
}

/// Counting probes, and what the processes do meanwhile.
pub struct Watch {
    /// The probes.
    pub counter: Counter,
    cost: HitCost,
    pids: Vec<u32>,
    started: Instant,
    cpu: Duration,
    threads: Threads,
}

impl Watch {
    /// Sets the probes, and looks at the processes for the first time.
    ///
    /// # Errors
    ///
    /// As [`Counter::attach`].
    pub fn start(places: &[Place], whose: Whose<'_>, pids: &[u32], cost: HitCost) -> Result<Self> {
        Ok(Self::of(Counter::attach(places, whose)?, pids, cost))
    }

    /// The same with probes that are set.
    #[must_use]
    pub fn of(counter: Counter, pids: &[u32], cost: HitCost) -> Self {
        Self {
            counter,
            cost,
            pids: pids.to_owned(),
            started: Instant::now(),
            cpu: cpu_time(pids),
            threads: Threads::of(pids),
        }
    }

    /// What counting took so far, as if it were all there is to tracing. `kinds` are those of the
    /// places.
    #[must_use]
    pub fn look(&self, hits: &[u64], kinds: &[Kind]) -> Rate {
        let elapsed = self.started.elapsed();
        let counting = traps(hits, kinds, self.cost);
        let cpu = cpu_time(&self.pids).saturating_sub(self.cpu);
        let slept = if self.pids.is_empty() {
            // Nobody knows whose hits these are: they are compared with one CPU.
            Some(elapsed.saturating_sub(counting))
        } else {
            Threads::of(&self.pids).busiest_slept(&self.threads, elapsed)
        };
        Rate {
            hits: hits.iter().sum(),
            elapsed,
            work: cpu.saturating_sub(counting),
            traps: counting,
            program: Duration::ZERO,
            // Without schedstat: one CPU is there for it.
            slept: slept.unwrap_or_else(|| elapsed.saturating_sub(cpu)),
        }
    }
}

/// A return by uretprobe is counted at the entry: as often, without rewriting a return address.
pub(super) fn place(plan: &ProbePlan) -> Place {
    Place {
        object: plan.object.clone(),
        file_offset: plan.file_offset,
        semaphore: plan.semaphore,
        on_return: false,
    }
}

/// What the traps of these hits take.
fn traps(hits: &[u64], kinds: &[Kind], cost: HitCost) -> Duration {
    let each = hits.iter().zip(kinds);
    let seconds = each.map(|(&hits, &kind)| hits as f64 * cost.of(kind).as_secs_f64());
    Duration::from_secs_f64(seconds.sum())
}

/// What the kernel does at an instruction with these first bytes.
#[must_use]
pub fn kind(instruction: [u8; 2]) -> Kind {
    if is_emulated(instruction) {
        Kind::Emulated
    } else {
        Kind::Stepped
    }
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

    #[test]
    fn each_place_costs_what_its_instruction_does() {
        let cost = HitCost {
            emulated: Duration::from_micros(1),
            stepped: Duration::from_micros(3),
            returned: Duration::from_micros(2),
            ..HitCost::default()
        };
        let kinds = [Kind::Emulated, Kind::Stepped, Kind::Returned];
        let traps = traps(&[1000, 500, 10], &kinds, cost);
        assert_eq!(traps, Duration::from_micros(1000 + 1500 + 20));
        assert!(is_emulated([0x55, 0x48]) && is_emulated([0x41, 0x57]));
        assert!(!is_emulated([0xc3, 0x90]) && !is_emulated([0x48, 0x89]));
    }
}
