//! Samples: records of threads on their CPUs in, events out.

use std::mem::{offset_of, size_of};

use reqtrace_common::record::SampleRecord;
use reqtrace_recording::{AddressSpace, RequestOf, Sample};

use super::{Fields, Malformed, request_type};

/// Decodes a sample.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not a sample of this version.
pub(crate) fn sample(bytes: &[u8]) -> Result<Sample, Malformed> {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(SampleRecord, $field)
        };
    }
    let fields = Fields(bytes);
    fields.bytes(0, size_of::<SampleRecord>())?;
    let weight = fields.u32(at!(weight))?;
    if weight == 0 {
        return Err(Malformed::Weight);
    }
    Ok(Sample {
        space: AddressSpace {
            tgid: fields.u32(at!(tgid))?,
            exec_generation: fields.u32(at!(exec_generation))?,
        },
        tid: fields.u32(at!(tid))?,
        request: RequestOf {
            begin_ns: fields.u64(at!(request_begin_ns))?,
            request_type: request_type(fields.u32(at!(request_type))?)?,
        },
        weight,
        at_ns: fields.u64(at!(at_ns))?,
        user_stack: fields.u64(at!(user_stack))?,
        kernel_stack: fields.u64(at!(kernel_stack))?,
    })
}
