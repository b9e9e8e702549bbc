//! A profile that was resolved: what `attach` needs of it, and what its user should know.

use std::collections::BTreeMap;

use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::maps::FileKey;
use reqtrace_common::cookie::{Reentry, ReturnSlot};
use reqtrace_common::label::LabelPlan;
use reqtrace_common::marker::{AttributePlan, MarkerPlan};
use reqtrace_profile::{At, ReturnProbe, Role};

use super::hazards::Hazards;
use super::readings::UnitAt;

/// Everything that `attach` needs.
#[derive(Clone, Debug)]
pub struct ResolvedProfile {
    /// Name of the profile.
    pub name: String,
    /// In the order of the profile.
    pub requests: Vec<ResolvedRequest>,
    /// What units of the program's runtime are called, if a profile asks for it.
    pub units: Option<UnitNames>,
    /// Which service of the trace it is: the index of its profile.
    pub service: usize,
    /// The number of the first request type in the trace; the others follow.
    pub first_type: usize,
    /// What a user should know although it is no error, one sentence each.
    pub warnings: Vec<String>,
    /// What only somebody who looks closer wants to know: the same about a built-in profile, where
    /// the profile's author has taken it into account.
    pub notes: Vec<String>,
    /// Places that may do harm, as nothing shows that they do none: only `--yes` traces them.
    pub doubts: Vec<Doubt>,
}

/// Why a place may do harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What is not known.
    pub what: String,
    /// What to do about it.
    pub next: &'static str,
}

impl ResolvedProfile {
    /// The request types with their numbers in the trace.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &ResolvedRequest)> {
        (self.first_type..).zip(&self.requests)
    }
}

/// One request type.
#[derive(Clone, Debug)]
pub struct ResolvedRequest {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub begin: ResolvedMarker,
    /// Where it ends.
    pub end: ResolvedMarker,
    /// True when both are of one activation of one function (entry and return), so that an end
    /// can be tied to its begin by the stack pointer.
    pub same_frame: bool,
    /// What a begin inside a request does.
    pub reentry: Reentry,
    /// How returns are probed.
    pub return_probe: ReturnProbe,
    /// Why its requests have no label although the profile has one; `None`: they have.
    pub unlabelled: Option<String>,
    /// Whether requests are known by a key, and not by their thread.
    pub is_keyed: bool,
    /// Its other markers: those of keyed requests in the order of
    /// [`reqtrace_profile::RequestSpec::more_markers`], then those of attributes, as far as they were found.
    pub more: Vec<(Role, ResolvedMarker)>,
    /// Ways to read attributes that this program does not have.
    pub unread: Vec<Unread>,
}

/// A way to read an attribute that a program does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Name of the attribute.
    pub attribute: String,
    /// Which of the ways in the profile: index into [`reqtrace_profile::RequestSpec::attributes`].
    pub way: usize,
    /// Whether it would be read with `--labels` only.
    pub is_text: bool,
    /// Whether there is another way that the program has.
    pub is_read: bool,
    /// Why not.
    pub why: String,
}

impl ResolvedRequest {
    /// All its markers: begin, the others, end.
    pub fn markers(&self) -> impl Iterator<Item = (Role, &ResolvedMarker)> {
        let more = self.more.iter().map(|(role, marker)| (*role, marker));
        [(Role::Begin, &self.begin)]
            .into_iter()
            .chain(more)
            .chain([(Role::End, &self.end)])
    }
}

/// One marker, resolved in one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedMarker {
    /// The object to open for attaching: the process's own file, whatever its path leads to now.
    pub object: LazyFile,
    /// The path as the process sees it, for messages.
    pub object_shown: String,
    /// Demangled name (signature) of the function, or the offset as written.
    pub symbol: String,
    /// Which end of the function; `Entry` for an offset.
    pub at: At,
    /// Whether a function begins there; not so inside one, or at a USDT probe.
    pub is_function: bool,
    /// File offset of the function's first instruction (or the offset as written).
    pub entry_offset: u64,
    /// The probes to set, by file offset. Of an entry there is more than one where the compiler
    /// made clones of the function, or where a constructor has variants. Of a return by uretprobe
    /// these are the entries.
    pub sites: Vec<ProbeSite>,
    /// What probes do not go well with in the object.
    pub hazards: Hazards,
}

impl ResolvedMarker {
    /// Function or offset, with `entry` or `return`, for people.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.at, self.is_function) {
            (At::Return, _) => format!("{} at return", self.symbol),
            (At::Entry, true) => format!("{} at entry", self.symbol),
            (At::Entry, false) if self.symbol.starts_with("0x") => {
                format!("offset {}", self.symbol)
            }
            (At::Entry, false) => self.symbol.clone(),
        }
    }
}

/// One address to probe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeSite {
    /// Offset in the object's file, bytes.
    pub file_offset: u64,
    /// Offset in the file of the counter that switches a USDT probe on, bytes.
    pub semaphore: Option<u64>,
    /// Set for a conditional jump out of the function: the x86 condition code under which the
    /// function is left.
    pub condition: Option<u8>,
    /// Where the function's return address stands when the probe is hit.
    pub slot: ReturnSlot,
    /// Bytes of code from a site to the instruction that it stands for, or of a begin from there to
    /// it; 0: it is that itself.
    pub distance: u64,
    /// Ways to read the label here, of a begin; the first whose condition holds is taken.
    /// [`LabelPlan::next`] is 0.
    pub labels: Vec<LabelPlan>,
    /// What is done here, in one way or another; the first whose conditions hold is done. Empty: nothing
    /// but reading attributes. What refers to other plans is 0.
    pub marks: Vec<MarkerPlan>,
    /// Attributes that are read here, those with text among them: of a begin or an end only if that is done.
    pub attributes: Vec<AttributePlan>,
    /// The first bytes of the instruction there; 0 behind the end of the code.
    pub instruction: [u8; 2],
    /// Where the unit of the runtime is that an edge is about, if not in an argument.
    pub unit: Option<UnitAt>,
}

impl ProbeSite {
    /// An instruction of a function.
    #[must_use]
    pub const fn at(file_offset: u64) -> Self {
        Self {
            file_offset,
            semaphore: None,
            condition: None,
            slot: ReturnSlot::AT_RSP,
            distance: 0,
            labels: Vec::new(),
            marks: Vec::new(),
            attributes: Vec::new(),
            instruction: [0; 2],
            unit: None,
        }
    }
}

/// What the units of a program are called, for attributes that say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitNames {
    /// The file that has the functions.
    pub file: FileKey,
    /// Names, by the offset in the file of what polls a task, or of a function that a goroutine starts with.
    pub by_offset: BTreeMap<u64, String>,
    /// Whether a function that is not among them has the name of its symbol: goroutines start with any.
    pub others_are_symbols: bool,
}
