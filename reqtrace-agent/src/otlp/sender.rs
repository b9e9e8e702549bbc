//! The sender: spans in; requests of OTLP/HTTP to a collector out. It has a thread of its own: a collector that hangs holds
//! up nobody else.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::{info, warn};
use prost::Message as _;
use reqtrace_base::error::{Error, Result};

use super::Dropped;
use super::wire::{
    KeyValue, OfService, Request, Resource, ResourceSpans, Response, Scope, ScopeSpans, Span,
};
use crate::config::Otlp;
use crate::http::{Ending, local};
use crate::metrics::Metrics;

/// Spans of a request; fewer are sent after [`PATIENCE`].
const BATCH: usize = 256;
const PATIENCE: Duration = Duration::from_millis(500);
/// A request and its answer.
const LONGEST: Duration = Duration::from_secs(5);
const CONNECTING: Duration = Duration::from_secs(2);
/// How often a batch is sent, when the collector is not there or busy; the pauses between are this long, and twice.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// What is left is sent within this time at the end.
const AT_END: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(100);
/// Bytes of an answer.
const MAX_ANSWER: u64 = 64 << 10;

/// The thread that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    ending: Ending,
    thread: JoinHandle<()>,
}

struct Thread {
    agent: ureq::Agent,
    url: String,
    host: String,
    metrics: Arc<Metrics>,
    ending: Ending,
    /// A line in the log for the first failure of several.
    has_failed: bool,
}

type Batch = Vec<OfService>;

/// What became of a request.
#[derive(Debug)]
enum Answer {
    /// It was taken, but for so many spans.
    Taken(u64, String),
    Refused(String),
    /// It may be taken if it is sent again.
    Away(String),
}

impl Sender {
    /// Begins to send what comes from there to this collector, whether it is there or not.
    ///
    /// # Errors
    ///
    /// When there can be no more threads.
    pub(crate) fn start(
        config: &Otlp,
        host: &str,
        metrics: &Arc<Metrics>,
        from: Receiver<OfService>,
    ) -> Result<Self> {
        let cannot = |error| Error::failed("[otlp]: spans cannot be sent").because(error);
        let ending = Ending::default();
        metrics.spans(|_| ());
        let mut thread = Thread {
            agent: local(LONGEST, CONNECTING),
            url: format!("{}/v1/traces", config.endpoint),
            host: host.to_owned(),
            metrics: Arc::clone(metrics),
            ending: ending.clone(),
            has_failed: false,
        };
        let thread = Builder::new()
            .name("reqtrace-otlp".to_owned())
            .spawn(move || thread.run(&from))
            .map_err(cannot)?;
        Ok(Self { ending, thread })
    }

    /// Sends what has come and comes, for some seconds, until no more can come.
    pub(crate) fn end(self) {
        self.ending.begin();
        if self.thread.join().is_err() {
            warn!("the sender of spans panicked: please report this as a bug");
        }
    }
}

impl Thread {
    fn run(&mut self, from: &Receiver<OfService>) {
        while !self.ending.has_begun() {
            match from.recv_timeout(GLANCE) {
                Ok(span) => {
                    let mut batch = vec![span];
                    self.fill(&mut batch, from);
                    self.send(batch);
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.finish(from);
    }

    /// Takes what comes until it is enough.
    fn fill(&self, batch: &mut Batch, from: &Receiver<OfService>) {
        let until = Instant::now() + PATIENCE;
        while batch.len() < BATCH && !self.ending.has_begun() {
            let wait = until.saturating_duration_since(Instant::now());
            match from.recv_timeout(wait) {
                Ok(span) => batch.push(span),
                Err(_) => return,
            }
        }
    }

    /// Sends what is left, as long as there is time. It ends when nobody has more.
    fn finish(&mut self, from: &Receiver<OfService>) {
        let until = Instant::now() + AT_END;
        let mut left = from.iter();
        loop {
            let batch: Batch = left.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            if Instant::now() < until {
                self.send(batch);
                continue;
            }
            let count = (batch.len() + left.by_ref().count()) as u64;
            self.metrics.spans(|of| of.dropped(Dropped::Ended, count));
            warn!("spans that were not sent when the agent ended: {count}");
        }
    }

    /// Sends a batch, several times if need be, and counts what becomes of it.
    fn send(&mut self, batch: Batch) {
        let all = batch.len() as u64;
        let body = self.request(batch).encode_to_vec();
        let mut answer = self.post(&body);
        for attempt in 1..ATTEMPTS {
            if !matches!(answer, Answer::Away(_)) || !self.ending.waits(PAUSE * attempt) {
                break;
            }
            answer = self.post(&body);
        }
        let (cause, dropped, why) = match answer {
            Answer::Taken(refused, why) => (Dropped::Refused, refused.min(all), why),
            Answer::Refused(why) => (Dropped::Refused, all, why),
            Answer::Away(why) => (Dropped::Unreachable, all, why),
        };
        self.metrics.spans(|of| {
            of.sent += all - dropped;
            if dropped > 0 {
                of.dropped(cause, dropped);
            }
        });
        match (dropped, self.has_failed) {
            (0, true) => info!("spans are sent again to {}", self.url),
            (1.., false) => warn!(
                "spans are dropped, and counted in reqtrace_otlp_spans_dropped_total: {}: {why}",
                self.url
            ),
            _ => {}
        }
        self.has_failed = dropped > 0;
    }

    fn post(&self, body: &[u8]) -> Answer {
        let request = self.agent.post(&self.url);
        let request = request.header("content-type", "application/x-protobuf");
        let mut response = match request.send(body) {
            Ok(response) => response,
            Err(error) => return Answer::Away(error.to_string()),
        };
        let status = response.status();
        let answer = response.body_mut().with_config().limit(MAX_ANSWER);
        let answer = answer.read_to_vec();
        // As the protocol says: no others are sent again.
        match status.as_u16() {
            200..=299 => match answer {
                Ok(bytes) => taken(&bytes),
                // It was taken; how much of it nobody knows.
                Err(error) => Answer::Taken(0, error.to_string()),
            },
            429 | 502 | 503 | 504 => Answer::Away(format!("HTTP {status}")),
            _ => Answer::Refused(format!("HTTP {status}")),
        }
    }

    /// Those of a service stand together.
    fn request(&self, batch: Batch) -> Request {
        let mut services: Vec<(String, Vec<Span>)> = Vec::new();
        for OfService { service, span } in batch {
            match services.iter_mut().find(|(of, _)| *of == service) {
                Some((_, spans)) => spans.extend(span),
                None => services.push((service, span.into_iter().collect())),
            }
        }
        let resource_spans = services.into_iter().map(|(service, spans)| ResourceSpans {
            resource: Some(Resource {
                attributes: vec![
                    KeyValue::text("service.name", service),
                    KeyValue::text("host.name", self.host.as_str()),
                ],
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(Scope {
                    name: "reqtrace".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                }),
                spans,
            }],
        });
        Request {
            resource_spans: resource_spans.collect(),
        }
    }
}

/// What a collector that has taken a request says of it.
fn taken(bytes: &[u8]) -> Answer {
    let partial = Response::decode(bytes).ok();
    let partial = partial.and_then(|response| response.partial_success);
    let partial = partial.unwrap_or_default();
    let refused = u64::try_from(partial.rejected_spans).unwrap_or(0);
    Answer::Taken(refused, format!("refused: {}", partial.error_message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as the published definition writes them.
    #[test]
    fn a_collector_may_take_some_and_say_why_not_the_others() {
        let some = b"\n\x0b\x08\x03\x12\x07too old";
        let Answer::Taken(3, why) = taken(some) else {
            panic!("{:?}", taken(some));
        };
        assert_eq!(why, "refused: too old");
        // All are taken; what is no answer of the protocol says nothing else.
        for all in [b"".as_slice(), b"\n\0", b"hello"] {
            assert!(matches!(taken(all), Answer::Taken(0, _)), "{all:?}");
        }
    }
}
