//! The keys of `[[request.instead]]` and `[as-traced]`, as serde sees them.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::program::Conditions;
use super::{Markers, Reentry, Request, ReturnProbe, marker};

/// What stands instead of keys of a request, in some programs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Instead {
    pub(crate) only_if: Option<Spanned<Conditions>>,
    pub(crate) unless: Option<Spanned<Conditions>>,
    key: Option<Spanned<marker::Key>>,
    begin: Option<Spanned<marker::Marker>>,
    resume: Option<Spanned<Markers>>,
    park: Option<Spanned<Markers>>,
    idle: Option<Spanned<Markers>>,
    ready: Option<Spanned<Markers>>,
    adopt: Option<Spanned<Markers>>,
    end: Option<Spanned<marker::Marker>>,
    reentry: Option<Spanned<Reentry>>,
    return_probe: Option<Spanned<ReturnProbe>>,
}

impl Instead {
    /// The request with these keys instead of its own.
    pub(crate) fn applied_to(&self, request: &Request) -> Request {
        let own = self.clone();
        let request = request.clone();
        Request {
            key: own.key.or(request.key),
            begin: own.begin.or(request.begin),
            resume: own.resume.or(request.resume),
            park: own.park.or(request.park),
            idle: own.idle.or(request.idle),
            ready: own.ready.or(request.ready),
            adopt: own.adopt.or(request.adopt),
            end: own.end.or(request.end),
            reentry: own.reentry.or(request.reentry),
            return_probe: own.return_probe.or(request.return_probe),
            instead: Vec::new(),
            ..request
        }
    }
}

/// What a trace has decided: it stands in recordings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AsTraced {
    /// By request type, which of its alternatives: 0 is the request as it stands.
    pub(crate) instead: BTreeMap<Spanned<String>, Spanned<i64>>,
}
