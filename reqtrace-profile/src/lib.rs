//! Profiles: TOML text in, [`Profile`] out, nothing resolved yet.
//!
//! `schema` knows keys and types, `validate` everything that can be checked without a process,
//! `builtin` the profiles that come with the program, `services` puts those of several services together.

mod attribute;
pub mod builtin;
mod cheap;
mod label;
pub mod matching;
mod place;
mod program;
mod runtime;
mod schema;
mod services;
mod settle;
mod validate;
mod value;

use std::path::PathBuf;

use reqtrace_common::cookie::Reentry;

use reqtrace_base::error::Result;
use reqtrace_base::text::glob_matches;

pub use attribute::{AttributeAt, AttributeSpec};
pub use cheap::CHEAP;
pub use label::{LabelKind, LabelSpec};
pub use program::{OnlyIf, ProgramCondition, Sign};
pub use runtime::{
    BESIDE_REQUESTS, BESIDE_REQUESTS_MANGLED, Change, DRIVERS_OF_TOKIO, Edge, GIVEN_UP, GOES_ON,
    RUNTIME, SCHED, SLEEP_OF_GO, STOPPED, TokioDriver, TokioWait, TokioWaker, WAITS_OF_TOKIO,
    WAKERS_OF_TOKIO, dropped_of_tokio, joins_of_tokio, place_of_reason,
};
pub use services::Profiles;
pub use value::{ConditionSpec, Test, ValueSource, ValueSpec};

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
    /// Parses and checks the text of a profile. `name` is what to call it in messages: a path or
    /// a file name.
    ///
    /// # Errors
    ///
    /// A usage error that begins with `name:line:column:`.
    pub fn parse(text: &str, name: &str, origin: Origin) -> Result<Self> {
        validate::parse(text, name, origin)
    }

    /// Whether it says that it is made for an executable of this file name.
    #[must_use]
    pub fn is_made_for(&self, executable: &str) -> bool {
        let mut names = self.executables.iter();
        names.any(|name| glob_matches(name, executable))
    }
}

impl Profile {
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
    /// [`KeySpec::Current`].
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

/// One marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerSpec {
    /// What it marks.
    pub role: Role,
    /// What is probed.
    pub place: PlaceSpec,
    /// File name, path, or glob over either, of the object; `None`: the executable.
    pub object: Option<String>,
    /// Of a function's return: only where this function has called it.
    pub called_by: Option<String>,
    /// Every function of the name is meant, such as all copies of a generic one.
    pub is_all: bool,
    /// All must hold, or the marker is not hit.
    pub when: Vec<ConditionSpec>,
    /// Which request it is about. [`KeySpec::Current`] for types without a key.
    pub key: KeySpec,
    /// Of `adopt`: the key from here on, as many values as a key has.
    pub to: Option<Vec<ValueSpec>>,
    /// Index into [`RequestSpec::places`]: where the request is from here on, or of a resume, what it had
    /// waited for.
    pub waits_in: Option<usize>,
    /// Keys that name no request are expected here.
    pub is_touch: bool,
    /// Of a begin: the request is queued from here on, and the thread goes on with what it runs.
    pub is_queued: bool,
    /// Of a begin: only in a request of the type before its own, or of its own.
    pub is_child: bool,
    /// Of a begin: the type behind its own is of units that its requests make.
    pub has_children: bool,
}

/// What a marker marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A request begins.
    Begin,
    /// A thread goes on with it.
    Resume,
    /// It is left to wait for an event.
    Park,
    /// The same, of whatever the thread runs.
    Idle,
    /// It is about to be left so, and waits for what is called here.
    Note,
    /// Its event has come: it waits for a thread.
    Ready,
    /// It gets another key.
    Adopt,
    /// It ends.
    End,
    /// It ends where a panic is recovered, if its function is left by that.
    Recover,
    /// The unit is done that it is part of.
    Done,
    /// It makes a unit that is no request of its type.
    Child,
    /// An attribute of it is read.
    Attribute,
}

impl Role {
    /// The key of the profile that says so.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Resume => "resume",
            Self::Park => "park",
            Self::Idle => "idle",
            Self::Note => "wait",
            Self::Ready => "ready",
            Self::Adopt => "adopt",
            Self::End => "end",
            Self::Recover => "recover",
            Self::Done => "done",
            Self::Child => "child",
            Self::Attribute => "attribute",
        }
    }
}

/// Which request a marker is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySpec {
    /// The one that the thread runs.
    #[default]
    Current,
    /// The one whose key is the unit that the thread runs.
    Unit,
    /// The one with this key: one value, or up to [`MAX_KEY_PARTS`](reqtrace_common::keyed::MAX_KEY_PARTS).
    Key(Vec<ValueSpec>),
}

/// What a marker names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceSpec {
    /// An edge of the units of the program's runtime: every function that is one.
    Edge(Edge),
    /// A function by pattern; of a list, the first that resolves.
    Function {
        /// Alternatives, never empty.
        patterns: Vec<String>,
        /// Entry or return.
        at: At,
    },
    /// A file offset in the object, bytes.
    Offset(u64),
    /// A virtual address of the object, as linked.
    Address(u64),
    /// A USDT probe of the object.
    Usdt {
        /// Who defines it.
        provider: String,
        /// Its name.
        name: String,
    },
}

/// Which end of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// Its first instruction.
    #[default]
    Entry,
    /// Every instruction that leaves it.
    Return,
}

/// What stands between two functions of a chain in [`WaitSpec::functions`]: the second was called
/// by the first, directly or not. It occurs in no demangled name.
pub const CALLS: &str = " => ";

/// How the kinds of matchers of a wait are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Combine {
    /// One kind that matches is enough.
    #[default]
    Any,
    /// Every kind that is given must match.
    All,
}

/// One `[[wait]]`. Within a kind of matchers any is enough. Several may have one name: then they
/// are several ways to be that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSpec {
    /// Its name; the CSV column is this with spaces as `_` and `_ns` appended.
    pub name: String,
    /// How the four kinds below are put together.
    pub combine: Combine,
    /// Globs over demangled names of user functions on the stack, or chains of them with
    /// [`CALLS`]; see [`reqtrace_base::text::glob_matches`].
    pub functions: Vec<String>,
    /// Globs over the path behind the descriptor of the blocking system call. Valid for the
    /// globset crate, in which `*` also matches a slash.
    pub files: Vec<String>,
    /// Globs over names of kernel functions on the stack; see [`reqtrace_base::text::glob_matches`].
    pub kernel_functions: Vec<String>,
    /// Names of system calls.
    pub syscalls: Vec<String>,
}
