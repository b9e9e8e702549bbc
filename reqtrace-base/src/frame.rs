//! What names are looked up for, and what is found: address spaces and frames.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::plain::Plain;

/// An address space: a process between two execs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct AddressSpace {
    /// The process.
    pub tgid: u32,
    /// How often it had called exec since tracing began.
    pub exec_generation: u32,
}

/// Name of an address where nothing was mapped.
pub const UNKNOWN: &str = "[unknown]";

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Demangled function name, or `[module+0xoffset]`, or `[unknown]`. Shared: there are many stacks, and
    /// few functions.
    pub name: Arc<str>,
}

impl Frame {
    /// A frame of that name, cleaned: names are in files that others have made.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        match Plain::lines(&name) {
            Cow::Borrowed(text) if !text.contains(['\n', '\t']) => Self { name },
            _ => Self {
                name: Plain::of(&name).as_str().into(),
            },
        }
    }

    /// Whether nothing was mapped there when it was looked up.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        &*self.name == UNKNOWN
    }

    /// Whether it names a function, and not only a place or that something is missing.
    #[must_use]
    pub fn is_named(&self) -> bool {
        !self.name.starts_with('[')
    }
}
