//! Values of options of a trace, and of a count: words of the command line in, what capture knows them as out.

use std::time::Duration;

use clap::ValueEnum;
use reqtrace_base::quantity::{bytes, long_time, short_time};
use reqtrace_capture::{attach, tracer};

/// A length of time, a number of bytes, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The time.
    pub time: Option<Duration>,
    /// The bytes.
    pub bytes: Option<u64>,
}

/// The least of a file: each begins with the names that it needs.
const SMALLEST: u64 = 64 << 10;
const SHORTEST: Duration = Duration::from_secs(1);

/// When a recording goes on in another file.
pub(super) fn roll(word: &str) -> Result<Limits, String> {
    let limits = limits(word, "10m, 64MB or 10m,64MB")?;
    if limits.time.is_some_and(|time| time < SHORTEST) {
        return Err("a file has at least one second".to_owned());
    }
    if limits.bytes.is_some_and(|bytes| bytes < SMALLEST) {
        return Err("a file has at least 64KB".to_owned());
    }
    Ok(limits)
}

/// Which files of a recording stay.
pub(super) fn keep(word: &str) -> Result<Limits, String> {
    limits(word, "24h, 10GB or 24h,10GB")
}

/// A century: clocks count on beyond what is longer.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long something lasts, above 0 and a century at most: in seconds, or with a unit.
pub(super) fn length(word: &str) -> Option<Duration> {
    let seconds = word.parse::<f64>().ok();
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let length = seconds.or_else(|| short_time(word).ok());
    length.filter(|length| !length.is_zero() && *length <= LONGEST)
}

/// The latency from which on a request is slow.
pub(super) fn slow(word: &str) -> Result<Duration, String> {
    let latency = short_time(word)?;
    if latency.is_zero() {
        return Err("of 0 all requests are slow: give the latency that is too long, such as 20ms, or leave --keep-slow out".to_owned());
    }
    Ok(latency)
}

fn limits(word: &str, examples: &str) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for part in word.split(',') {
        let is_twice = match (long_time(part), bytes(part)) {
            (Some(time), _) => limits.time.replace(time).is_some(),
            (None, Ok(bytes)) if bytes > 0 => limits.bytes.replace(bytes).is_some(),
            _ => {
                return Err(format!(
                    "`{part}` is neither a time nor a size: give one or both, such as {examples}"
                ));
            }
        };
        if is_twice {
            return Err(format!(
                "two times or two sizes: give one of each, such as {examples}"
            ));
        }
    }
    Ok(limits)
}

/// How to unwind user stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// By .eh_frame, and by frame pointers through code that has none.
    #[default]
    Auto,
    /// By frame pointers, for programs built with them.
    Fp,
    /// By .eh_frame only: a stack ends at code that has none.
    Dwarf,
}

impl From<Unwind> for tracer::Unwind {
    fn from(unwind: Unwind) -> Self {
        match unwind {
            Unwind::Auto => Self::Auto,
            Unwind::Fp => Self::Fp,
            Unwind::Dwarf => Self::Dwarf,
        }
    }
}

/// What interrupts the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CpuEngine {
    /// The kernel's timer: samples are as many as the time that was spent.
    #[default]
    CpuClock,
    /// Cycles that the CPU counts, where it does: samples see the kernel with interrupts off, too.
    Cycles,
}

impl From<CpuEngine> for attach::CpuEngine {
    fn from(engine: CpuEngine) -> Self {
        match engine {
            CpuEngine::CpuClock => Self::CpuClock,
            CpuEngine::Cycles => Self::Cycles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_told_apart() {
        let of = |time: u64, bytes: u64| Limits {
            time: (time > 0).then(|| Duration::from_secs(time)),
            bytes: (bytes > 0).then_some(bytes),
        };
        assert_eq!(roll("10m"), Ok(of(600, 0)));
        assert_eq!(roll("64MB"), Ok(of(0, 64 << 20)));
        assert_eq!(roll("64M,1h"), Ok(of(3_600, 64 << 20)));
        assert_eq!(keep("2d,10GB"), Ok(of(172_800, 10 << 30)));
        assert_eq!(keep("30s"), Ok(of(30, 0)));
        for (word, words) in [
            ("", "neither"),
            ("10", "neither"),
            ("soon", "neither"),
            ("0m", "neither"),
            ("0MB", "neither"),
            ("-5m", "neither"),
            ("10m,", "neither"),
            ("99999999999999999999h", "neither"),
            ("10m,2h", "two times"),
            ("1MB,10m,2MB", "two sizes"),
            ("500ms", "one second"),
            ("1KB", "64KB"),
        ] {
            let error = roll(word).unwrap_err();
            assert!(error.contains(words), "{word}: {error}");
        }
    }
}
