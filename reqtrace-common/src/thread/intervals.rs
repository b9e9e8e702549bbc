//! Off-CPU intervals of one thread: switch-out, waking and switch-in in; the closed interval, and
//! its place in the request's slots and longest blocks, out.

use super::{ThreadState, phase};
use crate::limits::{MAX_LONGEST, MAX_SLOTS};
use crate::record::{BlockSite, LongBlock, STACK_LOST, Slot};

/// A closed off-CPU interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// Waited, then queued for a CPU.
    Block {
        /// Nanoseconds until the wakeup.
        blocked_ns: u64,
        /// Nanoseconds from the wakeup on.
        run_queue_ns: u64,
    },
    /// Switched out while runnable.
    Preempted {
        /// Nanoseconds.
        preempted_ns: u64,
    },
}

/// What `switch_in` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Where the thread was switched out.
    pub site: BlockSite,
    /// For how long and why.
    pub interval: Interval,
    /// Nanoseconds that found no slot in the request because all were taken.
    pub no_slot_ns: u64,
}

impl ThreadState {
    /// The thread leaves its CPU. `preempted` is the preempt flag of `sched_switch`, `prev_state`
    /// its state; flags in it (`TASK_FREEZABLE`, 6.1) only occur together with a sleep state.
    #[inline]
    pub fn switch_out(&mut self, now: u64, preempted: bool, prev_state: u32, site: BlockSite) {
        self.switches = self.switches.wrapping_add(1);
        self.out_ns = now;
        self.open_site = site;
        if is_preemption(preempted, prev_state) {
            self.phase = phase::PREEMPTED;
            self.out_state = 0;
        } else {
            self.phase = phase::BLOCKED;
            self.out_state = prev_state;
        }
    }

    /// Somebody wakes the thread.
    #[inline]
    pub fn waking(&mut self, now: u64, waker_tid: u32, waker_tgid: u32) {
        self.waker_tid = waker_tid;
        self.waker_tgid = waker_tgid;
        self.wake_ns = now;
    }

    /// The thread gets a CPU: closes the open interval, if there is one.
    #[inline]
    pub fn switch_in(&mut self, now: u64) -> Option<Closed> {
        let was = self.phase;
        if was != phase::BLOCKED && was != phase::PREEMPTED {
            return None;
        }
        self.phase = phase::ON_CPU;
        let site = self.open_site;
        let total = now.saturating_sub(self.out_ns);
        if was == phase::PREEMPTED {
            self.record.preempted_ns += total;
            self.record.preemptions = self.record.preemptions.wrapping_add(1);
            return Some(Closed {
                site,
                interval: Interval::Preempted {
                    preempted_ns: total,
                },
                no_slot_ns: 0,
            });
        }
        // A waking before the switch-out is either a stale one, or one that raced with the
        // switch: in both cases no time was spent waiting for it.
        let blocked_ns = self.wake_ns.saturating_sub(self.out_ns).min(total);
        let run_queue_ns = total - blocked_ns;
        self.record.blocks = self.record.blocks.wrapping_add(1);
        self.record.run_queue_ns += run_queue_ns;
        let woken = self.wake_ns > self.out_ns;
        let block = LongBlock {
            site,
            start_ns: self.out_ns,
            blocked_ns,
            run_queue_ns,
            waker_tid: if woken { self.waker_tid } else { 0 },
            waker_tgid: if woken { self.waker_tgid } else { 0 },
        };
        self.keep_longest(&block);
        let no_slot_ns = self.attribute(site, blocked_ns);
        Some(Closed {
            site,
            interval: Interval::Block {
                blocked_ns,
                run_queue_ns,
            },
            no_slot_ns,
        })
    }

    /// Adds blocked time to its slot. When all are taken the least gives way to a greater: a
    /// request that blocks shortly in many places and then long in one keeps the one that matters.
    /// Returns what has no slot.
    #[inline]
    fn attribute(&mut self, site: BlockSite, blocked_ns: u64) -> u64 {
        let record = &mut self.record;
        if blocked_ns == 0 {
            return 0;
        }
        if site.kernel_stack == STACK_LOST {
            record.unattributed_ns += blocked_ns;
            return 0;
        }
        let mut least = 0;
        let mut least_ns = u64::MAX;
        let mut index = 0;
        while index < MAX_SLOTS {
            let used = index < record.slots_used as usize;
            let slot = &mut record.slots[index];
            if !used {
                *slot = Slot { site, blocked_ns };
                record.slots_used = index as u32 + 1;
                record.blocked_ns += blocked_ns;
                return 0;
            }
            if same_site(&slot.site, &site) {
                slot.blocked_ns += blocked_ns;
                record.blocked_ns += blocked_ns;
                return 0;
            }
            if slot.blocked_ns < least_ns {
                least_ns = slot.blocked_ns;
                least = index;
            }
            index += 1;
        }
        if blocked_ns > least_ns && least < MAX_SLOTS {
            record.slots[least] = Slot { site, blocked_ns };
            record.blocked_ns = record.blocked_ns - least_ns + blocked_ns;
            record.unattributed_ns += least_ns;
            return least_ns;
        }
        record.unattributed_ns += blocked_ns;
        blocked_ns
    }

    /// Keeps the block if it is one of the longest so far.
    #[inline]
    fn keep_longest(&mut self, block: &LongBlock) {
        let record = &mut self.record;
        let length = block.blocked_ns + block.run_queue_ns;
        let mut shortest = 0;
        let mut shortest_ns = u64::MAX;
        let mut index = 0;
        while index < MAX_LONGEST {
            if index >= record.longest_used as usize {
                record.longest[index] = *block;
                record.longest_used = index as u32 + 1;
                return;
            }
            let kept = &record.longest[index];
            let kept_ns = kept.blocked_ns + kept.run_queue_ns;
            if kept_ns < shortest_ns {
                shortest_ns = kept_ns;
                shortest = index;
            }
            index += 1;
        }
        if length > shortest_ns && shortest < MAX_LONGEST {
            record.longest[shortest] = *block;
        }
    }
}

/// Whether a switch-out is a preemption: the flag of `sched_switch` wins, then a state of 0
/// (`TASK_RUNNING`) means that the thread gave up its CPU while runnable.
#[must_use]
#[inline]
pub const fn is_preemption(preempted: bool, prev_state: u32) -> bool {
    preempted || prev_state == 0
}

#[inline]
const fn same_site(a: &BlockSite, b: &BlockSite) -> bool {
    a.kernel_stack == b.kernel_stack
        && a.user_stack == b.user_stack
        && a.syscall == b.syscall
        && a.file == b.file
}
