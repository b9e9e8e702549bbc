//! Labels of a profile: what `schema` read in, checked [`LabelSpec`]s out.

use std::ops::Range;

use toml::Spanned;

use reqtrace_common::label::MAX_EQUALS;
use reqtrace_common::limits::{MAX_LABEL_ALTERNATIVES, MAX_READS};

use super::place::Source;
use super::schema::label as schema;
use super::{At, PlaceSpec};
use reqtrace_base::error::{Error, Result};
use reqtrace_common::registers::Register;

/// Reads that a profile can ask for; one more is kept for USDT arguments in memory.
const MAX_DEREF: usize = MAX_READS - 1;

/// Arguments that a marker can have: a USDT probe has 12 at most, a function rarely as many.
const MAX_ARGUMENTS: u8 = 16;

/// One way to read a request's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSpec {
    /// Only where the begin is this function, of those that it may be.
    pub function: Option<String>,
    /// Only if this holds.
    pub when: Option<ConditionSpec>,
    /// The number, or the address of the text.
    pub value: ValueSpec,
    /// How the value becomes text.
    pub kind: LabelKind,
}

/// A condition on a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionSpec {
    /// The number.
    pub value: ValueSpec,
    /// What it must be one of; never empty.
    pub equals: Vec<i64>,
}

/// Where a number is at begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Where to start.
    pub source: ValueSource,
    /// Then for each of these `value = *(value + offset)`.
    pub deref: Vec<i32>,
    /// Size of the result in bytes; `None`: as usual for what it is.
    pub size: Option<u8>,
}

/// Where a value starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// An argument of the function or the USDT probe, from 0.
    Argument(u8),
    /// A register at the probed instruction.
    Register(Register),
    /// A constant.
    Constant(i64),
}

/// How a value becomes a label.
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
}

/// Checks the labels of one request. `begin` is where it begins.
pub(super) fn check(
    source: &Source<'_>,
    labels: Option<Spanned<schema::Labels>>,
    begin: &PlaceSpec,
) -> Result<Vec<LabelSpec>> {
    let Some(labels) = labels else {
        return Ok(Vec::new());
    };
    let span = labels.span();
    let checker = Checker { source, begin };
    let many = match labels.into_inner() {
        schema::Labels::One(one) => return Ok(vec![checker.label(*one, span)?]),
        schema::Labels::Many(many) => many,
    };
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
    many.into_iter()
        .map(|label| {
            let span = label.span();
            checker.label(label.into_inner(), span)
        })
        .collect()
}

struct Checker<'a> {
    source: &'a Source<'a>,
    begin: &'a PlaceSpec,
}

impl Checker<'_> {
    fn label(&self, label: schema::Label, span: Range<usize>) -> Result<LabelSpec> {
        if let Some(function) = &label.function
            && !matches!(self.begin, PlaceSpec::Function { .. })
        {
            return Err(self.source.error(
                function.span(),
                "`function` chooses one of the functions of `begin`, and that names none",
            ));
        }
        let kind = match label.kind.as_ref().map(Spanned::get_ref) {
            Some(schema::LabelType::Integer) => LabelKind::Integer,
            Some(schema::LabelType::Unsigned) => LabelKind::Unsigned,
            Some(schema::LabelType::String) | None => match label.length {
                None => LabelKind::CString,
                Some(ref length) => LabelKind::Counted(self.length(length)?),
            },
        };
        let is_number = matches!(kind, LabelKind::Integer | LabelKind::Unsigned);
        if let (true, Some(length)) = (is_number, &label.length) {
            return Err(self
                .source
                .error(length.span(), "a number has no `length`")
                .next("leave it out, or write type = \"string\""));
        }
        if let (false, Some(size)) = (is_number, &label.value.size) {
            return Err(self
                .source
                .error(
                    size.span(),
                    "`size` is that of a number, and the label is a string",
                )
                .next("for a text of known length write length = …"));
        }
        let when = match label.when {
            Some(when) => Some(self.condition(when)?),
            None => None,
        };
        Ok(LabelSpec {
            function: label.function.map(Spanned::into_inner),
            when,
            value: self.value(&label.value, span)?,
            kind,
        })
    }

    fn length(&self, length: &Spanned<schema::Length>) -> Result<ValueSpec> {
        match length.get_ref() {
            schema::Length::Fixed(bytes) if *bytes > 0 => Ok(ValueSpec {
                source: ValueSource::Constant(*bytes),
                deref: Vec::new(),
                size: Some(8),
            }),
            schema::Length::Fixed(bytes) => Err(self.source.error(
                length.span(),
                format!("a length of {bytes} bytes holds no text"),
            )),
            schema::Length::Read(value) => self.value(value, length.span()),
        }
    }

    fn condition(&self, when: Spanned<schema::When>) -> Result<ConditionSpec> {
        let span = when.span();
        let when = when.into_inner();
        let equals = when.equals.get_ref().0.clone();
        if equals.is_empty() || equals.len() > MAX_EQUALS {
            return Err(self.source.error(
                when.equals.span(),
                format!(
                    "{} values in `equals`, where 1 to {MAX_EQUALS} fit",
                    equals.len()
                ),
            ));
        }
        Ok(ConditionSpec {
            value: self.value(&when.value, span)?,
            equals,
        })
    }

    fn value(&self, value: &schema::Value, whole: Range<usize>) -> Result<ValueSpec> {
        let source = match (&value.arg, &value.register) {
            (Some(arg), None) => self.argument(arg)?,
            (None, Some(register)) => self.register(register)?,
            (Some(_), Some(register)) => {
                return Err(self.source.error(
                    register.span(),
                    "a value is an `arg` or a `register`, not both",
                ));
            }
            (None, None) => {
                return Err(self
                    .source
                    .error(whole, "it does not say where the value is")
                    .next("write arg = 0 for the first argument, or register = \"rdi\""));
            }
        };
        let mut deref = Vec::new();
        if let Some(numbers) = &value.deref {
            let offsets = &numbers.get_ref().0;
            if offsets.is_empty() || offsets.len() > MAX_DEREF {
                return Err(self
                    .source
                    .error(
                        numbers.span(),
                        format!(
                            "{} offsets in `deref`, where 1 to {MAX_DEREF} fit",
                            offsets.len()
                        ),
                    )
                    .next(
                        "each one reads at the value plus the offset; leave deref out for none",
                    ));
            }
            for offset in offsets {
                deref.push(i32::try_from(*offset).map_err(|_| {
                    self.source.error(
                        numbers.span(),
                        format!("the offset {offset} in `deref` is beyond 2 GiB"),
                    )
                })?);
            }
        }
        let size = match &value.size {
            None => None,
            Some(size) => match *size.get_ref() {
                bytes @ (1 | 2 | 4 | 8) => Some(bytes as u8),
                other => {
                    return Err(self
                        .source
                        .error(
                            size.span(),
                            format!("a number of {other} bytes cannot be read"),
                        )
                        .next("size is 1, 2, 4 or 8"));
                }
            },
        };
        Ok(ValueSpec {
            source,
            deref,
            size,
        })
    }

    fn argument(&self, arg: &Spanned<i64>) -> Result<ValueSource> {
        if let PlaceSpec::Function { at: At::Return, .. } = self.begin {
            return Err(self
                .source
                .error(
                    arg.span(),
                    "the request begins at a return, where arguments are gone",
                )
                .next("name a register that has the value then, such as register = \"rax\""));
        }
        u8::try_from(*arg.get_ref())
            .ok()
            .filter(|arg| *arg < MAX_ARGUMENTS)
            .map(ValueSource::Argument)
            .ok_or_else(|| self.no_argument(arg))
    }

    fn no_argument(&self, arg: &Spanned<i64>) -> Error {
        self.source
            .error(
                arg.span(),
                format!("there is no argument {}", arg.get_ref()),
            )
            .next(format!(
                "arguments count from 0; at most {MAX_ARGUMENTS} can be named"
            ))
    }

    fn register(&self, register: &Spanned<String>) -> Result<ValueSource> {
        let name = register.get_ref();
        Register::named(name)
            .filter(|_| name.starts_with('r') && !name.ends_with(['d', 'w', 'b']))
            .map(|(register, _)| ValueSource::Register(register))
            .ok_or_else(|| {
                self.source
                    .error(register.span(), format!("`{name}` is no 64-bit register"))
                    .next("use rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp or r8 to r15, and `size`")
            })
    }
}

#[cfg(test)]
mod tests;
