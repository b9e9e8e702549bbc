//! Arguments of a USDT probe: `SIZE@OPERAND` as the assembler writes it in, where the value is out.

use reqtrace_binary::elf::Object;
use reqtrace_common::registers::Register;

/// One argument of a probe at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtArgument {
    /// As written in the note, such as `-4@%eax`.
    pub text: String,
    /// Its size in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether it is signed.
    pub signed: bool,
    /// Where its value is; `None` for what cannot be read (floating point, segments).
    pub value: Option<ArgumentValue>,
}

/// Where an argument's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentValue {
    /// It is this.
    Constant(i64),
    /// In a register, to be shifted down by so many bits.
    Register {
        /// The register.
        register: Register,
        /// 8 for the high byte of a word, else 0.
        shift: u8,
    },
    /// In memory at `base + index * scale + displacement`.
    Memory {
        /// What is added as it is.
        base: Option<Register>,
        /// What is multiplied first, and by what: 1, 2, 4 or 8.
        index: Option<(Register, u8)>,
        /// Bytes.
        displacement: i64,
    },
}

/// One argument: `SIZE@OPERAND`, the operand in the assembler's notation.
pub(super) fn argument(object: &Object, address: u64, text: &str) -> UsdtArgument {
    let (size, operand) = text.split_once('@').unwrap_or(("8", text));
    let unreadable = UsdtArgument {
        text: text.to_owned(),
        size: 8,
        signed: false,
        value: None,
    };
    let (signed, digits) = match size.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, size),
    };
    // A trailing `f` is a floating-point value.
    let Some(size) = digits
        .parse::<u8>()
        .ok()
        .filter(|size| matches!(size, 1 | 2 | 4 | 8))
    else {
        return unreadable;
    };
    UsdtArgument {
        size,
        signed,
        value: operand_value(object, address, operand),
        ..unreadable
    }
}

/// Where the operand of a probe at `address` is; `None` for what cannot be read.
pub(super) fn operand_value(object: &Object, address: u64, operand: &str) -> Option<ArgumentValue> {
    if let Some(constant) = operand.strip_prefix('$') {
        return Some(ArgumentValue::Constant(number(constant)?));
    }
    if let Some(name) = operand.strip_prefix('%')
        && !operand.contains(['(', ':'])
    {
        let (register, shift) = Register::named(name)?;
        return Some(ArgumentValue::Register { register, shift });
    }
    let Some((displacement, registers)) = operand.split_once('(') else {
        // An absolute address, which only a program at a fixed address can have. From here on
        // it is as far from the probe as when it was linked.
        let target = sum(operand, |name| object.address_of_symbol(name))?;
        return Some(relative_to_probe(target, address));
    };
    let mut parts = registers.strip_suffix(')')?.split(',');
    let base = match parts.next()? {
        "" => None,
        name => Some(whole_register(name)?),
    };
    let index = parts.next().map(whole_register);
    let scale = match parts.next() {
        Some(scale) => scale.parse::<u8>().ok()?,
        None => 1,
    };
    if parts.next().is_some() || !matches!(scale, 1 | 2 | 4 | 8) {
        return None;
    }
    let index = match index {
        Some(register) => Some((register?, scale)),
        None => None,
    };
    if base == Some(Register::Rip) {
        // The assembler means the symbol's address by `symbol(%rip)`. A number alone would be
        // counted from the end of an instruction that is not there.
        if index.is_some() || number(displacement).is_some() {
            return None;
        }
        let target = sum(displacement, |name| object.address_of_symbol(name))?;
        return Some(relative_to_probe(target, address));
    }
    if base.is_none() && index.is_none() {
        return None;
    }
    let displacement = match displacement {
        "" => 0,
        text => sum(text, |_| None)?.cast_signed(),
    };
    Some(ArgumentValue::Memory {
        base,
        index,
        displacement,
    })
}

fn relative_to_probe(target: u64, probe: u64) -> ArgumentValue {
    ArgumentValue::Memory {
        base: Some(Register::Rip),
        index: None,
        displacement: target.wrapping_sub(probe).cast_signed(),
    }
}

/// A register that an address is made of.
fn whole_register(text: &str) -> Option<Register> {
    let name = text.strip_prefix('%')?;
    // An address has 64 bits.
    let (register, _) = Register::named(name).filter(|_| name.starts_with('r'))?;
    let whole = !name.ends_with(['d', 'w', 'b']);
    whole.then_some(register)
}

/// Numbers and symbols joined by `+` and `-`, such as `sym+4` and `-8+sym`.
fn sum(text: &str, symbol: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text;
    let mut first = true;
    while !rest.is_empty() {
        let (negative, after) = match rest.as_bytes()[0] {
            b'+' if !first => (false, &rest[1..]),
            b'-' => (true, &rest[1..]),
            _ if first => (false, rest),
            _ => return None,
        };
        let end = after.find(['+', '-']).unwrap_or(after.len());
        let (term, following) = after.split_at(end);
        let value = match number(term) {
            Some(value) => value.cast_unsigned(),
            None if term.is_empty() => return None,
            None => symbol(term)?,
        };
        total = if negative {
            total.wrapping_sub(value)
        } else {
            total.wrapping_add(value)
        };
        rest = following;
        first = false;
    }
    (!first).then_some(total)
}

/// A decimal or hexadecimal number with an optional sign; unsigned ones use all 64 bits.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    let value = value.cast_signed();
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}
