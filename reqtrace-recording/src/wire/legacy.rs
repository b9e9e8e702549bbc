//! Recordings of before fields had numbers: payloads of version 1 in, what they are today out.
//!
//! Its structures are their fields in order, in the form of `postcard`; bytes that are missing at the end are zeros.
//! So the order of fields in the types of events, and in `Columns`, `WireOpen` and `WireInterval`, is that of version
//! 1, and a field that it does not have is skipped by serde. When nobody has such recordings any more this file goes,
//! and with it `Deserialize` of all types that have numbers.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Malformed;
use super::columns::Columns;
use super::{Events, bounded};
use crate::event::{
    Header, LengthHistogram, LengthsOf, MarkerCount, SYSCALLS, StackSum, StackSumKey, SumOf,
    TypeTotals, Window,
};

/// The version of the format.
pub(super) const VERSION: u16 = 1;

/// More than the zeros of any fields that a payload may lack.
const ZEROS: usize = 256;

/// Reads a value; bytes behind it are of a later version.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    if let Ok((value, _)) = postcard::take_from_bytes(bytes) {
        return Ok(value);
    }
    let mut longer = Vec::with_capacity(bytes.len() + ZEROS);
    longer.extend_from_slice(bytes);
    longer.resize(bytes.len() + ZEROS, 0);
    let (value, _) = postcard::take_from_bytes(&longer).map_err(|_| Malformed)?;
    Ok(value)
}

/// The header: all of these recordings are of x86-64.
pub(super) fn header(payload: &[u8]) -> Result<Header, Malformed> {
    Ok(Header {
        architecture: "x86_64".to_owned(),
        syscalls: SYSCALLS.to_owned(),
        ..read(payload)?
    })
}

#[derive(Deserialize)]
struct OldEvents {
    #[serde(deserialize_with = "bounded")]
    entries: Vec<Entry>,
    requests: Columns,
}

/// An event that is no request.
#[derive(Deserialize)]
struct Entry {
    after: u32,
    kind: u32,
    bytes: Vec<u8>,
}

/// The payload of a block of events.
pub(super) fn events(payload: &[u8]) -> Result<Events, Malformed> {
    let old: OldEvents = read(payload)?;
    let mut events = Events {
        requests: old.requests,
        ..Events::default()
    };
    for entry in old.entries {
        events.after.push(entry.after);
        events.kind.push(entry.kind);
        events
            .fields
            .push(|fields| fields.extend_from_slice(&entry.bytes));
    }
    Ok(events)
}

/// A window, with what came later in tables beside the sums.
#[derive(Deserialize)]
struct OldWindow {
    until_ns: u64,
    #[serde(deserialize_with = "bounded")]
    totals: Vec<TypeTotals>,
    sums: Vec<(StackSumKey, StackSum)>,
    histograms: Vec<(StackSumKey, LengthHistogram)>,
    /// By index into `sums`.
    bytes: Vec<(u32, u64)>,
    /// Parked and queued ns, unknown keys, and requests that ran elsewhere, by request type.
    keyed: Vec<(u64, u64, u64, u64)>,
    /// Longest times on the run queue, by index into `sums`.
    queued: Option<Vec<(u32, u64)>>,
    markers: Vec<MarkerCount>,
}

/// A window.
pub(super) fn window(fields: &[u8]) -> Result<Window, Malformed> {
    let old: OldWindow = read(fields)?;
    let sums = old.sums.into_iter();
    let histograms = old.histograms.into_iter();
    let mut window = Window {
        until_ns: old.until_ns,
        totals: old.totals,
        sums: sums.map(|(key, sum)| SumOf { key, sum }).collect(),
        histograms: histograms
            .map(|(key, lengths)| LengthsOf { key, lengths })
            .collect(),
        longest_apart: old.queued.is_some(),
        markers: old.markers,
    };
    for (index, bytes) in old.bytes {
        if let Some(of) = window.sums.get_mut(index as usize) {
            of.sum.bytes = bytes;
        }
    }
    for (index, ns) in old.queued.into_iter().flatten() {
        if let Some(of) = window.sums.get_mut(index as usize) {
            of.sum.longest_run_queue_ns = ns;
        }
    }
    for (totals, keyed) in window.totals.iter_mut().zip(old.keyed) {
        (
            totals.parked_ns,
            totals.queued_ns,
            totals.unknown_keys,
            totals.running_elsewhere,
        ) = keyed;
    }
    Ok(window)
}
