//! Labels of threads: a thread and a time in, what the requests were about that it was in then, out.

use std::ops::Range;

use super::kept::ThreadId;
use super::of_thread::Span;
use super::timeline::Timelines;

/// Requests belong together if the time between them is this part of a wait at most, so many of them.
const SHORTLY: u64 = 10;
const MOST_BEFORE: usize = 3;

impl Timelines {
    /// The label of the request that a thread was in at this time.
    pub(crate) fn label_at(&self, thread: ThreadId, at_ns: u64) -> Option<&[u8]> {
        let spans = &self.get(thread)?.spans;
        let at = spans.find(|span| span.until_ns <= at_ns);
        let span = spans.get(at).filter(|span| span.from_ns <= at_ns)?;
        Some(&span.label)
    }

    /// Labels of the requests of a thread in this time, in order: from the last one that began before it, and those that
    /// came shortly before that one.
    pub(crate) fn labels_around(
        &self,
        thread: ThreadId,
        time: Range<u64>,
    ) -> impl Iterator<Item = &[u8]> {
        let spans = self.get(thread).map(|timeline| {
            let spans = &timeline.spans;
            let after = spans.find(|span| span.from_ns <= time.start);
            let mut first = after.saturating_sub(1);
            let shortly_ns = (time.end - time.start) / SHORTLY;
            for _ in 0..MOST_BEFORE.min(first) {
                let gap_ns = spans[first]
                    .from_ns
                    .saturating_sub(spans[first - 1].until_ns);
                if gap_ns > shortly_ns {
                    break;
                }
                first -= 1;
            }
            spans.range(first..)
        });
        let in_time = move |span: &&Span| span.from_ns < time.end;
        let in_time = spans.into_iter().flatten().take_while(in_time);
        in_time
            .map(|span| &*span.label)
            .filter(|label| !label.is_empty())
    }
}
