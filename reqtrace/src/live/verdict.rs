//! The verdict so far: the model in, its sentences out. Judging takes a moment, so it is done seldom.

use std::time::{Duration, Instant};

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_output::verdict::sentence;

/// How old it may be.
const PAUSE: Duration = Duration::from_secs(5);
/// The pause is so many times as long as judging takes, so that it costs 1 % of a CPU at most.
const PAUSE_PER_LOOK: u32 = 100;

/// The last one.
#[derive(Default)]
pub(super) struct VerdictCache {
    sentences: Vec<String>,
    next: Option<Instant>,
}

impl VerdictCache {
    /// What is found in the time since the start.
    pub(super) fn of(&mut self, model: &Aggregator) -> Vec<String> {
        let begun = Instant::now();
        if self.next.is_none_or(|next| begun >= next) {
            self.sentences = model.findings_now().iter().map(sentence).collect();
            self.next = Some(begun + PAUSE.max(begun.elapsed() * PAUSE_PER_LOOK));
        }
        self.sentences.clone()
    }
}
