//! The sender: profiles that wait in; requests of Pyroscope's push API out. It has a thread of its own: a Pyroscope that hangs
//! holds up no folder.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::{info, warn};
use reqtrace_base::error::{Error, Result};

use super::Dropped;
use super::waiting::{Push, Waiting};
use super::wire::{CONTENT_TYPE, PATH};
use crate::http::{Ending, Outcome, Retry, local, outcome};
use crate::metrics::Metrics;

/// A request and its answer.
const LONGEST: Duration = Duration::from_secs(10);
const CONNECTING: Duration = Duration::from_secs(2);
const RETRY: Retry = Retry {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// What is left is sent within this time at the end.
const AT_END: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(100);

/// The thread that sends.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) waiting: Arc<Waiting>,
    ending: Ending,
    thread: JoinHandle<()>,
}

struct Thread {
    agent: ureq::Agent,
    url: String,
    waiting: Arc<Waiting>,
    ending: Ending,
    metrics: Arc<Metrics>,
    /// Since the last one that was accepted.
    failures: u32,
}

impl Sender {
    /// Begins to send to a Pyroscope, whether it is there or not.
    ///
    /// # Errors
    ///
    /// When there can be no more threads.
    pub(super) fn start(pyroscope: &str, metrics: &Arc<Metrics>) -> Result<Self> {
        let cannot = |error| Error::failed("[profiles]: profiles cannot be sent").because(error);
        let (waiting, ending) = (Arc::<Waiting>::default(), Ending::default());
        let mut thread = Thread {
            agent: local(LONGEST, CONNECTING),
            url: format!("{pyroscope}{PATH}"),
            waiting: Arc::clone(&waiting),
            ending: ending.clone(),
            metrics: Arc::clone(metrics),
            failures: 0,
        };
        let thread = Builder::new()
            .name("reqtrace-pyro".to_owned())
            .spawn(move || thread.run())
            .map_err(cannot)?;
        Ok(Self {
            waiting,
            ending,
            thread,
        })
    }

    /// Sends what has come, for some seconds, and ends.
    pub(super) fn end(self) {
        self.ending.begin();
        if self.thread.join().is_err() {
            warn!("the sender of profiles panicked: please report this as a bug");
        }
    }
}

impl Thread {
    fn run(&mut self) {
        while !self.ending.has_begun() {
            let Some(push) = self.waiting.next(GLANCE) else {
                continue;
            };
            if let Some(push) = self.send(push) {
                let dropped = self.waiting.give_back(push);
                self.metrics
                    .profiles(|of| of.dropped_many(Dropped::Waited, dropped));
                let draw = RandomState::new().hash_one(self.failures) as f64 / u64::MAX as f64;
                self.ending.waits(RETRY.after(self.failures, draw));
            }
            self.show();
        }
        self.finish();
    }

    fn show(&self) {
        let waiting = self.waiting.len();
        self.metrics.profiles(|of| of.waiting = waiting);
    }

    /// Sends what is left, as long as there is time.
    fn finish(&mut self) {
        let until = Instant::now() + AT_END;
        let mut left = 0;
        while let Some(push) = self.waiting.next(Duration::ZERO) {
            // What fails now fails for the others, too.
            let has_time = Instant::now() < until && left == 0;
            let is_left = !has_time || self.send(push).is_some();
            left += u64::from(is_left);
        }
        self.metrics
            .profiles(|of| of.dropped_many(Dropped::Ended, left));
        if left > 0 {
            warn!("profiles that were not sent when the agent ended: {left}");
        }
        self.show();
    }

    /// Sends one, and gives it back if it may be accepted later.
    fn send(&mut self, push: Push) -> Option<Push> {
        let request = self.agent.post(&self.url);
        let request = request.header("content-type", CONTENT_TYPE);
        let request = request.header("connect-protocol-version", "1");
        match outcome(request.send(&push.body[..])) {
            Outcome::Accepted => {
                if std::mem::take(&mut self.failures) > 0 {
                    info!("profiles are sent again to {}", self.url);
                }
                self.metrics.profiles(|of| of.sent += 1);
                None
            }
            Outcome::Refused(why) => {
                self.metrics.profiles(|of| of.dropped(Dropped::Refused));
                warn!("a profile was refused by {}: {why}", self.url);
                None
            }
            Outcome::Failed(cause, why) => {
                if self.failures == 0 {
                    warn!(
                        "a profile could not be sent to {}, and is tried again: {}: {why}",
                        self.url,
                        cause.name()
                    );
                }
                self.failures += 1;
                self.metrics.profiles(|of| of.failed(cause));
                Some(push)
            }
        }
    }
}
