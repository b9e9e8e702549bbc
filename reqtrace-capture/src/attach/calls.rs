//! Calls of watched functions: the kernel program's ring in, [`CallRecord`]s in their order out.

use aya::maps::{Array, MapData, RingBuf};
use reqtrace_common::call::{CallRecord, NOTED_ARGUMENTS};
use reqtrace_common::limits::{CALL_RING_BYTES, MAX_CALLERS, MAX_CALLS};

use super::maps::{Maps, map_error};
use reqtrace_base::error::Result;

/// Maps of the object, with the room that they need when calls are noted.
pub(super) const MAPS: [(&str, u32); 2] =
    [("CALLS", CALL_RING_BYTES), ("RUNNING_CALLS", MAX_CALLERS)];

/// Calls as they come.
pub(super) struct Calls {
    ring: RingBuf<MapData>,
    calls: Vec<CallRecord>,
    unnoted: u64,
}

impl Calls {
    /// None yet.
    pub(super) fn new(maps: &mut Maps) -> Result<Self> {
        Ok(Self {
            ring: RingBuf::try_from(maps.take("CALLS")?).map_err(map_error)?,
            calls: Vec::new(),
            unnoted: 0,
        })
    }

    /// Takes those that have come. Behind [`MAX_CALLS`] they are only counted.
    pub(super) fn take(&mut self) {
        while let Some(record) = self.ring.next() {
            match decode(&record) {
                Some(call) if self.calls.len() < MAX_CALLS => self.calls.push(call),
                _ => self.unnoted += 1,
            }
        }
    }

    /// All of them, and how many are not among them.
    pub(super) fn finish(mut self, maps: &Maps) -> Result<(Vec<CallRecord>, u64)> {
        self.take();
        let lost: Array<_, u64> = Array::try_from(maps.map("UNNOTED")?).map_err(map_error)?;
        let lost = lost.get(&0, 0).map_err(map_error)?;
        Ok((self.calls, self.unnoted + lost))
    }
}

fn decode(bytes: &[u8]) -> Option<CallRecord> {
    let mut words = bytes
        .chunks_exact(8)
        .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)));
    let (ids, place) = (words.next()?, words.next()?);
    let mut values = [0; NOTED_ARGUMENTS];
    for value in &mut values {
        *value = words.next()?;
    }
    Some(CallRecord {
        tgid: ids as u32,
        tid: (ids >> 32) as u32,
        function: place as u32,
        depth: (place >> 32) as u32,
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded_and_short_ones_are_not() {
        let words: [u32; 12] = [10, 11, 12, 13, 1, 2, 3, 4, 5, 6, 7, 8];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        let expected = CallRecord {
            tgid: 10,
            tid: 11,
            function: 12,
            depth: 13,
            values: [0x2_0000_0001, 0x4_0000_0003, 0x6_0000_0005, 0x8_0000_0007],
        };
        assert_eq!(decode(&bytes), Some(expected));
        assert_eq!(decode(&bytes[..47]), None);
    }
}
