//! Buckets as they are in a recording: index and count of those that are not empty.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer, const N: usize>(
    counts: &[u64; N],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let filled = counts.iter().filter(|count| **count > 0).count();
    let mut list = serializer.serialize_seq(Some(filled))?;
    for (index, count) in (0_u32..).zip(counts) {
        if *count > 0 {
            list.serialize_element(&(index, count))?;
        }
    }
    list.end()
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
    deserializer: D,
) -> Result<[u64; N], D::Error> {
    deserializer.deserialize_seq(Buckets)
}

struct Buckets<const N: usize>;

impl<'de, const N: usize> Visitor<'de> for Buckets<N> {
    type Value = [u64; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counts of {N} buckets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<[u64; N], A::Error> {
        let mut counts = [0; N];
        while let Some((index, count)) = list.next_element::<(u32, u64)>()? {
            let bucket = counts.get_mut(index as usize);
            *bucket.ok_or_else(|| A::Error::custom("there is no such bucket"))? = count;
        }
        Ok(counts)
    }
}
