//! A whole profile: its request types and waits in; for what programs it is, and what its requests are within, out.

use std::path::PathBuf;

use reqtrace_base::text::glob_matches;

use super::edge::Edge;
use super::place::PlaceSpec;
use super::request::RequestSpec;
use super::wait::WaitSpec;

/// A profile as written, checked for everything that can be checked without a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `profile.name`.
    pub name: String,
    /// `profile.description`, empty when absent.
    pub description: String,
    /// File names of executables it is made for, or globs over them; empty: any.
    pub executables: Vec<String>,
    /// Where it was read from.
    pub origin: Origin,
    /// Its text, word for word.
    pub text: String,
    /// One or more request types, in file order.
    pub requests: Vec<RequestSpec>,
    /// Named waits, in file order: the first match wins.
    pub waits: Vec<WaitSpec>,
}

impl Profile {
    /// Whether it says that it is made for an executable of this file name.
    #[must_use]
    pub fn is_made_for(&self, executable: &str) -> bool {
        let mut names = self.executables.iter();
        names.any(|name| glob_matches(name, executable))
    }

    /// Whether its requests are within goroutines.
    #[must_use]
    pub fn is_about_goroutines(&self) -> bool {
        let markers = self.requests.iter().flat_map(RequestSpec::more_markers);
        markers
            .into_iter()
            .any(|marker| matches!(marker.place, PlaceSpec::Edge(Edge::Goroutine(_))))
    }
}

/// Where a profile came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Embedded in the binary.
    BuiltIn,
    /// A file.
    File(PathBuf),
}
