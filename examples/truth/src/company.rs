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
    /// Binds this thread to the CPU that it is on, for good, and its company too.
    pub(crate) fn gather(company: Company) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        if company == Company::None {
            return Ok(Self {
                over,
                threads: Vec::new(),
            });
        }
        // SAFETY: no arguments.
        let cpu = unsafe { libc::sched_getcpu() };
        bind_to(usize::try_from(cpu).map_err(io::Error::other)?)?;
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
        Ok(crowd)
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
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
