//! Requests that are units of the program's runtime, or within them: what `schema` read in, checked out.

use std::ops::Range;

use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::children_of;
use reqtrace_common::cookie;
use toml::Spanned;

use super::Checker;
use super::steps::Steps;
use crate::attribute::{self, OfUnit};
use crate::runtime::{
    Edges, child, child_goroutine, child_goroutine_spawned, child_spawned, done, goroutine,
    goroutine_done, goroutine_spawned, polled_by, recovered, spawned, starts_with,
};
use crate::schema::runtime::Kind;
use crate::schema::{self, marker};
use crate::{KeySpec, MarkerSpec, RequestSpec, ReturnProbe, Role, ValueSpec};

/// The only place of requests that are units.
const QUEUE: usize = 0;

/// How a request is tied to units of the runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// It is one.
    Whole,
    /// It is within one.
    Within,
}

impl Checker<'_> {
    /// How a request is tied to units, if it is.
    pub(super) fn tie(request: &schema::Request) -> Option<(Tie, Range<usize>)> {
        if let Some(unit) = &request.unit {
            return Some((Tie::Whole, unit.span()));
        }
        let key = request.key.as_ref()?;
        matches!(key.get_ref(), marker::Key::Unit).then(|| (Tie::Within, key.span()))
    }

    /// Whether the profile has a runtime if requests are tied to its units, and only then.
    pub(super) fn suits_the_runtime(&self, file: &schema::File) -> Result<()> {
        let mut ties = file
            .request
            .iter()
            .filter_map(|request| Self::tie(request.get_ref()));
        let tie = ties.next();
        if let Some((first, _)) = tie
            && let Some((_, span)) = ties.find(|(other, _)| *other != first)
        {
            return Err(self
                .source
                .error(
                    span,
                    "some requests of the profile are units, and some are within units: a thread is in one request at a time",
                )
                .next("make them two profiles, and trace them one at a time"));
        }
        match (&file.runtime, tie) {
            (None, Some((_, span))) => Err(self
                .source
                .error(
                    span,
                    "a unit is what a runtime runs, and the profile has none",
                )
                .next("add [runtime] with kind = \"tokio\" or \"go\"")),
            (Some(runtime), None) => Err(self
                .source
                .error(
                    runtime.get_ref().kind.span(),
                    "no request of the profile is about a unit of the runtime",
                )
                .next(
                    "add unit = \"*name*\" to a [[request]] that is a task of this type, or a goroutine that starts with this \
                     function, or key = \"unit\" to one that is within a unit; or leave [runtime] out",
                )),
            _ => Ok(()),
        }
    }

    /// Whether the units that requests of a type, one of so many, make are followed: as requests of the type behind it.
    pub(super) fn follows_children(&self, types: usize, request: &schema::Request) -> Result<bool> {
        let Some(given) = request.children.as_ref().filter(|given| *given.get_ref()) else {
            return Ok(false);
        };
        let refuse = |what: &str, next: &str| {
            Err(self.source.error(given.span(), what).next(next.to_owned()))
        };
        if Self::tie(request).is_none() {
            return refuse(
                "children are units that a unit makes, and the request is tied to none",
                "add [runtime] and unit = \"…\" or key = \"unit\", or leave `children` out",
            );
        }
        if self.is_cheap {
            return refuse(
                "children are followed by probes that a cheap profile leaves out",
                "leave `children` or `cheap` out",
            );
        }
        if request
            .unit
            .as_ref()
            .is_some_and(|unit| unit.get_ref() == "*")
        {
            return refuse(
                "with unit = \"*\" each child is a request itself",
                "leave `children` out, or name the units that are requests",
            );
        }
        if request.unit.is_some() && types > 1 {
            return refuse(
                "children of units are followed in profiles with one [[request]]: what is another one's unit is no child",
                "make a profile for each, and trace them one at a time",
            );
        }
        Ok(true)
    }

    /// The type of what requests of a type make.
    pub(super) fn children_of(&self, parent: &RequestSpec) -> RequestSpec {
        let but = parent.unit();
        let (begin, end) = if self.is_go() {
            (
                child_goroutine_spawned(but, QUEUE),
                goroutine_done(Role::End),
            )
        } else {
            (child_spawned(but, QUEUE), done(Role::End))
        };
        RequestSpec {
            attributes: vec![attribute::of_unit("unit".to_owned(), self.type_of_unit())],
            ..self.unit(children_of(&parent.name), begin, end)
        }
    }

    /// What the runtime sets cannot be set again.
    pub(super) fn suits_the_tie(&self, request: &schema::Request, tie: Tie) -> Result<()> {
        let is_whole = tie == Tie::Whole;
        let span =
            |given: Option<Range<usize>>, of_whole: bool| given.filter(|_| is_whole || !of_whole);
        let of_list = |list: &Option<Spanned<schema::Markers>>| list.as_ref().map(Spanned::span);
        let refused = [
            ("key", span(request.key.as_ref().map(Spanned::span), true)),
            (
                "begin",
                span(request.begin.as_ref().map(Spanned::span), true),
            ),
            ("end", span(request.end.as_ref().map(Spanned::span), true)),
            (
                "label",
                span(request.label.as_ref().map(Spanned::span), true),
            ),
            ("resume", of_list(&request.resume)),
            ("park", of_list(&request.park)),
            ("idle", of_list(&request.idle)),
            ("ready", of_list(&request.ready)),
            ("adopt", of_list(&request.adopt)),
            ("reentry", request.reentry.as_ref().map(Spanned::span)),
            (
                "return-probe",
                request.return_probe.as_ref().map(Spanned::span),
            ),
            ("sockets", request.sockets.as_ref().map(Spanned::span)),
            ("instead", request.instead.first().map(Spanned::span)),
        ];
        for (key, span) in refused {
            if let Some(span) = span {
                let (what, next) = if is_whole {
                    (
                        format!(
                            "a request that is a unit has no `{key}`: it is the unit, from its spawn to its end"
                        ),
                        "leave it out, or have key = \"unit\" with `begin` and `end` instead of `unit`",
                    )
                } else {
                    (
                        format!(
                            "a request with key = \"unit\" has no `{key}`: the runtime says where its unit is"
                        ),
                        "leave it out",
                    )
                };
                return Err(self.source.error(span, what).next(next));
            }
        }
        Ok(())
    }

    /// A request type whose requests are units.
    pub(super) fn whole_unit(&self, request: schema::Request) -> Result<RequestSpec> {
        let name = self.name(&request.name, "a request's name")?;
        let Some(unit) = request.unit else {
            return Err(Error::failed("a request is no unit"));
        };
        self.not_empty(unit.get_ref(), unit.span(), "unit")?;
        let (begin, end) = if self.is_go() {
            (
                goroutine_spawned(unit.get_ref(), QUEUE),
                goroutine_done(Role::End),
            )
        } else {
            (spawned(unit.get_ref(), QUEUE), done(Role::End))
        };
        // Of all units each is a request itself.
        let children = (unit.get_ref() != "*").then(|| self.children());
        let steps = Steps {
            checker: self,
            key: Some(&[]),
            is_unit: true,
            places: &[],
        };
        for attribute in &request.attribute {
            let given = attribute.get_ref();
            if given.marker.is_none() && !given.is_of_unit() {
                return Err(self
                    .source
                    .error(
                        attribute.span(),
                        "where a unit is spawned and done nothing of it can be read but its type",
                    )
                    .next(
                        "add function = \"…\", one that the unit calls; or type = \"unit\" instead of the others, for its type",
                    ));
            }
        }
        let attributes = attribute::Checker {
            source: &self.source,
            begin: &begin.place,
            end: Some(&end.place),
            unit: OfUnit::Spawned(self.type_of_unit()),
        };
        let attributes = attributes.all(request.attribute, |marker| {
            steps.marker(Role::Attribute, marker)
        })?;
        Ok(RequestSpec {
            done: children.into_iter().collect(),
            attributes,
            ..self.unit(name, begin, end)
        })
    }

    /// A request type whose requests are units, without attributes.
    fn unit(&self, name: String, begin: MarkerSpec, end: MarkerSpec) -> RequestSpec {
        let edges = self.edges(Tie::Whole);
        RequestSpec {
            name,
            begin,
            end: Some(end),
            reentry: cookie::Reentry::Nest,
            return_probe: ReturnProbe::Sites,
            labels: Vec::new(),
            is_keyed: true,
            resume: edges.resume,
            park: edges.park,
            ready: edges.ready,
            adopt: Vec::new(),
            done: Vec::new(),
            sockets: true,
            places: edges.places,
            attributes: Vec::new(),
            instead: Vec::new(),
        }
    }

    fn is_go(&self) -> bool {
        self.runtime == Some(Kind::Go)
    }

    /// What tells which unit it is, where one is spawned.
    fn type_of_unit(&self) -> ValueSpec {
        match self.is_go() {
            true => starts_with(),
            false => polled_by(),
        }
    }

    /// Where a request makes other units.
    fn children(&self) -> MarkerSpec {
        if self.is_go() {
            child_goroutine()
        } else {
            child()
        }
    }

    /// The edges of units that a request is tied to.
    fn edges(&self, tie: Tie) -> Edges {
        let (edges, queues) = if self.is_go() {
            (Edges::of_goroutines(QUEUE), false)
        } else {
            (Edges::new(QUEUE), tie == Tie::Whole)
        };
        match self.is_cheap {
            true => edges.cheap(queues),
            false => edges,
        }
    }

    /// Adds the edges of its unit to a request type that is within units.
    pub(super) fn within_unit(&self, mut request: RequestSpec) -> RequestSpec {
        let mut left = None;
        let done = if self.is_go() {
            let end = request.end.as_ref();
            left = end.and_then(|end| recovered(&request.begin, end));
            // Go code has its goroutine in a register: nothing need be kept for the thread.
            for marker in [&mut request.begin].into_iter().chain(&mut request.end) {
                marker.key = KeySpec::Key(vec![goroutine()]);
            }
            goroutine_done(Role::Done)
        } else {
            done(Role::Done)
        };
        let edges = self.edges(Tie::Within);
        let children = (!self.is_cheap).then(|| self.children());
        RequestSpec {
            resume: edges.resume,
            park: edges.park,
            ready: edges.ready,
            done: left.into_iter().chain([done]).chain(children).collect(),
            places: edges.places,
            ..request
        }
    }
}

#[cfg(test)]
mod tests;
