//! Company on a request's CPU: threads that want it all the time.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::kinds::Company;

/// How many they are.
const THREADS: usize = 2;

/// The company, until it is dropped.
pub(crate) struct Crowd {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Binds this thread to a CPU, for good, and its company too. What `others` starts stays away
    /// from there: a partner on that CPU would make room for whom it wakes.
    pub(crate) fn gather<T>(
        company: Company,
        others: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(Self, T)> {
        let over = Arc::new(AtomicBool::new(false));
        if company == Company::None {
            let threads = Vec::new();
            return Ok((Self { over, threads }, others()?));
        }
        // SAFETY: no arguments.
        let cpu = unsafe { libc::sched_getcpu() };
        let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
        leave(cpu)?;
        let others = others()?;
        bind_to(cpu)?;
        let mut crowd = Self {
            over,
            threads: Vec::with_capacity(THREADS),
        };
        // They inherit their CPU, and their policy before this thread changes its own.
        for _ in 0..THREADS {
            let over = Arc::clone(&crowd.over);
            let thread = thread::Builder::new().name("t-crowd".into());
            crowd.threads.push(thread.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    black_box(());
                }
            })?);
        }
        if company == Company::SpinningFirst {
            let no_priority = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameter is only read. 0 is the calling thread.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const no_priority) }
                != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok((crowd, others))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // They cannot panic.
            let _ = thread.join();
        }
    }
}

fn bind_to(cpu: usize) -> io::Result<()> {
    // SAFETY: all-zero is a valid cpu_set_t; CPU_SET checks the number's range.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    };
    bind(&set)
}

/// Binds this thread to all its CPUs but one, if it has others.
fn leave(cpu: usize) -> io::Result<()> {
    // SAFETY: as in bind_to; the set is only written.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::CPU_CLR(cpu, &mut set);
        if libc::CPU_COUNT(&set) == 0 {
            return Ok(());
        }
        set
    };
    bind(&set)
}

fn bind(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the set is only read.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
