//! The way from sessions to the worker, whose writer they are for: periods that are over in; the same out, or counted where there
//! is no room.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use reqtrace_analysis::report::{Exporter, Report, StacksRow};
use reqtrace_base::error::Result;
use reqtrace_output::pprof::NamesOfTimes;

use super::Dropped;
use crate::metrics::Metrics;

/// Periods of request types that wait for the worker, of all sessions together; one has up to some MB.
pub(super) const MOST_WAITING: usize = 32;

/// What the profiles of a session have in common.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) service: String,
    pub(crate) names: NamesOfTimes,
}

/// What the worker gets.
#[derive(Debug)]
pub(crate) enum Message {
    Stacks(Arc<About>, Arc<StacksRow>),
    Stop,
}

/// Where sessions hand over stacks.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    to: SyncSender<Message>,
    metrics: Arc<Metrics>,
}

impl Queue {
    /// Begins. The worker takes from the other end.
    pub(crate) fn new(metrics: &Arc<Metrics>) -> (Self, Receiver<Message>) {
        let (to, from) = sync_channel(MOST_WAITING);
        let metrics = Arc::clone(metrics);
        (Self { to, metrics }, from)
    }

    /// No more come, of no session: without room for the word it is when the last queue is dropped that the other end knows.
    pub(crate) fn stop(self) {
        // It may have ended by itself.
        let _ = self.to.try_send(Message::Stop);
    }

    /// Never waits.
    pub(super) fn offer(&self, about: &Arc<About>, row: &Arc<StacksRow>) {
        let message = Message::Stacks(Arc::clone(about), Arc::clone(row));
        let cause = match self.to.try_send(message) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => Dropped::Queue,
            Err(TrySendError::Disconnected(_)) => Dropped::Ended,
        };
        self.metrics.profiles(|of| of.dropped(cause));
    }
}

/// Takes the stacks of a session.
pub(crate) struct StacksExporter {
    about: Arc<About>,
    queue: Queue,
}

impl StacksExporter {
    pub(crate) fn new(about: About, queue: Queue) -> Self {
        let about = Arc::new(about);
        Self { about, queue }
    }
}

impl Exporter for StacksExporter {
    fn stacks(&mut self, row: &Arc<StacksRow>) -> Result<()> {
        self.queue.offer(&self.about, row);
        Ok(())
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_ends_does_not_wait_for_who_takes_nothing() {
        let (queue, from) = Queue::new(&Arc::default());
        for _ in 0..MOST_WAITING {
            queue.to.try_send(Message::Stop).unwrap();
        }
        let (say, stopped) = sync_channel(1);
        let stopping = thread::spawn(move || {
            queue.stop();
            say.send(()).unwrap();
        });
        stopped.recv_timeout(Duration::from_secs(10)).unwrap();
        stopping.join().unwrap();
        // It takes what waits, and no more comes.
        assert_eq!(from.iter().count(), MOST_WAITING);
    }
}
