//! Processes that are not traced and run a traced program: what probes took of them in; whether that is too much out.

/// What probes take of processes that are not traced, and run the same files.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    last_ns: u64,
    /// Seconds in which that was too much, one after the other.
    seconds: u32,
    /// It is no longer looked at.
    is_over: bool,
}

/// So much of a CPU they may take of others, for so many seconds.
const MOST_FOREIGN: f64 = 0.005;
const FOREIGN_SECONDS: u32 = 5;

impl Foreign {
    /// Takes what was taken since the start, and the length of the last second, ns. Returns the share of a CPU, once, when that
    /// is too much.
    pub(super) fn second(&mut self, foreign_ns: u64, elapsed_ns: u64) -> Option<f64> {
        let taken = foreign_ns.saturating_sub(std::mem::replace(&mut self.last_ns, foreign_ns));
        let share = taken as f64 / elapsed_ns.max(1) as f64;
        self.seconds = match share > MOST_FOREIGN {
            true => self.seconds + 1,
            false => 0,
        };
        if self.is_over || self.seconds < FOREIGN_SECONDS {
            return None;
        }
        self.is_over = true;
        Some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_pay_too_much_after_some_seconds_and_once() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut foreign = Foreign::default();
        let mut taken = 0;
        let mut second = |ns: u64| {
            taken += ns;
            foreign.second(taken, SECOND_NS)
        };
        for _ in 0..4 {
            assert_eq!(second(6_000_000), None);
        }
        assert_eq!(second(4_000_000), None, "little again");
        for _ in 0..4 {
            assert_eq!(second(6_000_000), None);
        }
        assert_eq!(second(20_000_000), Some(0.02));
        for _ in 0..20 {
            assert_eq!(second(20_000_000), None);
        }
    }
}
