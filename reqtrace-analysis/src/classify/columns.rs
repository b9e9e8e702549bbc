//! Columns of `requests.csv`, the fixed ones and those of the wait classes: a class's name in, its
//! column out.

use std::collections::BTreeMap;

use super::Classifier;
use crate::blame::Cause;
use crate::error::{Error, Result};
use crate::profile::{Profiles, RequestSpec};
use crate::report::Places;

/// All columns of a trace that depend on its profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Columns {
    /// Names of all wait classes.
    pub classes: Vec<String>,
    /// Where requests are while no thread runs them.
    pub places: Places,
    /// Names of all attributes.
    pub attributes: Vec<String>,
    /// Of request types whose label is an attribute, the first that is a text, its number among them.
    pub labels: BTreeMap<String, usize>,
    /// Whether there is [`BEFORE_BEGIN`].
    pub has_before: bool,
    /// Whether there are [`LOST`].
    pub has_lost: bool,
}

impl Columns {
    /// Those of a trace with these profiles.
    ///
    /// # Errors
    ///
    /// As [`Classifier::new`].
    pub fn of(profiles: &Profiles) -> Result<Self> {
        Ok(Self {
            classes: Classifier::new(profiles)?.names().to_vec(),
            places: places(profiles),
            attributes: attributes(profiles),
            labels: labels(profiles),
            has_before: false,
            has_lost: false,
        })
    }

    /// With the time before requests began, or without.
    #[must_use]
    pub fn with_before(self, has_before: bool) -> Self {
        Self { has_before, ..self }
    }

    /// With what took the CPU from requests, or without.
    #[must_use]
    pub fn with_lost(self, has_lost: bool) -> Self {
        Self { has_lost, ..self }
    }

    /// Columns before those of root causes.
    #[must_use]
    pub fn before(&self) -> Vec<String> {
        let first = BEFORE[..BEHIND_LABEL].iter().copied().map(str::to_owned);
        first
            .chain(self.attributes.iter().cloned())
            .chain(self.times())
            .collect()
    }

    /// Columns of times: a ledger's.
    pub fn times(&self) -> impl Iterator<Item = String> {
        let times = BEFORE[BEHIND_LABEL..].iter().copied().map(str::to_owned);
        let classes = self.classes.iter().map(|class| column(class));
        times.chain(classes).chain(self.of_places())
    }

    /// Columns of parked and queued time; none when no request type has a key.
    fn of_places(&self) -> Vec<String> {
        if self.places.is_empty() {
            return Vec::new();
        }
        let sums = OF_KEYS.into_iter().map(str::to_owned);
        sums.chain(self.places.named().map(column)).collect()
    }
}

/// Columns before those of the wait classes.
pub const BEFORE: [&str; 13] = [
    "id",
    "start_unix_ns",
    "request",
    "pid",
    "tid",
    "comm",
    "label",
    "latency_ns",
    "on_cpu_ns",
    "run_queue_ns",
    "preempted_ns",
    "blocked_ns",
    "unattributed_ns",
];

/// Columns of [`BEFORE`] before those of attributes.
const BEHIND_LABEL: usize = 7;

/// Columns of a trace with request types that have a key, before those of their places.
pub const OF_KEYS: [&str; 2] = ["parked_ns", "queued_ns"];

/// Columns after those of the wait classes.
pub const AFTER: [&str; 5] = ["blocks", "preemptions", "complete", "reason", "weight"];

/// The column behind those, of a trace with `--before`: how long a request's data had been waiting when it began.
pub const BEFORE_BEGIN: &str = "waited_before_ns";

/// Columns behind that, of a trace with `--interrupts`: parts of the time on CPU. The last one is empty where it is not known.
pub const LOST: [&str; 3] = ["interrupt_ns", "softirq_ns", "steal_ns"];

/// Columns between those, of a trace with blame: one for each root cause.
pub fn causes() -> impl Iterator<Item = String> {
    let causes = Cause::ALL.into_iter();
    causes.map(|cause| format!("cause_{}_ns", cause.name()))
}

/// The CSV column of a class.
#[must_use]
pub fn column(class: &str) -> String {
    format!("{}_ns", class.replace(' ', "_"))
}

/// Names of the places of all request types, each once; those that a marker `ready` or a begin names are queues.
pub(crate) fn places(profiles: &Profiles) -> Places {
    let mut places = Places::default();
    for request in profiles.requests().filter(|request| request.is_keyed) {
        for (place, name) in request.places.iter().enumerate() {
            let names = match is_queue(request, place) {
                true => &mut places.queued,
                false => &mut places.parked,
            };
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    if profiles.requests().any(|request| request.is_keyed) {
        places.parked.push(String::new());
        places.queued.push(String::new());
    }
    places
}

/// Whether requests are queued at a place, and not parked.
pub(crate) fn is_queue(request: &RequestSpec, place: usize) -> bool {
    // A begin has a place if it is queued.
    let mut ready = request.ready.iter().chain([&request.begin]);
    ready.any(|marker| marker.waits_in == Some(place))
}

/// Names of the attributes of all request types, each once.
pub(crate) fn attributes(profiles: &Profiles) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in profiles.requests().flat_map(RequestSpec::attribute_names) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The first text of a type without a label is its label.
fn labels(profiles: &Profiles) -> BTreeMap<String, usize> {
    let attributes = attributes(profiles);
    let names = profiles.request_names().into_iter();
    let column = |(name, request): (String, &RequestSpec)| {
        let mut texts = request.attributes.iter().filter(|spec| spec.is_text());
        let text = texts.next().filter(|_| request.labels.is_empty())?;
        let column = attributes.iter().position(|known| *known == text.name)?;
        Some((name, column))
    };
    names.zip(profiles.requests()).filter_map(column).collect()
}

/// Checks that each class, each place and each attribute has a column of its own.
pub(super) fn check(classes: &[String], profiles: &Profiles) -> Result<()> {
    let places = places(profiles);
    let attributes = attributes(profiles);
    let named = classes
        .iter()
        .map(|name| ("wait", name.as_str(), column(name)));
    let named = named.chain(places.named().map(|name| ("place", name, column(name))));
    let named = named.chain(
        attributes
            .iter()
            .map(|name| ("attribute", name.as_str(), name.clone())),
    );
    let mut known: Vec<(&str, &str, String)> = Vec::new();
    for (what, name, wanted) in named {
        let is_fixed = [&BEFORE[..], &AFTER, &OF_KEYS]
            .iter()
            .any(|fixed| fixed.contains(&wanted.as_str()));
        let is_fixed = is_fixed || wanted == BEFORE_BEGIN || LOST.contains(&wanted.as_str());
        if is_fixed || causes().any(|column| column == wanted) {
            return Err(Error::usage(format!(
                "the {what} `{name}` would hide the CSV column `{wanted}`"
            ))
            .next(format!("give the {what} another name")));
        }
        if let Some((other_is, other, _)) = known.iter().find(|(.., column)| *column == wanted) {
            let both = match *other_is == what {
                true => format!("the {what}s `{other}` and `{name}`"),
                false => format!("the {other_is} `{other}` and the {what} `{name}`"),
            };
            return Err(
                Error::usage(format!("{both} would both be the CSV column `{wanted}`"))
                    .next("give one of them another name"),
            );
        }
        known.push((what, name, wanted));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str, rest: &str) -> String {
        format!(
            "[profile]\nname = \"{name}\"\n[[request]]\nname = \"{name}\"\n\
             begin = {{ function = \"f\" }}\n{rest}"
        )
    }

    fn keyed(name: &str, place: &str) -> String {
        let rest = "key = { arg = 0 }\nend = { function = \"g\" }\n\
                    park = { function = \"h\", key = \"current\", as = \"PLACE\" }\n\
                    ready = { function = \"k\", as = \"pool\" }\n\
                    [[request.attribute]]\nname = \"status\"\narg = 1\ntype = \"integer\"\n";
        profile(name, &rest.replace("PLACE", place))
    }

    fn columns(texts: &[String]) -> Result<Columns> {
        let texts = texts.iter().map(String::as_str);
        Columns::of(&Profiles::parse(texts, "p").unwrap())
    }

    #[test]
    fn a_trace_without_keys_and_attributes_has_the_columns_that_it_always_had() {
        let columns = columns(&[profile("a", "")]).unwrap();
        let classes = columns.classes.iter().map(|class| column(class));
        let wanted: Vec<String> = BEFORE
            .into_iter()
            .map(str::to_owned)
            .chain(classes)
            .collect();
        assert_eq!(columns.before(), wanted);
    }

    #[test]
    fn places_and_attributes_of_all_services_have_one_column_each() {
        let columns = columns(&[keyed("a", "client"), keyed("b", "the client")]).unwrap();
        let before = columns.before();
        assert_eq!(before[6..9], ["label", "status", "latency_ns"]);
        let away = [
            "parked_ns",
            "queued_ns",
            "client_ns",
            "the_client_ns",
            "pool_ns",
        ];
        assert!(before.ends_with(&away.map(str::to_owned)), "{before:?}");
        assert_eq!(columns.places.parked, ["client", "the client", ""]);
        assert_eq!(columns.places.queued, ["pool", ""]);
    }

    /// Each profile alone is sound.
    #[test]
    fn one_column_for_two_things_of_two_services_is_refused() {
        let wait = "[[wait]]\nname = \"spool\"\nfunctions = [\"x\"]\n";
        let error = columns(&[profile("a", wait), keyed("b", "spool")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the wait `spool` and the place `spool` would both be the CSV column `spool_ns`"
        );
        assert_eq!(error.exit_code(), 2);
        // A queue of one, and where requests of the other are parked.
        let error = columns(&[
            keyed("a", "x"),
            keyed("b", "pool").replace("\"k\", as = \"pool\"", "\"k\""),
        ]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the places `pool` and `pool`"), "{error}");
    }
}
