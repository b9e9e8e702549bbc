//! What a user should know of a trace: words in, to whoever shows them.

use std::fmt;
use std::sync::Arc;

use log::{info, warn};
use reqtrace_binary::unwind::Progress;

/// Something that a user should know.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// The trace is not all that was asked for, or may be misread.
    Warning(&'a str),
    /// Good to know.
    Note(&'a str),
    /// Unwind tables are being compiled, which takes long for very large programs.
    Compiling(Progress),
}

/// Where notices go: to a function, or to the log.
#[derive(Clone)]
pub struct Notices(Arc<dyn Fn(Notice<'_>) + Send + Sync>);

impl Notices {
    pub(crate) fn to(tell: impl Fn(Notice<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Says a [`Notice::Warning`].
    pub fn warn(&self, text: impl fmt::Display) {
        (self.0)(Notice::Warning(&text.to_string()));
    }

    /// Says a [`Notice::Note`].
    pub fn note(&self, text: impl fmt::Display) {
        (self.0)(Notice::Note(&text.to_string()));
    }

    pub(crate) fn compiling(&self, progress: Progress) {
        (self.0)(Notice::Compiling(progress));
    }
}

impl Default for Notices {
    fn default() -> Self {
        Self::to(|notice| match notice {
            Notice::Warning(text) => warn!("{text}"),
            Notice::Note(text) => info!("{text}"),
            Notice::Compiling(_) => {}
        })
    }
}
