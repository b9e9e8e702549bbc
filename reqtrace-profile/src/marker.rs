//! Markers of a profile: a place, conditions and a key in; what is marked there, and of which request, out.

use super::place::PlaceSpec;
use super::value::{ConditionSpec, ValueSpec};

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
    /// Index into [`RequestSpec::places`](crate::RequestSpec::places): where the request is from here on, or of a
    /// resume, what it had waited for.
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
