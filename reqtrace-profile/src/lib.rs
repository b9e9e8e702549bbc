//! Profiles: TOML text in, [`Profile`] out, nothing resolved yet.
//!
//! `schema` knows keys and types, `validate` everything that can be checked without a process,
//! `builtin` the profiles that come with the program, `services` puts those of several services together.

pub mod builtin;
mod label;
mod place;
mod schema;
mod services;
mod validate;

use std::path::PathBuf;

use reqtrace_common::cookie::Reentry;

use reqtrace_base::error::Result;
use reqtrace_base::text::glob_matches;

pub use label::{ConditionSpec, LabelKind, LabelSpec, ValueSource, ValueSpec};
pub use services::Profiles;

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
    /// What is probed.
    pub place: PlaceSpec,
    /// File name, path, or glob over either, of the object; `None`: the executable.
    pub object: Option<String>,
    /// Of a function's return: only where this function has called it.
    pub called_by: Option<String>,
}

/// What a marker names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceSpec {
    /// A function by pattern; of a list, the first that resolves.
    Function {
        /// Alternatives, never empty.
        patterns: Vec<String>,
        /// Entry or return.
        at: At,
    },
    /// A file offset in the object, bytes.
    Offset(u64),
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
