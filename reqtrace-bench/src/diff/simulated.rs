//! A simulated service of which it is known what changed: seconds have moods that last, all drifts, and now and then there
//! is an incident.

use reqtrace_analysis::report::{Ledger, Places};
use reqtrace_compare::{Comparison, Facts, Measure, One, Options, Side, compare};

/// A service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) seconds: u64,
    /// Requests a second.
    pub(super) rate: u64,
    /// All latencies, times this.
    pub(super) slower: f64,
    /// How much of its mood of the second before a second has, 0 to 1.
    pub(super) memory: f64,
    /// How much slower it is at the end than at the start: 0.2 is 20 %.
    pub(super) drift: f64,
    /// How probable it is that an incident begins in a second.
    pub(super) incidents: f64,
}

/// A generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1.
    fn share(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Of a normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (one, two) = (self.share(), self.share());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos()
    }
}

impl Service {
    /// A recording of it.
    pub(super) fn side(self, seed: u64) -> Side {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut side = Side::new(None);
        side.begin(&["lock".to_owned()], &Places::default());
        let (mut mood, mut incident) = (0.0, 0_u64);
        for second in 0..self.seconds {
            mood = self.memory * mood + 0.1 * random.normal();
            if incident == 0 && random.share() < self.incidents {
                incident = 1 + random.next() % 4;
            }
            let now = 1.0 + self.drift * second as f64 / self.seconds as f64;
            let now = if incident > 0 { now * 3.0 } else { now };
            incident = incident.saturating_sub(1);
            for at in 0..self.rate {
                let is_slow = random.share() < 0.02;
                let scale = if is_slow { 10.0 } else { 1.0 };
                let ns =
                    (1e6 * self.slower * now * scale * (mood + 0.4 * random.normal()).exp()) as u64;
                let ledger = Ledger {
                    latency_ns: ns,
                    on_cpu_ns: ns - ns / 2,
                    classes: vec![ns / 2],
                    ..Ledger::default()
                };
                side.add(&One {
                    request: "simulated",
                    at_ns: second * 1_000_000_000 + at * 1_000_000_000 / self.rate,
                    ledger: &ledger,
                    causes: None,
                    weight: 1,
                    group: None,
                });
            }
        }
        side.end(Facts {
            length_ns: self.seconds * 1_000_000_000,
            most_weight: 1,
            ..Facts::default()
        });
        side
    }

    /// Two recordings, of which the second is slower by this.
    pub(super) fn compared(self, slower: f64, seed: u64) -> Comparison {
        let other = Self {
            slower: self.slower * slower,
            ..self
        };
        compare(
            &self.side(2 * seed + 1),
            &other.side(2 * seed + 2),
            Options::default(),
        )
    }
}

/// The metrics that are looked at.
pub(super) const MEASURES: [Measure; 3] = [Measure::Mean, Measure::P50, Measure::P99];

/// Of each metric: whether its interval has this change, and whether it is clear.
pub(super) fn judged(comparison: &Comparison, change: f64) -> [(bool, bool); 3] {
    MEASURES.map(|measure| {
        let metrics = comparison.types.iter().flat_map(|of| &of.metrics);
        let estimate = metrics
            .filter(|metric| metric.measure == measure)
            .find_map(|metric| metric.relative);
        let Some(estimate) = estimate else {
            return (false, false);
        };
        let covers = estimate
            .interval
            .is_some_and(|[low, high]| (low..=high).contains(&change));
        (covers, estimate.is_clear == Some(true))
    })
}
