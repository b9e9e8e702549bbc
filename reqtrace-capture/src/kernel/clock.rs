//! Clocks. The kernel programs stamp with `CLOCK_MONOTONIC`; files carry Unix time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of `bpf_ktime_get_ns`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// What to add to `CLOCK_MONOTONIC` to get nanoseconds since the Unix epoch. Taken once per trace,
/// so that all rows share one offset even when the wall clock is set meanwhile.
#[must_use]
pub fn monotonic_to_unix_ns() -> i64 {
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
        .map_or(0, |(_, offset)| offset)
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
