//! The bound of `memory`: what the agent's processes and its tables in the kernel hold, by the kernel's own count, in; whether
//! a session has to end for it out.

use std::time::{Duration, Instant};

use reqtrace_binary::status::Status;
use reqtrace_capture::kernel::memory::{give_memory_back, table_bytes};

/// So often it is looked at.
const EVERY: Duration = Duration::from_secs(5);
/// So long it may be above its bound: reading a program takes more for a moment than it keeps.
const FOR_A_MOMENT: Duration = Duration::from_secs(10);

/// What is held, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// By the processes, without pages of files, and without the rings, which are tables.
    pub(crate) own: u64,
    /// By the kernel for the tables of all sessions.
    pub(crate) tables: u64,
}

impl Held {
    /// By this process, which has the tables, and these others.
    fn now(others: [u32; 2]) -> Self {
        let of = |status: std::io::Result<Status>| {
            let bytes = status.ok().and_then(|status| status.anonymous_bytes());
            bytes.unwrap_or(0)
        };
        Self {
            own: of(Status::of("self")) + others.map(|pid| of(Status::of(pid))).iter().sum::<u64>(),
            tables: table_bytes(),
        }
    }

    pub(crate) fn all(self) -> u64 {
        self.own + self.tables
    }
}

/// Who looks at it.
#[derive(Debug)]
pub(crate) struct Watch {
    others: [u32; 2],
    looked: Option<Instant>,
    above: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(others: [u32; 2]) -> Self {
        Self {
            others,
            looked: None,
            above: None,
        }
    }

    /// What is held, when it is time to look. Above the bound what allocators keep is given back first.
    pub(crate) fn look(&mut self, bound: u64) -> Option<Held> {
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= EVERY);
        is_due.then(|| {
            self.looked = Some(Instant::now());
            let held = Held::now(self.others);
            if held.all() <= bound {
                return held;
            }
            give_memory_back();
            Held::now(self.others)
        })
    }

    /// Whether a session has to end, as this is more than the bound, and was for a while.
    pub(crate) fn is_too_much(&mut self, held: Held, bound: u64, now: Instant) -> bool {
        if held.all() <= bound {
            self.above = None;
            return false;
        }
        let since = *self.above.get_or_insert(now);
        let is_over = now.duration_since(since) >= FOR_A_MOMENT;
        if is_over {
            // What that one held takes a moment to be given back.
            self.above = None;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_above_the_bound_ends_one_session_at_a_time() {
        let mut watch = Watch::new([0, 0]);
        let start = Instant::now();
        let mut at = |seconds: u64, own: u64| {
            let held = Held { own, tables: 40 };
            watch.is_too_much(held, 100, start + Duration::from_secs(seconds))
        };
        assert!(!at(0, 60));
        // For a moment.
        assert!(!at(5, 61) && !at(10, 60));
        assert!(!at(15, 61) && !at(20, 70) && at(25, 80));
        // The next one waits as long.
        assert!(!at(30, 80) && !at(35, 80) && at(40, 80));
    }

    #[test]
    fn the_kernel_knows_what_we_hold() {
        let held = Held::now([std::process::id(), 0]);
        // This process twice, without its program.
        let own = Status::of("self").unwrap();
        assert!(held.own > 0 && held.own < 2 * own.resident_bytes().unwrap());
        let mut watch = Watch::new([0, 0]);
        assert!(watch.look(0).is_some() && watch.look(0).is_none());
    }
}
