//! The keys of `label`, as serde sees them.

use serde::Deserialize;
use toml::Spanned;

use super::list::OneOrMany;
use super::value::{Arg, Length, Numbers, Value, When};

/// One way to read a label.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "LabelKeys")]
pub(crate) struct Label {
    pub(crate) function: Option<Spanned<String>>,
    pub(crate) when: Option<Spanned<OneOrMany<When>>>,
    pub(crate) text: TextKeys,
    pub(crate) value: Value,
}

/// How a value becomes text.
#[derive(Clone, Debug)]
pub(crate) struct TextKeys {
    pub(crate) kind: Option<Spanned<LabelType>>,
    pub(crate) length: Option<Spanned<Length>>,
}

/// Flat, because serde's `flatten` loses the places of values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelKeys {
    function: Option<Spanned<String>>,
    when: Option<Spanned<OneOrMany<When>>>,
    #[serde(rename = "type")]
    kind: Option<Spanned<LabelType>>,
    length: Option<Spanned<Length>>,
    arg: Option<Spanned<Arg>>,
    register: Option<Spanned<String>>,
    global: Option<Spanned<String>>,
    deref: Option<Spanned<Numbers>>,
    size: Option<Spanned<i64>>,
}

impl From<LabelKeys> for Label {
    fn from(keys: LabelKeys) -> Self {
        Self {
            function: keys.function,
            when: keys.when,
            text: TextKeys {
                kind: keys.kind,
                length: keys.length,
            },
            value: Value {
                arg: keys.arg,
                register: keys.register,
                global: keys.global,
                deref: keys.deref,
                add: None,
                size: keys.size,
            },
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LabelType {
    String,
    Integer,
    Unsigned,
    Symbol,
    Unit,
}
