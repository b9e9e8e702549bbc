//! Blame: intervals as they come in; because of whom a request was blocked out, when its row is written.
//! All that was over before its end has been seen by then.

use std::sync::Arc;

use reqtrace_base::plain::Plain;
use reqtrace_common::record::StackId;
use reqtrace_recording::{
    self as recording, AddressSpace, AwayInterval, CpuWait, DiskUse, Holder, Interval, Origin,
    RequestOf, Unrecorded, WakerIs,
};

use super::Aggregator;
use super::order::Row;
use super::places::Spot;
use super::sites::Sites;
use crate::blame::{
    Away, By, Causes, Culprit, Kept, Naming, Parts, Place, ThreadId, Timelines, Victim, WokenBy,
    of_stack, woken_by,
};
use crate::error::Result;
use crate::report::{Exporter, IntervalKind, IntervalRow, IntervalWaker, RequestKey};

impl Aggregator {
    /// Takes an interval. Its names are known now, and may not be later.
    pub(super) fn interval(&mut self, interval: &Interval) {
        self.trace.seen(interval.in_ns);
        let Some(blame) = &mut self.blame else {
            return;
        };
        let sites = self.sites.get_mut();
        let is_block = matches!(interval.kind, recording::IntervalKind::Blocked { .. });
        let class = if is_block {
            let request_type = interval.request.map(|of| of.request_type);
            sites.class(request_type, interval.space, &interval.site)
        } else {
            None
        };
        let follows = blame.interval(interval, class, |stack| {
            of_stack(sites.kernel_side(stack).frames())
        });
        self.malformed += u64::from(!follows);
    }

    /// Takes a time in which no thread ran a request.
    pub(super) fn away(&mut self, away: &AwayInterval) {
        self.trace.seen(away.until_ns);
        let Some(blame) = &mut self.blame else {
            return;
        };
        let (kind, place) = match self.spots.spot(away.request.request_type, away.place) {
            Spot::Parked(place) => (Away::Parked, place),
            Spot::Queued(place) => (Away::Queued, place),
        };
        let sites = self.sites.get_mut();
        let by = match (kind, away.woken_from) {
            (Away::Queued, _) => WokenBy::Other,
            (Away::Parked, _) if self.spots.is_sleep(place) => WokenBy::Timer,
            (Away::Parked, None) => WokenBy::Other,
            (Away::Parked, Some(from)) => blame.woken_by(from, || {
                woken_by(sites.user_side(from.space, from.user_stack).frames())
            }),
        };
        let follows = blame.away(away, kind, place, by);
        self.malformed += u64::from(!follows);
    }

    /// Takes what a parked request went on with.
    pub(super) fn origin(&mut self, origin: &Origin) {
        if let Some(blame) = &mut self.blame {
            let is_known = blame.origin(origin);
            self.malformed += u64::from(!is_known);
        }
    }

    /// Takes a wait for a CPU.
    pub(super) fn cpu_wait(&mut self, wait: &CpuWait) {
        if let Some(blame) = &mut self.blame {
            let follows = blame.cpu_wait(wait);
            self.malformed += u64::from(!follows);
        }
    }

    /// Takes what a disk did.
    pub(super) fn disk(&mut self, disk: &DiskUse) {
        if let Some(blame) = &mut self.blame {
            blame.disk(disk);
        }
    }

    /// Takes a request that is not recorded.
    pub(super) fn unrecorded(&mut self, request: &Unrecorded) {
        let Unrecorded {
            tgid, tid, comm, ..
        } = *request;
        self.sites.get_mut().serves(tgid, tid, comm);
        let shows_all = self.slow.is_none();
        if let Some(samples) = &mut self.samples {
            samples.unrecorded(request, shows_all);
        }
        if let Some(blame) = &mut self.blame {
            blame.unrecorded(request);
        }
    }

    /// Splits the blocked time of a request by root cause; `None` without blame. `wants_blames`: which requests held it up is
    /// to be known, too.
    pub(super) fn resolve(&mut self, row: &Row, wants_blames: bool) -> Option<Causes> {
        self.blames.clear();
        let blames = wants_blames.then_some(&mut self.blames);
        let trace = &self.trace;
        let blame = self.blame.as_mut()?;
        let sites = self.sites.get_mut();
        let victim = Victim {
            id: row.id,
            thread: thread_of(row),
            of: of(row),
            start_unix_ns: self.trace.unix_ns(row.begin_ns),
            end_ns: row.end_ns,
            label: row.group(),
            ledger: &row.ledger,
            weight: row.weight,
            is_complete: row.incomplete.is_none(),
        };
        let page = self.page.as_mut();
        let verdict = self.verdict.as_mut();
        let causes = blame.resolve(&victim, sites, |blame, parts, sites| {
            if let Some(page) = page {
                let is_named = |kept: &Kept| blame.is_named(&kept.place);
                page.intervals(&victim, parts, blame.timelines(), is_named, sites);
            }
            if let Some(blames) = blames {
                held_up_by(&victim, parts, blame.timelines(), blames, |begin_ns| {
                    trace.since_start_ns(begin_ns)
                });
            }
            if let Some(verdict) = verdict {
                verdict.serves(victim.thread, &row.attributes);
                if victim.is_complete {
                    verdict.add(&victim, parts, blame.timelines());
                }
            }
        });
        if blame.is_full() {
            blame.settle(sites);
        }
        Some(causes)
    }
}

impl Aggregator {
    /// Hands the intervals of a request to the exporters that take them.
    pub(super) fn write_intervals(
        &mut self,
        row: &Row,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<()> {
        let ns = row.ledger.latency_ns;
        if !exporters.iter().any(|of| of.wants_intervals_of(ns)) {
            return Ok(());
        }
        let Some(blame) = &self.blame else {
            return Ok(());
        };
        let sites = self.sites.get_mut();
        let timelines = blame.timelines();
        for kept in timelines.of_request(thread_of(row), of(row), row.end_ns) {
            let place = match blame.is_named(&kept.place) && kept.away.is_none() {
                true => sites.short(kept.place.space, &kept.place.site),
                false => Arc::from(""),
            };
            let class = kept.class.map_or("", |class| match kept.away {
                Some(_) => self.spots.names.name_behind(blame.classes(), class),
                None => {
                    let names = sites.classifier.names();
                    names.get(usize::from(class)).map_or("", String::as_str)
                }
            });
            let holder = match kept.holder {
                Holder::Thread(tid) => Some(ThreadId { tid, ..kept.thread }),
                _ => None,
            };
            let held_in = holder.and_then(|holder| {
                let of = timelines.request_at(holder, kept.out_ns)?;
                Some(timelines.request_id(holder, of))
            });
            let waker_comm = match kept.by {
                Some(By::Thread(thread, _)) => sites.thread_comm(thread.tgid, thread.tid),
                _ => Plain::default(),
            };
            let interval = IntervalRow {
                request_id: row.id,
                request: &self.types[row.request_type].name,
                latency_ns: row.ledger.latency_ns,
                pid: row.pid,
                tid: kept.thread.tid,
                is_keyed: self.spots.is_keyed(row.request_type as u32),
                kind: match (kept.away, kept.by) {
                    (Some(Away::Parked), _) => IntervalKind::Parked,
                    (Some(Away::Queued), _) => IntervalKind::Queued,
                    (None, Some(_)) => IntervalKind::Blocked,
                    (None, None) => IntervalKind::Preempted,
                },
                class,
                start_unix_ns: self.trace.unix_ns(kept.out_ns),
                off_ns: kept.off_ns(),
                run_queue_ns: kept.run_queue_ns(),
                waker: kept.by.map(|by| waker(timelines, by)),
                waker_comm: &waker_comm,
                futex: kept.futex,
                holder_tid: holder.map_or(0, |holder| holder.tid),
                holder_request_id: held_in.unwrap_or(0),
                user_stack: kept.place.site.user_stack,
                kernel_stack: kept.place.site.kernel_stack,
                place: &place,
            };
            for exporter in exporters.iter_mut() {
                exporter.interval(&interval)?;
            }
        }
        Ok(())
    }
}

/// The requests that held one up, at any depth, and those that had a lock when a wait for it began.
fn held_up_by(
    victim: &Victim<'_>,
    parts: &Parts<'_>,
    timelines: &Timelines,
    all: &mut Vec<RequestKey>,
    since_start_ns: impl Fn(u64) -> i64,
) {
    let ended = parts.pieces.iter().map(|piece| piece.outcome.culprit);
    let waited = parts.waits.iter().map(|wait| wait.whose);
    let requests = ended.chain(waited).filter_map(|culprit| match culprit {
        Culprit::Request(thread, request_type, begin_ns) => {
            let of = RequestOf {
                begin_ns,
                request_type,
            };
            Some((thread, of))
        }
        _ => None,
    });
    let held = parts.waits.iter().filter_map(|wait| {
        let Holder::Thread(tid) = wait.kept.holder else {
            return None;
        };
        let thread = ThreadId {
            tid,
            ..wait.kept.thread
        };
        Some((thread, timelines.request_at(thread, wait.kept.out_ns)?))
    });
    let key = |(thread, of): (ThreadId, RequestOf)| RequestKey {
        pid: thread.tgid,
        tid: if timelines.is_keyed(of) {
            0
        } else {
            thread.tid
        },
        since_start_ns: since_start_ns(of.begin_ns),
    };
    let own = key((victim.thread, victim.of));
    all.extend(requests.chain(held).map(key).filter(|key| *key != own));
    all.sort_unstable();
    all.dedup();
}

fn waker(timelines: &Timelines, by: By) -> IntervalWaker {
    match by {
        By::Nobody(_) => IntervalWaker::Unknown,
        By::Interrupt(cause) => IntervalWaker::Interrupt(cause),
        By::Thread(thread, is) => {
            let request = match is {
                WakerIs::InRequest(of) => Some(of),
                _ => None,
            };
            IntervalWaker::Thread {
                pid: thread.tgid,
                tid: thread.tid,
                in_request: request.is_some(),
                request_id: request.map_or(0, |of| timelines.request_id(thread, of)),
            }
        }
    }
}

fn thread_of(row: &Row) -> ThreadId {
    ThreadId {
        tgid: row.pid,
        tid: row.tid,
    }
}

fn of(row: &Row) -> RequestOf {
    RequestOf {
        begin_ns: row.begin_ns,
        request_type: row.request_type as u32,
    }
}

impl Naming for Sites {
    fn comm(&self, thread: ThreadId) -> Plain {
        self.thread_comm(thread.tgid, thread.tid)
    }

    fn frames(&mut self, place: &Place) -> [Vec<String>; 2] {
        self.frames_of(place.space, &place.site)
    }

    fn user_frames(&mut self, space: AddressSpace, id: StackId) -> Vec<String> {
        let mut frames = self.user_side(space, id).outermost_first();
        frames.reverse();
        frames
    }

    fn texts(&mut self, space: Option<AddressSpace>, id: StackId) -> Vec<u32> {
        Self::texts(self, space, id)
    }

    fn number(&mut self, text: &str) -> u32 {
        Self::number(self, text)
    }

    fn text(&self, number: u32) -> &str {
        Self::text(self, number)
    }
}

#[cfg(test)]
mod tests;
