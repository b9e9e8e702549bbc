//! Payloads of blocks in, events out.

use super::columns::Rows;
use super::interval::WireInterval;
use super::open::WireOpen;
use super::{Entry, Events, entry_kind, read};
use crate::event::{Event, Header, Open};

/// A payload that is none, although its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The header in a payload.
pub(crate) fn decode_header(payload: &[u8]) -> Result<Header, Malformed> {
    read(payload)
}

/// Hands the events of a payload to `each`, in order. Returns how many were of a kind that is not
/// known.
pub(crate) fn decode_events<E>(
    payload: &[u8],
    each: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<Result<u64, Malformed>, E> {
    let Ok(events) = read::<Events>(payload) else {
        return Ok(Err(Malformed));
    };
    let mut rows = events.requests.rows();
    let (mut row, mut unknown) = (0, 0);
    for entry in &events.entries {
        let before = (entry.after as usize).min(events.requests.len());
        if let Err(malformed) = requests(&mut rows, before - row.min(before), each)? {
            return Ok(Err(malformed));
        }
        row = row.max(before);
        match one(entry, each)? {
            Ok(true) => {}
            Ok(false) => unknown += 1,
            Err(malformed) => return Ok(Err(malformed)),
        }
    }
    let rest = events.requests.len() - row;
    Ok(requests(&mut rows, rest, each)?.map(|()| unknown))
}

fn requests<E>(
    rows: &mut Rows<'_>,
    count: usize,
    each: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<Result<(), Malformed>, E> {
    for _ in 0..count {
        match rows.next() {
            Ok(request) => each(Event::Request(request))?,
            Err(malformed) => return Ok(Err(malformed)),
        }
    }
    Ok(Ok(()))
}

/// Hands out one entry; false when its kind is not known.
fn one<E>(
    entry: &Entry,
    each: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<Result<bool, Malformed>, E> {
    macro_rules! hand_out {
        ($event:ident) => {
            match read(&entry.bytes) {
                Ok(value) => each(Event::$event(&value))?,
                Err(malformed) => return Ok(Err(malformed)),
            }
        };
    }
    match entry.kind {
        entry_kind::PROCESS => hand_out!(Process),
        entry_kind::OBJECT => hand_out!(Object),
        entry_kind::MAPPING => hand_out!(Mapping),
        entry_kind::FILE => hand_out!(File),
        entry_kind::THREAD => hand_out!(Thread),
        entry_kind::NAME => hand_out!(Name),
        entry_kind::STACK => hand_out!(Stack),
        entry_kind::AWAY => hand_out!(Away),
        entry_kind::ORIGIN => hand_out!(Origin),
        entry_kind::SAMPLE => hand_out!(Sample),
        entry_kind::WINDOW => hand_out!(Window),
        entry_kind::LOSS => hand_out!(Loss),
        entry_kind::COST => hand_out!(Cost),
        entry_kind::END => hand_out!(End),
        entry_kind::FUTEX => hand_out!(Futex),
        entry_kind::STACKS_ANEW => each(Event::StacksAnew)?,
        entry_kind::OPEN => match read::<WireOpen>(&entry.bytes).and_then(Open::try_from) {
            Ok(open) => each(Event::Open(&open))?,
            Err(malformed) => return Ok(Err(malformed)),
        },
        entry_kind::INTERVAL => match read::<WireInterval>(&entry.bytes) {
            Ok(interval) => each(Event::Interval(&interval.into()))?,
            Err(malformed) => return Ok(Err(malformed)),
        },
        entry_kind::TICK => match read(&entry.bytes) {
            Ok(now_ns) => each(Event::Tick(now_ns))?,
            Err(malformed) => return Ok(Err(malformed)),
        },
        _ => return Ok(Ok(false)),
    }
    Ok(Ok(true))
}
