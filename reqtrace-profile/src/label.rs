//! Labels of a profile: what `schema` read in, checked [`LabelSpec`]s out.

use std::ops::Range;

use toml::Spanned;

use reqtrace_common::limits::MAX_LABEL_ALTERNATIVES;

use super::place::PlaceSpec;
use super::schema::label as schema;
use super::schema::list::OneOrMany;
use super::source::Source;
use super::value::{ConditionSpec, Moment, Test, ValueSpec, Values};
use reqtrace_base::error::Result;

/// One way to read a request's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSpec {
    /// Only where the begin is this function, of those that it may be.
    pub function: Option<String>,
    /// Only if this holds: a number is one of some.
    pub when: Option<ConditionSpec>,
    /// The number, or the address of the text.
    pub value: ValueSpec,
    /// How the value becomes text.
    pub kind: LabelKind,
}

/// How a value becomes a label or an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelKind {
    /// A signed number.
    Integer,
    /// An unsigned number.
    Unsigned,
    /// Text up to a NUL.
    CString,
    /// Text of this many bytes.
    Counted(ValueSpec),
    /// An address: the name of the function or variable that lies there.
    Symbol,
    /// What polls the task that the request is, or the function that its goroutine starts with: the name of its type, or of
    /// that function.
    Unit,
}

impl LabelKind {
    /// Whether it is a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Integer | Self::Unsigned)
    }

    /// Whether it is text of the traced program's memory.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self, Self::CString | Self::Counted(_))
    }
}

/// Checks the labels of one request. `begin` is where it begins.
pub(super) fn check(
    source: &Source<'_>,
    labels: Option<Spanned<OneOrMany<schema::Label>>>,
    begin: &PlaceSpec,
) -> Result<Vec<LabelSpec>> {
    let Some(labels) = labels else {
        return Ok(Vec::new());
    };
    let span = labels.span();
    let many = OneOrMany::all(labels);
    if many.is_empty() {
        return Err(source
            .error(span, "label is an empty list")
            .next("leave label out, or write label = { arg = 0 }"));
    }
    if let Some(extra) = many.get(MAX_LABEL_ALTERNATIVES) {
        return Err(source.error(
            extra.span(),
            format!(
                "{} ways to read a label, but at most {MAX_LABEL_ALTERNATIVES} fit",
                many.len()
            ),
        ));
    }
    let values = Values {
        source,
        moment: Moment::of(begin),
    };
    many.into_iter()
        .map(|label| {
            let span = label.span();
            one(values, label.into_inner(), span, begin)
        })
        .collect()
}

fn one(
    values: Values<'_>,
    label: schema::Label,
    span: Range<usize>,
    begin: &PlaceSpec,
) -> Result<LabelSpec> {
    if let Some(function) = &label.function
        && !matches!(begin, PlaceSpec::Function { .. })
    {
        return Err(values.source.error(
            function.span(),
            "`function` chooses one of the functions of `begin`, and that names none",
        ));
    }
    let kind = kind(values, &label.text, &label.value, "label")?;
    let other = match kind {
        LabelKind::Symbol => Some(("no symbol", "symbol")),
        LabelKind::Unit => Some(("not what a unit is", "unit")),
        _ => None,
    };
    if let (Some((what, name)), Some(given)) = (other, &label.text.kind) {
        return Err(values
            .source
            .error(
                given.span(),
                format!("a label is a text or a number, and {what}"),
            )
            .next(format!(
                "write a [[request.attribute]] with type = \"{name}\""
            )));
    }
    Ok(LabelSpec {
        function: label.function.map(Spanned::into_inner),
        when: condition(values, label.when)?,
        value: values.value(&label.value, span)?,
        kind,
    })
}

/// A label has room for one condition, on numbers.
fn condition(
    values: Values<'_>,
    when: Option<Spanned<OneOrMany<super::schema::value::When>>>,
) -> Result<Option<ConditionSpec>> {
    let span = when.as_ref().map(Spanned::span);
    let mut all = values.conditions(when)?;
    let is_simple = match all.as_slice() {
        [] => true,
        [one] => matches!(one.test, Test::OneOf(_)) && !one.negate,
        _ => false,
    };
    match span {
        Some(span) if !is_simple => Err(values
            .source
            .error(
                span,
                "the `when` of a label is one condition: a number, and what it `equals`",
            )
            .next("an [[request.attribute]] can have any condition, and is read at begin too")),
        _ => Ok(all.pop()),
    }
}

/// How the value of a label or an attribute becomes text.
pub(super) fn kind(
    values: Values<'_>,
    text: &schema::TextKeys,
    value: &super::schema::value::Value,
    what: &str,
) -> Result<LabelKind> {
    let kind = match text.kind.as_ref().map(Spanned::get_ref) {
        Some(schema::LabelType::Integer) => LabelKind::Integer,
        Some(schema::LabelType::Unsigned) => LabelKind::Unsigned,
        Some(schema::LabelType::Symbol) => LabelKind::Symbol,
        Some(schema::LabelType::Unit) => LabelKind::Unit,
        Some(schema::LabelType::String) | None => match text.length {
            None => LabelKind::CString,
            Some(ref length) => LabelKind::Counted(values.length(length)?),
        },
    };
    if let (false, Some(length)) = (kind.is_text(), &text.length) {
        return Err(values
            .source
            .error(length.span(), format!("{} has no `length`", words(&kind)))
            .next("leave it out, or write type = \"string\""));
    }
    if let (LabelKind::Symbol, Some(size)) = (&kind, &value.size) {
        return Err(values
            .source
            .error(
                size.span(),
                "`size` is that of a number, and a symbol is found by an address",
            )
            .next("leave it out: an address has 8 bytes"));
    }
    if let (false, Some(size)) = (kind.is_number(), &value.size) {
        return Err(values
            .source
            .error(
                size.span(),
                format!("`size` is that of a number, and the {what} is a string"),
            )
            .next("for a text of known length write length = …"));
    }
    Ok(kind)
}

/// What it is, for messages.
pub(super) fn words(kind: &LabelKind) -> &'static str {
    match kind {
        LabelKind::Integer | LabelKind::Unsigned => "a number",
        LabelKind::CString | LabelKind::Counted(_) => "a string",
        LabelKind::Symbol => "a symbol",
        LabelKind::Unit => "the type of a unit",
    }
}

#[cfg(test)]
mod tests;
