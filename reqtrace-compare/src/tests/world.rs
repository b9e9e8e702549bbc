//! Made up sides: a service whose latencies have a body, a tail, and moods that last some seconds.

use reqtrace_analysis::report::{Ledger, Places};

use crate::chance::{Random, deviations};
use crate::{Facts, One, Side};

/// A service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) seconds: u64,
    pub(super) rate: u64,
    /// All latencies, times this.
    pub(super) slower: f64,
    /// Those of the slowest 2 %, times this.
    pub(super) tail: f64,
    /// How much of its mood of the second before a second has, 0 to 1.
    pub(super) memory: f64,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            seconds: 60,
            rate: 200,
            slower: 1.0,
            tail: 1.0,
            memory: 0.0,
        }
    }
}

pub(super) const CLASSES: [&str; 2] = ["lock", "disk"];

/// A number that is normally distributed.
fn normal(random: &mut Random) -> f64 {
    deviations(((random.next() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64)
}

/// A ledger of two wait classes that closes.
pub(super) fn ledger(on_cpu_ns: u64, lock_ns: u64, disk_ns: u64) -> Ledger {
    Ledger {
        latency_ns: on_cpu_ns + lock_ns + disk_ns,
        on_cpu_ns,
        classes: vec![lock_ns, disk_ns],
        ..Ledger::default()
    }
}

pub(super) fn begin(side: &mut Side) {
    side.begin(&CLASSES.map(str::to_owned), &Places::default());
}

pub(super) fn facts(seconds: u64) -> Facts {
    Facts {
        name: "made up".to_owned(),
        length_ns: seconds * 1_000_000_000,
        most_weight: 1,
        ..Facts::default()
    }
}

impl Service {
    /// Some seconds of it.
    pub(super) fn side(self, seed: u64) -> Side {
        let mut side = Side::new(Some(5_000_000));
        self.record(&mut side, seed);
        side
    }

    /// Adds a recording.
    pub(super) fn record(self, side: &mut Side, seed: u64) {
        let mut random = Random::new(seed.wrapping_mul(0x51_7c_c1_b7));
        begin(side);
        let mut mood = 0.0;
        for second in 0..self.seconds {
            mood = self.memory * mood + 0.1 * normal(&mut random);
            for at in 0..self.rate {
                let is_slow = random.below(100) < 2;
                let scale = if is_slow { 10.0 * self.tail } else { 1.0 };
                let ns = 1e6 * self.slower * scale * (mood + 0.4 * normal(&mut random)).exp();
                let lock_ns = (ns * 0.5) as u64;
                let disk_ns = if is_slow { ns as u64 / 4 } else { 0 };
                let group = if random.below(10) < 3 {
                    "SELECT ?"
                } else {
                    "UPDATE ?"
                };
                side.add(&One {
                    request: "order",
                    at_ns: second * 1_000_000_000 + at * 1_000_000_000 / self.rate,
                    ledger: &ledger(ns as u64 - lock_ns - disk_ns, lock_ns, disk_ns),
                    causes: None,
                    weight: 1,
                    group: Some(group),
                });
            }
        }
        side.end(facts(self.seconds));
    }
}
