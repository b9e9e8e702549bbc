//! Not waiting at all.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use super::Wait;
use crate::measure::thread_cpu_ns;

/// Works until its thread has used so much time of a CPU.
pub(crate) struct Work(pub(crate) Duration);

impl Wait for Work {
    fn class(&self) -> Option<&'static str> {
        None
    }

    fn wait(&mut self) -> io::Result<()> {
        let end_ns = thread_cpu_ns() + self.0.as_nanos() as u64;
        while thread_cpu_ns() < end_ns {
            for step in 0..1000 {
                black_box(step);
            }
        }
        Ok(())
    }
}
