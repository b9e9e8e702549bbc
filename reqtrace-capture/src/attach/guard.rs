//! The guard: what tracing takes, second by second, in; what is recorded less of out. Pure logic.
//!
//! Above its limit it sheds in steps: stacks first, then requests, by recording one of N. Each step
//! needs some seconds above the limit, and goes back only after many below half of it, so that it
//! does not swing. Numbers of requests are exact whatever is shed, their times until requests are shed.

/// How much is shed. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shed {
    /// Nothing.
    #[default]
    Nothing,
    /// No stacks are recorded.
    Stacks,
    /// One request of so many is recorded.
    Sample(u32),
}

/// All levels, in order.
const LEVELS: [Shed; 6] = [
    Shed::Nothing,
    Shed::Stacks,
    Shed::Sample(4),
    Shed::Sample(16),
    Shed::Sample(64),
    Shed::Sample(256),
];

/// Seconds above the limit before more is shed.
const ABOVE: u32 = 2;
/// Seconds below half the limit before less is shed, at first.
const BELOW: u32 = 10;
/// The same at most: it doubles each time when less was shed in vain.
const BELOW_AT_MOST: u32 = 160;
/// Shedding less was in vain when more is shed again within so many seconds.
const IN_VAIN: u32 = 30;

/// Decides once a second.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    limit: f64,
    deepest: Shed,
    level: usize,
    above: u32,
    below: u32,
    wanted_below: u32,
    since_less: Option<u32>,
}

impl Guard {
    /// A guard for a share, 0 to 1; at 1 it sheds nothing. It sheds no more than `deepest`.
    #[must_use]
    pub fn new(limit: f64, deepest: Shed) -> Self {
        Self {
            limit,
            deepest,
            level: 0,
            above: 0,
            below: 0,
            wanted_below: BELOW,
            since_less: None,
        }
    }

    /// What is shed.
    #[must_use]
    pub fn shed(&self) -> Shed {
        LEVELS[self.level]
    }

    /// Takes the share of the last second. Returns what is shed from now on, if that changes.
    pub fn second(&mut self, share: f64) -> Option<Shed> {
        if self.limit >= 1.0 {
            return None;
        }
        self.since_less = self.since_less.map(|seconds| seconds + 1);
        self.above = if share > self.limit {
            self.above + 1
        } else {
            0
        };
        self.below = if share < self.limit / 2.0 {
            self.below + 1
        } else {
            0
        };
        let more = LEVELS.get(self.level + 1);
        if self.above >= ABOVE && more.is_some_and(|more| *more <= self.deepest) {
            self.level += 1;
            if self
                .since_less
                .take()
                .is_some_and(|seconds| seconds < IN_VAIN)
            {
                self.wanted_below = (self.wanted_below * 2).min(BELOW_AT_MOST);
            }
        } else if self.below >= self.wanted_below && self.level > 0 {
            self.level -= 1;
            self.since_less = Some(0);
        } else {
            return None;
        }
        (self.above, self.below) = (0, 0);
        Some(self.shed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Shed = Shed::Sample(256);

    /// Feeds a share for some seconds; gives the changes with the second in which they came.
    fn feed(guard: &mut Guard, share: f64, seconds: u32) -> Vec<(u32, Shed)> {
        (1..=seconds)
            .filter_map(|second| Some((second, guard.second(share)?)))
            .collect()
    }

    #[test]
    fn stacks_are_shed_first_then_requests_one_step_at_a_time() {
        let mut guard = Guard::new(0.2, ALL);
        assert_eq!(feed(&mut guard, 0.19, 100), []);
        assert_eq!(
            feed(&mut guard, 0.3, 20),
            [
                (2, Shed::Stacks),
                (4, Shed::Sample(4)),
                (6, Shed::Sample(16)),
                (8, Shed::Sample(64)),
                (10, Shed::Sample(256)),
            ]
        );
    }

    #[test]
    fn it_sheds_no_more_than_it_may() {
        let mut guard = Guard::new(0.2, Shed::Stacks);
        assert_eq!(feed(&mut guard, 0.9, 100), [(2, Shed::Stacks)]);
    }

    #[test]
    fn a_short_peak_sheds_nothing() {
        let mut guard = Guard::new(0.2, ALL);
        for _ in 0..20 {
            assert_eq!(guard.second(0.9), None);
            assert_eq!(guard.second(0.1), None);
        }
        assert_eq!(guard.shed(), Shed::Nothing);
    }

    #[test]
    fn between_half_the_limit_and_the_limit_nothing_changes() {
        let mut guard = Guard::new(0.2, ALL);
        assert_eq!(feed(&mut guard, 0.3, 2), [(2, Shed::Stacks)]);
        assert_eq!(feed(&mut guard, 0.15, 1000), []);
        assert_eq!(feed(&mut guard, 0.05, 10), [(10, Shed::Nothing)]);
    }

    #[test]
    fn shedding_less_in_vain_makes_it_wait_longer() {
        let mut guard = Guard::new(0.2, ALL);
        feed(&mut guard, 0.3, 2);
        for wanted in [10, 20, 40, 80, 160, 160] {
            assert_eq!(feed(&mut guard, 0.05, wanted), [(wanted, Shed::Nothing)]);
            assert_eq!(feed(&mut guard, 0.3, 2), [(2, Shed::Stacks)]);
        }
    }

    #[test]
    fn a_limit_of_all_sheds_nothing() {
        let mut guard = Guard::new(1.0, ALL);
        assert_eq!(feed(&mut guard, 1.0, 100), []);
    }
}
