//! The keys of `[runtime]`, as serde sees them.

use serde::Deserialize;
use toml::Spanned;

/// What multiplexes units over threads in the program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runtime {
    pub(crate) kind: Spanned<Kind>,
    /// As `cheap` of `[profile]`, which it was before details.
    #[serde(default)]
    pub(crate) cheap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Tokio,
    Go,
}
