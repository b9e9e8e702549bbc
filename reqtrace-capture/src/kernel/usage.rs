//! CPU time of processes that come and go: their ids in, what all of them took out.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::time::Duration;

use super::clock;
use super::processes::text_of;

/// What is known of one process, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// By its own threads.
    own: u64,
    /// By children that have ended and that it has waited for.
    reaped: u64,
}

/// CPU time of processes since they were first seen, or since their start.
#[derive(Debug, Default)]
pub struct Usage {
    at_start: HashMap<u32, Taken>,
    /// What the threads that ran then had taken, ns.
    threads_at_start: HashMap<u32, u64>,
    last: HashMap<u32, Taken>,
    /// Own time of processes that have left.
    left_ns: u64,
}

impl Usage {
    /// These processes run already: what they have taken before does not count.
    #[must_use]
    pub fn since_now(pids: &BTreeSet<u32>) -> Self {
        let mut usage = Self::default();
        for &pid in pids {
            usage.came(pid);
        }
        usage
    }

    /// The same of one more process.
    pub fn came(&mut self, pid: u32) {
        let now = taken(pid);
        self.at_start.insert(pid, now);
        self.threads_at_start.insert(pid, of_threads(pid));
        self.last.insert(pid, now);
    }

    /// A process has left; its threads that ended since it was first seen had taken so much from their
    /// start on. Nobody else knows what was taken since the last look: its own clock went with it.
    pub fn left(&mut self, pid: u32, ended_ns: u64) {
        let threads_ns = self.threads_at_start.remove(&pid).unwrap_or_default();
        let last = self.last.remove(&pid).unwrap_or_default();
        let start = self.at_start.remove(&pid).unwrap_or_default();
        let by_clock = last.own.saturating_sub(start.own);
        self.left_ns += by_clock.max(ended_ns.saturating_sub(threads_ns));
    }

    /// What all of them took, those that have left too.
    pub fn update(&mut self, alive: &BTreeSet<u32>) -> Duration {
        for &pid in alive {
            self.last.insert(pid, taken(pid));
        }
        let (mut own, mut reaped, mut left) = (0, 0, self.left_ns);
        for (pid, now) in &self.last {
            let before = self.at_start.get(pid).copied().unwrap_or_default();
            let of_it = now.own.saturating_sub(before.own);
            if alive.contains(pid) {
                own += of_it;
                reaped += now.reaped.saturating_sub(before.reaped);
            } else {
                left += of_it;
            }
        }
        // Who has left is mostly in its parent's account as well.
        Duration::from_nanos(own + reaped.max(left))
    }
}

fn taken(pid: u32) -> Taken {
    let stat = text_of(format!("/proc/{pid}/stat")).unwrap_or_default();
    // SAFETY: no precondition.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }
        .max(1)
        .cast_unsigned();
    Taken {
        own: clock::cpu_time(pid).as_nanos() as u64,
        reaped: reaped_ticks(&stat).unwrap_or(0) * (1_000_000_000 / ticks),
    }
}

/// How often the threads of a process are looked at when one of them ends meanwhile.
const TRIES: usize = 4;

/// CPU time of the threads that a process has now, ns; more than any has when the kernel does not tell.
fn of_threads(pid: u32) -> u64 {
    let all = |_| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        threads.map(|thread| of_thread(&thread.ok()?)).sum()
    };
    (0..TRIES).find_map(all).unwrap_or(u64::MAX)
}

fn of_thread(thread: &fs::DirEntry) -> Option<u64> {
    let text = text_of(thread.path().join("schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// `cutime` and `cstime` of `/proc/PID/stat`, the 16th and 17th field; the second may hold spaces.
fn reaped_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_were_waited_for_are_in_two_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 50 60 70 80 20 0 1 0 100";
        assert_eq!(reaped_ticks(stat), Some(150));
        assert_eq!(reaped_ticks("7 (a"), None);
    }

    #[test]
    fn work_counts_from_the_start_and_stays_when_its_process_leaves() {
        let pid = std::process::id();
        let own = BTreeSet::from([pid]);
        let mut usage = Usage::since_now(&own);
        let enough = clock::cpu_time(pid) + Duration::from_millis(5);
        while clock::cpu_time(pid) < enough {
            std::hint::black_box(0);
        }
        let last = usage.update(&own);
        let leaving = usage.update(&BTreeSet::new());
        assert!(leaving >= Duration::from_millis(5), "{leaving:?}");
        // Other tests may have waited for children meanwhile, which are in the account of one that lives only.
        assert!(leaving <= last, "{leaving:?}, {last:?}");
        // What its threads had taken before is known of them, and no part of it.
        let before_ns = usage.threads_at_start[&pid];
        assert!(before_ns > 0);
        usage.left(pid, before_ns + 7_000_000_000);
        assert_eq!(usage.update(&BTreeSet::new()), Duration::from_secs(7));
        // One that was never looked at.
        usage.left(pid + 1, 1_000_000_000);
        assert_eq!(usage.update(&BTreeSet::new()), Duration::from_secs(8));
    }
}
