//! Entries for the fuzzer: bytes of the kernel's ring in, nothing out.

use std::mem::size_of;

use reqtrace_common::cpu::CpuWaitRecord;
use reqtrace_common::disk::DiskRecord;
use reqtrace_common::record::{
    AwayRecord, ExtraRecord, IntervalRecord, OriginRecord, ProcessRecord, RequestRecord,
    SampleRecord, TextRecord,
};

use crate::attach::decode::{
    Decoder, Extras, Record, away, cpu_wait, disk, interval, record, sample,
};

/// Kinds of records, and some that are none.
const KINDS: u32 = 13;

/// A record of the ring.
pub fn ring(bytes: &[u8]) {
    match record(bytes) {
        Ok(Record::Request(request)) => {
            let _ = Decoder::default().request(request);
        }
        Ok(Record::Interval(bytes)) => {
            let _ = interval(bytes);
        }
        Ok(Record::Sample(bytes)) => {
            let _ = sample(bytes);
        }
        Ok(Record::Extra(bytes)) => {
            let _ = Extras::default().extra(bytes);
        }
        Ok(Record::Text(bytes)) => {
            let _ = Extras::default().text(bytes);
        }
        Ok(Record::CpuWait(bytes)) => {
            let _ = cpu_wait(bytes);
        }
        Ok(Record::Disk(bytes)) => {
            let _ = disk(bytes);
        }
        Ok(Record::Away(bytes)) => {
            let _ = away(bytes);
        }
        _ => {}
    }
}

/// Records of each kind that say nothing.
#[must_use]
pub fn ring_records() -> Vec<Vec<u8>> {
    let sizes = [
        size_of::<RequestRecord>(),
        size_of::<IntervalRecord>(),
        size_of::<ProcessRecord>(),
        size_of::<SampleRecord>(),
        size_of::<ExtraRecord>(),
        size_of::<TextRecord>(),
        size_of::<AwayRecord>(),
        size_of::<OriginRecord>(),
        size_of::<CpuWaitRecord>(),
        size_of::<DiskRecord>(),
        4096,
    ];
    (0..KINDS)
        .flat_map(|kind| {
            sizes.map(|size| {
                let mut bytes = vec![0; size];
                bytes[..4].copy_from_slice(&kind.to_le_bytes());
                bytes
            })
        })
        .collect()
}
