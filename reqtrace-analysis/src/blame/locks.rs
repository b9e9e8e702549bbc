//! Locks: waits of requests on futexes in; for each futex, how long, how often and who ended the waits out.
//!
//! A futex is what glibc's mutexes, condition variables and semaphores wait on, and those of other
//! languages. The number of futexes is bounded: those with the least time are put together.

use reqtrace_base::plain::Plain;
use rustc_hash::{FxHashMap, FxHashSet};

use super::table::Whose;
use super::{Kept, Place};
use crate::bounded::take_smallest;

/// Futexes that are kept by themselves, at least.
const MAX_LOCKS: usize = 1 << 13;
/// Wakers of one futex, and holders: so many are distinguished.
const MAX_WHOSE: usize = 16;

/// A futex that requests of one type waited on; address 0 stands for all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LockKey {
    pub(super) victim: u32,
    pub(super) tgid: u32,
    pub(super) address: u64,
}

/// Waits on a futex.
#[derive(Clone, Debug, Default)]
pub(super) struct Lock {
    pub(super) waits: u64,
    /// Blocks that went on with the wait before.
    pub(super) again: u64,
    pub(super) ns: u64,
    pub(super) longest_ns: u64,
    /// Wait class and place of the last wait.
    pub(super) last: Option<(Option<u16>, Place)>,
    /// Who ended them, nanoseconds.
    pub(super) wakers: FxHashMap<Whose, u64>,
    /// Who held it when a wait began, nanoseconds; empty when the futex is no lock that tells.
    pub(super) holders: FxHashMap<Whose, u64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) locks: FxHashMap<LockKey, Lock>,
    /// What futexes lie in, by process and address.
    objects: FxHashMap<(u32, u64), Plain>,
    /// Futexes that were put together.
    pub(super) merged: u64,
}

impl Locks {
    /// Takes what a futex lies in.
    pub(super) fn lies_in(&mut self, tgid: u32, address: u64, object: &str) {
        if self.objects.len() >= 4 * MAX_LOCKS {
            let wanted: FxHashSet<(u32, u64)> = self
                .locks
                .keys()
                .map(|key| (key.tgid, key.address))
                .collect();
            self.objects.retain(|key, _| wanted.contains(key));
        }
        self.objects.insert((tgid, address), Plain::of(object));
    }

    /// What a futex lies in; empty when it is not known.
    pub(super) fn object(&self, key: &LockKey) -> Plain {
        let object = self.objects.get(&(key.tgid, key.address));
        object.cloned().unwrap_or_default()
    }

    /// Adds a block, which `waker` ended; `holder` held the lock when it began. Where it goes on with the
    /// request's wait before, that had taken `before_ns`, otherwise 0.
    pub(super) fn add(
        &mut self,
        victim: u32,
        kept: &Kept,
        waker: Whose,
        holder: Option<Whose>,
        before_ns: u64,
        weight: u64,
    ) {
        let key = LockKey {
            victim,
            tgid: kept.thread.tgid,
            address: kept.futex,
        };
        let ns = kept.off_ns();
        let lock = self.locks.entry(key).or_default();
        if before_ns > 0 {
            lock.again += weight;
        } else {
            lock.waits += weight;
        }
        lock.ns += ns * weight;
        lock.longest_ns = lock.longest_ns.max(before_ns + ns);
        lock.last = Some((kept.class, kept.place));
        count(&mut lock.wakers, waker, ns * weight);
        if let Some(holder) = holder {
            count(&mut lock.holders, holder, ns * weight);
        }
        if self.locks.len() >= 2 * MAX_LOCKS {
            self.merge();
        }
    }

    fn merge(&mut self) {
        for (key, lock) in take_smallest(&mut self.locks, MAX_LOCKS, |lock| lock.ns) {
            self.merged += u64::from(key.address != 0);
            let others = LockKey {
                victim: key.victim,
                ..LockKey::default()
            };
            let sum = self.locks.entry(others).or_default();
            sum.waits += lock.waits;
            sum.again += lock.again;
            sum.ns += lock.ns;
            sum.longest_ns = sum.longest_ns.max(lock.longest_ns);
            for (waker, ns) in lock.wakers {
                count(&mut sum.wakers, waker, ns);
            }
            for (holder, ns) in lock.holders {
                count(&mut sum.holders, holder, ns);
            }
        }
    }
}

fn count(whose: &mut FxHashMap<Whose, u64>, who: Whose, ns: u64) {
    let is_known = whose.len() < MAX_WHOSE || whose.contains_key(&who);
    let who = if is_known { who } else { Whose::Others };
    *whose.entry(who).or_default() += ns;
}
