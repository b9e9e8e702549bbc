//! Episodes: slow requests in; those that overlap put together out, with what each adds to the excess.

use super::of_type::Sum;
use super::patterns::{COUNT, Family, PATTERNS};
use super::random::Random;
use super::slow::Slow;

/// Choices of the bootstrap.
const CHOICES: usize = 1_000;
/// Of 1,000 choices so many may have less than the lower end of the interval of 95 %.
const BELOW: usize = CHOICES / 40;

/// In so many ns there are episodes, or none.
const STRETCH_NS: u64 = 100_000_000;
/// An episode that is smaller than this part of the usual one is none of the same incident.
const SMALLEST: f64 = 0.1;

/// What slow requests took more than typical ones, by pattern. All in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Excess {
    pub(super) all: f64,
    pub(super) times: [f64; COUNT],
}

impl Excess {
    pub(super) fn add(&mut self, other: &Self) {
        self.all += other.all;
        for (sum, ns) in self.times.iter_mut().zip(other.times) {
            *sum += ns;
        }
    }

    /// Of a request, over a typical one.
    pub(super) fn of(slow: &Slow, typical: &Sum) -> Self {
        let mean = |ns: u64| ns as f64 / typical.weight.max(1) as f64;
        let weight = slow.weight as f64;
        let mut excess = Self {
            all: (slow.latency_ns() as f64 - mean(typical.latency_ns)) * weight,
            ..Self::default()
        };
        for (at, ns) in slow.times.iter().enumerate() {
            excess.times[at] = (*ns as f64 - mean(typical.times[at])) * weight;
        }
        excess
    }

    /// The share of a family.
    pub(super) fn share(&self, family: Family) -> f64 {
        let patterns = PATTERNS.iter().zip(self.times);
        let own = patterns.filter(|(pattern, _)| pattern.family == family);
        own.map(|(_, ns)| ns).sum::<f64>() / self.all.max(1.0)
    }
}

/// Slow requests that overlap.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Episode {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) excess: Excess,
    /// Which of the requests.
    pub(super) requests: Vec<usize>,
}

/// The episodes of these requests, in the order of time.
pub(super) fn of(slow: &[&Slow], typical: &Sum) -> Vec<Episode> {
    let mut order: Vec<usize> = (0..slow.len()).collect();
    order.sort_by_key(|at| (slow[*at].begin_ns, slow[*at].end_ns));
    let mut episodes: Vec<Episode> = Vec::new();
    for at in order {
        let request = slow[at];
        let excess = Excess::of(request, typical);
        match episodes.last_mut() {
            Some(last) if request.begin_ns <= last.until_ns => {
                last.until_ns = last.until_ns.max(request.end_ns);
                last.excess.add(&excess);
                last.requests.push(at);
            }
            _ => episodes.push(Episode {
                from_ns: request.begin_ns,
                until_ns: request.end_ns,
                excess,
                requests: vec![at],
            }),
        }
    }
    episodes
}

/// Those that matter, in the order of time: a slow request now and then is no incident. Half of the excess is in
/// episodes of some size and above; the others have a tenth of that size at least.
pub(super) fn largest(mut episodes: Vec<Episode>) -> Vec<Episode> {
    let mut sizes: Vec<f64> = episodes.iter().map(|episode| episode.excess.all).collect();
    sizes.sort_by(|one, other| other.total_cmp(one));
    let all: f64 = sizes.iter().sum();
    let mut sum = 0.0;
    let half = sizes.into_iter().find(|size| {
        sum += size;
        sum >= all / 2.0
    });
    let least = half.unwrap_or(0.0) * SMALLEST;
    episodes.retain(|episode| episode.excess.all >= least);
    episodes
}

/// In which part of the stretches of time, from the first episode to the last, there are some.
pub(super) fn busy(episodes: &[Episode]) -> f64 {
    let stretch = |at_ns: u64| at_ns / STRETCH_NS;
    let mut next = 0;
    let mut busy = 0;
    for episode in episodes {
        let first = stretch(episode.from_ns).max(next);
        next = next.max(stretch(episode.until_ns) + 1);
        busy += next.saturating_sub(first);
    }
    let first = episodes.first().map_or(0, |first| stretch(first.from_ns));
    busy as f64 / next.saturating_sub(first).max(1) as f64
}

/// The share of a family that 97.5 % of the choices of episodes have at least.
pub(super) fn least_share(episodes: &[Episode], family: Family) -> f64 {
    let parts: Vec<(f64, f64)> = episodes
        .iter()
        .map(|episode| {
            let share = episode.excess.share(family);
            (share * episode.excess.all.max(1.0), episode.excess.all)
        })
        .collect();
    let mut random = Random::of(episodes.iter().map(|episode| episode.from_ns));
    least_of(&parts, &mut random)
}

/// The same of what each block has, and of how much.
pub(super) fn least_of(parts: &[(f64, f64)], random: &mut Random) -> f64 {
    let mut shares: Vec<f64> = (0..CHOICES)
        .map(|_| {
            let (mut own, mut all) = (0.0, 0.0);
            for _ in 0..parts.len() {
                let (part, of) = parts[random.below(parts.len())];
                own += part;
                all += of;
            }
            own / all.max(1.0)
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.get(BELOW).copied().unwrap_or(0.0)
}
