//! Labels: a profile's [`LabelSpec`]s and a begin in, plans for the kernel programs out.

use reqtrace_common::label::{LabelPlan, MAX_EQUALS, NO_REGISTER, Reading, label_kind};
use reqtrace_common::limits::MAX_READS;

use super::registers::Register;
use super::returns::Reads;
use super::usdt::{ArgumentValue, UsdtSite};
use crate::error::{Error, Result};
use crate::profile::{LabelKind, LabelSpec, ValueSource, ValueSpec};

/// Bytes of an address.
const POINTER: u8 = 8;

/// Bytes of a number in a register or in memory when a profile does not say: C's `int` and `enum`,
/// and the part of longer ones that matters.
const INT: u8 = 4;

/// The plans of a function's entry, or of an instruction.
///
/// # Errors
///
/// An argument of what is not a function's entry.
pub(super) fn of_function(
    specs: &[&LabelSpec],
    symbol: &str,
    is_function: bool,
) -> Result<Vec<LabelPlan>> {
    plans(specs, &|argument| {
        if is_function {
            Ok(argument_of_function(argument))
        } else {
            Err(Error::usage(format!(
                "no function is known to begin at {symbol}, so it has no argument {argument}"
            ))
            .next("name the register that has the value there, such as register = \"rdi\""))
        }
    })
}

/// The plans of one place of a USDT probe.
///
/// # Errors
///
/// An argument that the probe does not have, or that cannot be read.
pub(super) fn of_usdt(
    specs: &[&LabelSpec],
    symbol: &str,
    site: &UsdtSite,
) -> Result<Vec<LabelPlan>> {
    plans(specs, &|argument| argument_of_usdt(symbol, site, argument))
}

/// What labels read at a begin; `None` when there are none.
pub(super) fn read(specs: &[LabelSpec]) -> Option<Reads> {
    let in_register = |value: &ValueSpec| match value.source {
        ValueSource::Argument(index) => usize::from(index) < Register::ARGUMENTS.len(),
        ValueSource::Register(_) => false,
        ValueSource::Constant(_) => true,
    };
    let only_arguments = specs.iter().all(|spec| {
        let length = match &spec.kind {
            LabelKind::Counted(length) => Some(length),
            _ => None,
        };
        let when = spec.when.as_ref().map(|when| &when.value);
        let values = [Some(&spec.value), length, when];
        values.into_iter().flatten().all(in_register)
    });
    match (specs.is_empty(), only_arguments) {
        (true, _) => None,
        (false, true) => Some(Reads::Arguments),
        (false, false) => Some(Reads::Anything),
    }
}

type Argument<'a> = &'a dyn Fn(u8) -> Result<Reading>;

fn plans(specs: &[&LabelSpec], argument: Argument<'_>) -> Result<Vec<LabelPlan>> {
    specs.iter().map(|spec| plan(spec, argument)).collect()
}

fn plan(spec: &LabelSpec, argument: Argument<'_>) -> Result<LabelPlan> {
    let mut plan = LabelPlan::default();
    if let Some(when) = &spec.when {
        plan.when = reading(&when.value, INT, Some(true), argument)?;
        let used = when.equals.len().min(MAX_EQUALS);
        plan.equals[..used].copy_from_slice(&when.equals[..used]);
        plan.equals_used = used as u32;
    }
    match &spec.kind {
        LabelKind::Integer | LabelKind::Unsigned => {
            let signed = spec.kind == LabelKind::Integer;
            plan.kind = label_kind::NUMBER;
            plan.value = reading(&spec.value, INT, Some(signed), argument)?;
        }
        LabelKind::CString => {
            plan.kind = label_kind::C_STRING;
            plan.value = reading(&spec.value, POINTER, None, argument)?;
        }
        LabelKind::Counted(length) => {
            plan.kind = label_kind::BYTES;
            plan.value = reading(&spec.value, POINTER, None, argument)?;
            plan.length = reading(length, INT, None, argument)?;
        }
    }
    Ok(plan)
}

/// `usual`: the size of the result where neither the profile nor a note of the program says it.
fn reading(
    spec: &ValueSpec,
    usual: u8,
    signed: Option<bool>,
    argument: Argument<'_>,
) -> Result<Reading> {
    let mut reading = match spec.source {
        ValueSource::Argument(index) => argument(index)?,
        ValueSource::Register(register) => in_register(register),
        ValueSource::Constant(constant) => Reading {
            constant,
            ..NOTHING
        },
    };
    for offset in &spec.deref {
        let next = usize::from(reading.reads);
        // Four of a profile and one of a note's own are as many as there is room for.
        let place = reading.offsets.get_mut(next).ok_or_else(|| {
            Error::usage(format!(
                "more than {MAX_READS} reads of memory for one value"
            ))
        })?;
        *place = *offset;
        reading.reads += 1;
    }
    // What a note says is the size of the argument, not of what it points to.
    let noted = Some(reading.size).filter(|size| *size != 0 && spec.deref.is_empty());
    reading.size = spec.size.or(noted).unwrap_or(usual);
    reading.signed = u8::from(signed.unwrap_or(false));
    Ok(reading)
}

/// Zero; its size is not known.
const NOTHING: Reading = Reading {
    constant: 0,
    offsets: [0; MAX_READS],
    base: NO_REGISTER,
    index: NO_REGISTER,
    scale: 0,
    shift: 0,
    reads: 0,
    size: 0,
    signed: 0,
    pad: [0; 5],
};

fn in_register(register: Register) -> Reading {
    Reading {
        base: register.index(),
        ..NOTHING
    }
}

/// An integer argument at the entry of a function (System V AMD64 ABI, 3.2.3): those that find no
/// register stand above the return address, eight bytes each.
fn argument_of_function(argument: u8) -> Reading {
    let index = usize::from(argument);
    if let Some(register) = Register::ARGUMENTS.get(index) {
        return in_register(*register);
    }
    let above = index - Register::ARGUMENTS.len() + 1;
    let mut reading = in_register(Register::Rsp);
    reading.offsets[0] = 8 * above as i32;
    reading.reads = 1;
    reading
}

fn argument_of_usdt(symbol: &str, site: &UsdtSite, argument: u8) -> Result<Reading> {
    let Some(found) = site.arguments.get(usize::from(argument)) else {
        return Err(Error::usage(format!(
            "`{symbol}` has no argument {argument} at 0x{:x}, it has {}",
            site.file_offset,
            site.arguments.len()
        ))
        .next("arguments count from 0; `readelf -n` shows them"));
    };
    let unreadable = || {
        Error::usage(format!(
            "argument {argument} of `{symbol}` at 0x{:x} is `{}`, which cannot be read",
            site.file_offset, found.text
        ))
        .next("choose another argument: floating point and thread-local ones are not read")
    };
    let reading = match found.value.ok_or_else(unreadable)? {
        ArgumentValue::Constant(constant) => Reading {
            constant,
            ..NOTHING
        },
        ArgumentValue::Register { register, shift } => Reading {
            shift,
            ..in_register(register)
        },
        ArgumentValue::Memory {
            base,
            index,
            displacement,
        } => {
            let mut offsets = [0; MAX_READS];
            offsets[0] = i32::try_from(displacement).map_err(|_| unreadable())?;
            Reading {
                base: base.map_or(NO_REGISTER, Register::index),
                index: index.map_or(NO_REGISTER, |(register, _)| register.index()),
                scale: index.map_or(0, |(_, scale)| scale),
                offsets,
                reads: 1,
                ..NOTHING
            }
        }
    };
    Ok(Reading {
        size: found.size,
        ..reading
    })
}

#[cfg(test)]
mod tests;
