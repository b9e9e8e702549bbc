//! Attributes: what requests were about, as the traced program had it, in; text for columns and groups out.

use std::borrow::Cow;

use reqtrace_base::plain::Plain;
use reqtrace_recording::{Header, Request, Value};

use crate::classify::columns;
use crate::error::{Error, Result};
use crate::fingerprint::fingerprint_of;
use crate::label::{Texts, marked, text_of};
use crate::profile::{AttributeSpec, LabelKind, Profiles};
use crate::report::Grouping;

const BY: &str = "--group-by";
const FILTER: &str = "--attribute";

/// The attributes of all request types.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    /// Of all types, each once.
    pub(super) names: Vec<String>,
    /// Of each type, by the attribute's number there.
    types: Vec<Vec<OfType>>,
    group: Option<Group>,
    /// Of each type without a label, its first attribute that is a text: that is its label.
    labels: Vec<Option<u32>>,
    shared: Texts,
}

/// An attribute of one request type.
#[derive(Clone, Debug)]
struct OfType {
    /// Index into [`Attributes::names`].
    column: usize,
    is_signed: bool,
    /// What numbers are called.
    names: Vec<(i64, Plain)>,
}

/// The attribute that requests are grouped by.
#[derive(Clone, Copy, Debug)]
struct Group {
    column: usize,
    /// But for its numbers and strings.
    is_fingerprint: bool,
}

impl Attributes {
    /// Those of the profiles.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] when requests are to be grouped by an attribute that no request type has, or
    /// by a text that was not recorded.
    pub(super) fn new(
        profiles: &Profiles,
        grouping: Option<&Grouping>,
        header: &Header,
    ) -> Result<Self> {
        let names = columns::attributes(profiles);
        let types = profiles.requests().map(|request| {
            let of_type = request.attribute_names().into_iter().map(|name| {
                let mut specs = request.attributes.iter();
                let spec = specs.find(|spec| spec.name == name);
                let names_of = spec.into_iter().flat_map(|spec| &spec.names);
                OfType {
                    column: names.iter().position(|known| known == name).unwrap_or(0),
                    is_signed: spec.is_some_and(|spec| spec.kind == LabelKind::Integer),
                    names: names_of
                        .map(|(number, name)| (*number, Plain::of(name)))
                        .collect(),
                }
            });
            of_type.collect()
        });
        let types = types.collect();
        let group = match grouping.and_then(|by| Some((by, by.attribute()?))) {
            Some((by, name)) => {
                if needs_texts(profiles, by)? && !header.options.labels {
                    return Err(no_texts(BY, name));
                }
                let column = names.iter().position(|known| known == name).unwrap_or(0);
                Some(Group {
                    column,
                    is_fingerprint: matches!(by, Grouping::FingerprintOf(_)),
                })
            }
            None => None,
        };
        let labels = profiles.requests().map(|request| {
            let text = request.attributes.iter().find(|spec| spec.is_text())?;
            let names = request.attribute_names();
            let index = names.iter().position(|name| *name == text.name);
            index
                .filter(|_| request.labels.is_empty())
                .map(|index| index as u32)
        });
        let labels = labels.collect();
        Ok(Self {
            labels,
            names,
            types,
            group,
            shared: Texts::default(),
        })
    }

    /// The column of an attribute that a filter asks for.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] when no request type has it, or when it is a text that was not recorded.
    pub(super) fn asked_for(
        &self,
        name: &str,
        profiles: &Profiles,
        header: &Header,
    ) -> Result<usize> {
        let column = self.names.iter().position(|known| known == name);
        let Some(column) = column else {
            return Err(unknown(FILTER, name, &self.names, ""));
        };
        if is_text(profiles, name) == Some(true) && !header.options.labels {
            return Err(no_texts(FILTER, name));
        }
        Ok(column)
    }

    /// Makes `texts` those of all attributes, in the order of the names; none when there are no attributes at all.
    pub(super) fn texts(&mut self, request: &Request<'_>, texts: &mut Vec<Plain>) {
        texts.resize(self.names.len(), Plain::default());
        // Most are empty, and stay that.
        for text in texts.iter_mut().filter(|text| !text.is_empty()) {
            *text = Plain::default();
        }
        let mut shared = std::mem::take(&mut self.shared);
        self.each(request, |column, of_type, value| {
            texts[column] = match value {
                Value::Text {
                    bytes,
                    is_cut: false,
                } => shared.text(bytes).clone(),
                value => of_type.text(value),
            };
        });
        self.shared = shared;
    }

    /// The text that stands for a request's group, in place of its label; `None` where its label does.
    pub(super) fn group(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let Some(group) = self.group else {
            return self.label(request);
        };
        let mut found = String::new();
        self.each(request, |column, of_type, value| {
            if column == group.column {
                let text = of_type.text(value);
                found = match group.is_fingerprint {
                    true => fingerprint_of(&text),
                    false => text.into(),
                };
            }
        });
        Some(found.into_bytes())
    }

    /// The text that is the label of a request whose type has none.
    pub(super) fn label(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let index = (*self.labels.get(request.request_type as usize)?)?;
        let mut attributes = request.attributes.iter();
        match attributes.find(|attribute| attribute.index == index)?.value {
            Value::Text { bytes, is_cut } if is_cut => {
                Some(fingerprint_of(&text_of(bytes, is_cut)).into_bytes())
            }
            Value::Text { bytes, .. } => Some(bytes.to_vec()),
            Value::Number(_) => None,
        }
    }

    /// What names a request: its label, or the attribute in place of that.
    pub(super) fn label_of<'r>(&self, request: &Request<'r>) -> Cow<'r, [u8]> {
        match self.label(request) {
            Some(attribute) => Cow::Owned(attribute),
            None => marked(request.label),
        }
    }

    fn each(&self, request: &Request<'_>, mut take: impl FnMut(usize, &OfType, Value<'_>)) {
        let Some(of_type) = self.types.get(request.request_type as usize) else {
            return;
        };
        for attribute in request.attributes {
            if let Some(known) = of_type.get(attribute.index as usize) {
                take(known.column, known, attribute.value);
            }
        }
    }
}

impl OfType {
    fn text(&self, value: Value<'_>) -> Plain {
        match value {
            Value::Text { bytes, is_cut } => text_of(bytes, is_cut),
            Value::Number(number) => {
                let signed = number.cast_signed();
                let name = self.names.iter().find(|(known, _)| *known == signed);
                match name {
                    Some((_, name)) => name.clone(),
                    None if self.is_signed => Plain::of(&signed.to_string()),
                    None => Plain::of(&number.to_string()),
                }
            }
        }
    }
}

/// `next` follows the names of those that the profile has.
fn unknown(option: &str, name: &str, names: &[String], next: &str) -> Error {
    let next = match names {
        [] => "the profile has none: add a [[request.attribute]]".to_owned(),
        names => format!("it has {}", names.join(", ")),
    } + next;
    Error::usage(format!(
        "{option} {name}: no request type of the profile has an attribute of that name"
    ))
    .next(next)
}

fn no_texts(option: &str, name: &str) -> Error {
    Error::usage(format!(
        "{option} {name}: the attribute is a text, and the recording has no texts"
    ))
    .next("record with --labels, or trace with --group-by")
}

/// Whether an attribute is a text in some request type; `None` where none has it.
fn is_text(profiles: &Profiles, name: &str) -> Option<bool> {
    let specs = profiles.requests().flat_map(|request| &request.attributes);
    let mut specs = specs.filter(|spec| spec.name == name).peekable();
    specs.peek()?;
    Some(specs.any(AttributeSpec::is_text))
}

/// Whether texts of requests have to be recorded for these groups.
///
/// # Errors
///
/// [`crate::error::Kind::Usage`] when no request type has the attribute.
pub fn needs_texts(profiles: &Profiles, by: &Grouping) -> Result<bool> {
    let Some(name) = by.attribute() else {
        return Ok(true);
    };
    is_text(profiles, name).ok_or_else(|| {
        let names = columns::attributes(profiles);
        let next = "; label and fingerprint always are something to group by";
        unknown(BY, name, &names, next)
    })
}

#[cfg(test)]
#[path = "attributes/tests.rs"]
mod tests;
