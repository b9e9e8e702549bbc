//! Intervals and helpers: records of blame in, events out.

use std::mem::{offset_of, size_of};

use reqtrace_common::futex::holder_is;
use reqtrace_common::record::{
    HelperRecord, IntervalRecord, RequestRecord, STACK_NONE, WakerRecord,
};
use reqtrace_recording::{
    AddressSpace, Comm, Holder, Interval, IntervalKind, RequestOf, Thread, Unrecorded, Waker,
    WakerContext, WokenFrom,
};

use super::{Fields, Malformed, request_type};

pub(super) fn helper(bytes: &[u8]) -> Result<Thread, Malformed> {
    let fields = Fields(bytes);
    let comm = Comm(fields.array(offset_of!(HelperRecord, comm))?);
    Ok(Thread {
        tgid: fields.u32(offset_of!(HelperRecord, tgid))?,
        tid: fields.u32(offset_of!(HelperRecord, tid))?,
        name: comm.text().to_string(),
    })
}

/// Decodes a request that is not recorded.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not one of this version.
pub(crate) fn unrecorded(bytes: &[u8]) -> Result<Unrecorded, Malformed> {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(RequestRecord, $field)
        };
    }
    let fields = Fields(bytes);
    let request = Unrecorded {
        request_type: request_type(fields.u32(at!(request_type))?)?,
        tgid: fields.u32(at!(tgid))?,
        tid: fields.u32(at!(tid))?,
        comm: Comm(fields.array(at!(comm))?),
        begin_ns: fields.u64(at!(begin_ns))?,
        end_ns: fields.u64(at!(end_ns))?,
    };
    let is_in_order = request.begin_ns <= request.end_ns;
    is_in_order.then_some(request).ok_or(Malformed::Interval)
}

/// The thread is by its number in its own PID namespace.
pub(crate) fn holder(is: u32, tid: u32) -> Result<Holder, Malformed> {
    Ok(match is {
        holder_is::NO_FUTEX => Holder::NoFutex,
        holder_is::THREAD => Holder::Thread(tid),
        holder_is::NOT_TOLD => Holder::NotTold,
        holder_is::CHANGING => Holder::Changing,
        holder_is::UNREADABLE => Holder::Unreadable,
        other => return Err(Malformed::Holder(other)),
    })
}

/// Decodes an interval. The holder of its lock is by its number in its own PID namespace.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not an interval of this version.
pub(crate) fn interval(bytes: &[u8]) -> Result<Interval, Malformed> {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(IntervalRecord, $field)
        };
        (waker.$field:ident) => {
            offset_of!(IntervalRecord, waker) + offset_of!(WakerRecord, $field)
        };
    }
    let fields = Fields(bytes);
    fields.bytes(0, size_of::<IntervalRecord>())?;
    let (out_ns, in_ns) = (fields.u64(at!(out_ns))?, fields.u64(at!(in_ns))?);
    let request = match fields.u64(at!(request_begin_ns))? {
        0 => None,
        begin_ns => Some(RequestOf {
            begin_ns,
            request_type: request_type(fields.u32(at!(request_type))?)?,
        }),
    };
    let mut woken_from = None;
    let kind = if fields.u32(at!(preempted))? != 0 {
        IntervalKind::Preempted
    } else {
        let (context, is) = Waker::of(
            fields.u32(at!(waker.context))?,
            fields.u32(at!(waker.is))?,
            fields.u64(at!(waker.since_ns))?,
            request_type(fields.u32(at!(waker.request_type))?)?,
        )
        .map_err(Malformed::Waker)?;
        let tgid = fields.u32(at!(waker.tgid))?;
        let stack = fields.u64(at!(waker.stack))?;
        let is_kernel = matches!(context, WakerContext::Unclear | WakerContext::Delivers);
        if context == WakerContext::Task && stack != STACK_NONE {
            woken_from = Some(WokenFrom {
                space: AddressSpace {
                    tgid,
                    exec_generation: fields.u32(at!(waker.exec_generation))?,
                },
                user_stack: stack,
            });
        }
        IntervalKind::Blocked {
            wake_ns: fields.u64(at!(wake_ns))?,
            waker: Waker {
                context,
                is,
                tid: fields.u32(at!(waker.tid))?,
                tgid,
                stack: if is_kernel { stack } else { STACK_NONE },
            },
        }
    };
    let interval = Interval {
        space: fields.space(at!(tgid), at!(exec_generation))?,
        tid: fields.u32(at!(tid))?,
        sequence: fields.u32(at!(sequence))?,
        request,
        site: fields.site(at!(site))?,
        out_ns,
        kind,
        in_ns,
        futex: fields.u64(at!(futex))?,
        holder: holder(fields.u32(at!(holder_is))?, fields.u32(at!(holder))?)?,
        woken_from,
    };
    let until_ns = interval.until_ns();
    if out_ns <= until_ns && until_ns <= in_ns {
        Ok(interval)
    } else {
        Err(Malformed::Interval)
    }
}
