//! What block devices did: records of blame in, events out.

use std::mem::{offset_of, size_of};

use aya::maps::HashMap;
use reqtrace_base::error::Result as ReqtraceResult;
use reqtrace_common::disk::DiskRecord;
use reqtrace_recording::{Comm, DiskUse};

use super::{Fields, Malformed};
use crate::attach::maps::{Maps, map_error};

/// The sums that are in the kernel's table.
///
/// # Errors
///
/// When it cannot be read.
pub(in crate::attach) fn disk_users(maps: &Maps) -> ReqtraceResult<Vec<DiskUse>> {
    let users: HashMap<_, u64, [u8; size_of::<DiskRecord>()]> =
        HashMap::try_from(maps.map("DISK_USERS")?).map_err(map_error)?;
    let mut sums = Vec::new();
    for user in &users {
        let (_, bytes) = user.map_err(map_error)?;
        sums.extend(disk(&bytes).ok().filter(|sum| sum.count > 0));
    }
    Ok(sums)
}

/// Decodes an I/O, or a sum.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not one of this version.
pub(crate) fn disk(bytes: &[u8]) -> Result<DiskUse, Malformed> {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(DiskRecord, $field)
        };
    }
    let fields = Fields(bytes);
    let disk = DiskUse {
        device: fields.u32(at!(device))?,
        disk: Comm(fields.array(at!(disk))?),
        tgid: fields.u32(at!(tgid))?,
        tid: fields.u32(at!(tid))?,
        comm: Comm(fields.array(at!(comm))?),
        is_kernel: fields.u32(at!(is_kernel))? != 0,
        is_sum: fields.u32(at!(is_sum))? != 0,
        from_ns: fields.u64(at!(from_ns))?,
        issued_ns: fields.u64(at!(issued_ns))?,
        until_ns: fields.u64(at!(until_ns))?,
        read_bytes: fields.u64(at!(read_bytes))?,
        written_bytes: fields.u64(at!(written_bytes))?,
        count: fields.u64(at!(count))?,
        flushes: fields.u64(at!(flushes))?,
    };
    let is_in_order = disk.from_ns <= disk.until_ns && disk.issued_ns <= disk.until_ns;
    is_in_order.then_some(disk).ok_or(Malformed::Interval)
}
