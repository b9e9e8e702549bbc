//! Clocks. The kernel programs stamp with `CLOCK_MONOTONIC`; files carry Unix time.

use std::time::Duration;

use reqtrace_recording::ClockStep;
use rustix::time::{ClockId, clock_gettime};

/// Less than this is no step of the wall clock, ns.
const STEP_NS: u64 = 1_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of `bpf_ktime_get_ns`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time of all threads of this process, or of this thread, ns.
pub(crate) fn own_cpu_ns(of_thread: bool) -> u64 {
    read(match of_thread {
        true => ClockId::ThreadCPUTime,
        false => ClockId::ProcessCPUTime,
    })
}

/// What to add to `CLOCK_MONOTONIC` to get nanoseconds since the Unix epoch. It changes when the wall clock is set, and
/// while the machine is suspended: see [`WallClock`].
#[must_use]
pub fn monotonic_to_unix_ns() -> i64 {
    offset().1
}

/// How long reading it took at best, ns, and the offset.
fn offset() -> (u64, i64) {
    // The pair read in the shortest time is the best one.
    (0..8)
        .map(|_| {
            let before = monotonic_ns();
            let unix = read(ClockId::Realtime);
            let after = monotonic_ns();
            (
                after - before,
                unix.cast_signed() - (before + (after - before) / 2).cast_signed(),
            )
        })
        .min()
        .unwrap_or_default()
}

/// The wall clock of a trace.
#[derive(Debug)]
pub(crate) struct WallClock {
    to_unix_ns: i64,
}

impl WallClock {
    /// One that differs from `CLOCK_MONOTONIC` by so much.
    pub(crate) fn new(to_unix_ns: i64) -> Self {
        Self { to_unix_ns }
    }

    /// Whether it was set since the last look. Clocks that are slewed stay together.
    pub(crate) fn step(&mut self) -> Option<ClockStep> {
        let (took_ns, to_unix_ns) = offset();
        self.moved(took_ns, to_unix_ns).then(|| ClockStep {
            at_ns: monotonic_ns(),
            to_unix_ns,
        })
    }

    fn moved(&mut self, took_ns: u64, to_unix_ns: i64) -> bool {
        let is_step = to_unix_ns.abs_diff(self.to_unix_ns) > STEP_NS.max(2 * took_ns);
        if is_step {
            self.to_unix_ns = to_unix_ns;
        }
        is_step
    }
}

/// CPU time that a process has used, all its threads, those that have ended too; 0 when it is gone.
#[must_use]
pub fn cpu_time(pid: u32) -> Duration {
    let mut clock = 0;
    // SAFETY: `clock` is a valid place for the result.
    let found = unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) };
    if found != 0 {
        return Duration::ZERO;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result; it stays 0 when the process has left.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_its_clock() {
        let own = std::process::id();
        let before = cpu_time(own);
        while cpu_time(own) == before {
            std::hint::black_box(0);
        }
        assert!(cpu_time(own) > before);
        // Above the largest number that the kernel gives.
        assert_eq!(cpu_time(1 << 23), Duration::ZERO);
    }

    #[test]
    fn a_clock_that_is_set_is_seen_once_and_a_slow_look_is_no_step() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let mut clock = WallClock::new(7);
        assert!(!clock.moved(50, 900_000));
        assert!(!clock.moved(5_000_000, 9_000_000));
        for now in [HOUR_NS, -HOUR_NS, HOUR_NS] {
            assert!(clock.moved(50, now));
            assert!(!clock.moved(50, now + 400));
        }
        assert!(WallClock::new(monotonic_to_unix_ns()).step().is_none());
    }

    #[test]
    fn the_offset_joins_the_clocks() {
        let unix = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as i64;
        let joined = monotonic_ns() as i64 + monotonic_to_unix_ns();
        assert!(
            (joined - unix).abs() < 1_000_000_000,
            "{joined} against {unix}"
        );
    }
}
