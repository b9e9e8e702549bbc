//! How a label is read at begin: a small plan per marker, made by user space and carried out by the
//! begin programs.

use crate::limits::MAX_READS;

/// What stands in [`Reading::base`] and [`Reading::index`] for none.
pub const NO_REGISTER: u8 = 0xff;

/// How to get one number: a start value from a constant and registers, then reads of memory.
///
/// `value = constant + (base >> shift) + index * scale`, then for each of the `reads` offsets
/// `value = *(value + offset)`. All reads but the last are of a pointer; the last one is of `size`
/// bytes. Without any read the value is cut to `size` bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reading {
    /// Added to the start value.
    pub constant: i64,
    /// Bytes from the value to where the next one is read.
    pub offsets: [i32; MAX_READS],
    /// Index of a register in `pt_regs`, or [`NO_REGISTER`].
    pub base: u8,
    /// The same for one that is multiplied.
    pub index: u8,
    /// By what; 0 without `index`.
    pub scale: u8,
    /// Bits by which `base` is shifted down.
    pub shift: u8,
    /// Used entries of `offsets`.
    pub reads: u8,
    /// Size of the value in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// 1 when it is signed.
    pub signed: u8,
    /// Always 0.
    pub pad: [u8; 5],
}

/// Kinds of labels.
pub mod label_kind {
    /// The value, in decimal.
    pub const NUMBER: u32 = 1;
    /// The text at the value, up to its NUL.
    pub const C_STRING: u32 = 2;
    /// As many bytes at the value as `length` says.
    pub const BYTES: u32 = 3;
}

/// Values that a condition may have.
pub const MAX_EQUALS: usize = 4;

/// One way to read a label; the first whose condition holds is taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelPlan {
    /// What the condition looks at.
    pub when: Reading,
    /// What it must be one of.
    pub equals: [i64; MAX_EQUALS],
    /// Used entries of `equals`; 0: no condition.
    pub equals_used: u32,
    /// One of [`label_kind`].
    pub kind: u32,
    /// The value, or the address of the text.
    pub value: Reading,
    /// Length of the text in bytes, of [`label_kind::BYTES`].
    pub length: Reading,
    /// Index of the plan to try when the condition does not hold, 0 for none.
    pub next: u32,
    /// Always 0.
    pub pad: u32,
}

/// A number as read, brought to 64 bits.
#[must_use]
#[inline]
pub const fn extend(value: u64, size: u8, signed: bool) -> u64 {
    let unused = match size {
        1 => 56,
        2 => 48,
        4 => 32,
        _ => 0,
    };
    let high = value << unused;
    if signed {
        ((high as i64) >> unused) as u64
    } else {
        high >> unused
    }
}

/// Writes a number in decimal; returns how many bytes that took, 20 at most.
#[inline]
pub fn decimal(value: u64, signed: bool, into: &mut [u8; 128]) -> u32 {
    let negative = signed && (value as i64) < 0;
    let magnitude = if negative {
        value.wrapping_neg()
    } else {
        value
    };
    let mut digits = 1;
    let mut rest = magnitude / 10;
    while rest != 0 && digits < 20 {
        rest /= 10;
        digits += 1;
    }
    let length = digits + negative as usize;
    if negative {
        into[0] = b'-';
    }
    let mut rest = magnitude;
    let mut written = 0;
    while written < digits && written < 20 {
        written += 1;
        // The mask says to the verifier what `length` says to us.
        into[(length - written) & 31] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    length as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_extended_by_their_size_and_sign() {
        assert_eq!(extend(0xffff_ffff_ffff_fff3, 4, true) as i64, -13);
        assert_eq!(extend(0x1_0000_0003, 4, true), 3);
        assert_eq!(extend(0xffff_fff3, 4, false), 0xffff_fff3);
        assert_eq!(extend(0x1ff, 1, true) as i64, -1);
        assert_eq!(extend(0x1_8000, 2, false), 0x8000);
        assert_eq!(extend(u64::MAX, 8, false), u64::MAX);
    }

    #[test]
    fn decimals_are_those_of_the_standard_library() {
        let text = |value: u64, signed: bool| {
            let mut into = [b'x'; 128];
            let length = decimal(value, signed, &mut into) as usize;
            assert_eq!(into[length..], [b'x'; 128][length..]);
            String::from_utf8(into[..length].to_vec()).unwrap()
        };
        for value in [
            0,
            7,
            10,
            99,
            100,
            12345,
            i64::MAX as u64,
            u64::MAX,
            u64::MAX - 9,
            1 << 63,
        ] {
            assert_eq!(text(value, false), value.to_string());
            assert_eq!(text(value, true), (value as i64).to_string());
        }
    }
}
