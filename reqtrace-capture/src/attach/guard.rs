//! The guard: what tracing takes, second by second, in; what is recorded less of out. Pure logic.
//!
//! Above its limit it sheds in steps: stacks first, then requests, by recording one of N, then, in a trace that lasts, time, by
//! tracing one window of N; at last it gives up. Each step needs some seconds or windows above the limit, and goes back only after
//! many below half of it, so that it does not swing. Numbers of requests are exact until time is shed, their times until requests
//! are.

/// How much is shed. Each level includes the ones before it, but for [`Shed::Windows`]: in a window that is traced all
/// requests are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shed {
    /// Nothing.
    #[default]
    Nothing,
    /// No stacks are recorded.
    Stacks,
    /// One request of so many is recorded.
    Sample(u32),
    /// One window of so many is traced.
    Windows(u32),
    /// Tracing is given up.
    All,
}

/// What may be shed, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ladder {
    /// Stacks and requests.
    Requests,
    /// And time.
    RequestsAndTime,
    /// Stacks and time: where the requests of threads that hold others up are wanted, all are.
    Time,
}

/// All levels, in order. Of requests fewer than one in 256 would say nothing.
const LEVELS: &[Shed] = &[
    Shed::Nothing,
    Shed::Stacks,
    Shed::Sample(4),
    Shed::Sample(16),
    Shed::Sample(64),
    Shed::Sample(256),
    Shed::Windows(2),
    Shed::Windows(4),
    Shed::Windows(8),
    Shed::Windows(16),
    Shed::All,
];
/// So many of them shed no time.
const OF_REQUESTS: usize = 6;

impl Ladder {
    const fn levels(self) -> &'static [Shed] {
        use Shed::{All, Nothing, Stacks, Windows};
        match self {
            Self::Requests => LEVELS.split_at(OF_REQUESTS).0,
            Self::RequestsAndTime => LEVELS,
            Self::Time => &[
                Nothing,
                Stacks,
                Windows(2),
                Windows(4),
                Windows(8),
                Windows(16),
                All,
            ],
        }
    }
}

/// Seconds, or windows, above the limit before more is shed.
const ABOVE: u32 = 2;
/// Seconds, or windows, below half the limit before less is shed, at first.
const BELOW: u32 = 10;
/// The same at most: it doubles each time when less was shed in vain.
const BELOW_AT_MOST: u32 = 160;
/// Shedding less was in vain when more is shed again within so many seconds or windows.
const IN_VAIN: u32 = 30;

/// Decides once a second, or once a window.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    limit: f64,
    levels: &'static [Shed],
    level: usize,
    above: u32,
    below: u32,
    wanted_below: u32,
    since_less: Option<u32>,
}

impl Guard {
    /// A guard for a share, 0 to 1; at 1 it sheds nothing.
    #[must_use]
    pub fn new(limit: f64, ladder: Ladder) -> Self {
        Self {
            limit,
            levels: ladder.levels(),
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
        self.levels[self.level]
    }

    /// Takes the share of the last second, and what of it the traps at probes took, which recording less does not change.
    /// Returns what is shed from now on, if that changes. Where windows are shed, [`Self::window`] decides.
    pub fn second(&mut self, share: f64, traps: f64) -> Option<Shed> {
        if self.limit >= 1.0 || self.windows().is_some() || self.shed() == Shed::All {
            return None;
        }
        let less = self.level.checked_sub(1);
        let more = match traps > self.limit {
            true => self.first_windows(),
            false => None,
        };
        let more = more.unwrap_or(self.level + 1);
        // As many windows as fit.
        let fits = |at: &usize| match self.levels[*at] {
            Shed::Windows(of) => share / f64::from(of) <= self.limit,
            _ => true,
        };
        let mut windows = (more..self.levels.len()).filter(|at| self.is_windows(*at));
        let more = match self.levels.get(more) {
            Some(Shed::Windows(_)) => windows.clone().find(fits).or(windows.next_back()),
            _ => Some(more),
        };
        self.decide(share, less, more)
    }

    /// Takes the mean share of windows, those that were traced and those that were not: it is time for one that was.
    pub fn window(&mut self, share: f64) -> Option<Shed> {
        self.windows()?;
        let less = match self.level.checked_sub(1) {
            // All requests were recorded in it.
            Some(less) if !self.is_windows(less) => Some(0),
            less => less,
        };
        self.decide(share, less, Some(self.level + 1))
    }

    /// One window of so many is traced; `None`: all are.
    #[must_use]
    pub fn windows(&self) -> Option<u32> {
        match self.shed() {
            Shed::Windows(of) => Some(of),
            _ => None,
        }
    }

    fn is_windows(&self, level: usize) -> bool {
        matches!(self.levels.get(level), Some(Shed::Windows(_)))
    }

    fn first_windows(&self) -> Option<usize> {
        (0..self.levels.len()).find(|level| self.is_windows(*level))
    }

    /// Goes to the level where less is shed, or to that where more is, if it is time.
    fn decide(&mut self, share: f64, less: Option<usize>, more: Option<usize>) -> Option<Shed> {
        self.since_less = self.since_less.map(|since| since + 1);
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
        let more = more.filter(|more| *more < self.levels.len());
        if let Some(more) = more.filter(|_| self.above >= ABOVE) {
            self.level = more;
            if self.since_less.take().is_some_and(|since| since < IN_VAIN) {
                self.wanted_below = (self.wanted_below * 2).min(BELOW_AT_MOST);
            }
        } else if let Some(less) = less.filter(|_| self.below >= self.wanted_below) {
            self.level = less;
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

    /// Feeds a share for some seconds; gives the changes with the second in which they came.
    fn feed(guard: &mut Guard, share: f64, seconds: u32) -> Vec<(u32, Shed)> {
        (1..=seconds)
            .filter_map(|second| Some((second, guard.second(share, 0.0)?)))
            .collect()
    }

    /// The same for windows that are traced, between which nothing is taken.
    fn feed_windows(guard: &mut Guard, share: f64, windows: u32) -> Vec<(u32, Shed)> {
        let mut feed = |window| {
            let of = guard.windows()?;
            Some((window, guard.window(share / f64::from(of))?))
        };
        (1..=windows).filter_map(&mut feed).collect()
    }

    #[test]
    fn stacks_are_shed_first_then_requests_one_step_at_a_time() {
        let mut guard = Guard::new(0.2, Ladder::Requests);
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
    fn a_trace_that_lasts_sheds_time_and_gives_up_at_last() {
        let mut guard = Guard::new(0.05, Ladder::RequestsAndTime);
        assert_eq!(
            feed(&mut guard, 0.12, 12).last(),
            Some(&(12, Shed::Windows(4)))
        );
        assert_eq!(feed(&mut guard, 0.9, 100), [], "windows decide");
        assert_eq!(
            feed_windows(&mut guard, 0.15, 100),
            [],
            "a quarter of it is below the limit"
        );
        assert_eq!(
            feed_windows(&mut guard, 0.9, 100),
            [
                (2, Shed::Windows(8)),
                (4, Shed::Windows(16)),
                (6, Shed::All)
            ]
        );
        assert_eq!((guard.second(0.0, 0.0), guard.window(0.0)), (None, None));
    }

    #[test]
    fn what_recording_less_does_not_change_sheds_as_many_windows_as_fit() {
        let mut guard = Guard::new(0.05, Ladder::RequestsAndTime);
        assert_eq!(guard.second(0.3, 0.2), None);
        assert_eq!(guard.second(0.3, 0.2), Some(Shed::Windows(8)));
        // Half of the limit, for long enough.
        assert_eq!(
            feed_windows(&mut guard, 0.15, 30),
            [(10, Shed::Windows(4))],
            "0.15 / 4 is above the half of the limit"
        );
        assert_eq!(
            feed_windows(&mut guard, 0.04, 30),
            [(10, Shed::Windows(2)), (20, Shed::Nothing)]
        );
        let mut guard = Guard::new(0.05, Ladder::Time);
        assert_eq!(
            feed(&mut guard, 0.95, 4),
            [(2, Shed::Stacks), (4, Shed::Windows(16))]
        );
    }

    #[test]
    fn a_short_peak_sheds_nothing() {
        let mut guard = Guard::new(0.2, Ladder::Requests);
        for _ in 0..20 {
            assert_eq!(guard.second(0.9, 0.0), None);
            assert_eq!(guard.second(0.1, 0.0), None);
        }
        assert_eq!(guard.shed(), Shed::Nothing);
    }

    #[test]
    fn between_half_the_limit_and_the_limit_nothing_changes() {
        let mut guard = Guard::new(0.2, Ladder::Requests);
        assert_eq!(feed(&mut guard, 0.3, 2), [(2, Shed::Stacks)]);
        assert_eq!(feed(&mut guard, 0.15, 1000), []);
        assert_eq!(feed(&mut guard, 0.05, 10), [(10, Shed::Nothing)]);
    }

    #[test]
    fn shedding_less_in_vain_makes_it_wait_longer() {
        let mut guard = Guard::new(0.2, Ladder::Requests);
        feed(&mut guard, 0.3, 2);
        for wanted in [10, 20, 40, 80, 160, 160] {
            assert_eq!(feed(&mut guard, 0.05, wanted), [(wanted, Shed::Nothing)]);
            assert_eq!(feed(&mut guard, 0.3, 2), [(2, Shed::Stacks)]);
        }
    }

    #[test]
    fn a_limit_of_all_sheds_nothing() {
        let mut guard = Guard::new(1.0, Ladder::RequestsAndTime);
        assert_eq!(feed(&mut guard, 1.0, 100), []);
    }
}
