//! The keys of a marker, as serde sees them.

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::Strings;
use super::list::OneOrMany;
use super::value::{Value, When};

/// Where something is probed, and what is done there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Marker {
    pub(crate) function: Option<Spanned<Strings>>,
    pub(crate) at: Option<Spanned<At>>,
    pub(crate) object: Option<Spanned<String>>,
    pub(crate) offset: Option<Spanned<i64>>,
    pub(crate) address: Option<Spanned<i64>>,
    pub(crate) all: Option<Spanned<bool>>,
    pub(crate) usdt: Option<Spanned<String>>,
    pub(crate) called_by: Option<Spanned<String>>,
    pub(crate) build_id: Option<Spanned<toml::Value>>,
    pub(crate) when: Option<Spanned<OneOrMany<When>>>,
    pub(crate) key: Option<Spanned<Key>>,
    pub(crate) to: Option<Spanned<OneOrMany<Value>>>,
    #[serde(rename = "as")]
    pub(crate) place: Option<Spanned<String>>,
    pub(crate) touch: Option<Spanned<bool>>,
    pub(crate) queued: Option<Spanned<bool>>,
    pub(crate) detail: Option<Spanned<bool>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum At {
    Entry,
    Return,
}

/// Which request a marker is about.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    /// The one that the thread runs.
    Current,
    /// The unit that the thread runs.
    Unit,
    Value(OneOrMany<Value>),
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CurrentOrValue;

        impl<'de> Visitor<'de> for CurrentOrValue {
            type Value = Key;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "a table such as { arg = 0 }, a list of such tables, \"current\", or below [[request]] \"unit\"",
                )
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Key, E> {
                match word {
                    "current" => Ok(Key::Current),
                    "unit" => Ok(Key::Unit),
                    other => Err(E::unknown_variant(other, &["current", "unit"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Key, A::Error> {
                let value = Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Key::Value(OneOrMany::One(Box::new(value))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Key, A::Error> {
                let values = OneOrMany::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(Key::Value(values))
            }
        }

        deserializer.deserialize_any(CurrentOrValue)
    }
}
