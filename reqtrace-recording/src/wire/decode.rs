//! Payloads of blocks in, events out.

use super::columns::Rows;
use super::interval::WireInterval;
use super::numbers::{self, Numbered};
use super::open::WireOpen;
use super::{Events, Malformed, Tick, entry_kind, legacy};
use crate::event::{Event, Header, Interval, Open, Window};
use serde::de::DeserializeOwned;

/// The header in a payload of this version of the format.
pub(crate) fn decode_header(version: u16, payload: &[u8]) -> Result<Header, Malformed> {
    match version {
        legacy::VERSION => legacy::header(payload),
        _ => numbers::read(payload),
    }
}

/// The fields of an event.
fn read<T: Numbered + DeserializeOwned>(version: u16, fields: &[u8]) -> Result<T, Malformed> {
    match version {
        legacy::VERSION => legacy::read(fields),
        _ => numbers::read(fields),
    }
}

fn window(version: u16, fields: &[u8]) -> Result<Window, Malformed> {
    match version {
        legacy::VERSION => legacy::window(fields),
        _ => numbers::read(fields),
    }
}

/// Hands the events of a payload to `each`, in order. Returns how many were of a kind that is not
/// known.
pub(crate) fn decode_events<E>(
    version: u16,
    payload: &[u8],
    each: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<Result<u64, Malformed>, E> {
    let events = match version {
        legacy::VERSION => legacy::events(payload),
        _ => numbers::read::<Events>(payload),
    };
    let Ok(events) = events else {
        return Ok(Err(Malformed));
    };
    let count = events.kind.len();
    if events.after.len() != count || events.fields.len() != count {
        return Ok(Err(Malformed));
    }
    let mut rows = events.requests.rows();
    let (mut row, mut unknown) = (0, 0);
    let places = events.after.iter().zip(&events.kind);
    for ((&after, &kind), fields) in places.zip(events.fields.iter()) {
        let Ok(fields) = fields else {
            return Ok(Err(Malformed));
        };
        let before = (after as usize).min(events.requests.len());
        if let Err(malformed) = requests(&mut rows, before - row.min(before), each)? {
            return Ok(Err(malformed));
        }
        row = row.max(before);
        match one(version, kind, fields, each)? {
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
    version: u16,
    kind: u32,
    fields: &[u8],
    each: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<Result<bool, Malformed>, E> {
    macro_rules! hand_out {
        ($event:ident) => {
            hand_out!($event, read(version, fields))
        };
        ($event:ident, $read:expr) => {
            match $read {
                Ok(value) => each(Event::$event(&value))?,
                Err(malformed) => return Ok(Err(malformed)),
            }
        };
    }
    match kind {
        entry_kind::PROCESS => hand_out!(Process),
        entry_kind::OBJECT => hand_out!(Object),
        entry_kind::MAPPING => hand_out!(Mapping),
        entry_kind::FILE => hand_out!(File),
        entry_kind::THREAD => hand_out!(Thread),
        entry_kind::NAME => hand_out!(Name),
        entry_kind::STACK => hand_out!(Stack),
        entry_kind::AWAY => hand_out!(Away),
        entry_kind::CPU_WAIT => match numbers::read(fields) {
            Ok(wait) => each(Event::CpuWait(&wait))?,
            Err(malformed) => return Ok(Err(malformed)),
        },
        entry_kind::DISK => hand_out!(Disk, numbers::read(fields)),
        entry_kind::UNRECORDED => hand_out!(Unrecorded, numbers::read(fields)),
        entry_kind::ORIGIN => hand_out!(Origin),
        entry_kind::SAMPLE => hand_out!(Sample),
        entry_kind::WINDOW => hand_out!(Window, window(version, fields)),
        entry_kind::SENT => hand_out!(Sent, numbers::read(fields)),
        entry_kind::CLOCK => hand_out!(Clock, numbers::read(fields)),
        entry_kind::LOSS => hand_out!(Loss),
        entry_kind::COST => hand_out!(Cost),
        entry_kind::END => hand_out!(End),
        entry_kind::FUTEX => hand_out!(Futex),
        entry_kind::STACKS_ANEW => each(Event::StacksAnew)?,
        entry_kind::OPEN => {
            let open = read::<WireOpen>(version, fields).and_then(Open::try_from);
            hand_out!(Open, open);
        }
        entry_kind::INTERVAL => {
            let interval = read::<WireInterval>(version, fields).map(Interval::from);
            hand_out!(Interval, interval);
        }
        entry_kind::TICK => match read::<Tick>(version, fields) {
            Ok(tick) => each(Event::Tick(tick.now_ns))?,
            Err(malformed) => return Ok(Err(malformed)),
        },
        _ => return Ok(Ok(false)),
    }
    Ok(Ok(true))
}
