//! How much the threads of processes sleep: `/proc/PID/task/TID/schedstat` in, the time that the
//! busiest of them left unused out.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Threads that are looked at: a file is read for each.
const MAX_THREADS: usize = 512;

/// CPU time of threads, and how long each waited for a CPU, since its start, ns.
#[derive(Debug, Default)]
pub struct Threads {
    demand: HashMap<u32, u64>,
}

impl Threads {
    /// Looks at the threads of these processes, at most 512 of them. A kernel without
    /// `CONFIG_SCHED_INFO` shows none.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let threads = pids.iter().flat_map(|&pid| thread_ids(pid));
        let demand = threads.take(MAX_THREADS).filter_map(|(pid, tid)| {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
            Some((tid, ran_and_waited(&text)?))
        });
        Self {
            demand: demand.collect(),
        }
    }

    /// For how long of `elapsed` the busiest thread slept since `before`: it neither ran nor
    /// waited for a CPU. `None` when nothing is known.
    #[must_use]
    pub fn busiest_slept(&self, before: &Self, elapsed: Duration) -> Option<Duration> {
        let since = |(tid, now): (&u32, &u64)| {
            now.saturating_sub(before.demand.get(tid).copied().unwrap_or(0))
        };
        let busiest = self.demand.iter().map(since).max()?;
        Some(elapsed.saturating_sub(Duration::from_nanos(busiest)))
    }
}

pub(crate) fn thread_ids(pid: u32) -> impl Iterator<Item = (u32, u32)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().filter_map(move |thread| {
        let tid = thread.ok()?.file_name().to_str()?.parse().ok()?;
        Some((pid, tid))
    })
}

/// The first two numbers: on a CPU, and runnable without one, ns.
fn ran_and_waited(text: &str) -> Option<u64> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    Some(numbers.next()?.ok()? + numbers.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_sleeps_what_it_neither_runs_nor_waits() {
        assert_eq!(
            ran_and_waited("240677455 29343424 438\n"),
            Some(270_020_879)
        );
        assert_eq!(ran_and_waited("12"), None);
        let threads = |demand: &[(u32, u64)]| Threads {
            demand: demand.iter().copied().collect(),
        };
        let before = threads(&[(1, 1000), (2, 50)]);
        let after = threads(&[(1, 1300), (2, 800), (3, 100)]);
        let elapsed = Duration::from_nanos(1000);
        let slept = after.busiest_slept(&before, elapsed);
        assert_eq!(slept, Some(Duration::from_nanos(250)));
        assert_eq!(Threads::default().busiest_slept(&before, elapsed), None);
    }

    #[test]
    fn a_thread_that_works_does_not_sleep() {
        let own = [std::process::id()];
        let before = Threads::of(&own);
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(60) {
            std::hint::black_box(0);
        }
        let elapsed = started.elapsed();
        // Every kernel that the tests run on has CONFIG_SCHED_INFO.
        let slept = Threads::of(&own).busiest_slept(&before, elapsed).unwrap();
        assert!(slept < elapsed / 2, "{slept:?} of {elapsed:?}");
    }

    #[test]
    fn a_process_that_sleeps_does() {
        let mut sleeper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let before = Threads::of(&[sleeper.id()]);
        let started = std::time::Instant::now();
        std::thread::sleep(Duration::from_millis(60));
        let elapsed = started.elapsed();
        let slept = Threads::of(&[sleeper.id()]).busiest_slept(&before, elapsed);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(slept.unwrap() > elapsed / 2, "{slept:?} of {elapsed:?}");
    }
}
