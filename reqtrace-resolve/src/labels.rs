//! Labels: a profile's [`LabelSpec`]s and a begin in, plans for the kernel programs out.

use reqtrace_common::label::{LabelPlan, MAX_EQUALS, Reading, label_kind};

use super::readings::{INT, POINTER, Place};
use reqtrace_base::error::Result;
use reqtrace_profile::{LabelKind, LabelSpec, Test, ValueSpec};

/// The plans of one place.
///
/// # Errors
///
/// An argument that is not there or cannot be read, or a variable that is not known.
pub(super) fn plans(specs: &[&LabelSpec], place: &Place<'_>) -> Result<Vec<LabelPlan>> {
    specs.iter().map(|spec| plan(spec, place)).collect()
}

/// All values that labels read.
pub(super) fn values(specs: &[LabelSpec]) -> impl Iterator<Item = &ValueSpec> {
    specs.iter().flat_map(|spec| {
        let when = spec.when.as_ref().map(|when| &when.value);
        let values = [Some(&spec.value), length(&spec.kind), when];
        values.into_iter().flatten()
    })
}

/// The value that has a text's length.
pub(super) fn length(kind: &LabelKind) -> Option<&ValueSpec> {
    match kind {
        LabelKind::Counted(length) => Some(length),
        LabelKind::Integer
        | LabelKind::Unsigned
        | LabelKind::CString
        | LabelKind::Symbol
        | LabelKind::Unit => None,
    }
}

fn plan(spec: &LabelSpec, place: &Place<'_>) -> Result<LabelPlan> {
    let mut plan = LabelPlan::default();
    if let Some(when) = &spec.when
        && let Test::OneOf(equals) = &when.test
    {
        plan.when = place.reading(&when.value, INT, Some(true))?;
        let used = equals.len().min(MAX_EQUALS);
        plan.equals[..used].copy_from_slice(&equals[..used]);
        plan.equals_used = used as u32;
    }
    (plan.kind, plan.value, plan.length) = text(&spec.kind, &spec.value, place)?;
    Ok(plan)
}

/// How a value becomes text: one of [`label_kind`], the value, and its length.
pub(super) fn text(
    kind: &LabelKind,
    value: &ValueSpec,
    place: &Place<'_>,
) -> Result<(u32, Reading, Reading)> {
    let none = Reading::default();
    Ok(match kind {
        LabelKind::Integer | LabelKind::Unsigned => {
            let signed = *kind == LabelKind::Integer;
            let value = place.reading(value, INT, Some(signed))?;
            (label_kind::NUMBER, value, none)
        }
        LabelKind::Symbol | LabelKind::Unit => (
            label_kind::NUMBER,
            place.reading(value, POINTER, None)?,
            none,
        ),
        LabelKind::CString => {
            let value = place.reading(value, POINTER, None)?;
            (label_kind::C_STRING, value, none)
        }
        LabelKind::Counted(length) => {
            let value = place.reading(value, POINTER, None)?;
            (label_kind::BYTES, value, place.reading(length, INT, None)?)
        }
    })
}

#[cfg(test)]
mod tests;
