//! What markers do with requests that have a key, and under which conditions: what `schema` read in,
//! checked [`MarkerSpec`]s out.

use reqtrace_common::keyed::MAX_KEY_PARTS;
use toml::Spanned;

use super::Checker;
use super::marker::Place;
use super::places::NamedPlace;
use crate::schema::list::OneOrMany;
use crate::schema::marker::{Key, Marker};
use crate::schema::{self, value};
use crate::value::{Moment, Values};
use crate::{KeySpec, MarkerSpec, Role, ValueSource, ValueSpec};
use reqtrace_base::error::{Error, Result};

/// What a key of a marker that has none is to get.
const KEY: &str =
    "add a key = { … } below [[request]], which makes requests known by it, or leave this out";

/// Checks the markers of one request type.
pub(super) struct Steps<'a> {
    pub(super) checker: &'a Checker<'a>,
    /// The key of its requests, if they have one.
    pub(super) key: Option<&'a [ValueSpec]>,
    /// The key is the unit that a thread runs, and no value of a marker.
    pub(super) is_unit: bool,
    pub(super) places: &'a [NamedPlace],
}

impl Checker<'_> {
    /// The key of a request type, which its markers have unless they have their own.
    pub(super) fn type_key(&self, key: Option<Spanned<Key>>) -> Result<Option<Vec<ValueSpec>>> {
        let values = Values {
            source: &self.source,
            moment: Moment::Any,
        };
        let Some(key) = key else {
            return Ok(None);
        };
        let span = key.span();
        match key.into_inner() {
            Key::Value(key) => self.key_values(values, Spanned::new(span, key)).map(Some),
            Key::Unit => Ok(Some(Vec::new())),
            Key::Current => Err(self.source.error(
                span,
                "`current` is the request that a thread runs, and this is what all of them are known by",
            )),
        }
    }

    /// The values of a key.
    fn key_values(
        &self,
        values: Values<'_>,
        given: Spanned<OneOrMany<value::Value>>,
    ) -> Result<Vec<ValueSpec>> {
        let span = given.span();
        let all = OneOrMany::all(given);
        if !(1..=MAX_KEY_PARTS).contains(&all.len()) {
            return Err(self
                .source
                .error(span, format!("a key of {} values", all.len()))
                .next(format!(
                    "a key is one value, or a list of up to {MAX_KEY_PARTS}"
                )));
        }
        all.iter()
            .map(|value| values.value(value.get_ref(), value.span()))
            .collect()
    }

    /// What only requests with a key can have, and what these cannot.
    pub(super) fn suits_the_key(&self, request: &schema::Request) -> Result<()> {
        if request.key.is_none() {
            let lists = [
                (Role::Resume, &request.resume),
                (Role::Park, &request.park),
                (Role::Idle, &request.idle),
                (Role::Ready, &request.ready),
                (Role::Adopt, &request.adopt),
            ];
            let lists = lists.map(|(role, list)| (role.name(), list.as_ref().map(Spanned::span)));
            let sockets = ("sockets", request.sockets.as_ref().map(Spanned::span));
            for (name, span) in lists.into_iter().chain([sockets]) {
                if let Some(span) = span {
                    return Err(self
                        .source
                        .error(
                            span,
                            format!("`{name}` is for requests with a `key`, and this one has none"),
                        )
                        .next(KEY));
                }
            }
            return Ok(());
        }
        let refused = [
            ("reentry", request.reentry.as_ref().map(Spanned::span)),
            (
                "return-probe",
                request.return_probe.as_ref().map(Spanned::span),
            ),
        ];
        for (key, span) in refused {
            if let Some(span) = span {
                let next = match key {
                    "reentry" => {
                        "leave it out: a begin with the key of a request that lives closes that one"
                    }
                    _ => "leave it out: returns of requests with a key are probed where they are",
                };
                return Err(self
                    .source
                    .error(span, format!("a request with a `key` has no `{key}`"))
                    .next(next));
            }
        }
        Ok(())
    }
}

impl Steps<'_> {
    /// Checks a list of markers.
    pub(super) fn markers(
        &self,
        role: Role,
        list: Option<Spanned<OneOrMany<Marker>>>,
    ) -> Result<Vec<MarkerSpec>> {
        let Some(list) = list else {
            return Ok(Vec::new());
        };
        let span = list.span();
        let all = OneOrMany::all(list);
        if all.is_empty() {
            let name = role.name();
            return Err(self
                .checker
                .source
                .error(span, format!("{name} is an empty list"))
                .next(format!("leave {name} out, or name at least one marker")));
        }
        all.into_iter()
            .map(|marker| self.marker(role, marker))
            .collect()
    }

    /// Checks a marker.
    pub(super) fn marker(&self, role: Role, mut marker: Spanned<Marker>) -> Result<MarkerSpec> {
        let span = marker.span();
        let given = marker.get_mut();
        let (key, to, when) = (given.key.take(), given.to.take(), given.when.take());
        let (place_name, touch) = (given.place.take(), given.touch.take());
        let (queued, detail) = (given.queued.take(), given.detail.take());
        let Place {
            place,
            object,
            called_by,
            is_all,
        } = self.checker.place(marker)?;
        let values = Values {
            source: &self.checker.source,
            moment: Moment::of(&place),
        };
        let is_touched = matches!(role, Role::Resume | Role::Ready);
        if let Some(touch) = touch.as_ref().filter(|_| !is_touched) {
            return Err(self.misplaced(touch, "touch", "resume` and `ready"));
        }
        let can_be_left_out = matches!(role, Role::Resume | Role::Park | Role::Ready);
        if let Some(detail) = detail.as_ref().filter(|_| !can_be_left_out) {
            return Err(self.misplaced(
                detail,
                "detail",
                "resume`, `park`, `ready` and `[[request.attribute]]",
            ));
        }
        if let Some(queued) = queued.as_ref().filter(|_| role != Role::Begin) {
            return Err(self.misplaced(queued, "queued", "begin"));
        }
        if let Some(queued) = queued.as_ref().filter(|_| self.key.is_none()) {
            let message = "`queued` is for requests with a `key`, and this one has none";
            let source = &self.checker.source;
            return Err(source.error(queued.span(), message).next(KEY));
        }
        if let Some(queued) = queued.as_ref().filter(|_| self.is_unit) {
            let message = "`queued` is known from the runtime of a request with key = \"unit\"";
            let source = &self.checker.source;
            return Err(source.error(queued.span(), message).next("leave it out"));
        }
        let is_queued = queued.is_some_and(Spanned::into_inner);
        if let Some(to) = to.as_ref().filter(|_| role != Role::Adopt) {
            return Err(self.misplaced(to, "to", "adopt"));
        }
        let to = match (role, to) {
            (Role::Adopt, None) => {
                return Err(self
                    .checker
                    .source
                    .error(span, "`adopt` does not say which key the request gets")
                    .next("add to = { arg = 1 }"));
            }
            (_, Some(to)) => {
                let to_span = to.span();
                let to = self.checker.key_values(values, to)?;
                self.as_many(to.len(), to_span)?;
                Some(to)
            }
            (_, None) => None,
        };
        Ok(MarkerSpec {
            role,
            key: self.key_of(role, key, values, span)?,
            waits_in: self.index_of(role, is_queued, place_name)?,
            when: values.conditions(when)?,
            is_touch: touch.is_some_and(Spanned::into_inner),
            is_queued,
            is_child: false,
            has_children: false,
            to,
            place,
            object,
            called_by,
            is_all,
        })
    }

    fn misplaced<T>(&self, given: &Spanned<T>, key: &str, role: &str) -> Error {
        self.checker
            .source
            .error(given.span(), format!("`{key}` belongs to `{role}` only"))
    }

    /// All keys of a request type have as many values.
    fn as_many(&self, given: usize, span: std::ops::Range<usize>) -> Result<()> {
        let of_type = self.key.map_or(given, <[ValueSpec]>::len);
        if given == of_type {
            return Ok(());
        }
        let message = format!("a key of {given}, and that of its request has {of_type}");
        let source = &self.checker.source;
        Err(source
            .error(span, message)
            .next("give it as many values, in the same order"))
    }

    fn index_of(
        &self,
        role: Role,
        is_queued: bool,
        name: Option<Spanned<String>>,
    ) -> Result<Option<usize>> {
        let Some(name) = name else {
            return Ok(None);
        };
        if !is_queued && !matches!(role, Role::Resume | Role::Park | Role::Idle | Role::Ready) {
            return Err(self
                .checker
                .source
                .error(
                    name.span(),
                    format!(
                        "`as` names where a request is parked or queued, and `{}` does neither",
                        role.name()
                    ),
                )
                .next("it belongs to `park`, `idle`, `ready`, `resume`, and a `begin` with queued = true"));
        }
        let mut places = self.places.iter();
        Ok(places.position(|place| place.name == *name.get_ref()))
    }

    fn key_of(
        &self,
        role: Role,
        given: Option<Spanned<Key>>,
        values: Values<'_>,
        span: std::ops::Range<usize>,
    ) -> Result<KeySpec> {
        let name = role.name();
        let source = &self.checker.source;
        let Some(of_type) = self.key else {
            return match given {
                None => Ok(KeySpec::Current),
                Some(given) => Err(source
                    .error(
                        given.span(),
                        format!("this `{name}` has a key, and its request has none"),
                    )
                    .next(KEY)),
            };
        };
        if role == Role::Attribute {
            return Ok(KeySpec::Current);
        }
        if self.is_unit {
            return match given {
                None => Ok(KeySpec::Unit),
                Some(given) => Err(source
                    .error(given.span(), "the key of this request is its unit")
                    .next("leave this key out")),
            };
        }
        if let Some(given) = given {
            if role == Role::Idle {
                return Err(source
                    .error(
                        given.span(),
                        "`idle` is about whatever the thread runs, so it has no key",
                    )
                    .next("leave the key out, or write `park`"));
            }
            let span = given.span();
            return match given.into_inner() {
                Key::Current if matches!(role, Role::Begin | Role::Resume) => Err(source.error(
                    span,
                    format!(
                        "`current` is the request that the thread runs, and a `{name}` is where a \
                         thread takes another one"
                    ),
                )),
                Key::Current => Ok(KeySpec::Current),
                Key::Unit => Err(source
                    .error(
                        span,
                        "`unit` is a key of all markers of a request, or of none",
                    )
                    .next("write key = \"unit\" below [[request]]")),
                Key::Value(key) => {
                    let key = self
                        .checker
                        .key_values(values, Spanned::new(span.clone(), key))?;
                    self.as_many(key.len(), span)?;
                    Ok(KeySpec::Key(key))
                }
            };
        }
        if role == Role::Idle {
            return Ok(KeySpec::Current);
        }
        let is_there = of_type
            .iter()
            .all(|value| match (&value.source, values.moment) {
                (ValueSource::Argument(_), Moment::Return) => false,
                (ValueSource::Result, moment) => moment == Moment::Return,
                _ => true,
            });
        match role {
            _ if is_there => Ok(KeySpec::Key(of_type.to_vec())),
            Role::Park | Role::End if values.moment == Moment::Return => Ok(KeySpec::Current),
            _ if values.moment == Moment::Return => Err(source
                .error(
                    span,
                    format!(
                        "this `{name}` is at a return, where the argument is gone that is the \
                         request's key"
                    ),
                )
                .next("add key = { arg = \"result\" }, or a register that has the key then")),
            _ => Err(source
                .error(
                    span,
                    format!(
                        "the request's key is what a function returns, and this `{name}` is not at \
                         a return"
                    ),
                )
                .next("add a key, such as key = { arg = 0 }")),
        }
    }
}

#[cfg(test)]
mod tests;
