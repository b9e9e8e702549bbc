//! The way from sessions to the worker, whose sender they are for: requests in; spans of those that are slow out, as many in a second as are allowed,
//! or counted where there is no room.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqtrace_analysis::report::{Exporter, IntervalRow, Report, RequestRow};
use reqtrace_base::error::Result;

use super::Dropped;
use super::span::{About, Longest, span};
use super::wire::{OfService, Span};
use crate::config::Otlp;
use crate::ids::Machine;
use crate::metrics::Metrics;

/// Spans that wait for the worker, of all sessions together; one has some 5 KB.
const MOST_WAITING: usize = 768;

/// What the worker gets.
#[derive(Debug)]
pub(crate) enum Message {
    Span(OfService),
    Stop,
}

/// Where sessions hand over spans.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    to: SyncSender<Message>,
    pace: Arc<Mutex<Pace>>,
    metrics: Arc<Metrics>,
    machine: Arc<Machine>,
    keep_slow_ns: Option<u64>,
}

/// How many are allowed: so many a second, and as many at once after a second without any.
#[derive(Debug)]
struct Pace {
    /// Time that one takes.
    each: Duration,
    /// Time that was not used, a second at most.
    left: Duration,
    at: Instant,
}

const SECOND: Duration = Duration::from_secs(1);

impl Pace {
    fn new(per_second: u32, now: Instant) -> Self {
        Self {
            each: SECOND / per_second.max(1),
            left: SECOND,
            at: now,
        }
    }

    /// Whether one more is.
    fn allows(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at);
        self.left = self.left.saturating_add(since).min(SECOND);
        self.at = now;
        let left = self.left.checked_sub(self.each);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

impl Queue {
    /// Begins; `keep_slow` is what is slow where a rule has no `slo`. The worker takes from the other end.
    pub(crate) fn new(
        config: &Otlp,
        machine: &Arc<Machine>,
        keep_slow: Option<Duration>,
        metrics: &Arc<Metrics>,
    ) -> (Self, Receiver<Message>) {
        let (to, from) = sync_channel(MOST_WAITING);
        let nanoseconds = |slow: Duration| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX);
        let queue = Self {
            to,
            pace: Arc::new(Mutex::new(Pace::new(config.max_rate, Instant::now()))),
            metrics: Arc::clone(metrics),
            machine: Arc::clone(machine),
            keep_slow_ns: keep_slow.map(nanoseconds),
        };
        (queue, from)
    }

    /// No more come, of no session: without room for the word it is when the last queue is dropped that the other end knows.
    pub(crate) fn stop(self) {
        // It may have ended by itself.
        let _ = self.to.try_send(Message::Stop);
    }

    /// Never waits.
    fn offer(&self, service: &str, span: Span) {
        let message = Message::Span(OfService {
            service: service.to_owned(),
            span: Some(span),
        });
        let cause = match self.to.try_send(message) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => Dropped::Queue,
            Err(TrySendError::Disconnected(_)) => Dropped::Ended,
        };
        self.metrics.spans(|of| of.dropped(cause, 1));
    }

    fn has_time(&self) -> bool {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let is_allowed = pace.allows(Instant::now());
        drop(pace);
        if !is_allowed {
            self.metrics.spans(|of| of.dropped(Dropped::Rate, 1));
        }
        is_allowed
    }
}

/// Takes the requests of a session.
#[derive(Debug)]
pub(crate) struct Spans {
    about: About,
    queue: Queue,
    slow_ns: Option<u64>,
    longest: Longest,
}

impl Spans {
    pub(crate) fn new(about: About, queue: Queue) -> Self {
        let mut spans = Self {
            about,
            slow_ns: None,
            longest: Longest::default(),
            queue,
        };
        spans.look();
        spans
    }

    /// The configuration may have been read again.
    pub(crate) fn look(&mut self) {
        let slo_ns = self.queue.metrics.slo_ns(&self.about.service);
        self.slow_ns = slo_ns.or(self.queue.keep_slow_ns);
    }

    /// Whether a request that took so long is slow.
    fn wants(&self, latency_ns: u64) -> bool {
        self.slow_ns.is_some_and(|slow_ns| latency_ns > slow_ns)
    }

    /// Takes an interval of the request that comes next.
    fn interval(&mut self, row: &IntervalRow<'_>) {
        if self.wants(row.latency_ns) {
            self.longest.add(row);
        }
    }

    /// Takes a request. How long one took that is incomplete is not known: it has no span.
    fn request(&mut self, row: &RequestRow<'_>) {
        let longest = std::mem::take(&mut self.longest);
        let Some(slow_ns) = self.slow_ns else { return };
        let is_slow = row.ledger.latency_ns > slow_ns && row.incomplete.is_none();
        if !is_slow || !self.queue.has_time() {
            return;
        }
        let machine = &self.queue.machine;
        let ids = machine.ids(&self.about.service, row.id, row.start_unix_ns);
        let span = span(row, ids, slow_ns, longest, &self.about);
        self.queue.offer(&self.about.service, span);
    }
}

/// Takes all requests of a session.
pub(crate) struct SpansExporter(pub(crate) Rc<RefCell<Spans>>);

impl Exporter for SpansExporter {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        self.0.borrow_mut().request(row);
        Ok(())
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn interval(&mut self, row: &IntervalRow<'_>) -> Result<()> {
        self.0.borrow_mut().interval(row);
        Ok(())
    }

    fn wants_intervals_of(&self, latency_ns: u64) -> bool {
        self.0.borrow().wants(latency_ns)
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn whoever_ends_does_not_wait_for_who_takes_nothing() {
        let config = Otlp {
            endpoint: "http://127.0.0.1:9".to_owned(),
            max_rate: 1,
        };
        let machine = Arc::new(Machine {
            host: "web-1".to_owned(),
            boot: "0123456789ab".to_owned(),
        });
        let (queue, from) = Queue::new(&config, &machine, None, &Arc::default());
        for _ in 0..MOST_WAITING {
            queue.to.try_send(Message::Stop).unwrap();
        }
        let (say, stopped) = sync_channel(1);
        let stopping = thread::spawn(move || {
            queue.stop();
            say.send(()).unwrap();
        });
        stopped.recv_timeout(10 * SECOND).unwrap();
        stopping.join().unwrap();
        // It takes what waits, and no more comes.
        assert_eq!(from.iter().count(), MOST_WAITING);
    }

    #[test]
    fn no_more_pass_in_any_time_than_the_pace_allows() {
        let begin = Instant::now();
        let mut pace = Pace::new(10, begin);
        let passed = |pace: &mut Pace, at_ms: u64, tries: usize| {
            let now = begin + Duration::from_millis(at_ms);
            (0..tries).filter(|_| pace.allows(now)).count()
        };
        assert_eq!(passed(&mut pace, 0, 25), 10, "as many as in a second");
        assert_eq!(passed(&mut pace, 99, 5), 0);
        assert_eq!(passed(&mut pace, 500, 25), 5);
        // What was not used in an hour does not come at once.
        assert_eq!(passed(&mut pace, 3_600_000, 25), 10);
        let steady: usize = (1..=100)
            .map(|step| passed(&mut pace, 3_600_000 + 10 * step, 3))
            .sum();
        assert_eq!(steady, 10, "in the second after that");
    }
}
