//! Request types of a profile: checked markers, labels and attributes in; what a type has of them, and which unit it is, out.

use reqtrace_common::cookie::Reentry;

use super::attribute::{AttributeAt, AttributeSpec};
use super::edge::{Change, Edge};
use super::label::LabelSpec;
use super::marker::MarkerSpec;
use super::place::PlaceSpec;
use super::program::OnlyIf;
use super::value::Test;

/// One `[[request]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSpec {
    /// Its name: the request type.
    pub name: String,
    /// Where a request begins.
    pub begin: MarkerSpec,
    /// Where it ends; `None`: the return of the begin function.
    pub end: Option<MarkerSpec>,
    /// What a begin inside a request does.
    pub reentry: Reentry,
    /// How returns are probed.
    pub return_probe: ReturnProbe,
    /// Ways to read the label at begin, in file order: the first that fits is taken.
    pub labels: Vec<LabelSpec>,
    /// Whether a request is known by a key, and not by its thread. Only then may the next five lists have
    /// entries.
    pub is_keyed: bool,
    /// Where a thread goes on with a request.
    pub resume: Vec<MarkerSpec>,
    /// Where a request is left to wait for an event. What the profile calls `idle` is among them, with
    /// [`KeySpec::Current`](crate::KeySpec::Current).
    pub park: Vec<MarkerSpec>,
    /// Where the event of a parked request has come, so that it waits for a thread.
    pub ready: Vec<MarkerSpec>,
    /// Where a request gets another key.
    pub adopt: Vec<MarkerSpec>,
    /// Where the unit is done that a request is part of, so that one without an end has none; and what else the runtime does that
    /// matters to it.
    pub done: Vec<MarkerSpec>,
    /// Whether a request of this type may wait for what comes to a socket, so that blame looks at sockets. Only one with a key does.
    pub sockets: bool,
    /// Names of the places where its requests are parked or queued, in file order: each once.
    pub places: Vec<String>,
    /// What its requests are about. Several of one name are ways to read one attribute: the first that is
    /// read counts.
    pub attributes: Vec<AttributeSpec>,
    /// What it is instead in some programs, in file order: the first whose condition holds.
    pub instead: Vec<Instead>,
}

/// One `[[request.instead]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instead {
    /// In which programs.
    pub only_if: OnlyIf,
    /// The request type there; it has no alternatives.
    pub request: RequestSpec,
}

impl RequestSpec {
    /// The names of its attributes, in the order of their indices: each once.
    #[must_use]
    pub fn attribute_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for attribute in &self.attributes {
            if !names.contains(&attribute.name.as_str()) {
                names.push(&attribute.name);
            }
        }
        names
    }

    /// The glob over types of units or functions that they start with, if its requests are units of the program's runtime; not of
    /// those that requests make.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        let is_spawn = matches!(
            self.begin.place,
            PlaceSpec::Edge(Edge::Queue | Edge::Goroutine(Change::Spawn))
        );
        if !is_spawn || self.begin.is_child {
            return None;
        }
        let tests = self.begin.when.iter();
        let mut pattern = tests.filter_map(|when| match &when.test {
            Test::Unit(pattern) | Test::Starts(pattern) => Some(pattern.as_str()),
            _ => None,
        });
        Some(pattern.next_back().unwrap_or("*"))
    }

    /// Whether something of it is only read with `--labels`.
    #[must_use]
    pub fn has_texts(&self) -> bool {
        !self.labels.is_empty() || self.attributes.iter().any(AttributeSpec::is_text)
    }

    /// Its markers but begin and end, in the order of their lists; those of attributes last.
    pub fn more_markers(&self) -> impl Iterator<Item = &MarkerSpec> {
        let lists = [
            &self.resume,
            &self.park,
            &self.ready,
            &self.adopt,
            &self.done,
        ];
        let of_attributes = self.attributes.iter().filter_map(|one| match &one.read {
            AttributeAt::Marker(marker) => Some(&**marker),
            AttributeAt::Begin | AttributeAt::End => None,
        });
        lists.into_iter().flatten().chain(of_attributes)
    }
}

/// How the return of a function is probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnProbe {
    /// An ordinary uprobe on each instruction that leaves the function.
    #[default]
    Sites,
    /// A uretprobe, which rewrites the return address on the target's stack.
    Uretprobe,
}
