//! Waits that a time limit cuts into pieces: a block that a timer ended in, who ended the wait out.
//!
//! Who waits for a lock often waits a second at most, looks around and waits on: PostgreSQL for a deadlock, MariaDB for a
//! metadata lock. A timer ends each piece but the last, and whoever ends that one ended the wait.

use reqtrace_common::record::{STACK_LOST, STACK_NONE};

use super::Cause;
use super::kept::{By, Kept};
use super::timeline::Timelines;

/// So long may a thread look around between two pieces of a wait.
const LOOKS_NS: u64 = 1_000_000;
/// Bytes between two futexes of one object.
const BESIDE: u64 = 64;
/// So many intervals after a piece are looked at.
const MAX_PIECES: usize = 256;

impl Timelines {
    /// Who ended the wait that this block is, or is a piece of.
    pub(super) fn ended_by(&self, block: &Kept) -> Option<By> {
        let timer = Some(By::Interrupt(Cause::Timer));
        if block.by != timer || block.request.is_none() || block.away.is_some() {
            return block.by;
        }
        let intervals = &self.of(block.thread).intervals;
        let next = intervals.find(|kept| kept.in_ns <= block.in_ns);
        let (mut looked_ns, mut since_ns) = (0, block.in_ns);
        for kept in intervals.range(next..).take(MAX_PIECES) {
            if kept.after_gap || kept.request != block.request {
                break;
            }
            looked_ns += kept.out_ns.saturating_sub(since_ns);
            since_ns = kept.in_ns;
            match kept.by {
                // It waits for a CPU, and looks at nothing.
                None => {}
                Some(_) if !goes_on(block, kept) => looked_ns += kept.in_ns - kept.out_ns,
                by if looked_ns > LOOKS_NS || matches!(by, Some(By::Nobody(_))) => break,
                by if by == timer => looked_ns = 0,
                by => return by,
            }
            if looked_ns > LOOKS_NS {
                break;
            }
        }
        block.by
    }
}

/// Whether a thread waits at the same place again: in the same code, for the same file, or on the same futex or one beside it, as
/// a condition variable has two.
fn goes_on(block: &Kept, later: &Kept) -> bool {
    let (one, other) = (&block.place, &later.place);
    let is_known = |stack| !matches!(stack, STACK_NONE | STACK_LOST);
    let have_stacks = is_known(one.site.user_stack) && is_known(other.site.user_stack);
    let same_wait = if have_stacks {
        one.period == other.period
            && one.site.user_stack == other.site.user_stack
            && (block.futex == 0) == (later.futex == 0)
            && block.futex.abs_diff(later.futex) < BESIDE
    } else {
        block.futex != 0 && block.futex == later.futex
    };
    same_wait
        && one.space == other.space
        && (one.site.syscall, one.site.file) == (other.site.syscall, other.site.file)
}
