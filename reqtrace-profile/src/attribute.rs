//! Attributes of a request type: what `schema` read in, checked [`AttributeSpec`]s out.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use reqtrace_common::marker::{MAX_ATTRIBUTES, MAX_TEXT};

use super::label::{LabelKind, kind, words};
use super::marker::MarkerSpec;
use super::place::PlaceSpec;
use super::program::{self, OnlyIf};
use super::schema::attribute::{self as schema, Keep, On};
use super::source::Source;
use super::value::{ConditionSpec, Moment, ValueSpec, Values};
use reqtrace_base::error::Result;

mod unit;

pub(super) use unit::{OfUnit, of_unit};

/// Bytes of a text when the profile does not say.
const USUAL_TEXT: usize = 128;

/// Columns of requests.csv, and other words of `--group-by`, that an attribute may not be called.
const TAKEN: &[&str] = &[
    "id",
    "request",
    "pid",
    "tid",
    "comm",
    "label",
    "fingerprint",
    "blocks",
    "preemptions",
    "moves",
    "complete",
    "reason",
    "weight",
    "waited_before_ns",
];

/// One `[[request.attribute]]`: a way to read an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeSpec {
    /// Its name; a column of requests.csv.
    pub name: String,
    /// Where it is read.
    pub read: AttributeAt,
    /// All must hold.
    pub when: Vec<ConditionSpec>,
    /// The number, or the address of the text.
    pub value: ValueSpec,
    /// How the value becomes text.
    pub kind: LabelKind,
    /// Bytes of the text at most.
    pub most: usize,
    /// The text ends before this byte.
    pub until: Option<u8>,
    /// Names of numbers: their value, and what it is called.
    pub names: Vec<(i64, String)>,
    /// Whether the last value that is read counts, and not the first.
    pub keep_last: bool,
    /// In which programs it is read in this way.
    pub only_if: OnlyIf,
}

impl AttributeSpec {
    /// Whether it is text that users may have written, which is only read with `--labels`.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.kind.is_text()
    }
}

/// Where an attribute is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeAt {
    /// Where the request begins.
    Begin,
    /// Where it ends.
    End,
    /// At a marker, if the thread runs a request of the type then.
    Marker(Box<MarkerSpec>),
}

/// What the attributes of one request type are checked against.
pub(super) struct Checker<'a> {
    pub(super) source: &'a Source<'a>,
    /// Where it begins.
    pub(super) begin: &'a PlaceSpec,
    /// Where it ends; `None`: at the return of the begin function.
    pub(super) end: Option<&'a PlaceSpec>,
    /// Where what its unit is can be read.
    pub(super) unit: OfUnit,
}

impl Checker<'_> {
    /// Checks them. `marker` checks a marker.
    pub(super) fn all(
        &self,
        given: Vec<Spanned<schema::Attribute>>,
        marker: impl Fn(Spanned<super::schema::marker::Marker>) -> Result<MarkerSpec>,
    ) -> Result<Vec<AttributeSpec>> {
        let mut all: Vec<AttributeSpec> = Vec::new();
        for attribute in given {
            let span = attribute.get_ref().name.span();
            let attribute = self.one(attribute, &marker)?;
            match all.iter().find(|known| known.name == attribute.name) {
                Some(first) => self.agree(first, &attribute, span)?,
                None => self.fits(&all, &attribute, span)?,
            }
            all.push(attribute);
        }
        Ok(all)
    }

    fn one(
        &self,
        attribute: Spanned<schema::Attribute>,
        marker: &impl Fn(Spanned<super::schema::marker::Marker>) -> Result<MarkerSpec>,
    ) -> Result<AttributeSpec> {
        let span = attribute.span();
        let attribute = attribute.into_inner();
        let name = self.name(&attribute.name)?;
        if attribute.is_of_unit() {
            return self.of_unit(name, attribute, span);
        }
        if let (Some(on), true) = (&attribute.on, attribute.marker.is_some()) {
            return Err(self.source.error(
                on.span(),
                "an attribute is read `on` begin or end, or at a marker of its own, not both",
            ));
        }
        let read = match (attribute.marker, attribute.on.map(Spanned::into_inner)) {
            (Some(own), _) => {
                AttributeAt::Marker(Box::new(marker(Spanned::new(span.clone(), own))?))
            }
            (None, Some(On::End)) => AttributeAt::End,
            (None, Some(On::Begin) | None) => AttributeAt::Begin,
        };
        let moment = match (&read, self.end) {
            (AttributeAt::Begin, _) => Moment::of(self.begin),
            (AttributeAt::End, Some(end)) => Moment::of(end),
            (AttributeAt::End, None) => Moment::Return,
            (AttributeAt::Marker(marker), _) => Moment::of(&marker.place),
        };
        let values = Values {
            source: self.source,
            moment,
        };
        let kind = kind(values, &attribute.text, &attribute.value, "attribute")?;
        if !kind.is_text() {
            let of_text = [
                (
                    "max-length",
                    attribute.max_length.as_ref().map(Spanned::span),
                ),
                ("until", attribute.until.as_ref().map(Spanned::span)),
            ];
            for (key, span) in of_text {
                if let Some(span) = span {
                    let what = format!("{} has no `{key}`", words(&kind));
                    return Err(self.source.error(span, what));
                }
            }
        }
        if let (false, Some(names)) = (kind.is_number(), &attribute.names) {
            return Err(self
                .source
                .error(
                    names.span(),
                    format!("`names` are those of numbers, and this is {}", words(&kind)),
                )
                .next("add type = \"integer\""));
        }
        Ok(AttributeSpec {
            name,
            read,
            when: values.conditions(attribute.when)?,
            value: values.value(&attribute.value, span)?,
            kind,
            most: match attribute.max_length {
                Some(bytes) => self.most(&bytes)?,
                None => USUAL_TEXT,
            },
            until: match attribute.until {
                Some(until) => Some(self.until(&until)?),
                None => None,
            },
            names: match attribute.names {
                Some(names) => self.names(names)?,
                None => Vec::new(),
            },
            keep_last: matches!(attribute.keep.map(Spanned::into_inner), Some(Keep::Last)),
            only_if: program::only_if(self.source, attribute.only_if, attribute.unless)?,
        })
    }

    fn name(&self, name: &Spanned<String>) -> Result<String> {
        let text = name.get_ref();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if text.is_empty() || !text.chars().all(fits) {
            return Err(self
                .source
                .error(
                    name.span(),
                    format!("{text:?} cannot be a column, as the name of an attribute is one"),
                )
                .next("use letters, digits, `_`, `-` and `.`"));
        }
        let is_time = text.to_ascii_lowercase().ends_with("_ns");
        if is_time || TAKEN.iter().any(|taken| text.eq_ignore_ascii_case(taken)) {
            let what = if is_time {
                format!("`{text}` looks like a column of times: those end in `_ns`")
            } else {
                format!("`{text}` is already a column, or a word of --group-by")
            };
            return Err(self.source.error(name.span(), what).next(format!(
                "choose another name, such as `my_{}`",
                text.trim_end_matches("_ns")
            )));
        }
        Ok(text.clone())
    }

    /// Whether there is room for one with a new name.
    fn fits(&self, all: &[AttributeSpec], new: &AttributeSpec, span: Range<usize>) -> Result<()> {
        if let Some(like) = all
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(&new.name))
        {
            return Err(self.source.error(
                span,
                format!(
                    "the attributes `{}` and `{}` are hard to tell apart",
                    like.name, new.name
                ),
            ));
        }
        let mut names: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() >= MAX_ATTRIBUTES {
            return Err(self.source.error(
                span,
                format!("more than {MAX_ATTRIBUTES} attributes in one request type"),
            ));
        }
        Ok(())
    }

    /// Ways to read one attribute give one kind of value.
    fn agree(&self, first: &AttributeSpec, next: &AttributeSpec, span: Range<usize>) -> Result<()> {
        let kind = |spec: &AttributeSpec| match spec.kind {
            LabelKind::Integer => "integer",
            LabelKind::Unsigned => "unsigned",
            LabelKind::CString | LabelKind::Counted(_) => "string",
            LabelKind::Symbol => "symbol",
            LabelKind::Unit => "unit",
        };
        let differs = [
            ("type", kind(first) != kind(next)),
            ("max-length", first.most != next.most),
            ("until", first.until != next.until),
            ("names", first.names != next.names && !next.names.is_empty()),
        ];
        match differs.into_iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((key, _)) => Err(self
                .source
                .error(
                    span,
                    format!("`{}` has another `{key}` than where it stands first", next.name),
                )
                .next("several ways to read one attribute have the same type, max-length, until and names; or give it another name")),
        }
    }

    fn most(&self, bytes: &Spanned<i64>) -> Result<usize> {
        usize::try_from(*bytes.get_ref())
            .ok()
            .filter(|bytes| (1..=MAX_TEXT).contains(bytes))
            .ok_or_else(|| {
                self.source.error(
                    bytes.span(),
                    format!(
                        "max-length is {} bytes, where 1 to {MAX_TEXT} fit",
                        bytes.get_ref()
                    ),
                )
            })
    }

    fn until(&self, until: &Spanned<String>) -> Result<u8> {
        match until.get_ref().as_bytes() {
            [one] => Ok(*one),
            _ => Err(self
                .source
                .error(
                    until.span(),
                    format!(
                        "until is {:?}, and not one ASCII character",
                        until.get_ref()
                    ),
                )
                .next("the text ends before it: until = \" \"")),
        }
    }

    fn names(
        &self,
        names: Spanned<BTreeMap<Spanned<String>, String>>,
    ) -> Result<Vec<(i64, String)>> {
        let span = names.span();
        let mut all = Vec::new();
        for (number, name) in names.into_inner() {
            let value = number.get_ref().parse::<i64>().map_err(|_| {
                self.source
                    .error(
                        number.span(),
                        format!("`{}` is no number, so it has no name", number.get_ref()),
                    )
                    .next("write names = { 0 = \"sleep\", 3 = \"query\" }")
            })?;
            if name.trim().is_empty() {
                let what = format!("the name of {value} is empty");
                return Err(self.source.error(number.span(), what));
            }
            all.push((value, name));
        }
        if all.is_empty() {
            return Err(self.source.error(span, "names is an empty table"));
        }
        all.sort();
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
