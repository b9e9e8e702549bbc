//! Windows: the kernel's tables in, emptied in time; sums and requests with their names out.

use std::time::Instant;

use log::debug;
use reqtrace_common::loss::Loss;
use reqtrace_recording::{Event, Request, SumOf, Window};

use super::{Follower, NAMING, malformed_record};
use crate::attach::Session;
use crate::attach::decode::{self, Malformed, Record};
use reqtrace_base::error::Result;

/// Requests and sums that are named before it is looked whether the kernel's tables fill up meanwhile:
/// each may have stacks that were not seen before.
const NAMED: usize = 500;
/// Sums, and histograms, in one event: a large table has more of them than a reader takes, and than a block of a file holds.
const PIECE: usize = 1 << 13;

impl Follower<'_> {
    /// Empties the kernel's tables: takes what it has added up, and all stacks, to be named later.
    fn turn(&mut self, session: &mut Session) -> Result<()> {
        let over = session.next_window()?;
        self.taken
            .push(session.take_sums(self.request_types, over)?);
        let collisions = self.names.stacks().take(over)?;
        if collisions > 0 {
            self.stream.lost(Loss::StackCollision.name(), collisions)?;
        }
        Ok(())
    }

    /// Does so when they fill up.
    fn turn_if_due(&mut self, session: &mut Session) -> Result<()> {
        if session.tables_fill_up()? {
            self.turn(session)?;
        }
        Ok(())
    }

    /// Sends what the kernel has added up since the last time, and the names of it.
    ///
    /// What refers to a stack is seen before its copy goes: either an open request still has it before
    /// the windows change, or its record is in the ring and its sum in a window that has ended, or both
    /// were taken before.
    pub(super) fn window(
        &mut self,
        session: &mut Session,
        until_ns: u64,
        at_end: bool,
    ) -> Result<()> {
        let since = Instant::now();
        let left = self.processes.take_unnamed();
        let lets_go = self.names.stacks().is_full();
        if lets_go {
            let in_use = session.stacks_in_use()?;
            self.names.stacks().keep_on(in_use.into_iter());
        }
        self.turn(session)?;
        let took = since.elapsed();
        self.drain(session)?;
        let mut count = 0_usize;
        // While these are named, more may come.
        for sums in std::mem::take(&mut self.taken) {
            let (window, losses) = self.windows.new_in(sums, until_ns);
            for SumOf { key, .. } in &window.sums {
                self.names.sum(key, at_end, &mut self.stream)?;
                count += 1;
                if count.is_multiple_of(NAMED) {
                    self.turn_if_due(session)?;
                }
            }
            for piece in pieces(window) {
                self.stream.send(&Event::Window(&piece))?;
            }
            for (loss, count) in losses {
                self.stream.lost(loss.name(), count)?;
            }
        }
        debug!(
            "{count} sums taken in {took:.0?}, sent in {:.0?}",
            since.elapsed() - took
        );
        self.own_losses(session)?;
        if lets_go {
            self.names.stacks().let_go();
        }
        if self.names.is_full() {
            self.names
                .send_again(&session.files_in_use()?, &mut self.stream)?;
            session.name_files_again()?;
        }
        if !left.is_empty() {
            self.names.forget(&left);
        }
        self.windows.looked(since);
        Ok(())
    }

    /// Names the requests, intervals and samples that wait, and sends them.
    pub(super) fn work_off(&mut self, session: &mut Session) -> Result<()> {
        let mut backlog = std::mem::take(&mut self.backlog);
        for (count, record) in backlog.records().enumerate() {
            if count % NAMED == NAMED - 1 {
                self.turn_if_due(session)?;
            }
            if self.stopper.is_stopped() {
                self.names.until(Instant::now() + NAMING);
            }
            let taken = match decode::record(record) {
                Ok(Record::Interval(bytes)) => match decode::interval(bytes) {
                    Ok(mut interval) => {
                        self.names.interval(&mut interval, &mut self.stream)?;
                        Ok(())
                    }
                    Err(malformed) => Err(malformed),
                },
                Ok(Record::Sample(bytes)) => match decode::sample(bytes) {
                    Ok(sample) => {
                        self.names.sample(&sample, &mut self.stream)?;
                        Ok(())
                    }
                    Err(malformed) => Err(malformed),
                },
                Ok(Record::Extra(bytes)) => self.extras.extra(bytes),
                Ok(Record::Text(bytes)) => match self.extras.text(bytes) {
                    Ok(0) => Ok(()),
                    Ok(lost) => {
                        self.stream.lost(Loss::TextRingFull.name(), lost)?;
                        Ok(())
                    }
                    Err(malformed) => Err(malformed),
                },
                Ok(Record::Away(bytes)) => match decode::away(bytes) {
                    Ok((before, away)) => {
                        for away in before.iter().chain([&away]) {
                            self.names.away(away, &mut self.stream)?;
                        }
                        Ok(())
                    }
                    Err(malformed) => Err(malformed),
                },
                Ok(Record::CpuWait(bytes)) => match decode::cpu_wait(bytes) {
                    Ok(wait) => self.names.cpu_wait(wait, &mut self.stream).map(Ok)?,
                    Err(malformed) => Err(malformed),
                },
                Ok(Record::Disk(bytes)) => match decode::disk(bytes) {
                    Ok(disk) => self.stream.send(&Event::Disk(&disk)).map(Ok)?,
                    Err(malformed) => Err(malformed),
                },
                Ok(Record::Unrecorded(bytes)) => match decode::unrecorded(bytes) {
                    Ok(request) => self.stream.send(&Event::Unrecorded(&request)).map(Ok)?,
                    Err(malformed) => Err(malformed),
                },
                Ok(Record::Origin(bytes)) => match decode::origin(bytes) {
                    Ok(origin) => self.stream.send(&Event::Origin(&origin)).map(Ok)?,
                    Err(malformed) => Err(malformed),
                },
                _ => self.request(record)?,
            };
            if let Err(malformed) = taken {
                malformed_record(malformed, &mut self.stream)?;
            }
        }
        backlog.clear();
        self.backlog = backlog;
        Ok(())
    }

    /// Names a request and sends it, with what came before it.
    fn request(&mut self, record: &[u8]) -> Result<Result<(), Malformed>> {
        let request = match self.decoder.request(record) {
            Ok(request) => request,
            Err(malformed) => return Ok(Err(malformed)),
        };
        self.latecomers.seen(request.space.tgid);
        let mut extra = self.extras.take(&request);
        if let Ok(Some(extra)) = &mut extra {
            let of = (request.space, request.request_type);
            self.names
                .symbols_of(of, &mut extra.numbers, &mut extra.texts);
        }
        let parks = extra.as_ref().ok().and_then(Option::as_ref);
        let parks = parks.map_or(&[][..], |extra| &extra.parks);
        let request = Request { parks, ..request };
        self.names.request(&request, &mut self.stream)?;
        match &extra {
            Ok(None) => self.stream.request(request)?,
            Ok(Some(extra)) => self.stream.request(Request {
                away: &extra.away,
                moves: extra.moves,
                attributes: &extra.attributes(),
                waited_before_ns: extra.waited_before_ns(request.begin_ns),
                lost: extra.lost,
                ..request
            })?,
            Err(malformed) => return Ok(Err(*malformed)),
        }
        Ok(Ok(()))
    }
}

/// A window as events: the first has all that is not of stacks.
fn pieces(mut window: Window) -> impl Iterator<Item = Window> {
    let mut sums = std::mem::take(&mut window.sums).into_iter();
    let mut histograms = std::mem::take(&mut window.histograms).into_iter();
    let later = Window {
        until_ns: window.until_ns,
        longest_apart: window.longest_apart,
        ..Window::default()
    };
    let mut first = Some(window);
    std::iter::from_fn(move || {
        let is_over = sums.as_slice().is_empty() && histograms.as_slice().is_empty();
        let piece = match first.take() {
            Some(first) => first,
            None if is_over => return None,
            None => later.clone(),
        };
        Some(Window {
            sums: sums.by_ref().take(PIECE).collect(),
            histograms: histograms.by_ref().take(PIECE).collect(),
            ..piece
        })
    })
}

#[cfg(test)]
mod tests {
    use reqtrace_recording::{LengthsOf, MarkerCount, StackSumKey, TypeTotals};

    use super::*;

    fn window(sums: usize, histograms: usize) -> Window {
        let key = |tgid: usize| StackSumKey {
            tgid: tgid as u32,
            ..StackSumKey::default()
        };
        let sum = |tgid| SumOf {
            key: key(tgid),
            ..SumOf::default()
        };
        let lengths = |tgid| LengthsOf {
            key: key(tgid),
            ..LengthsOf::default()
        };
        Window {
            until_ns: 7,
            totals: vec![TypeTotals::ZERO],
            sums: (0..sums).map(sum).collect(),
            histograms: (0..histograms).map(lengths).collect(),
            longest_apart: true,
            markers: vec![MarkerCount::default()],
        }
    }

    #[test]
    fn a_window_with_many_sums_comes_in_pieces() {
        for (sums, histograms, wanted) in [
            (0, 0, 1),
            (PIECE, PIECE, 1),
            (PIECE + 1, 0, 2),
            (5, 3 * PIECE, 3),
            (131_073, 131_073, 17),
        ] {
            let whole = window(sums, histograms);
            let all: Vec<Window> = pieces(whole.clone()).collect();
            assert_eq!(all.len(), wanted);
            assert_eq!(all[0].totals, whole.totals);
            assert_eq!(all[0].markers, whole.markers);
            for piece in &all[1..] {
                assert!(piece.totals.is_empty() && piece.markers.is_empty());
            }
            for piece in &all {
                assert!(piece.sums.len().max(piece.histograms.len()) <= PIECE);
                assert_eq!((piece.until_ns, piece.longest_apart), (7, true));
            }
            let sums = all.iter().flat_map(|piece| &piece.sums);
            assert!(sums.eq(&whole.sums));
            let histograms = all.iter().flat_map(|piece| &piece.histograms);
            assert!(histograms.eq(&whole.histograms));
        }
    }
}
