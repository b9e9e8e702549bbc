//! Fields with numbers: values in, bytes out, and back.
//!
//! A field is its number times 2, a varint, and its value in the form of `postcard`. Where that is no single
//! varint, the number has 1 added, and the length comes first. So a reader passes by a field that it does not know.
//! A field whose bytes are all 0 is left out: that is 0, nothing or empty, and what a missing field is read as.
//!
//! [`numbered`] says which number each field has. A number is never given to another field, and the value of a
//! field never changes its form; what a value should have more is a field of its own.

use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Malformed, bounded, sparse};

/// So many bytes are copied one by one.
const SHORT: usize = 4;

/// Memory of a list, bytes: a block is full long before.
const MAX_LIST: usize = 16 << 20;

/// A structure whose fields have numbers.
pub(super) trait Numbered: Default {
    /// Writes its fields.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes a field; one that it does not know is left out.
    fn set(&mut self, number: u64, bytes: &[u8]) -> Result<(), Malformed>;
}

/// Gives numbers to the fields of a structure. `each` is a list of structures with numbers, `one` such a structure,
/// `bounded` a list whose elements have memory of their own, `counts` a histogram, `entries` the fields of events.
macro_rules! numbered {
    ($type:ident { $($number:literal $field:ident $($how:ident)?),* $(,)? }) => {
        impl $crate::wire::numbers::Numbered for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::wire::numbers::numbered!(@put out, $number, &self.$field $(, $how)?); )*
            }

            fn set(&mut self, number: u64, bytes: &[u8]) -> Result<(), $crate::wire::Malformed> {
                match number {
                    $( $number => {
                        self.$field = $crate::wire::numbers::numbered!(@get bytes $(, $how)?)?;
                    } )*
                    _ => {}
                }
                Ok(())
            }
        }
    };
    (@put $out:ident, $number:literal, $value:expr) => {
        $crate::wire::numbers::put_value($out, $number, $value)
    };
    (@put $out:ident, $number:literal, $value:expr, each) => {
        $crate::wire::numbers::put_each($out, $number, $value)
    };
    (@put $out:ident, $number:literal, $value:expr, one) => {
        $crate::wire::numbers::put_one($out, $number, $value)
    };
    (@put $out:ident, $number:literal, $value:expr, bounded) => {
        $crate::wire::numbers::put_value($out, $number, $value)
    };
    (@put $out:ident, $number:literal, $value:expr, counts) => {
        $crate::wire::numbers::put_value($out, $number, &$crate::wire::numbers::Counts(*$value))
    };
    (@put $out:ident, $number:literal, $value:expr, entries) => {
        $crate::wire::numbers::put_field($out, $number, |out| $value.put(out))
    };
    (@get $bytes:ident, entries) => { $crate::wire::entries::Fields::get($bytes) };
    (@get $bytes:ident, bounded) => { $crate::wire::numbers::list($bytes) };
    (@get $bytes:ident, counts) => {
        $crate::wire::numbers::value::<$crate::wire::numbers::Counts<_>>($bytes).map(|counts| counts.0)
    };
    (@get $bytes:ident) => { $crate::wire::numbers::value($bytes) };
    (@get $bytes:ident, each) => { $crate::wire::numbers::each($bytes) };
    (@get $bytes:ident, one) => { $crate::wire::numbers::read($bytes) };
}

pub(crate) use numbered;

/// The bytes of a structure.
pub(super) fn write<T: Numbered>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// The structure with these bytes.
pub(super) fn read<T: Numbered>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let mut read = T::default();
    while !bytes.is_empty() {
        let key: u64 = take(&mut bytes)?;
        let len = match key & 1 {
            0 => varint_len(bytes).ok_or(Malformed)?,
            _ => usize::try_from(take::<u64>(&mut bytes)?).map_err(|_| Malformed)?,
        };
        let (field, rest) = bytes.split_at_checked(len).ok_or(Malformed)?;
        read.set(key >> 1, field)?;
        bytes = rest;
    }
    Ok(read)
}

/// A histogram: its buckets that are not empty.
#[derive(Serialize, Deserialize)]
pub(super) struct Counts<const N: usize>(#[serde(with = "sparse")] pub(super) [u64; N]);

/// A list whose elements have memory of their own.
#[derive(Deserialize)]
struct List<T>(
    #[serde(
        deserialize_with = "bounded",
        bound(deserialize = "T: Deserialize<'de>")
    )]
    Vec<T>,
);

pub(super) fn put_value<T: Serialize>(out: &mut Vec<u8>, number: u64, value: &T) {
    put_field(out, number, |out| append(out, value));
}

/// A structure.
pub(super) fn put_one<T: Numbered>(out: &mut Vec<u8>, number: u64, value: &T) {
    put_field(out, number, |out| value.put(out));
}

/// A list: each element with its length in front.
pub(super) fn put_each<T: Numbered>(out: &mut Vec<u8>, number: u64, list: &[T]) {
    // An element may be all zeros.
    if list.is_empty() {
        return;
    }
    Varint::of(number << 1 | 1).append(out);
    put_with_length(out, |out| {
        for element in list {
            put_with_length(out, |out| element.put(out));
        }
    });
}

/// A field with the bytes that `put` appends.
pub(super) fn put_field(out: &mut Vec<u8>, number: u64, put: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    Varint::of(number << 1).append(out);
    let value = out.len();
    put(out);
    let bytes = &out[value..];
    if bytes.iter().all(|&byte| byte == 0) {
        out.truncate(at);
    } else if varint_len(bytes) != Some(bytes.len()) {
        let length = Varint::of(bytes.len() as u64);
        // Of a varint the lowest bits come first.
        out[at] |= 1;
        length.insert(out, value);
    }
}

/// The bytes that `put` appends, with their length in front.
pub(super) fn put_with_length(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    // Most lengths are one byte: then nothing is moved.
    out.push(0);
    put(out);
    let length = Varint::of((out.len() - at - 1) as u64);
    out[at] = length.bytes[0];
    if length.len > 1 {
        out.splice(at + 1..at + 1, length.bytes[1..length.len].iter().copied());
    }
}

/// Appends a value in the form of `postcard`.
pub(super) fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Numbers, text and lists of known length always have a form, and memory grows as needed.
    let _ = postcard::serialize_with_flavor(value, Appended(out));
}

/// Where `postcard` appends to.
struct Appended<'a>(&'a mut Vec<u8>);

impl Flavor for Appended<'_> {
    type Output = ();

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        // Most are one or two: a call of `memcpy` takes longer.
        if bytes.len() <= SHORT {
            for &byte in bytes {
                self.0.push(byte);
            }
        } else {
            self.0.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// The bytes of a varint.
struct Varint {
    bytes: [u8; 10],
    len: usize,
}

impl Varint {
    fn of(mut number: u64) -> Self {
        let (mut bytes, mut len) = ([0; 10], 0);
        while number >= 0x80 {
            bytes[len] = number as u8 | 0x80;
            number >>= 7;
            len += 1;
        }
        bytes[len] = number as u8;
        Self {
            bytes,
            len: len + 1,
        }
    }

    fn append(&self, out: &mut Vec<u8>) {
        for &byte in &self.bytes[..self.len] {
            out.push(byte);
        }
    }

    /// Puts them before what is there from `at` on.
    fn insert(&self, out: &mut Vec<u8>, at: usize) {
        out.splice(at..at, self.bytes[..self.len].iter().copied());
    }
}

/// Bytes of the varint that these begin with.
fn varint_len(bytes: &[u8]) -> Option<usize> {
    bytes
        .iter()
        .position(|byte| byte & 0x80 == 0)
        .map(|at| at + 1)
}

pub(super) fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, Malformed> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|_| Malformed)?;
    *bytes = rest;
    Ok(value)
}

/// Bytes with their length in front.
pub(super) fn take_with_length<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(take::<u64>(bytes)?).map_err(|_| Malformed)?;
    let (taken, rest) = bytes.split_at_checked(len).ok_or(Malformed)?;
    *bytes = rest;
    Ok(taken)
}

/// A value, of all its bytes.
pub(super) fn value<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, Malformed> {
    take(&mut bytes)
}

/// A list whose elements have memory of their own.
pub(super) fn list<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<T>, Malformed> {
    value::<List<T>>(bytes).map(|list| list.0)
}

/// A list of structures.
pub(super) fn each<T: Numbered>(mut bytes: &[u8]) -> Result<Vec<T>, Malformed> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let element = take_with_length(&mut bytes)?;
        // An element that is all zeros takes one byte of a file.
        if (list.len() + 1) * size_of::<T>() > MAX_LIST {
            return Err(Malformed);
        }
        list.push(read(element)?);
    }
    Ok(list)
}
