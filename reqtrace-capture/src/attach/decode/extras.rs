//! What a request has beside its record: records that come before it in, its places, numbers and texts out.
//!
//! The record of a request may get lost, and so may its texts: what waits for too long is let go and counted.

use std::mem::{offset_of, size_of};
use std::net::{Ipv6Addr, SocketAddr};

use reqtrace_common::clocks::Clocks;
use reqtrace_common::keyed::Job;
use reqtrace_common::marker::{MAX_ATTRIBUTES, MAX_TEXT};
use reqtrace_common::origin::{Sender as SenderRecord, found, sender_is};
use reqtrace_common::record::{
    AwayRecord, ExtraRecord, MAX_PARKS, OriginRecord, PLACES, ParkSlot, STACK_NONE, TextHead,
    waker_context, waker_is,
};
use reqtrace_common::thread::RequestState;
use reqtrace_recording::{
    Attribute, Away, AwayInterval, LostCpu, NumberOf, Origin, Park, Request, Sender, TextOf, Value,
    Waker, WokenFrom,
};
use rustc_hash::FxHashMap;

use super::{Fields, Malformed, request_type};

/// Requests whose texts are kept while they run. A text is read when its event comes, and given to its request at
/// the end.
const MOST: usize = 1 << 17;

/// Bytes at which texts end, by request type and index of the attribute.
pub(crate) type Ends = Vec<Vec<Option<u8>>>;

/// What tells requests apart whose texts have come: process and time.
pub(crate) type Stamp = (u32, u64);

/// What belongs to requests that have not come yet.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    ends: Ends,
    /// By thread and begin.
    pending: FxHashMap<(u32, u64), Extra>,
    texts: FxHashMap<Stamp, Vec<TextOf>>,
}

/// What a request has beside its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Where it was while no thread ran it.
    pub(crate) away: Vec<Away>,
    /// Of its parked time what has a stack.
    pub(crate) parks: Vec<Park>,
    /// How often another thread went on with it.
    pub(crate) moves: u32,
    /// Attributes that are numbers.
    pub(crate) numbers: Vec<NumberOf>,
    /// Attributes that are texts.
    pub(crate) texts: Vec<TextOf>,
    stamp: Stamp,
    /// When the data came that it began with, `CLOCK_MONOTONIC` ns; 0: not known.
    arrived_ns: u64,
    /// What took its CPU.
    pub(crate) lost: LostCpu,
}

impl Extra {
    /// The attributes, in the order of their indices.
    pub(crate) fn attributes(&self) -> Vec<Attribute<'_>> {
        let numbers = self.numbers.iter().map(|of| Attribute {
            index: of.index,
            value: Value::Number(of.number),
        });
        let texts = self.texts.iter().map(|text| Attribute {
            index: text.index,
            value: Value::Text {
                bytes: &text.bytes,
                is_cut: text.is_cut,
            },
        });
        let mut all: Vec<Attribute<'_>> = numbers.chain(texts).collect();
        all.sort_unstable_by_key(|attribute| attribute.index);
        all
    }

    /// How long its data had been there when it began, ns; `None`: not known. A request with a key has a begin
    /// that may be some nanoseconds before the clock.
    pub(crate) fn waited_before_ns(&self, begin_ns: u64) -> Option<u64> {
        (self.arrived_ns != 0).then(|| begin_ns.saturating_sub(self.arrived_ns))
    }

    /// What a request has that is open.
    pub(super) fn of_state(request: &RequestState) -> Self {
        if request.keyed.has_extra == 0 {
            return Self::default();
        }
        Self::of(&request.keyed.extra)
    }

    fn of(record: &ExtraRecord) -> Self {
        let places = record.away_ns.iter().zip(&record.aways);
        let away = (0..).zip(places).filter(|(_, (_, count))| **count != 0);
        let numbers = (0..).zip(&record.numbers);
        let numbers = numbers.filter(|(index, _)| record.numbers_set & 1 << index != 0);
        Self {
            away: away
                .map(|(place, (&ns, &count))| Away { place, count, ns })
                .collect(),
            parks: parks(record),
            moves: record.moves,
            numbers: numbers
                .map(|(index, &number)| NumberOf { index, number })
                .collect(),
            texts: Vec::new(),
            stamp: (record.tgid, record.stamp_ns),
            arrived_ns: record.arrived_ns,
            lost: LostCpu {
                interrupts_ns: record.lost.interrupts_ns,
                softirqs_ns: record.lost.softirqs_ns,
                steal_ns: record.lost.steal_ns,
            },
        }
    }
}

/// Stacks at which it was parked.
fn parks(record: &ExtraRecord) -> Vec<Park> {
    let used = record.parks.iter().take(record.parks_used as usize);
    let used = used.filter(|park| park.count != 0);
    used.map(|park| Park {
        stack: park.stack,
        place: park.place,
        count: park.count,
        ns: park.ns,
    })
    .collect()
}

impl Extras {
    /// Texts end before these bytes.
    pub(crate) fn new(ends: Ends) -> Self {
        Self {
            ends,
            ..Self::default()
        }
    }

    /// Takes an [`ExtraRecord`].
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are not one of this version.
    pub(crate) fn extra(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        macro_rules! at {
            ($field:ident) => {
                offset_of!(ExtraRecord, $field)
            };
        }
        let fields = Fields(bytes);
        fields.bytes(0, at!(parks))?;
        let mut record = ExtraRecord {
            tgid: fields.u32(at!(tgid))?,
            tid: fields.u32(at!(tid))?,
            moves: fields.u32(at!(moves))?,
            begin_ns: fields.u64(at!(begin_ns))?,
            stamp_ns: fields.u64(at!(stamp_ns))?,
            numbers_set: fields.u32(at!(numbers_set))?,
            arrived_ns: fields.u64(at!(arrived_ns))?,
            lost: Clocks {
                interrupts_ns: fields.u64(at!(lost) + offset_of!(Clocks, interrupts_ns))?,
                softirqs_ns: fields.u64(at!(lost) + offset_of!(Clocks, softirqs_ns))?,
                steal_ns: fields.u64(at!(lost) + offset_of!(Clocks, steal_ns))?,
            },
            parks_used: fields.count(at!(parks_used), MAX_PARKS)? as u32,
            is_withheld: fields.u32(at!(is_withheld))?,
            ..ExtraRecord::ZERO
        };
        for (index, park) in (0..record.parks_used as usize).zip(&mut record.parks) {
            let first = at!(parks) + index * size_of::<ParkSlot>();
            *park = ParkSlot {
                stack: fields.u64(first + offset_of!(ParkSlot, stack))?,
                ns: fields.u64(first + offset_of!(ParkSlot, ns))?,
                place: fields.u32(first + offset_of!(ParkSlot, place))?,
                count: fields.u32(first + offset_of!(ParkSlot, count))?,
            };
        }
        for place in 0..PLACES {
            record.away_ns[place] = fields.u64(at!(away_ns) + 8 * place)?;
            record.aways[place] = fields.u32(at!(aways) + 4 * place)?;
        }
        for index in 0..MAX_ATTRIBUTES {
            record.numbers[index] = fields.u64(at!(numbers) + 8 * index)?;
        }
        if record.is_withheld != 0 {
            self.texts.remove(&(record.tgid, record.stamp_ns));
            return Ok(());
        }
        if self.pending.len() >= MOST {
            // Their records were lost, which the kernel has counted.
            self.pending.clear();
        }
        let key = (record.tid, record.begin_ns);
        self.pending.insert(key, Extra::of(&record));
        Ok(())
    }

    /// Takes a text. Returns how many requests lost theirs for it.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are not one of this version.
    pub(crate) fn text(&mut self, bytes: &[u8]) -> Result<u64, Malformed> {
        macro_rules! at {
            ($field:ident) => {
                offset_of!(TextHead, $field)
            };
        }
        let fields = Fields(bytes);
        let len = fields.count(at!(len), MAX_TEXT)?;
        let request_type = request_type(fields.u32(at!(request_type))?)?;
        let index = fields.u32(at!(index))?;
        let mut text = fields.bytes(size_of::<TextHead>(), len)?;
        let mut is_cut = fields.u32(at!(is_cut))? != 0;
        let ends = self.ends.get(request_type as usize);
        let end = ends.and_then(|ends| ends.get(index as usize)).copied();
        if let Some(end) = end.flatten()
            && let Some(position) = text.iter().position(|byte| *byte == end)
        {
            text = &text[..position];
            is_cut = false;
        }
        let mut lost = 0;
        if self.texts.len() >= MOST {
            lost = self.let_go();
        }
        let stamp = (fields.u32(at!(tgid))?, fields.u64(at!(stamp_ns))?);
        let texts = self.texts.entry(stamp).or_default();
        texts.retain(|text| text.index != index);
        texts.push(TextOf {
            index,
            bytes: text.to_vec(),
            is_cut,
        });
        Ok(lost)
    }

    /// Lets the older half of the texts go. Returns of how many requests they were.
    fn let_go(&mut self) -> u64 {
        let mut stamps: Vec<u64> = self.texts.keys().map(|(_, stamp)| *stamp).collect();
        let middle = stamps.len() / 2;
        let (_, middle, _) = stamps.select_nth_unstable(middle);
        let middle = *middle;
        let before = self.texts.len();
        self.texts.retain(|(_, stamp), _| *stamp >= middle);
        (before - self.texts.len()) as u64
    }

    /// What belongs to a request; `None` when there is nothing.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the ledger does not close.
    pub(crate) fn take(&mut self, request: &Request<'_>) -> Result<Option<Extra>, Malformed> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        let Some(mut extra) = self.pending.remove(&(request.tid, request.begin_ns)) else {
            return Ok(None);
        };
        if let Some(texts) = self.texts.remove(&extra.stamp) {
            extra.texts = texts;
        }
        closes(request, &extra.away)?;
        Ok(Some(extra))
    }

    /// The texts of a request that is open.
    pub(crate) fn texts_of(&self, stamp: Stamp) -> Vec<TextOf> {
        self.texts.get(&stamp).cloned().unwrap_or_default()
    }
}

/// Checks that there is room for the time in which no thread ran it.
pub(super) fn closes(request: &Request<'_>, away: &[Away]) -> Result<(), Malformed> {
    let away = away
        .iter()
        .try_fold(0_u64, |sum, away| sum.checked_add(away.ns));
    let all = away.and_then(|away| away.checked_add(request.off_cpu_ns()));
    match all {
        Some(all) if all <= request.latency_ns() => Ok(()),
        _ => Err(Malformed::Ledger),
    }
}

/// Decodes where a request was while no thread ran it. What it waited until a thread took the job that it was parked for
/// comes before the rest, if it did.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not an [`AwayRecord`] of this version.
pub(crate) fn away(bytes: &[u8]) -> Result<(Option<AwayInterval>, AwayInterval), Malformed> {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(AwayRecord, $field)
        };
        (ran.$field:ident) => {
            offset_of!(AwayRecord, ran.$field)
        };
    }
    let fields = Fields(bytes);
    fields.bytes(0, size_of::<AwayRecord>())?;
    let (since_ns, until_ns) = (fields.u64(at!(since_ns))?, fields.u64(at!(until_ns))?);
    if until_ns < since_ns {
        return Err(Malformed::Interval);
    }
    let place = fields.u32(at!(place))?;
    if place as usize >= PLACES {
        return Err(Malformed::Count(place));
    }
    let (by_request, by_helper_since_ns) = match fields.u32(at!(by_is))? {
        waker_is::UNKNOWN => (None, 0),
        waker_is::HELPER => (None, fields.u64(at!(by_begin_ns))?),
        waker_is::IN_REQUEST => {
            let request = fields.request(at!(by_begin_ns), at!(by_request_type))?;
            (Some(request), 0)
        }
        other => return Err(Malformed::Waker(other)),
    };
    let space = fields.space(at!(tgid), at!(exec_generation))?;
    let job = Job::decode(fields.u64(at!(job))?);
    let woken_from = match fields.u64(at!(by_stack))? {
        STACK_NONE => None,
        user_stack => Some(WokenFrom { space, user_stack }),
    };
    let mut away = AwayInterval {
        space,
        request: fields.request(at!(request_begin_ns), at!(request_type))?,
        from_tid: fields.u32(at!(from_tid))?,
        place,
        is_queued: fields.u32(at!(queued))? != 0,
        since_ns,
        until_ns,
        by_tid: fields.u32(at!(by_tid))?,
        by_request,
        is_ready: fields.u32(at!(is_ready))? != 0,
        woken_from,
        by_helper_since_ns,
        goes_on: fields.u32(at!(goes_on))? != 0,
        ran: match fields.u64(at!(ran.begin_ns))? {
            0 => None,
            _ => Some(fields.request(at!(ran.begin_ns), at!(ran.request_type))?),
        },
        ran_until_ns: fields.u64(at!(ran.until_ns))?,
    };
    let had_ns = job.since_ns();
    if had_ns == 0 || had_ns >= until_ns {
        return Ok((None, away));
    }
    if job.queue() as usize >= PLACES || job.place() as usize >= PLACES {
        return Err(Malformed::Count(job.queue()));
    }
    away.place = job.place();
    let waits = had_ns > since_ns;
    away.since_ns = had_ns.max(since_ns);
    let before = AwayInterval {
        place: job.queue(),
        since_ns,
        until_ns: had_ns,
        woken_from: None,
        ..away
    };
    Ok((waits.then_some(before), away))
}

/// Decodes what a parked request went on with.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not an [`OriginRecord`] of this version.
pub(crate) fn origin(bytes: &[u8]) -> Result<Origin, Malformed> {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(OriginRecord, $field)
        };
        (sender.$field:ident) => {
            at!(sender) + offset_of!(SenderRecord, $field)
        };
    }
    let fields = Fields(bytes);
    fields.bytes(0, size_of::<OriginRecord>())?;
    let sender = match (fields.u32(at!(found))?, fields.u32(at!(sender.who))?) {
        (found::NO_READ, _) => Sender::NoRead,
        (found::SEVERAL, _) => Sender::SeveralReads,
        (found::LAYERED, _) => Sender::LayeredSocket,
        (found::ONE, sender_is::NOT_SEEN) => Sender::NotSeen,
        (found::ONE, sender_is::THREAD) => {
            let request_type = request_type(fields.u32(at!(sender.request_type))?)?;
            let since_ns = fields.u64(at!(sender.since_ns))?;
            let is = fields.u32(at!(sender.is))?;
            let task = waker_context::TASK;
            let (_, is) = Waker::of(task, is, since_ns, request_type).map_err(Malformed::Waker)?;
            Sender::Thread {
                tgid: fields.u32(at!(sender.tgid))?,
                tid: fields.u32(at!(sender.tid))?,
                is,
            }
        }
        (found::ONE, sender_is::PEER) => {
            let address = fields.bytes(at!(sender.address), 16)?;
            let address: [u8; 16] = address.try_into().map_err(|_| Malformed::Interval)?;
            let port = fields.u32(at!(sender.port))? as u16;
            let address = Ipv6Addr::from(address).to_canonical();
            Sender::Peer(SocketAddr::new(address, port))
        }
        (found::ONE, other) | (other, _) => return Err(Malformed::Waker(other)),
    };
    Ok(Origin {
        space: fields.space(at!(tgid), at!(exec_generation))?,
        request: fields.request(at!(request_begin_ns), at!(request_type))?,
        until_ns: fields.u64(at!(until_ns))?,
        arrived_ns: fields.u64(at!(arrived_ns))?,
        sender,
        sent_ns: fields.u64(at!(sender.sent_ns))?,
    })
}

#[cfg(test)]
mod tests;
