//! Names of places where requests are parked or queued: markers in, each name once out.

use std::ops::Range;

use reqtrace_common::marker::MAX_PLACES;
use toml::Spanned;

use super::{BUILT_IN_WAITS, CSV_COLUMNS, Checker, column};
use crate::schema::list::OneOrMany;
use crate::schema::{self, marker::Marker};
use crate::{RUNTIME, Role, WaitSpec};
use reqtrace_base::error::Result;

/// A name that a profile gives to where requests are while no thread runs them.
#[derive(Clone)]
pub(super) struct NamedPlace {
    pub(super) name: String,
    /// They are queued there, and not parked.
    is_queue: bool,
    /// Where it stands first.
    span: Range<usize>,
}

impl Checker<'_> {
    /// The names of one request type, in the order of the file.
    pub(super) fn places(&self, request: &schema::Request) -> Result<Vec<NamedPlace>> {
        let mut given = Vec::new();
        for (role, list) in [
            (Role::Resume, &request.resume),
            (Role::Park, &request.park),
            (Role::Idle, &request.idle),
            (Role::Ready, &request.ready),
        ] {
            for name in list.iter().flat_map(names) {
                given.push((role, name));
            }
        }
        let begin = request.begin.as_ref().map(Spanned::get_ref);
        let is_queued = |begin: &&Marker| {
            let queued = begin.queued.as_ref();
            queued.is_some_and(|queued| *queued.get_ref())
        };
        if let Some(begin) = begin.filter(is_queued) {
            given.extend(begin.place.iter().map(|name| (Role::Ready, name)));
        }
        given.sort_by_key(|(_, name)| name.span().start);
        let mut places: Vec<NamedPlace> = Vec::new();
        if let Some((_, span)) = Self::tie(request) {
            places.push(NamedPlace {
                name: RUNTIME.to_owned(),
                is_queue: true,
                span,
            });
        }
        for (role, name) in given {
            let place = NamedPlace {
                name: self.name(name, "the name of a place")?,
                is_queue: role == Role::Ready,
                span: name.span(),
            };
            self.is_free(&place)?;
            if self.is_new(&places, &place)? {
                places.push(place);
            }
        }
        match places.get(MAX_PLACES) {
            Some(extra) => Err(self.source.error(
                extra.span.clone(),
                format!("more than {MAX_PLACES} names of places in one request type"),
            )),
            None => Ok(places),
        }
    }

    /// Each of all request types has a column of its own.
    pub(super) fn places_have_columns(
        &self,
        places: &[NamedPlace],
        waits: &[WaitSpec],
    ) -> Result<()> {
        let mut known: Vec<NamedPlace> = Vec::new();
        for place in places {
            let wanted = column(&place.name);
            if let Some(wait) = waits.iter().find(|wait| column(&wait.name) == wanted) {
                return Err(self
                    .source
                    .error(
                        place.span.clone(),
                        format!(
                            "the place and the wait `{}` would share one column",
                            wait.name
                        ),
                    )
                    .next("give one of them another name"));
            }
            if self.is_new(&known, place)? {
                known.push(place.clone());
            }
        }
        Ok(())
    }

    /// Whether a name is not among those before it, one of which may be the same or hide its column.
    fn is_new(&self, before: &[NamedPlace], place: &NamedPlace) -> Result<bool> {
        let wanted = column(&place.name);
        let Some(first) = before.iter().find(|one| column(&one.name) == wanted) else {
            return Ok(true);
        };
        if first.name != place.name {
            return Err(self.source.error(
                place.span.clone(),
                format!(
                    "the places `{}` and `{}` would share one column",
                    first.name, place.name
                ),
            ));
        }
        if first.is_queue != place.is_queue {
            return Err(self
                .source
                .error(
                    place.span.clone(),
                    format!(
                        "requests are parked in `{0}` here, and queued in `{0}` there: `ready` \
                         names a queue",
                        place.name
                    ),
                )
                .next("give the two different names"));
        }
        Ok(false)
    }

    fn is_free(&self, place: &NamedPlace) -> Result<()> {
        let wanted = column(&place.name);
        let is_taken = |names: &[&str]| names.iter().any(|taken| column(taken) == wanted);
        let what = if is_taken(BUILT_IN_WAITS) {
            "a wait class"
        } else if is_taken(CSV_COLUMNS) || wanted.starts_with("cause_") {
            "a column of requests.csv"
        } else {
            return Ok(());
        };
        let name = &place.name;
        Err(self
            .source
            .error(place.span.clone(), format!("`{name}` is already {what}"))
            .next(format!("choose another name, such as `my {name}`")))
    }
}

/// The names in one list of markers.
fn names(list: &Spanned<OneOrMany<Marker>>) -> Vec<&Spanned<String>> {
    let names = match list.get_ref() {
        OneOrMany::One(one) => vec![one.place.as_ref()],
        OneOrMany::Many(many) => many
            .iter()
            .map(|one| one.get_ref().place.as_ref())
            .collect(),
    };
    names.into_iter().flatten().collect()
}
