//! Conditions on a program: what `schema` read in, checked [`OnlyIf`]s out.
//!
//! They are looked at once, when a trace begins, and choose what of a profile is used in a program.

use toml::Spanned;

use super::schema::Strings;
use super::schema::list::OneOrMany;
use super::schema::program::{Condition as Schema, Conditions};
use super::schema::value::{Value, When};
use super::source::Source;
use super::value::{ConditionSpec, Moment, Test, Values};
use reqtrace_base::error::Result;
use reqtrace_base::text::check_glob;

/// Bytes of one piece of code at most.
const MAX_CODE: usize = 64;

/// In which programs something of a profile is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnlyIf {
    /// Each must hold.
    pub all: Vec<ProgramCondition>,
    /// Not all of these hold; empty: nothing is excluded.
    pub unless: Vec<ProgramCondition>,
}

impl OnlyIf {
    /// Whether it is used in every program.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.all.is_empty() && self.unless.is_empty()
    }
}

/// One condition on a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCondition {
    /// File name, path, or glob over either, of the object; `None`: the executable.
    pub object: Option<String>,
    /// What is looked at.
    pub sign: Sign,
}

/// What of a program a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It has a function.
    Function {
        /// Its name, or a pattern, as in a marker.
        pattern: String,
        /// Bytes that its machine code has, each somewhere; empty: any code will do.
        code: Vec<Vec<u8>>,
    },
    /// A number behind one of its variables, when the trace begins.
    Number(ConditionSpec),
}

/// Checks `only-if` and `unless` of one thing.
pub(super) fn only_if(
    source: &Source<'_>,
    only_if: Option<Spanned<Conditions>>,
    unless: Option<Spanned<Conditions>>,
) -> Result<OnlyIf> {
    Ok(OnlyIf {
        all: all(source, only_if, "only-if")?,
        unless: all(source, unless, "unless")?,
    })
}

fn all(
    source: &Source<'_>,
    given: Option<Spanned<Conditions>>,
    key: &str,
) -> Result<Vec<ProgramCondition>> {
    let Some(given) = given else {
        return Ok(Vec::new());
    };
    let span = given.span();
    let conditions = OneOrMany::all(given);
    if conditions.is_empty() {
        return Err(source
            .error(span, format!("`{key}` is an empty list"))
            .next(format!(
                "leave {key} out, or write {key} = {{ function = \"name\" }}"
            )));
    }
    conditions
        .into_iter()
        .map(|one| check(source, one))
        .collect()
}

fn check(source: &Source<'_>, given: Spanned<Schema>) -> Result<ProgramCondition> {
    let span = given.span();
    let given = given.into_inner();
    let object = given.object.map(|object| {
        let glob = check_glob(object.get_ref());
        glob.map_err(|why| source.error(object.span(), why))
            .map(|()| object.into_inner())
    });
    let object = object.transpose()?;
    let sign = match (given.function, given.global) {
        (Some(_), Some(global)) => {
            return Err(source.error(
                global.span(),
                "a condition on a program is on a `function` or on a `global`, not both",
            ));
        }
        (None, None) => {
            return Err(source
                .error(
                    span,
                    "the condition does not say what of the program it is on",
                )
                .next(
                    "write { function = \"name\" }, or { global = \"variable\", deref = [0], \
                     equals = 2 }",
                ));
        }
        (Some(function), None) => {
            let of_number = [
                ("deref", given.deref.as_ref().map(Spanned::span)),
                ("size", given.size.as_ref().map(Spanned::span)),
                ("equals", given.equals.as_ref().map(Spanned::span)),
                ("not-equals", given.not_equals.as_ref().map(Spanned::span)),
                ("from", given.from.as_ref().map(Spanned::span)),
                ("to", given.to.as_ref().map(Spanned::span)),
            ];
            for (key, span) in of_number {
                if let Some(span) = span {
                    let what = format!("`{key}` belongs to a `global`, and this is a `function`");
                    return Err(source.error(span, what));
                }
            }
            if function.get_ref().trim().is_empty() {
                return Err(source.error(function.span(), "function is empty"));
            }
            Sign::Function {
                pattern: function.into_inner(),
                code: match given.code {
                    Some(code) => pieces(source, code)?,
                    None => Vec::new(),
                },
            }
        }
        (None, Some(global)) => {
            if let Some(code) = &given.code {
                return Err(source.error(
                    code.span(),
                    "`code` belongs to a `function`, and this is a `global`",
                ));
            }
            if given.deref.is_none() {
                return Err(source
                    .error(
                        global.span(),
                        "this is where the variable is, and not what it has",
                    )
                    .next("add deref = [0], which reads it"));
            }
            let when = When {
                value: Value {
                    arg: None,
                    register: None,
                    global: Some(global),
                    deref: given.deref,
                    add: None,
                    size: given.size,
                },
                equals: given.equals,
                not_equals: given.not_equals,
                from: given.from,
                to: given.to,
            };
            let values = Values {
                source,
                moment: Moment::Any,
            };
            let one = OneOrMany::One(Box::new(when));
            let mut numbers = values.conditions(Some(Spanned::new(span.clone(), one)))?;
            match numbers.pop() {
                Some(one) if !matches!(one.test, Test::Text(_)) => Sign::Number(one),
                _ => {
                    return Err(source.error(
                        span,
                        "a condition on a program compares numbers, and this is a text",
                    ));
                }
            }
        }
    };
    Ok(ProgramCondition { object, sign })
}

/// Pieces of machine code: `"48 8b 45 10"`.
fn pieces(source: &Source<'_>, code: Spanned<Strings>) -> Result<Vec<Vec<u8>>> {
    let span = code.span();
    let texts = match code.into_inner() {
        Strings::One(one) => vec![Spanned::new(span.clone(), one)],
        Strings::Many(many) => many,
    };
    if texts.is_empty() {
        return Err(source.error(span, "code is an empty list"));
    }
    let piece = |text: &Spanned<String>| {
        let byte = |digits: &str| match digits.len() {
            2 => u8::from_str_radix(digits, 16).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.get_ref().split_ascii_whitespace().map(byte).collect();
        bytes
            .filter(|bytes| (2..=MAX_CODE).contains(&bytes.len()))
            .ok_or_else(|| {
                let shown: String = text.get_ref().chars().take(60).collect();
                source
                    .error(
                        text.span(),
                        format!("{shown:?} is not machine code of 2 to {MAX_CODE} bytes"),
                    )
                    .next("write two hexadecimal digits a byte, as `objdump -d` shows them: code = \"48 8b 45 10\"")
            })
    };
    texts.iter().map(piece).collect()
}

#[cfg(test)]
mod tests;
