//! The keys of `[[request.attribute]]`, as serde sees them.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::Strings;
use super::label::{LabelType, TextKeys};
use super::list::OneOrMany;
use super::marker::{At, Marker};
use super::program::Conditions;
use super::value::{Arg, Length, Numbers, Value, When};

/// One way to read an attribute.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "AttributeKeys")]
pub(crate) struct Attribute {
    pub(crate) name: Spanned<String>,
    pub(crate) on: Option<Spanned<On>>,
    /// Where it is read, if that is not where the request begins or ends.
    pub(crate) marker: Option<Marker>,
    pub(crate) when: Option<Spanned<OneOrMany<When>>>,
    pub(crate) value: Value,
    pub(crate) text: TextKeys,
    pub(crate) max_length: Option<Spanned<i64>>,
    pub(crate) until: Option<Spanned<String>>,
    pub(crate) names: Option<Spanned<BTreeMap<Spanned<String>, String>>>,
    pub(crate) keep: Option<Spanned<Keep>>,
    pub(crate) detail: bool,
    pub(crate) only_if: Option<Spanned<Conditions>>,
    pub(crate) unless: Option<Spanned<Conditions>>,
}

impl Attribute {
    /// Whether it says what the unit of the runtime is.
    pub(crate) fn is_of_unit(&self) -> bool {
        let kind = self.text.kind.as_ref().map(Spanned::get_ref);
        matches!(kind, Some(LabelType::Unit))
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum On {
    Begin,
    End,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keep {
    First,
    Last,
}

/// Flat, because serde's `flatten` loses the places of values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AttributeKeys {
    name: Spanned<String>,
    on: Option<Spanned<On>>,
    function: Option<Spanned<Strings>>,
    at: Option<Spanned<At>>,
    object: Option<Spanned<String>>,
    offset: Option<Spanned<i64>>,
    address: Option<Spanned<i64>>,
    all: Option<Spanned<bool>>,
    usdt: Option<Spanned<String>>,
    called_by: Option<Spanned<String>>,
    when: Option<Spanned<OneOrMany<When>>>,
    #[serde(rename = "type")]
    kind: Option<Spanned<LabelType>>,
    length: Option<Spanned<Length>>,
    arg: Option<Spanned<Arg>>,
    register: Option<Spanned<String>>,
    global: Option<Spanned<String>>,
    deref: Option<Spanned<Numbers>>,
    size: Option<Spanned<i64>>,
    max_length: Option<Spanned<i64>>,
    until: Option<Spanned<String>>,
    names: Option<Spanned<BTreeMap<Spanned<String>, String>>>,
    keep: Option<Spanned<Keep>>,
    #[serde(default)]
    detail: bool,
    only_if: Option<Spanned<Conditions>>,
    unless: Option<Spanned<Conditions>>,
}

impl From<AttributeKeys> for Attribute {
    fn from(keys: AttributeKeys) -> Self {
        let has_marker = keys.function.is_some()
            || keys.at.is_some()
            || keys.object.is_some()
            || keys.offset.is_some()
            || keys.address.is_some()
            || keys.all.is_some()
            || keys.usdt.is_some()
            || keys.called_by.is_some();
        let marker = Marker {
            function: keys.function,
            at: keys.at,
            object: keys.object,
            offset: keys.offset,
            address: keys.address,
            all: keys.all,
            usdt: keys.usdt,
            called_by: keys.called_by,
            build_id: None,
            when: None,
            key: None,
            to: None,
            place: None,
            touch: None,
            queued: None,
            detail: None,
        };
        Self {
            name: keys.name,
            on: keys.on,
            marker: has_marker.then_some(marker),
            when: keys.when,
            value: Value {
                arg: keys.arg,
                register: keys.register,
                global: keys.global,
                deref: keys.deref,
                add: None,
                size: keys.size,
            },
            text: TextKeys {
                kind: keys.kind,
                length: keys.length,
            },
            max_length: keys.max_length,
            until: keys.until,
            names: keys.names,
            keep: keys.keep,
            detail: keys.detail,
            only_if: keys.only_if,
            unless: keys.unless,
        }
    }
}
