//! The bound of `memory`: what the agent's processes and its tables in the kernel hold, by the kernel's own count, in; what a
//! rule has of it, and whether a session has to end for it, out.

use std::time::{Duration, Instant};

use reqtrace_base::error::Result;
use reqtrace_binary::status::Status;
use reqtrace_capture::attach::Sizes;
use reqtrace_capture::kernel::memory::{OwnFiles, give_memory_back};

/// So often it is looked at.
const EVERY: Duration = Duration::from_secs(5);
/// So long it may be above its bound: reading a program takes more for a moment than it keeps.
const FOR_A_MOMENT: Duration = Duration::from_secs(10);

/// What a rule has of `memory`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleMemory {
    /// For the kernel's tables of threads, processes, stacks and sums; `None`: as much as a trace takes that is not
    /// limited.
    pub(crate) tables: Option<u64>,
    /// For what is made of mapped files: unwind tables, and copies of symbols.
    pub(crate) files: u64,
}

impl RuleMemory {
    /// A rule's share of it: up to a half is the kernel's tables, half of the rest what is made of files, and the other
    /// half all that a session has beside them.
    pub(crate) fn of(share: u64) -> Self {
        let usual = Sizes::default().bytes();
        let tables = usual.min(share / 2);
        Self {
            tables: (tables < usual).then_some(tables),
            files: (share - tables) / 2,
        }
    }

    /// # Errors
    ///
    /// When it is so little that nothing could be traced.
    pub(crate) fn check(self) -> Result<()> {
        self.tables
            .map_or(Ok(()), |bytes| Sizes::within(bytes).map(drop))
    }
}

/// What is held, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// By the processes, with copies of symbols, without pages of files, and without the rings, which are tables.
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
        let OwnFiles { tables, copies } = OwnFiles::now();
        let others = others.map(|pid| of(Status::of(pid))).iter().sum::<u64>();
        Self {
            own: of(Status::of("self")) + copies + others,
            tables,
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

    /// Whether a session has to end, as this is more than the bound, and was for a while; `one_ends`: one does already, and what
    /// it holds is to be given back first.
    pub(crate) fn is_too_much(
        &mut self,
        held: Held,
        bound: u64,
        one_ends: bool,
        now: Instant,
    ) -> bool {
        if held.all() <= bound || one_ends {
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
            watch.is_too_much(held, 100, false, start + Duration::from_secs(seconds))
        };
        assert!(!at(0, 60));
        // For a moment.
        assert!(!at(5, 61) && !at(10, 60));
        assert!(!at(15, 61) && !at(20, 70) && at(25, 80));
        // The next one waits as long.
        assert!(!at(30, 80) && !at(35, 80) && at(40, 80));
    }

    #[test]
    fn no_other_one_ends_before_the_one_that_does_has() {
        let mut watch = Watch::new([0, 0]);
        let start = Instant::now();
        let mut at = |seconds: u64, one_ends| {
            let held = Held { own: 2, tables: 0 };
            watch.is_too_much(held, 1, one_ends, start + Duration::from_secs(seconds))
        };
        assert!(!at(0, false) && !at(5, false) && at(10, false));
        // It takes its time.
        assert!((15..60).step_by(5).all(|seconds| !at(seconds, true)));
        assert!(!at(60, false) && !at(65, false) && at(70, false));
    }

    #[test]
    fn a_share_is_for_tables_for_files_and_for_all_else() {
        let usual = Sizes::default().bytes();
        let large = RuleMemory::of(512 << 20);
        assert_eq!(
            (large.tables, large.files),
            (None, ((512 << 20) - usual) / 2)
        );
        let small = RuleMemory::of(20 << 20);
        assert_eq!((small.tables, small.files), (Some(10 << 20), 5 << 20));
        assert!(large.check().is_ok() && small.check().is_ok());
        assert!(RuleMemory::of(1 << 20).check().is_err());
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
