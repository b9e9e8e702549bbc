//! CPU time of processes that come and go: their ids in, what all of them took out.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::time::Duration;

use super::clock;

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
    last: HashMap<u32, Taken>,
    /// Own time of processes that have left.
    left_ns: u64,
}

impl Usage {
    /// These processes run already: what they have taken before does not count.
    #[must_use]
    pub fn since_now(pids: &BTreeSet<u32>) -> Self {
        let now: HashMap<u32, Taken> = pids.iter().map(|&pid| (pid, taken(pid))).collect();
        Self {
            at_start: now.clone(),
            last: now,
            left_ns: 0,
        }
    }

    /// What all of them took, those that have left too. One that came and left between two looks is
    /// known by its parent's account, if that is traced and waits for it.
    pub fn update(&mut self, alive: &BTreeSet<u32>) -> Duration {
        let since = |pid: &u32, now: &Taken, start: &HashMap<u32, Taken>| {
            let before = start.get(pid).copied().unwrap_or_default();
            (
                now.own.saturating_sub(before.own),
                now.reaped.saturating_sub(before.reaped),
            )
        };
        let gone: Vec<u32> = self
            .last
            .keys()
            .copied()
            .filter(|pid| !alive.contains(pid))
            .collect();
        for pid in gone {
            if let Some(last) = self.last.remove(&pid) {
                self.left_ns += since(&pid, &last, &self.at_start).0;
                self.at_start.remove(&pid);
            }
        }
        let (mut own, mut reaped) = (0, 0);
        for &pid in alive {
            let now = taken(pid);
            let (of_it, of_children) = since(&pid, &now, &self.at_start);
            own += of_it;
            reaped += of_children;
            self.last.insert(pid, now);
        }
        // Who has left is mostly in its parent's account as well.
        Duration::from_nanos(own + reaped.max(self.left_ns))
    }
}

fn taken(pid: u32) -> Taken {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // SAFETY: no precondition.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }
        .max(1)
        .cast_unsigned();
    Taken {
        own: clock::cpu_time(pid).as_nanos() as u64,
        reaped: reaped_ticks(&stat).unwrap_or(0) * (1_000_000_000 / ticks),
    }
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
        let left = usage.update(&BTreeSet::new());
        assert!(last >= Duration::from_millis(5), "{last:?}");
        assert!(left >= Duration::from_millis(5), "{left:?}");
    }
}
