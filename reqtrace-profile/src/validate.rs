//! What a profile's text means: [`schema`] in, a checked [`Profile`] or the first error out.

mod details;
mod instead;
mod marker;
mod names;
mod places;
mod runtime;
mod steps;
mod wait;

use std::collections::HashMap;
use std::ops::Range;

use reqtrace_common::cookie;
use reqtrace_common::limits::MAX_REQUEST_TYPES;
use toml::Spanned;

use super::attribute::{self, OfUnit};
use super::label;
use super::program;
use super::schema;
use super::schema::runtime::Kind;
use super::source::Source;
use super::{At, Instead, Origin, PlaceSpec, Profile, RequestSpec, ReturnProbe, Role, WaitSpec};
use reqtrace_base::error::{Error, Result};
use runtime::Tie;
use steps::Steps;

/// Named waits of a profile at most; each name is a column.
const MAX_WAITS: usize = 1000;

/// Wait classes that reqtrace knows by itself.
const BUILT_IN_WAITS: &[&str] = &[
    "disk",
    "network",
    "lock",
    "sleep",
    "poll",
    "pipe",
    "page-fault",
    "process",
    "tracing",
    "other",
];

/// What stands before `_ns` in the other columns of requests.csv.
const CSV_COLUMNS: &[&str] = &[
    "start unix",
    "latency",
    "on cpu",
    "run queue",
    "preempted",
    "blocked",
    "unattributed",
    "parked",
    "queued",
];

impl Profile {
    /// Parses and checks the text of a profile. `name` is what to call it in messages: a path or
    /// a file name.
    ///
    /// # Errors
    ///
    /// A usage error that begins with `name:line:column:`.
    pub fn parse(text: &str, name: &str, origin: Origin) -> Result<Self> {
        let source = Source {
            name: name.to_owned(),
            text,
        };
        let file: schema::File =
            toml::from_str(text).map_err(|error| source.parse_error(&error))?;
        let runtime = file.runtime.as_ref().map(Spanned::get_ref);
        let is_cheap = file.is_cheap();
        let runtime = runtime.map(|runtime| *runtime.kind.get_ref());
        let checker = Checker {
            source,
            runtime,
            is_cheap,
        };
        checker.profile(file, origin)
    }
}

struct Checker<'a> {
    source: Source<'a>,
    /// What multiplexes units.
    runtime: Option<Kind>,
    /// With few probes.
    is_cheap: bool,
}

impl Checker<'_> {
    fn profile(&self, file: schema::File, origin: Origin) -> Result<Profile> {
        self.suits_the_runtime(&file)?;
        let name = self.name(&file.profile.name, "profile.name")?;
        let executables = self.strings(file.profile.executables, "profile.executables")?;
        if file.request.is_empty() {
            return Err(Error::usage(format!(
                "{}: the profile has no [[request]], so there is nothing to trace",
                self.source.name
            ))
            .next("add one: [[request]] with name = \"…\" and begin = { function = \"…\" }"));
        }
        if let Some(extra) = file.request.get(MAX_REQUEST_TYPES) {
            return Err(self.source.error(
                extra.span(),
                format!(
                    "{} request types, but at most {MAX_REQUEST_TYPES} fit in one profile",
                    file.request.len()
                ),
            ));
        }
        let mut seen = HashMap::new();
        let mut requests = Vec::new();
        let mut places = Vec::new();
        let types = file.request.len();
        for request in file.request {
            let whole = request.into_inner();
            let request = self.with_details(whole.clone())?;
            let span = request.name.span();
            let follows_children = self.follows_children(types, &request)?;
            places.extend(self.places(&request)?);
            let mut instead = Vec::new();
            for one in &request.instead {
                let other = self.with_details(one.get_ref().applied_to(&whole))?;
                places.extend(self.places(&other)?);
                instead.push(self.instead(one, other)?);
            }
            let mut request = RequestSpec {
                instead,
                ..self.request(request)?
            };
            self.unique(&mut seen, &request.name, span.clone(), "request")?;
            request.begin.has_children = follows_children;
            let children = follows_children.then(|| self.children_of(&request));
            requests.push(request);
            if let Some(children) = children {
                self.unique(&mut seen, &children.name, span, "request")?;
                requests.push(children);
            }
        }
        if let Some(wait) = file.wait.get(MAX_WAITS) {
            return Err(self.source.error(
                wait.span(),
                format!("there are more than {MAX_WAITS} waits"),
            ));
        }
        let mut seen = HashMap::new();
        let mut waits = Vec::new();
        for wait in file.wait {
            let whole = wait.span();
            let wait = wait.into_inner();
            let span = wait.name.span();
            let wait = self.wait(wait, whole)?;
            // Several of one name are one wait; of two names, none may hide the other's column.
            if !waits.iter().any(|known: &WaitSpec| known.name == wait.name) {
                self.unique(&mut seen, &wait.name, span, "wait")?;
            }
            waits.push(wait);
        }
        self.places_have_columns(&places, &waits)?;
        if let Some(decided) = file.as_traced {
            self.as_traced(decided, &mut requests)?;
        }
        Ok(Profile {
            name,
            description: file.profile.description,
            executables,
            origin,
            text: self.source.text.to_owned(),
            requests,
            waits,
        })
    }

    /// A request type as it is in some programs.
    fn instead(
        &self,
        given: &Spanned<schema::instead::Instead>,
        request: schema::Request,
    ) -> Result<Instead> {
        let (only_if, unless) = (&given.get_ref().only_if, &given.get_ref().unless);
        let only_if = program::only_if(&self.source, only_if.clone(), unless.clone())?;
        if only_if.is_always() {
            return Err(self
                .source
                .error(given.span(), "`instead` does not say in which programs")
                .next("add only-if = { function = \"name\" }, or write it as the request itself"));
        }
        Ok(Instead {
            only_if,
            request: self.request(request)?,
        })
    }

    fn request(&self, request: schema::Request) -> Result<RequestSpec> {
        let tie = Self::tie(&request).map(|(tie, _)| tie);
        if let Some(tie) = tie {
            self.suits_the_tie(&request, tie)?;
        }
        match tie {
            Some(Tie::Whole) => self.whole_unit(request),
            Some(Tie::Within) => Ok(self.within_unit(self.marked(request, true)?)),
            None => self.marked(request, false),
        }
    }

    /// A request between markers. `is_within` says whether it is within a unit of the runtime.
    fn marked(&self, request: schema::Request, is_within: bool) -> Result<RequestSpec> {
        let name = self.name(&request.name, "a request's name")?;
        self.suits_the_key(&request)?;
        let places = self.places(&request)?;
        let key = self.type_key(request.key)?;
        let steps = Steps {
            checker: self,
            key: key.as_deref(),
            is_unit: is_within,
            places: &places,
        };
        let Some(begin) = request.begin else {
            return Err(self
                .source
                .error(request.name.span(), "missing field `begin`")
                .next("add begin = { function = \"…\" }"));
        };
        let begin_span = begin.span();
        let begin = steps.marker(Role::Begin, begin)?;
        let end = request.end.map(|end| steps.marker(Role::End, end));
        let end = end.transpose()?;
        if end.is_none() {
            self.ends_by_itself(&begin.place, begin_span, key.is_some())?;
        }
        let mut park = steps.markers(Role::Park, request.park)?;
        park.extend(steps.markers(Role::Idle, request.idle)?);
        let attributes = attribute::Checker {
            source: &self.source,
            begin: &begin.place,
            end: end.as_ref().map(|end| &end.place),
            unit: match is_within {
                true => OfUnit::Begun,
                false => OfUnit::None,
            },
        };
        let attributes = attributes.all(request.attribute, |marker| {
            steps.marker(Role::Attribute, marker)
        })?;
        Ok(RequestSpec {
            labels: label::check(&self.source, request.label, &begin.place)?,
            name,
            is_keyed: key.is_some(),
            resume: steps.markers(Role::Resume, request.resume)?,
            park,
            ready: steps.markers(Role::Ready, request.ready)?,
            adopt: steps.markers(Role::Adopt, request.adopt)?,
            done: Vec::new(),
            sockets: key.is_some() && request.sockets.is_none_or(Spanned::into_inner),
            begin,
            end,
            reentry: match request.reentry.map(Spanned::into_inner) {
                Some(schema::Reentry::Nest) | None => cookie::Reentry::Nest,
                Some(schema::Reentry::Ignore) => cookie::Reentry::Ignore,
                Some(schema::Reentry::Restart) => cookie::Reentry::Restart,
            },
            return_probe: match request.return_probe.map(Spanned::into_inner) {
                Some(schema::ReturnProbe::Sites) | None => ReturnProbe::Sites,
                Some(schema::ReturnProbe::Uretprobe) => ReturnProbe::Uretprobe,
            },
            places: places.into_iter().map(|place| place.name).collect(),
            attributes,
            instead: Vec::new(),
        })
    }

    /// Whether a request without an `end` has one all the same: the return of its begin.
    fn ends_by_itself(&self, begin: &PlaceSpec, span: Range<usize>, is_keyed: bool) -> Result<()> {
        let where_else = match begin {
            _ if is_keyed => Some((
                "a request with a `key` needs an `end`".to_owned(),
                "add end = { function = \"…\" }: where the object of the key is freed or used up",
            )),
            PlaceSpec::Function { at: At::Return, .. } => Some((
                "a request that begins at a return needs an `end`".to_owned(),
                "add end = { function = \"…\", at = \"return\" }",
            )),
            PlaceSpec::Usdt { .. } => Some((
                "a request that begins at a USDT probe needs an `end`".to_owned(),
                "add end = { usdt = \"provider:name\" }",
            )),
            PlaceSpec::Function { .. }
            | PlaceSpec::Offset(_)
            | PlaceSpec::Address(_)
            | PlaceSpec::Edge(_) => None,
        };
        match where_else {
            Some((what, next)) => Err(self.source.error(span, what).next(next)),
            None => Ok(()),
        }
    }
}

/// Names that would be hard to tell apart as columns count as one.
fn column(name: &str) -> String {
    name.to_lowercase().replace([' ', '-'], "_")
}

#[cfg(test)]
mod tests;
