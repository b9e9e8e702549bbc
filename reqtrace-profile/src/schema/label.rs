//! The keys of `label`, as serde sees them.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

/// One label, or a list of ways to read it.
#[derive(Debug)]
pub(crate) enum Labels {
    One(Box<Label>),
    Many(Vec<Spanned<Label>>),
}

/// One way to read a label.
#[derive(Debug, Deserialize)]
#[serde(from = "LabelKeys")]
pub(crate) struct Label {
    pub(crate) function: Option<Spanned<String>>,
    pub(crate) when: Option<Spanned<When>>,
    pub(crate) kind: Option<Spanned<LabelType>>,
    pub(crate) length: Option<Spanned<Length>>,
    pub(crate) value: Value,
}

/// Flat, because serde's `flatten` loses the places of values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelKeys {
    function: Option<Spanned<String>>,
    when: Option<Spanned<When>>,
    #[serde(rename = "type")]
    kind: Option<Spanned<LabelType>>,
    length: Option<Spanned<Length>>,
    arg: Option<Spanned<i64>>,
    register: Option<Spanned<String>>,
    deref: Option<Spanned<Numbers>>,
    size: Option<Spanned<i64>>,
}

impl From<LabelKeys> for Label {
    fn from(keys: LabelKeys) -> Self {
        Self {
            function: keys.function,
            when: keys.when,
            kind: keys.kind,
            length: keys.length,
            value: Value {
                arg: keys.arg,
                register: keys.register,
                deref: keys.deref,
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
}

/// Where a value is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Value {
    pub(crate) arg: Option<Spanned<i64>>,
    pub(crate) register: Option<Spanned<String>>,
    pub(crate) deref: Option<Spanned<Numbers>>,
    pub(crate) size: Option<Spanned<i64>>,
}

/// A condition.
#[derive(Debug, Deserialize)]
#[serde(from = "WhenKeys")]
pub(crate) struct When {
    pub(crate) value: Value,
    pub(crate) equals: Spanned<Numbers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhenKeys {
    arg: Option<Spanned<i64>>,
    register: Option<Spanned<String>>,
    deref: Option<Spanned<Numbers>>,
    size: Option<Spanned<i64>>,
    equals: Spanned<Numbers>,
}

impl From<WhenKeys> for When {
    fn from(keys: WhenKeys) -> Self {
        Self {
            value: Value {
                arg: keys.arg,
                register: keys.register,
                deref: keys.deref,
                size: keys.size,
            },
            equals: keys.equals,
        }
    }
}

/// A length: a number of bytes, or where it is.
#[derive(Debug)]
pub(crate) enum Length {
    Fixed(i64),
    Read(Value),
}

/// A number, or a list of numbers.
#[derive(Debug)]
pub(crate) struct Numbers(pub(crate) Vec<i64>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Labels;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table such as { arg = 0 }, or a list of such tables")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Labels, A::Error> {
                let one = Label::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Labels::One(Box::new(one)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Labels, A::Error> {
                let mut many = Vec::new();
                while let Some(label) = seq.next_element::<Spanned<Label>>()? {
                    many.push(label);
                }
                Ok(Labels::Many(many))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FixedOrRead;

        impl<'de> Visitor<'de> for FixedOrRead {
            type Value = Length;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of bytes, or a table such as { arg = 1 }")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Length, E> {
                Ok(Length::Fixed(bytes))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Length, A::Error> {
                Value::deserialize(MapAccessDeserializer::new(map)).map(Length::Read)
            }
        }

        deserializer.deserialize_any(FixedOrRead)
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Numbers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number or a list of numbers")
            }

            fn visit_i64<E: de::Error>(self, one: i64) -> Result<Numbers, E> {
                Ok(Numbers(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Numbers, A::Error> {
                let mut many = Vec::new();
                while let Some(number) = seq.next_element()? {
                    many.push(number);
                }
                Ok(Numbers(many))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}
