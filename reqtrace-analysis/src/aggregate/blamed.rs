//! Blame: intervals as they come in; because of whom a request was blocked out, when its row is written.
//! All that was over before its end has been seen by then.

use reqtrace_recording::{Interval, IntervalKind, RequestOf};

use super::Aggregator;
use super::order::Row;
use crate::blame::{Causes, ThreadId, Victim, of_stack};

impl Aggregator {
    /// Takes an interval. Its names are known now, and may not be later.
    pub(super) fn interval(&mut self, interval: &Interval) {
        self.trace.seen(interval.in_ns);
        let Some(blame) = &mut self.blame else {
            return;
        };
        let sites = self.sites.get_mut();
        let is_own_block =
            interval.request.is_some() && matches!(interval.kind, IntervalKind::Blocked { .. });
        let class = if is_own_block {
            sites.class(interval.space, &interval.site)
        } else {
            None
        };
        let follows = blame.interval(interval, class, |stack| {
            of_stack(sites.kernel_side(stack).frames())
        });
        self.malformed += u64::from(!follows);
    }

    /// Splits the blocked time of a request by root cause; `None` without blame.
    pub(super) fn resolve(&mut self, row: &Row) -> Option<Causes> {
        let blame = self.blame.as_mut()?;
        let sites = self.sites.get_mut();
        let victim = Victim {
            thread: ThreadId {
                tgid: row.pid,
                tid: row.tid,
            },
            of: RequestOf {
                begin_ns: row.begin_ns,
                request_type: row.request_type as u32,
            },
            end_ns: row.end_ns,
            label: &row.label,
            ledger: &row.ledger,
            weight: row.weight,
            is_complete: row.incomplete.is_none(),
        };
        let causes = blame.resolve(&victim, |thread| sites.thread_comm(thread.tgid, thread.tid));
        Some(causes)
    }
}

#[cfg(test)]
mod tests;
