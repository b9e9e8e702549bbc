//! Company on a request's CPU: a thread that wants it all the time.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::kinds::Company;

/// The company, until it is dropped.
pub(crate) struct Crowd {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Binds this thread to the CPU that it is on, for good, and its company too.
    pub(crate) fn gather(company: Company) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        if company == Company::None {
            return Ok(Self { over, thread: None });
        }
        // SAFETY: no arguments.
        let cpu = unsafe { libc::sched_getcpu() };
        bind_to(usize::try_from(cpu).map_err(io::Error::other)?)?;
        // The thread inherits its CPU, and its policy before this thread changes its own.
        let thread = thread::Builder::new().name("t-crowd".into()).spawn({
            let over = Arc::clone(&over);
            move || {
                while !over.load(Ordering::Relaxed) {
                    black_box(());
                }
            }
        })?;
        if company == Company::SpinningFirst {
            let no_priority = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameter is only read. 0 is the calling thread.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const no_priority) }
                != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        let thread = Some(thread);
        Ok(Self { over, thread })
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
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
