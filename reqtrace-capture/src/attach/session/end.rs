//! The end of a session: everything taken out, many at a time, while its maps are still read.

use std::thread;

use super::Session;
use crate::attach::detach;
use crate::attach::detach::Link;
use reqtrace_base::error::Result;

impl Session {
    /// Begins to take everything out while the maps are still read. Call it after [`Session::stop`].
    ///
    /// # Errors
    ///
    /// When what the programs have cost cannot be read.
    pub fn begin_detach(&mut self) -> Result<()> {
        let cost = self.cost()?;
        let (tracepoints, probes) = self.links();
        let samples = std::mem::take(&mut self.sampling.links);
        let work = move || {
            drop(samples);
            detach(tracepoints, probes);
        };
        self.detaching = Some((cost, thread::spawn(work)));
        Ok(())
    }

    /// Takes everything out: scheduler programs, then the probes, many at a time.
    pub fn detach(&mut self) {
        let (tracepoints, probes) = self.links();
        self.sampling.links.clear();
        detach(tracepoints, probes);
        self.probes.wait();
        if let Some((_, thread)) = self.detaching.take() {
            // It does nothing that can panic; the kernel takes out what is left when we end.
            let _ = thread.join();
        }
    }

    fn links(&mut self) -> (Vec<Link>, Vec<Link>) {
        (std::mem::take(&mut self.tracepoints), self.probes.take())
    }
}

fn detach(tracepoints: Vec<Link>, probes: Vec<Link>) {
    drop(tracepoints);
    detach::all(probes);
}

impl Drop for Session {
    fn drop(&mut self) {
        self.detach();
    }
}
