//! Labels: the registers at a begin and the marker's plan in, the text in the record out.
//!
//! Runs in the traced thread before its request is opened, so the time is in no request. Memory
//! that is not there is no fault: the label stays empty and is counted.

use core::ffi::c_void;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{
    bpf_probe_read_kernel, bpf_probe_read_user, bpf_probe_read_user_str,
};

use reqtrace_common::label::{
    LabelPlan, MAX_EQUALS, NO_REGISTER, Reading, decimal, extend, label_kind,
};
use reqtrace_common::limits::{MAX_LABEL, MAX_LABEL_ALTERNATIVES, MAX_READS};
use reqtrace_common::loss::Loss;
use reqtrace_common::record::RequestRecord;

use crate::assembly::forgotten;
use crate::maps::{LABEL_PLANS, lose};

/// Reads the label of a request that is about to open. Returns its length.
#[inline(always)]
pub(crate) fn read(regs: *mut pt_regs, plan: u16, record: &mut RequestRecord) -> u32 {
    let mut index = u32::from(plan);
    let mut tries = 0;
    while tries < MAX_LABEL_ALTERNATIVES && index != 0 {
        let Some(plan) = LABEL_PLANS.get_ptr(index) else {
            return 0;
        };
        // SAFETY: points into the map, which user space filled before any probe was set.
        let plan = unsafe { &*plan };
        match holds(regs, plan) {
            Some(true) => {
                return text(regs, plan, record).unwrap_or_else(|| {
                    lose(Loss::LabelUnreadable);
                    0
                });
            }
            Some(false) => {}
            None => {
                lose(Loss::LabelUnreadable);
                return 0;
            }
        }
        index = plan.next;
        tries += 1;
    }
    0
}

#[inline(always)]
fn holds(regs: *mut pt_regs, plan: &LabelPlan) -> Option<bool> {
    if plan.equals_used == 0 {
        return Some(true);
    }
    let value = number(regs, &plan.when)? as i64;
    let mut index = 0;
    while index < MAX_EQUALS {
        if index < plan.equals_used as usize && plan.equals[index] == value {
            return Some(true);
        }
        index += 1;
    }
    Some(false)
}

#[inline(always)]
fn text(regs: *mut pt_regs, plan: &LabelPlan, record: &mut RequestRecord) -> Option<u32> {
    let value = number(regs, &plan.value)?;
    match plan.kind {
        label_kind::NUMBER => Some(decimal(value, plan.value.signed != 0, &mut record.label)),
        label_kind::C_STRING => c_string(value, record),
        label_kind::BYTES => {
            let length = number(regs, &plan.length)?;
            bytes(value, length, record)
        }
        _ => Some(0),
    }
}

#[inline(always)]
fn c_string(address: u64, record: &mut RequestRecord) -> Option<u32> {
    let into = record.label.as_mut_ptr();
    // SAFETY: the helper writes at most so many bytes, the last one a NUL.
    let read =
        unsafe { bpf_probe_read_user_str(into.cast(), MAX_LABEL as u32, address as *const c_void) };
    if read <= 0 {
        return None;
    }
    if read < MAX_LABEL as i64 {
        return Some(read as u32 - 1);
    }
    // The last byte is a NUL because the text was cut, or because it ends here.
    let last = &raw mut record.label[MAX_LABEL - 1];
    let address = address.wrapping_add(MAX_LABEL as u64 - 1);
    // SAFETY: one byte of the record.
    let failed = unsafe { bpf_probe_read_user(last.cast(), 1, address as *const c_void) } != 0;
    let is_end = failed || record.label[MAX_LABEL - 1] == 0;
    Some(MAX_LABEL as u32 - u32::from(is_end))
}

#[inline(always)]
fn bytes(address: u64, length: u64, record: &mut RequestRecord) -> Option<u32> {
    let length = if length > MAX_LABEL as u64 {
        MAX_LABEL as u64
    } else {
        length
    };
    let into = record.label.as_mut_ptr();
    // SAFETY: the helper writes `length` bytes, which the record has.
    let result =
        unsafe { bpf_probe_read_user(into.cast(), length as u32, address as *const c_void) };
    (result == 0).then_some(length as u32)
}

/// Carries out a reading; `None` when memory could not be read.
#[inline(always)]
pub(crate) fn number(regs: *mut pt_regs, reading: &Reading) -> Option<u64> {
    let mut value = reading.constant as u64;
    value = value.wrapping_add(register(regs, reading.base) >> (reading.shift & 63));
    value =
        value.wrapping_add(register(regs, reading.index).wrapping_mul(u64::from(reading.scale)));
    let mut read = 0;
    while read < MAX_READS && read < reading.reads as usize {
        let address = value.wrapping_add(reading.offsets[read] as i64 as u64);
        read += 1;
        let is_last = read == reading.reads as usize;
        let size = if is_last {
            u32::from(reading.size & 15)
        } else {
            8
        };
        let size = if size > 8 { 8 } else { size };
        value = 0;
        // SAFETY: the helper writes at most the eight bytes of `value`.
        let result =
            unsafe { bpf_probe_read_user((&raw mut value).cast(), size, address as *const c_void) };
        if result != 0 {
            return None;
        }
    }
    let value = extend(value, reading.size, reading.signed != 0);
    // Each size has another range, and the verifier would go over what comes next for each.
    Some(forgotten(value, reading.constant as u64))
}

/// A register by its index in `pt_regs`; 0 for none.
#[inline(always)]
pub(crate) fn register(regs: *mut pt_regs, index: u8) -> u64 {
    if index == NO_REGISTER {
        return 0;
    }
    let mut value = 0_u64;
    // The verifier allows no load at a variable offset of the context; the helper may.
    // SAFETY: the helper writes eight bytes, and checks where it reads.
    unsafe {
        let place = regs.cast::<u64>().add(usize::from(index));
        bpf_probe_read_kernel((&raw mut value).cast(), 8, place.cast());
    }
    value
}
