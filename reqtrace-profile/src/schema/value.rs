//! The keys of values and of conditions on them, as serde sees them.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

/// Where a value is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { arg = 0 }")]
pub(crate) struct Value {
    pub(crate) arg: Option<Spanned<Arg>>,
    pub(crate) register: Option<Spanned<String>>,
    pub(crate) global: Option<Spanned<String>>,
    pub(crate) deref: Option<Spanned<Numbers>>,
    pub(crate) add: Option<Spanned<i64>>,
    pub(crate) size: Option<Spanned<i64>>,
}

/// An argument, or what a function returns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    Index(i64),
    Result,
}

/// A condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "WhenKeys")]
pub(crate) struct When {
    pub(crate) value: Value,
    pub(crate) equals: Option<Spanned<Scalars>>,
    pub(crate) not_equals: Option<Spanned<Scalars>>,
    pub(crate) from: Option<Spanned<i64>>,
    pub(crate) to: Option<Spanned<i64>>,
}

/// Flat, because serde's `flatten` loses the places of values.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table such as { arg = 0, equals = 3 }"
)]
struct WhenKeys {
    arg: Option<Spanned<Arg>>,
    register: Option<Spanned<String>>,
    global: Option<Spanned<String>>,
    deref: Option<Spanned<Numbers>>,
    size: Option<Spanned<i64>>,
    equals: Option<Spanned<Scalars>>,
    not_equals: Option<Spanned<Scalars>>,
    from: Option<Spanned<i64>>,
    to: Option<Spanned<i64>>,
}

impl From<WhenKeys> for When {
    fn from(keys: WhenKeys) -> Self {
        Self {
            value: Value {
                arg: keys.arg,
                register: keys.register,
                global: keys.global,
                deref: keys.deref,
                add: None,
                size: keys.size,
            },
            equals: keys.equals,
            not_equals: keys.not_equals,
            from: keys.from,
            to: keys.to,
        }
    }
}

/// A length: a number of bytes, or where it is.
#[derive(Clone, Debug)]
pub(crate) enum Length {
    Fixed(i64),
    Read(Box<Value>),
}

/// A number, or a list of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) Vec<i64>);

/// What a value is compared with.
#[derive(Clone, Debug)]
pub(crate) enum Scalar {
    Number(i64),
    Text(String),
}

/// A number or a text, or a list of them.
#[derive(Clone, Debug)]
pub(crate) struct Scalars(pub(crate) Vec<Scalar>);

impl<'de> Deserialize<'de> for Arg {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IndexOrResult;

        impl Visitor<'_> for IndexOrResult {
            type Value = Arg;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the number of an argument, from 0, or \"result\"")
            }

            fn visit_i64<E: de::Error>(self, index: i64) -> Result<Arg, E> {
                Ok(Arg::Index(index))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Arg, E> {
                match word {
                    "result" => Ok(Arg::Result),
                    other => Err(E::unknown_variant(other, &["result"])),
                }
            }
        }

        deserializer.deserialize_any(IndexOrResult)
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
                let value = Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Length::Read(Box::new(value)))
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

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText)
    }
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = Scalar;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Scalars {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Scalars;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, a text, or a list of either")
            }

            fn visit_i64<E: de::Error>(self, one: i64) -> Result<Scalars, E> {
                Ok(Scalars(vec![Scalar::Number(one)]))
            }

            fn visit_str<E: de::Error>(self, one: &str) -> Result<Scalars, E> {
                Ok(Scalars(vec![Scalar::Text(one.to_owned())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalars, A::Error> {
                let mut many = Vec::new();
                while let Some(scalar) = seq.next_element()? {
                    many.push(scalar);
                }
                Ok(Scalars(many))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}
