//! Sinks: who takes the events of a trace, all alike. A recording, an analysis and somebody who looks on know
//! nothing of each other.

use std::ops::ControlFlow;

use reqtrace_base::error::Result;
use reqtrace_recording::Event;

use crate::attach::Running;
use crate::attach::guard::Shed;

/// Takes the events of a trace, in their order. Every method but one has a default, so that a sink has
/// only what it wants.
///
/// All are called by the thread that reads the kernel's ring: while one runs, the ring fills up. One that
/// takes long passes the work on to a thread of its own.
pub trait EventSink {
    /// An event; what it refers to has come before. `Break` ends the trace.
    ///
    /// # Errors
    ///
    /// What cannot be gone on with: the trace ends.
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>>;

    /// Some 200 ms have passed. `overhead` is the share of the CPU time that tracing took in the last
    /// whole second, 0 to 1; `None` during the first.
    fn look(&mut self, _overhead: Option<[f64; 2]>) {}

    /// What is left out at the moment, because tracing took too much; before each look.
    fn shed(&mut self, _shed: Shed) {}

    /// Whether what the kernel adds up is wanted every five seconds, and not at the end only.
    fn wants_windows(&self) -> bool {
        false
    }

    /// Whether it is wanted now.
    fn wants_window_now(&self) -> bool {
        false
    }

    /// Whether requests that are open are wanted, each second.
    fn wants_running(&self) -> bool {
        false
    }

    /// Requests that are open at `now_ns` (`CLOCK_MONOTONIC`), those that began first: a few hundred at
    /// most. `all` is how many there are. The names of where they are blocked have come as events.
    fn running(&mut self, _requests: &[Running], _all: usize, _now_ns: u64) {}

    /// A second has passed: what was taken should be where it is safe if the trace is killed.
    fn flush(&mut self) {}

    /// Tracing is over; what is left in the kernel is read next.
    fn ended(&mut self) {}
}

/// Several sinks, each of which has an event before the next one.
pub struct Fanout<'a>(Vec<&'a mut dyn EventSink>);

impl<'a> Fanout<'a> {
    /// To these, in this order.
    #[must_use]
    pub fn new(sinks: Vec<&'a mut dyn EventSink>) -> Self {
        Self(sinks)
    }
}

impl EventSink for Fanout<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
        let mut wish = ControlFlow::Continue(());
        for sink in &mut self.0 {
            if sink.event(event)?.is_break() {
                wish = ControlFlow::Break(());
            }
        }
        Ok(wish)
    }

    fn look(&mut self, overhead: Option<[f64; 2]>) {
        self.0.iter_mut().for_each(|sink| sink.look(overhead));
    }

    fn shed(&mut self, shed: Shed) {
        self.0.iter_mut().for_each(|sink| sink.shed(shed));
    }

    fn wants_windows(&self) -> bool {
        self.0.iter().any(|sink| sink.wants_windows())
    }

    fn wants_window_now(&self) -> bool {
        self.0.iter().any(|sink| sink.wants_window_now())
    }

    fn wants_running(&self) -> bool {
        self.0.iter().any(|sink| sink.wants_running())
    }

    fn running(&mut self, requests: &[Running], all: usize, now_ns: u64) {
        for sink in &mut self.0 {
            sink.running(requests, all, now_ns);
        }
    }

    fn flush(&mut self) {
        self.0.iter_mut().for_each(|sink| sink.flush());
    }

    fn ended(&mut self) {
        self.0.iter_mut().for_each(|sink| sink.ended());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_base::error::Error;

    /// Counts, and does with an event what it is asked to.
    struct Counter {
        seen: u64,
        stops_at: u64,
        fails_at: u64,
        wants_windows: bool,
    }

    impl EventSink for Counter {
        fn event(&mut self, _event: &Event<'_>) -> Result<ControlFlow<()>> {
            self.seen += 1;
            if self.seen == self.fails_at {
                return Err(Error::failed("no room"));
            }
            Ok(match self.seen == self.stops_at {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        }

        fn wants_windows(&self) -> bool {
            self.wants_windows
        }
    }

    fn counter(stops_at: u64, fails_at: u64) -> Counter {
        Counter {
            seen: 0,
            stops_at,
            fails_at,
            wants_windows: false,
        }
    }

    #[test]
    fn who_stops_a_trace_keeps_no_event_from_others() {
        let (mut first, mut second) = (counter(1, 0), counter(0, 3));
        second.wants_windows = true;
        let mut fanout = Fanout::new(vec![&mut first, &mut second]);
        assert!(fanout.wants_windows() && !fanout.wants_running());
        assert!(fanout.event(&Event::Tick(1)).unwrap().is_break());
        assert!(fanout.event(&Event::Tick(2)).unwrap().is_continue());
        let error = fanout.event(&Event::Tick(3)).unwrap_err();
        assert_eq!(error.to_string(), "no room");
        assert_eq!((first.seen, second.seen), (3, 3));
    }
}
