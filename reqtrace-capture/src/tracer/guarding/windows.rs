//! Windows of which one in so many is traced: seconds in; which window is, and the mean share of one that was, out.
//!
//! Each window is drawn by itself, with numbers that nobody can foresee: what comes at regular times is met as often as anything
//! else.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use super::Turn;

/// The windows while some are left out.
#[derive(Debug)]
pub(super) struct TracedWindows {
    /// It draws its keys from the kernel.
    draws: RandomState,
    drawn: u64,
    /// When this one is over.
    until: Instant,
    /// For how many each request of this one stands; `None`: it is not traced.
    stands_for: Option<u32>,
    /// Shares of its seconds.
    traced: Mean,
    /// Those of the seconds since one was traced: the probes take a while to go.
    between: Mean,
}

/// A mean: the sum, and of how many.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(f64, u32);

impl Mean {
    fn add(&mut self, value: f64) {
        *self = Self(self.0 + value, self.1 + 1);
    }

    fn value(self) -> f64 {
        self.0 / f64::from(self.1.max(1))
    }
}

impl TracedWindows {
    /// The first one begins at once.
    pub(super) fn new() -> Self {
        Self {
            draws: RandomState::new(),
            drawn: 0,
            until: Instant::now(),
            // Until now all was traced.
            stands_for: Some(1),
            traced: Mean::default(),
            between: Mean::default(),
        }
    }

    /// Takes the share of a second. When a window is over that was traced, returns the mean of all time.
    pub(super) fn second(&mut self, share: f64) -> Option<f64> {
        let Some(of) = self.stands_for else {
            self.between.add(share);
            return None;
        };
        self.traced.add(share);
        let part = 1.0 / f64::from(of);
        (Instant::now() >= self.until).then(|| {
            let between = std::mem::take(&mut self.between);
            self.traced.value() * part + between.value() * (1.0 - part)
        })
    }

    /// Begins the next window, if this one is over; one of so many is traced. Returns what is to be done for it.
    pub(super) fn next(&mut self, of: u32, length: Duration) -> Option<Turn> {
        let now = Instant::now();
        if now < self.until {
            return None;
        }
        // What the machine slept through is over, too.
        self.until = (self.until + length).max(now);
        self.traced = Mean::default();
        let before = self.stands_for;
        self.stands_for = self.draw(of).then_some(of);
        match (before, self.stands_for) {
            (before, now) if before == now => None,
            (_, Some(of)) => Some(Turn::On(of)),
            (_, None) => Some(Turn::Off),
        }
    }

    /// With a probability of 1 / n.
    fn draw(&mut self, of: u32) -> bool {
        self.drawn += 1;
        let hash = self.draws.hash_one(self.drawn);
        (u128::from(hash) * u128::from(of)) >> 64 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_in_so_many_is_traced_and_stands_for_all() {
        let mut windows = TracedWindows::new();
        let (mut is_on, mut on, mut weight) = (true, 0_u32, 0_u32);
        let mut stands_for = 1;
        for _ in 0..4_000 {
            // Windows without length are over at once.
            match windows.next(8, Duration::ZERO) {
                Some(Turn::On(of)) => (is_on, stands_for) = (true, of),
                Some(Turn::Off) => is_on = false,
                Some(Turn::Over | Turn::Apart) => panic!("windows ask for neither"),
                None => {}
            }
            on += u32::from(is_on);
            weight += if is_on { stands_for } else { 0 };
            // Nothing is taken between them.
            let mean = windows.second(if is_on { 0.5 } else { 0.0 });
            assert_eq!(mean, is_on.then_some(0.5 / 8.0));
        }
        // 500, with a standard deviation of 21: beyond 5 of them once in two million.
        assert!((395..=605).contains(&on), "{on}");
        assert_eq!(weight, 8 * on);
    }

    #[test]
    fn a_window_goes_on_until_its_length_is_over() {
        let mut windows = TracedWindows::new();
        let length = Duration::from_secs(3_600);
        let first = windows.next(1, length);
        assert_eq!(first, None, "it is traced, as all was before");
        assert_eq!(windows.second(0.2), None);
        assert_eq!(windows.next(16, length), None);
    }
}
