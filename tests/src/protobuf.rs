//! Protocol buffers without a schema: bytes in, numbered fields out. So what a program has encoded is read by something that
//! does not know the program.

use anyhow::{Context as _, Result, bail};

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// A text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    /// A number.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn number(self) -> Result<u64> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => bail!("no number: {self:?}"),
        }
    }

    /// Bytes.
    ///
    /// # Errors
    ///
    /// When it is a number.
    pub fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => bail!("a number: {self:?}"),
        }
    }

    /// Numbers, of which a field may have one or, packed, many.
    ///
    /// # Errors
    ///
    /// When they are cut off.
    pub fn numbers(self) -> Result<Vec<u64>> {
        let mut rest = match self {
            Self::Number(number) => return Ok(vec![number]),
            Self::Bytes(bytes) => bytes,
        };
        let mut numbers = Vec::new();
        while !rest.is_empty() {
            numbers.push(varint(&mut rest)?);
        }
        Ok(numbers)
    }
}

/// The fields of a message, each with its number, in their order.
///
/// # Errors
///
/// When it is cut off, or has a field of another kind.
pub fn fields(mut message: &[u8]) -> Result<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut message)?),
            2 => {
                let length = varint(&mut message)? as usize;
                let (bytes, rest) = message.split_at_checked(length).context("cut off")?;
                message = rest;
                Field::Bytes(bytes)
            }
            kind => bail!("a field of kind {kind}"),
        };
        fields.push((key >> 3, field));
    }
    Ok(fields)
}

fn varint(from: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first().context("cut off")?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    bail!("a number of more than 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_numbers_and_what_is_cut_off_is_an_error() {
        let message = b"\x08\x96\x01\x12\x07testing\x1a\x03\x03\x8e\x02";
        let all = fields(message).unwrap();
        assert_eq!(all[0], (1, Field::Number(150)));
        assert_eq!(all[1], (2, Field::Bytes(b"testing")));
        assert_eq!(all[2].1.numbers().unwrap(), [3, 270]);
        for end in [1, 2, 5, 11, 14] {
            assert!(fields(&message[..end]).is_err(), "{end}");
        }
    }
}
