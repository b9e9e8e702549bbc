//! One thing or a list of such things, as serde sees them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

/// One table, or a list of tables.
///
/// Written by hand because serde's untagged enum says "did not match any variant" where a user needs
/// to know what is wrong with the table.
#[derive(Clone, Debug)]
pub(crate) enum OneOrMany<T> {
    One(Box<T>),
    Many(Vec<Spanned<T>>),
}

impl<T> OneOrMany<T> {
    /// All of them, each with its place.
    pub(crate) fn all(given: Spanned<Self>) -> Vec<Spanned<T>> {
        let span = given.span();
        match given.into_inner() {
            Self::One(one) => vec![Spanned::new(span, *one)],
            Self::Many(many) => many,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableOrList<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableOrList<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { arg = 0 }, or a list of such tables")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let one = T::deserialize(MapAccessDeserializer::new(map))?;
                Ok(OneOrMany::One(Box::new(one)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut many = Vec::new();
                while let Some(item) = seq.next_element::<Spanned<T>>()? {
                    many.push(item);
                }
                Ok(OneOrMany::Many(many))
            }
        }

        deserializer.deserialize_any(TableOrList(PhantomData))
    }
}
