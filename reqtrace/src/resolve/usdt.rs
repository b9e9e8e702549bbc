//! USDT probes: the `.note.stapsdt` of an object in, its probes with all their places, semaphores
//! and arguments out.
//!
//! The format is that of `SystemTap`'s `sys/sdt.h`. A note that makes no sense is counted and left
//! out; nothing of the file is trusted.

use super::elf::Object;
use super::registers::Register;
use crate::error::Error;
use crate::text::nearest;

/// Names that an error suggests.
const MAX_NEAREST: usize = 3;

/// Type of a probe's note (`_SDT_NOTE_TYPE`).
const NOTE_TYPE: u32 = 3;

/// Owner of the notes.
const NOTE_OWNER: &[u8] = b"stapsdt\0";

/// All probes of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsdtProbes {
    /// By provider and name.
    pub probes: Vec<UsdtProbe>,
    /// Notes that could not be read: cut off, without their strings, or of a place that is not in
    /// the object's code.
    pub malformed: usize,
}

/// One probe of a program: `provider:name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtProbe {
    /// Who defines it, such as `postgresql`.
    pub provider: String,
    /// Its name, such as `query__start`.
    pub name: String,
    /// Everywhere that the compiler has put it, by address. At least one.
    pub sites: Vec<UsdtSite>,
}

/// One place of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtSite {
    /// Virtual address as linked.
    pub address: u64,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Offset in the file of the 16-bit counter that the program looks at before it evaluates the
    /// arguments and comes to this place. `None`: it always comes here.
    pub semaphore: Option<u64>,
    /// Its arguments, in order.
    pub arguments: Vec<UsdtArgument>,
}

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

impl UsdtProbe {
    /// `provider:name`, as a profile writes it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.provider, self.name)
    }
}

/// The USDT probes of an object; none if it has no notes.
#[must_use]
pub fn usdt_probes(object: &Object) -> UsdtProbes {
    let mut found = UsdtProbes::default();
    for section in object.usdt_notes() {
        let mut rest = section;
        while !rest.is_empty() {
            let Some((note, after)) = next_note(rest) else {
                // Without its sizes the next one cannot be found.
                found.malformed += 1;
                break;
            };
            rest = after;
            match note {
                Note::Other => {}
                Note::Probe(description) => match probe(object, description) {
                    Some((provider, name, site)) => found.add(provider, name, site),
                    None => found.malformed += 1,
                },
            }
        }
    }
    for probe in &mut found.probes {
        probe.sites.sort_by_key(|site| site.address);
        probe.sites.dedup();
    }
    found
        .probes
        .sort_by(|a, b| (&a.provider, &a.name).cmp(&(&b.provider, &b.name)));
    found
}

impl UsdtProbes {
    /// The probe `provider:name`.
    #[must_use]
    pub fn find(&self, provider: &str, name: &str) -> Option<&UsdtProbe> {
        self.probes
            .iter()
            .find(|probe| probe.provider == provider && probe.name == name)
    }

    /// Why a probe cannot be found in this object. `elsewhere`: other objects that have it.
    pub(super) fn missing(
        &self,
        shown: &str,
        provider: &str,
        name: &str,
        elsewhere: &[String],
    ) -> Error {
        let wanted = format!("{provider}:{name}");
        if self.probes.is_empty() && self.malformed > 0 {
            return Error::failed(format!(
                "all {} USDT notes of {shown} are malformed, so `{wanted}` cannot be found",
                self.malformed
            ))
            .next("use a function or an offset as marker");
        }
        let error = Error::usage(format!("no USDT probe `{wanted}` in {shown}"));
        if let Some(object) = elsewhere.first() {
            return error.next(format!(
                "it is in {}: add object = \"{object}\"",
                elsewhere.join(", ")
            ));
        }
        if self.probes.is_empty() {
            return error.next(
                "the file has no USDT probes at all: it was built without them, or they are in \
                 a library (set `object`)",
            );
        }
        let names: Vec<String> = self.probes.iter().map(UsdtProbe::full_name).collect();
        let near = nearest(&wanted, names.iter().map(String::as_str), MAX_NEAREST);
        error.next(format!(
            "it has {} others{}",
            names.len(),
            match near.as_slice() {
                [] => String::new(),
                near => format!(", such as {}", near.join(", ")),
            }
        ))
    }

    fn add(&mut self, provider: &str, name: &str, site: UsdtSite) {
        let known = self
            .probes
            .iter_mut()
            .find(|probe| probe.provider == provider && probe.name == name);
        match known {
            Some(probe) => probe.sites.push(site),
            None => self.probes.push(UsdtProbe {
                provider: provider.to_owned(),
                name: name.to_owned(),
                sites: vec![site],
            }),
        }
    }
}

enum Note<'a> {
    /// The description of a probe.
    Probe(&'a [u8]),
    /// Another owner's or another type.
    Other,
}

/// The first note of a section, and what follows it; `None` when it is cut off.
fn next_note(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let (owner_size, rest) = u32_at(bytes)?;
    let (size, rest) = u32_at(rest)?;
    let (kind, rest) = u32_at(rest)?;
    let (owner, rest) = padded(rest, owner_size)?;
    let (description, rest) = padded(rest, size)?;
    let note = if kind == NOTE_TYPE && owner == NOTE_OWNER {
        Note::Probe(description)
    } else {
        Note::Other
    };
    Some((note, rest))
}

fn u32_at(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}

fn u64_at(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*word), rest))
}

/// The first `size` bytes, and what follows them at the next multiple of four.
fn padded(bytes: &[u8], size: u32) -> Option<(&[u8], &[u8])> {
    let size = usize::try_from(size).ok()?;
    let content = bytes.get(..size)?;
    let next = size.checked_next_multiple_of(4)?;
    // The padding of the last note may be missing.
    Some((content, bytes.get(next..).unwrap_or_default()))
}

fn string(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    Some((text, &bytes[end + 1..]))
}

/// Provider, name and place from a note's description.
fn probe<'a>(object: &Object, description: &'a [u8]) -> Option<(&'a str, &'a str, UsdtSite)> {
    let (location, rest) = u64_at(description)?;
    let (base, rest) = u64_at(rest)?;
    let (semaphore, rest) = u64_at(rest)?;
    let (provider, rest) = string(rest)?;
    let (name, rest) = string(rest)?;
    let (arguments, _) = string(rest)?;
    if provider.is_empty() || name.is_empty() {
        return None;
    }
    // A prelinked file has been moved, and its notes have not.
    let moved = object
        .usdt_base()
        .map_or(0, |actual| actual.wrapping_sub(base));
    let address = location.wrapping_add(moved);
    let semaphore = match semaphore {
        0 => None,
        linked => Some(object.data_offset(linked.wrapping_add(moved))?),
    };
    let site = UsdtSite {
        address,
        file_offset: object.file_offset(address)?,
        semaphore,
        arguments: arguments
            .split_ascii_whitespace()
            .map(|text| argument(object, address, text))
            .collect(),
    };
    Some((provider, name, site))
}

/// One argument: `SIZE@OPERAND`, the operand in the assembler's notation.
fn argument(object: &Object, address: u64, text: &str) -> UsdtArgument {
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

fn operand_value(object: &Object, address: u64, operand: &str) -> Option<ArgumentValue> {
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

#[cfg(test)]
mod tests;
