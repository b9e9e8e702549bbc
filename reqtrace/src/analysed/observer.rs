//! Who looks on while a trace runs: events and the model, or how much was seen, in; wishes out.

use std::ops::ControlFlow;

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_capture::attach::Running;
use reqtrace_recording::Event;

use super::seen::Seen;

/// Looks on while a trace runs. Every method has a default, so that an observer has only what it wants.
///
/// All are called by the thread that reads the kernel's ring: while one runs, the ring fills up. One that
/// takes long passes the work on to a thread of its own.
pub trait Observer {
    /// An event, after the model has taken it: what it refers to has its names by then. `Break` ends
    /// the trace.
    fn event(&mut self, _event: &Event<'_>, _model: &Aggregator) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Some 200 ms have passed. `overhead` is the share of the processes' CPU time that tracing took in the last
    /// whole second, 0 to 1; `None` during the first.
    fn look(&mut self, _model: &Aggregator, _overhead: Option<[f64; 2]>) {}

    /// Whether requests that are open are wanted, each second. Then what the kernel adds up comes every five
    /// seconds, too.
    fn wants_running(&self) -> bool {
        false
    }

    /// Requests that are open at `now_ns` (`CLOCK_MONOTONIC`), those that began first: a few hundred at
    /// most. `all` is how many there are. The model knows the names of where they are blocked.
    fn running(&mut self, _requests: &[Running], _all: usize, _now_ns: u64, _model: &Aggregator) {}

    /// Tracing is over; what is left in the kernel is read next, and the outputs are written.
    fn ended(&mut self) {}
}

/// A function that is called for each event.
impl<F: FnMut(&Event<'_>, &Aggregator) -> ControlFlow<()>> Observer for F {
    fn event(&mut self, event: &Event<'_>, model: &Aggregator) -> ControlFlow<()> {
        self(event, model)
    }
}

/// Watches a trace that is analysed later. All are called by the thread that reads the kernel's ring.
pub trait Watcher {
    /// Whether it wants latencies of what was seen.
    fn wants_latencies(&self) -> bool {
        false
    }

    /// Some 200 ms have passed. `overhead` is as in [`Observer::look`].
    fn look(&mut self, _seen: &Seen, _overhead: Option<[f64; 2]>) {}

    /// As [`Observer::ended`].
    fn ended(&mut self) {}

    /// The report takes more than a second. `share` of what waited is in it, 0 to 1.
    fn reporting(&mut self, _share: f64) {}
}

/// Watches nothing.
impl Watcher for () {}
