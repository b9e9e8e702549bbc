//! The stream: events in, to who takes them.

use reqtrace_base::error::Result;
use reqtrace_recording::{Event, Loss, Request};

use super::EventSink;
use crate::attach::Running;
use crate::attach::guard::Shed;

/// Where events go.
pub(crate) struct Stream<'a> {
    sink: &'a mut dyn EventSink,
    /// The sink wants the trace to end.
    is_stopped: bool,
    /// Id of the last request.
    last_id: u64,
    /// What the weights of requests are multiplied by.
    times: u32,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(sink: &'a mut dyn EventSink) -> Self {
        Self {
            sink,
            is_stopped: false,
            last_id: 0,
            times: 1,
        }
    }

    /// Whether the sink wants the trace to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Lets the sink look at what is known so far.
    pub(crate) fn look(&mut self, overhead: Option<[f64; 2]>, shed: Shed) {
        self.sink.shed(shed);
        self.sink.look(overhead);
    }

    /// From now on each request stands for so many times as many as its record says.
    pub(crate) fn stand_for(&mut self, times: u32) {
        self.times = times;
    }

    /// For how many times as many each stands.
    pub(crate) fn stands_for(&self) -> u32 {
        self.times
    }

    /// Whether the sink wants what the kernel adds up while the trace runs.
    pub(crate) fn wants_windows(&self) -> bool {
        self.sink.wants_windows()
    }

    /// Whether the sink wants it now.
    pub(crate) fn wants_window_now(&self) -> bool {
        self.sink.wants_window_now()
    }

    /// Whether the sink wants requests that are open.
    pub(crate) fn wants_running(&self) -> bool {
        self.sink.wants_running()
    }

    /// Shows the sink requests that are open; `all` is how many there are.
    pub(crate) fn running(&mut self, requests: &[Running], all: usize, now_ns: u64) {
        self.sink.running(requests, all, now_ns);
    }

    /// Tells the sink that tracing is over.
    pub(crate) fn ended(&mut self) {
        self.sink.ended();
    }

    /// Sends an event.
    ///
    /// # Errors
    ///
    /// When the sink cannot go on.
    pub(crate) fn send(&mut self, event: &Event<'_>) -> Result<()> {
        self.is_stopped |= self.sink.event(event)?.is_break();
        Ok(())
    }

    /// Sends a request, which gets its id here.
    pub(crate) fn request(&mut self, mut request: Request<'_>) -> Result<()> {
        request.id = self.next_id();
        request.weight = request.weight.saturating_mul(self.times);
        self.send(&Event::Request(request))
    }

    /// An id that no request has.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Says that something was lost.
    pub(crate) fn lost(&mut self, name: &str, count: u64) -> Result<()> {
        let name = name.to_owned();
        self.send(&Event::Loss(&Loss { name, count }))
    }

    /// Asks the sink to put what was sent where it is safe.
    pub(crate) fn flush(&mut self) {
        self.sink.flush();
    }
}
