//! Holders of locks: a thread's number in its own PID namespace in, the thread of that process out.
//!
//! A lock has what the program wrote. So the number has to be that of a thread that the process has, and it is
//! looked up at the latest some 200 ms after the wait.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use reqtrace_binary::status::Status;
use reqtrace_recording::{Holder, Interval, IntervalKind};
use rustc_hash::FxHashMap;

/// How often at most the threads of a process are listed.
const PAUSE: Duration = Duration::from_millis(50);
/// Threads of one process that are listed.
const MAX_THREADS: usize = 1 << 16;
/// Processes whose threads are kept.
const MAX_PROCESSES: usize = 1 << 10;

/// Threads of processes.
#[derive(Debug, Default)]
pub(super) struct Holders {
    processes: FxHashMap<u32, Threads>,
}

#[derive(Debug)]
struct Threads {
    /// By the number in their own namespace.
    known: FxHashMap<u32, u32>,
    listed: Instant,
}

impl Holders {
    /// Gives the holder its number in the initial namespace.
    pub(super) fn translate(&mut self, interval: &mut Interval) {
        let Holder::Thread(own) = interval.holder else {
            return;
        };
        let tgid = interval.space.tgid;
        // One that has left since has mostly ended the wait itself.
        let has_woken = matches!(
            interval.kind,
            IntervalKind::Blocked { waker, .. } if (waker.tgid, waker.tid) == (tgid, own)
        );
        interval.holder = match self.of_process(tgid, interval.holder) {
            Holder::NoThread if has_woken => Holder::Thread(own),
            holder => holder,
        };
    }

    /// The same of a wait in this process that goes on.
    pub(super) fn of_process(&mut self, tgid: u32, holder: Holder) -> Holder {
        match holder {
            Holder::Thread(own) => self
                .thread(tgid, own)
                .map_or(Holder::NoThread, Holder::Thread),
            other => other,
        }
    }

    /// Forgets processes that have left.
    pub(super) fn forget(&mut self, pids: &BTreeSet<u32>) {
        self.processes.retain(|pid, _| !pids.contains(pid));
    }

    fn thread(&mut self, pid: u32, own: u32) -> Option<u32> {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            self.processes.clear();
        }
        let threads = self.processes.entry(pid).or_insert_with(|| list(pid));
        if let Some(tid) = threads.known.get(&own) {
            return Some(*tid);
        }
        if threads.listed.elapsed() >= PAUSE {
            *threads = list(pid);
        }
        threads.known.get(&own).copied()
    }
}

fn list(pid: u32) -> Threads {
    let folder = format!("/proc/{pid}/task");
    // The same numbers everywhere, unless the process has a namespace of its own.
    let is_inner = numbers(pid, pid).len() > 1;
    let tids = fs::read_dir(&folder).into_iter().flatten().flatten();
    let tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let known = tids.take(MAX_THREADS).filter_map(|tid| {
        let own = if is_inner {
            numbers(pid, tid).last().copied()
        } else {
            Some(tid)
        };
        Some((own?, tid))
    });
    Threads {
        known: known.collect(),
        listed: Instant::now(),
    }
}

/// The numbers of a thread, from this namespace to its own.
fn numbers(pid: u32, tid: u32) -> Vec<u32> {
    let status = Status::of(format_args!("{pid}/task/{tid}"));
    status.map_or_else(|_| Vec::new(), |status| status.own_numbers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_of_the_process_hold_its_locks() {
        let mut holders = Holders::default();
        let own = std::process::id();
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        assert_eq!(holders.thread(own, tid), Some(tid));
        // The first process is another one, and nobody has the number 0.
        assert_eq!(holders.thread(own, 1), None);
        assert_eq!(holders.thread(own, 0), None);
        holders.forget(&BTreeSet::from([own]));
        assert!(holders.processes.is_empty());
    }
}
