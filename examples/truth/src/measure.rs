//! What a thread can find out about itself: clocks and counters of the kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use example_clock as clock;

/// One look at all of them. All but the clock only ever grow by what this thread does.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// `CLOCK_MONOTONIC`, ns.
    pub(crate) clock_ns: u64,
    /// `CLOCK_THREAD_CPUTIME_ID`, ns.
    pub(crate) cpu_ns: u64,
    /// How long the thread was runnable without running, ns.
    pub(crate) run_delay_ns: u64,
    /// How often it gave up its CPU to wait.
    pub(crate) blocks: u64,
    /// How often its CPU was taken.
    pub(crate) preemptions: u64,
}

/// Reads them for the thread that made it.
pub(crate) struct Meter {
    schedstat: File,
}

impl Meter {
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        // With CONFIG_SCHED_INFO, which CONFIG_TASK_DELAY_ACCT and CONFIG_SCHEDSTATS bring.
        let schedstat = File::open("/proc/thread-self/schedstat")?;
        Ok(Self { schedstat })
    }

    /// The clock last: nearest to what comes next.
    #[inline(never)]
    pub(crate) fn read_then_clock(&self) -> io::Result<Reading> {
        let mut reading = self.read()?;
        reading.clock_ns = clock::now_ns();
        Ok(reading)
    }

    /// The clock first: nearest to what came before.
    #[inline(never)]
    pub(crate) fn clock_then_read(&self) -> io::Result<Reading> {
        let clock_ns = clock::now_ns();
        let mut reading = self.read()?;
        reading.clock_ns = clock_ns;
        Ok(reading)
    }

    fn read(&self) -> io::Result<Reading> {
        let (blocks, preemptions) = switches()?;
        Ok(Reading {
            clock_ns: 0,
            cpu_ns: thread_cpu_ns(),
            run_delay_ns: self.run_delay_ns()?,
            blocks,
            preemptions,
        })
    }

    /// The second number of schedstat.
    fn run_delay_ns(&self) -> io::Result<u64> {
        let mut bytes = [0; 80];
        let length = self.schedstat.read_at(&mut bytes, 0)?;
        let text = str::from_utf8(&bytes[..length]).unwrap_or_default();
        let number = text.split_whitespace().nth(1).and_then(|n| n.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("schedstat says {text:?}")))
    }
}

/// `CLOCK_THREAD_CPUTIME_ID` in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec that the call may write; a thread always has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    // Neither part is ever negative.
    let time = Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32);
    time.as_nanos() as u64
}

/// Voluntary and involuntary context switches of this thread.
fn switches() -> io::Result<(u64, u64)> {
    // SAFETY: all-zero is a valid rusage, which the call only writes.
    let (usage, failed) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let failed = libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        (usage, failed)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // Counts are never negative.
    Ok((
        usage.ru_nvcsw.cast_unsigned(),
        usage.ru_nivcsw.cast_unsigned(),
    ))
}
