//! Values of a profile: what `schema` read in, checked [`ValueSpec`]s out.

mod condition;

use std::ops::Range;

use toml::Spanned;

use reqtrace_common::limits::MAX_READS;
use reqtrace_common::registers::Register;

use super::place::{At, PlaceSpec};
use super::schema::value::{self as schema, Arg};
use super::source::Source;
use reqtrace_base::error::{Error, Result};

pub use condition::{ConditionSpec, Test};

/// Reads that a profile can ask for; one more is kept for USDT arguments in memory.
const MAX_DEREF: usize = MAX_READS - 1;

/// Arguments that a marker can have: a USDT probe has 12 at most, a function rarely as many.
const MAX_ARGUMENTS: u8 = 16;

/// Where a number is at a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Where to start.
    pub source: ValueSource,
    /// Then for each of these `value = *(value + offset)`.
    pub deref: Vec<i32>,
    /// Bytes added to where it starts, without `deref` only: from a part of an object to its begin.
    pub add: i64,
    /// Size of the result in bytes; `None`: as usual for what it is.
    pub size: Option<u8>,
}

/// Where a value starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// An argument of the function or the USDT probe, from 0.
    Argument(u8),
    /// A register at the probed instruction.
    Register(Register),
    /// What a function returns: at its return only.
    Result,
    /// The address of a global variable of the object in which the marker is, by its name.
    Global(String),
    /// A constant.
    Constant(i64),
    /// The unit that an edge of the runtime is about: this argument, counted from 0, where the edge is the entry of a
    /// function, and wherever the resolver has found it otherwise.
    Unit(u8),
}

/// When values are read: some are not there at every place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Where a function is left.
    Return,
    /// At an entry, an instruction or a USDT probe.
    Other,
    /// Not known here: checked for each marker that uses the value.
    Any,
}

impl Moment {
    /// That of a marker.
    pub(super) fn of(place: &PlaceSpec) -> Self {
        match place {
            PlaceSpec::Function { at: At::Return, .. } => Self::Return,
            _ => Self::Other,
        }
    }
}

/// Checks values that are read at one place.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) moment: Moment,
}

impl Values<'_> {
    /// A value; `whole` is what should say where it is.
    pub(super) fn value(&self, value: &schema::Value, whole: Range<usize>) -> Result<ValueSpec> {
        let given = [
            value.arg.as_ref().map(Spanned::span),
            value.register.as_ref().map(Spanned::span),
            value.global.as_ref().map(Spanned::span),
        ];
        if let Some(second) = given.into_iter().flatten().nth(1) {
            return Err(self.source.error(
                second,
                "a value is an `arg`, a `register` or a `global`: one of them, not both",
            ));
        }
        let source = match (&value.arg, &value.register, &value.global) {
            (Some(arg), ..) => self.argument(arg)?,
            (_, Some(register), _) => self.register(register)?,
            (_, _, Some(global)) => self.global(global)?,
            (None, None, None) => {
                return Err(self
                    .source
                    .error(whole, "it does not say where the value is")
                    .next("write arg = 0 for the first argument, or register = \"rdi\""));
            }
        };
        Ok(ValueSpec {
            source,
            deref: match &value.deref {
                Some(offsets) => self.deref(offsets)?,
                None => Vec::new(),
            },
            add: match (&value.add, &value.deref) {
                (Some(add), Some(_)) => {
                    return Err(self
                        .source
                        .error(add.span(), "`add` and `deref` in one value")
                        .next("add the number to the first offset of `deref`"));
                }
                (add, _) => add.as_ref().map_or(0, |add| *add.get_ref()),
            },
            size: match &value.size {
                Some(size) => Some(self.size(size)?),
                None => None,
            },
        })
    }

    /// A number of bytes, or where it is.
    pub(super) fn length(&self, length: &Spanned<schema::Length>) -> Result<ValueSpec> {
        match length.get_ref() {
            schema::Length::Fixed(bytes) if *bytes > 0 => Ok(ValueSpec {
                source: ValueSource::Constant(*bytes),
                deref: Vec::new(),
                add: 0,
                size: Some(8),
            }),
            schema::Length::Fixed(bytes) => Err(self.source.error(
                length.span(),
                format!("a length of {bytes} bytes holds no text"),
            )),
            schema::Length::Read(value) => self.value(value, length.span()),
        }
    }

    fn deref(&self, numbers: &Spanned<schema::Numbers>) -> Result<Vec<i32>> {
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
                .next("each one reads at the value plus the offset; leave deref out for none"));
        }
        let offset = |offset: &i64| {
            i32::try_from(*offset).map_err(|_| {
                self.source.error(
                    numbers.span(),
                    format!("the offset {offset} in `deref` is beyond 2 GiB"),
                )
            })
        };
        offsets.iter().map(offset).collect()
    }

    fn size(&self, size: &Spanned<i64>) -> Result<u8> {
        match *size.get_ref() {
            bytes @ (1 | 2 | 4 | 8) => Ok(bytes as u8),
            other => Err(self
                .source
                .error(
                    size.span(),
                    format!("a number of {other} bytes cannot be read"),
                )
                .next("size is 1, 2, 4 or 8")),
        }
    }

    fn argument(&self, arg: &Spanned<Arg>) -> Result<ValueSource> {
        let index = match (*arg.get_ref(), self.moment) {
            (Arg::Result, Moment::Return | Moment::Any) => return Ok(ValueSource::Result),
            (Arg::Result, Moment::Other) => {
                return Err(self
                    .source
                    .error(
                        arg.span(),
                        "`result` is what a function returns, and this is read before",
                    )
                    .next("add at = \"return\" to the marker, or name an argument: arg = 0"));
            }
            (Arg::Index(_), Moment::Return) => {
                return Err(self
                    .source
                    .error(
                        arg.span(),
                        "this is read at a return, where arguments are gone",
                    )
                    .next(
                        "write arg = \"result\" for what the function returns, or name a register \
                         that has the value then",
                    ));
            }
            (Arg::Index(index), _) => index,
        };
        u8::try_from(index)
            .ok()
            .filter(|index| *index < MAX_ARGUMENTS)
            .map(ValueSource::Argument)
            .ok_or_else(|| self.no_argument(arg.span(), index))
    }

    fn no_argument(&self, span: Range<usize>, index: i64) -> Error {
        self.source
            .error(span, format!("there is no argument {index}"))
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

    fn global(&self, global: &Spanned<String>) -> Result<ValueSource> {
        let name = global.get_ref().trim();
        if name.is_empty() {
            return Err(self.source.error(global.span(), "global is empty"));
        }
        Ok(ValueSource::Global(name.to_owned()))
    }
}
