//! The kernel's types as JSON and as bytes: plain types in, text out, and back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::size_of;

use reqtrace_common::filter::{LengthHistogram, POWERS};
use reqtrace_common::histogram::BUCKETS;
use reqtrace_common::limits::{COMM_LEN, MAX_LABEL};
use reqtrace_common::record::{BlockSite, RequestRecord, StackId, kind, reason};
use reqtrace_common::sums::{StackSum, StackSumKey, TypeTotals};
use serde::{Deserialize, Serialize};

use crate::decode::records::decode;
use crate::decode::{Event, Incomplete, RawRequest};

/// The fields of [`TypeTotals`] in their order; the histogram without its empty buckets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedTotals {
    fields: [u64; 13],
    histogram: BTreeMap<usize, u64>,
}

impl RecordedTotals {
    pub(super) fn of(totals: &TypeTotals) -> Self {
        let buckets = totals.histogram.iter().copied().enumerate();
        Self {
            fields: [
                totals.count,
                totals.latency_ns,
                totals.run_queue_ns,
                totals.preempted_ns,
                totals.blocked_ns,
                totals.unattributed_ns,
                totals.max_ns,
                totals.begins,
                totals.ends,
                totals.incomplete,
                totals.nested,
                totals.other_type,
                totals.ends_without_begin,
            ],
            histogram: buckets.filter(|(_, count)| *count != 0).collect(),
        }
    }

    pub(super) fn restore(&self) -> TypeTotals {
        let mut histogram = [0; BUCKETS];
        for (&bucket, &count) in &self.histogram {
            if let Some(slot) = histogram.get_mut(bucket) {
                *slot = count;
            }
        }
        let [
            count,
            latency_ns,
            run_queue_ns,
            preempted_ns,
            blocked_ns,
            unattributed_ns,
            max_ns,
            begins,
            ends,
            incomplete,
            nested,
            other_type,
            ends_without_begin,
        ] = self.fields;
        TypeTotals {
            count,
            latency_ns,
            run_queue_ns,
            preempted_ns,
            blocked_ns,
            unattributed_ns,
            max_ns,
            begins,
            ends,
            incomplete,
            nested,
            other_type,
            ends_without_begin,
            histogram,
        }
    }
}

/// The fields of [`StackSumKey`] in their order.
type RecordedKey = (StackId, StackId, u32, u32, u32, u32, i32, i32);

fn recorded(key: &StackSumKey) -> RecordedKey {
    (
        key.user_stack,
        key.kernel_stack,
        key.tgid,
        key.exec_generation,
        key.request_type,
        key.off_kind,
        key.syscall,
        key.fd,
    )
}

fn restored(key: RecordedKey) -> StackSumKey {
    StackSumKey {
        user_stack: key.0,
        kernel_stack: key.1,
        tgid: key.2,
        exec_generation: key.3,
        request_type: key.4,
        off_kind: key.5,
        syscall: key.6,
        fd: key.7,
    }
}

/// The fields of [`StackSumKey`] and [`StackSum`] in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedSum(RecordedKey, (u64, u64, u64, u64));

impl RecordedSum {
    pub(super) fn of(entry: &(StackSumKey, StackSum)) -> Self {
        let (key, sum) = entry;
        Self(
            recorded(key),
            (sum.off_ns, sum.run_queue_ns, sum.count, sum.longest_ns),
        )
    }

    pub(super) fn restore(&self) -> (StackSumKey, StackSum) {
        let sum = self.1;
        (
            restored(self.0),
            StackSum {
                off_ns: sum.0,
                run_queue_ns: sum.1,
                count: sum.2,
                longest_ns: sum.3,
            },
        )
    }
}

/// A key and the counts of its histogram.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedHistogram(RecordedKey, [u64; POWERS]);

impl RecordedHistogram {
    pub(super) fn of(entry: &(StackSumKey, LengthHistogram)) -> Self {
        Self(recorded(&entry.0), entry.1.counts)
    }

    pub(super) fn restore(&self) -> (StackSumKey, LengthHistogram) {
        (restored(self.0), LengthHistogram { counts: self.1 })
    }
}

/// An open request: a record, and where it is blocked since when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedOpen {
    record: String,
    blocked_in: Option<((StackId, StackId, i32, i32), u64)>,
}

impl RecordedOpen {
    pub(super) fn of(request: &RawRequest) -> Self {
        Self {
            record: to_hex(&encode_request(&to_record(request))),
            blocked_in: request.blocked_in.map(|(site, since)| {
                let site = (site.kernel_stack, site.user_stack, site.syscall, site.fd);
                (site, since)
            }),
        }
    }

    pub(super) fn restore(&self) -> Option<RawRequest> {
        let Ok(Event::Request(mut request)) = decode(&from_hex(&self.record)?) else {
            return None;
        };
        request.blocked_in = self.blocked_in.map(|(site, since)| {
            let (kernel_stack, user_stack, syscall, fd) = site;
            let site = BlockSite {
                kernel_stack,
                user_stack,
                syscall,
                fd,
            };
            (site, since)
        });
        Some(*request)
    }
}

/// The reverse of `records::from_record`, for recordings and tests. What does not fit into a
/// record (slots, blocks, bytes of a label) is cut off.
#[must_use]
pub fn to_record(request: &RawRequest) -> RequestRecord {
    let mut record = RequestRecord::ZERO;
    record.kind = kind::REQUEST;
    record.request_type = u32::try_from(request.request_type).unwrap_or(u32::MAX);
    record.tgid = request.tgid;
    record.tid = request.tid;
    record.exec_generation = request.exec_generation;
    record.reason = match request.incomplete {
        None => reason::COMPLETE,
        Some(Incomplete::NoEnd) => reason::NO_END,
        Some(Incomplete::ThreadDied) => reason::THREAD_DIED,
        Some(Incomplete::Exec) => reason::EXEC,
        Some(Incomplete::RunningAtStart) => reason::RUNNING_AT_START,
        Some(Incomplete::RunningAtStop) => reason::RUNNING_AT_STOP,
        Some(Incomplete::BlockedAtStop) => reason::BLOCKED_AT_STOP,
    };
    record.begin_ns = request.begin_ns;
    record.end_ns = request.end_ns;
    record.run_queue_ns = request.run_queue_ns;
    record.preempted_ns = request.preempted_ns;
    record.blocked_ns = request.blocked_ns;
    record.unattributed_ns = request.unattributed_ns;
    record.blocks = request.blocks;
    record.preemptions = request.preemptions;
    record.max_depth = 1;
    for (to, from) in record.slots.iter_mut().zip(&request.slots) {
        *to = *from;
        record.slots_used += 1;
    }
    for (to, from) in record.longest.iter_mut().zip(&request.longest) {
        *to = *from;
        record.longest_used += 1;
    }
    for (to, from) in record
        .comm
        .iter_mut()
        .take(COMM_LEN - 1)
        .zip(request.comm.bytes())
    {
        *to = from;
    }
    for (to, from) in record
        .label
        .iter_mut()
        .take(MAX_LABEL)
        .zip(request.label.bytes())
    {
        *to = from;
        record.label_len += 1;
    }
    record
}

/// The bytes of a whole record, as the kernel lays them out.
#[must_use]
pub fn encode_request(record: &RequestRecord) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of::<RequestRecord>());
    let narrow = |values: &[u32], out: &mut Vec<u8>| {
        values
            .iter()
            .for_each(|value| out.extend(value.to_le_bytes()));
    };
    let wide = |values: &[u64], out: &mut Vec<u8>| {
        values
            .iter()
            .for_each(|value| out.extend(value.to_le_bytes()));
    };
    let site = |site: &BlockSite, out: &mut Vec<u8>| {
        wide(&[site.kernel_stack, site.user_stack], out);
        out.extend(site.syscall.to_le_bytes());
        out.extend(site.fd.to_le_bytes());
    };
    narrow(
        &[
            record.kind,
            record.request_type,
            record.tgid,
            record.tid,
            record.exec_generation,
            record.reason,
        ],
        &mut out,
    );
    wide(
        &[
            record.begin_ns,
            record.end_ns,
            record.run_queue_ns,
            record.preempted_ns,
            record.blocked_ns,
            record.unattributed_ns,
        ],
        &mut out,
    );
    narrow(
        &[
            record.blocks,
            record.preemptions,
            record.slots_used,
            record.longest_used,
            record.label_len,
            record.max_depth,
        ],
        &mut out,
    );
    out.extend(record.comm);
    for block in &record.longest {
        site(&block.site, &mut out);
        wide(
            &[block.start_ns, block.blocked_ns, block.run_queue_ns],
            &mut out,
        );
        narrow(&[block.waker_tid, block.waker_tgid], &mut out);
    }
    for slot in &record.slots {
        site(&slot.site, &mut out);
        wide(&[slot.blocked_ns], &mut out);
    }
    out.extend(record.label);
    out
}

/// Lower-case hexadecimal.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The reverse of [`to_hex`]; `None` when the text is not that.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            u8::try_from(high << 4 | low).ok()
        })
        .collect()
}
