//! Values of a profile at one place: a [`ValueSpec`] and a probed instruction in, what the kernel
//! programs do to read it out.

use std::collections::HashSet;

use reqtrace_common::label::{NO_REGISTER, Reading};
use reqtrace_common::limits::MAX_READS;

use super::missing::symbols_from;
use super::opened::{Opened, Variable};
use super::returns::Reads;
use super::symbols::shortened;
use super::usdt::{ArgumentValue, UsdtSite};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::nearest;
use reqtrace_binary::demangle::signature;
use reqtrace_common::registers::Register;
use reqtrace_profile::{ValueSource, ValueSpec};

/// Bytes of an address.
pub(super) const POINTER: u8 = 8;

/// Bytes of a number in a register or in memory when a profile does not say: C's `int` and `enum`,
/// and the part of longer ones that matters.
pub(super) const INT: u8 = 4;

/// Names that an error suggests.
const MAX_NEAREST: usize = 3;

/// A place where values are read.
pub(super) struct Place<'a> {
    /// Its name, for messages.
    pub(super) symbol: &'a str,
    /// What arguments are there.
    pub(super) arguments: Arguments<'a>,
    /// Where the unit of the runtime is that it is about, if not in an argument.
    pub(super) unit: Option<UnitAt>,
    /// The object it is in.
    pub(super) object: &'a Opened,
    /// The probed instruction; `None`: behind the return, where a uretprobe is hit.
    pub(super) address: Option<u64>,
}

/// Where a unit of the runtime is at an instruction that is no entry of a function that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitAt {
    /// The register that has its address, or points to what has it.
    pub register: Register,
    /// So many bytes behind where the register points is its address; `None`: it is in the register.
    pub behind: Option<i32>,
    /// The register that has the unit's first word, which has just been read there.
    pub state: Option<Register>,
}

impl UnitAt {
    fn reading(self) -> Reading {
        let mut reading = in_register(self.register);
        if let Some(bytes) = self.behind {
            reading.offsets[0] = bytes;
            reading.reads = 1;
        }
        reading
    }
}

/// Arguments at a place.
#[derive(Clone, Copy)]
pub(super) enum Arguments<'a> {
    /// Those of a function.
    Function,
    /// Those of a function of Go.
    Go,
    /// Those of a place of a USDT probe.
    Usdt(&'a UsdtSite),
    /// None: it is just an instruction.
    None,
}

/// What values read at a marker; `None` when there are none.
pub(super) fn reads<'a>(values: impl IntoIterator<Item = &'a ValueSpec>) -> Option<Reads> {
    let of = |value: &ValueSpec| match value.source {
        ValueSource::Argument(index) if usize::from(index) < Register::ARGUMENTS.len() => {
            Reads::Arguments
        }
        ValueSource::Constant(_) | ValueSource::Global(_) | ValueSource::Unit(_) => {
            Reads::Arguments
        }
        ValueSource::Result => Reads::Result,
        ValueSource::Argument(_) | ValueSource::Register(_) => Reads::Anything,
    };
    values.into_iter().map(of).max()
}

impl Place<'_> {
    /// How a value is read. `usual` is the size of the result where neither the profile nor a note of the
    /// program says it.
    ///
    /// # Errors
    ///
    /// An argument that is not there, or a variable that is not known.
    pub(super) fn reading(
        &self,
        spec: &ValueSpec,
        usual: u8,
        signed: Option<bool>,
    ) -> Result<Reading> {
        let state = self.unit.and_then(|unit| unit.state);
        if let (ValueSource::Unit(_), [0], Some(register)) =
            (&spec.source, spec.deref.as_slice(), state)
        {
            return Ok(Reading {
                size: spec.size.unwrap_or(usual),
                ..in_register(register)
            });
        }
        let mut reading = self.start(&spec.source)?;
        if spec.add != 0 && reading.reads > 0 {
            return Err(Error::usage(format!(
                "`add = {}` to an argument of `{}` that is in memory",
                spec.add, self.symbol
            ))
            .next("leave `add` out, and take a key that is a pointer to the whole object"));
        }
        reading.constant = reading.constant.wrapping_add(spec.add);
        for offset in &spec.deref {
            let next = usize::from(reading.reads);
            // Four of a profile and one of a note's own are as many as there is room for.
            let place = reading.offsets.get_mut(next).ok_or_else(|| {
                Error::usage(format!(
                    "more than {MAX_READS} reads of memory for one value"
                ))
            })?;
            *place = *offset;
            reading.reads += 1;
        }
        // What a note says is the size of the argument, not of what it points to.
        let noted = Some(reading.size).filter(|size| *size != 0 && spec.deref.is_empty());
        reading.size = spec.size.or(noted).unwrap_or(usual);
        reading.signed = u8::from(signed.unwrap_or(false));
        Ok(reading)
    }

    fn start(&self, source: &ValueSource) -> Result<Reading> {
        Ok(match source {
            ValueSource::Argument(index) => self.argument(*index)?,
            ValueSource::Unit(argument) => match self.unit {
                Some(unit) => unit.reading(),
                None => self.argument(*argument)?,
            },
            ValueSource::Register(register) => in_register(*register),
            ValueSource::Result => in_register(Register::Rax),
            ValueSource::Global(name) => self.global(name)?,
            ValueSource::Constant(constant) => Reading {
                constant: *constant,
                ..NOTHING
            },
        })
    }

    fn argument(&self, argument: u8) -> Result<Reading> {
        match self.arguments {
            Arguments::Function => Ok(argument_of_function(argument)),
            Arguments::Go => self.argument_of_go(argument),
            Arguments::Usdt(site) => argument_of_usdt(self.symbol, site, argument),
            Arguments::None => Err(Error::usage(format!(
                "no function is known to begin at {}, so it has no argument {argument}",
                self.symbol
            ))
            .next("name the register that has the value there, such as register = \"rdi\"")),
        }
    }

    /// A word of the arguments of a function of Go (ABIInternal): a string is two of them, a slice three.
    fn argument_of_go(&self, argument: u8) -> Result<Reading> {
        let register = Register::ARGUMENTS_OF_GO.get(usize::from(argument));
        register.map(|register| in_register(*register)).ok_or_else(|| {
            Error::usage(format!(
                "argument {argument} of `{}`: Go passes {} words in registers, and where on the stack the next ones are depends \
                 on their types",
                self.symbol,
                Register::ARGUMENTS_OF_GO.len()
            ))
            .next("read one of the first, or behind one of them with `deref`")
        })
    }

    /// The address of a variable, by its distance from the probed instruction.
    fn global(&self, name: &str) -> Result<Reading> {
        let Some(found) = variable(self.object, name)? else {
            return Err(self.no_variable(name));
        };
        let Some(variable) = found.address else {
            return Err(Error::usage(format!(
                "each thread has a variable `{name}` of its own in {}, and those are not read",
                self.object.shown()
            ))
            .next("read the value where it is an argument, or behind one"));
        };
        let Some(here) = self.address else {
            return Err(
                Error::usage(format!("a uretprobe cannot read the variable `{name}`"))
                    .next("leave `return-probe` out of the profile"),
            );
        };
        Ok(Reading {
            constant: variable.wrapping_sub(here).cast_signed(),
            ..in_register(Register::Rip)
        })
    }

    fn no_variable(&self, name: &str) -> Error {
        let variables = self.object.variables();
        let shown = self.object.shown();
        let error = Error::usage(format!("no variable `{name}` in {shown}"));
        if variables.is_empty() {
            return error.next(format!(
                "it has no symbols of variables. {}",
                symbols_from(self.object)
            ));
        }
        let names: Vec<String> = variables.iter().map(|one| signature(&one.name)).collect();
        let near = nearest(name, names.iter().map(String::as_str), MAX_NEAREST);
        let others = format!("it has {} others", names.len());
        error.next(match near.as_slice() {
            [] => others,
            near => format!("{others}, such as {}", near.join(", ")),
        })
    }
}

/// The variable of a name: as it stands in the file, or else of that signature. `None` when there is none.
///
/// # Errors
///
/// When there are several, at different addresses: a usage error that lists them.
pub(super) fn variable<'o>(object: &'o Opened, name: &str) -> Result<Option<&'o Variable>> {
    let all = object.variables().iter();
    let mut found = one_an_address(all.clone().filter(|one| one.name == name));
    if found.is_empty() {
        found = one_an_address(all.filter(|one| signature(&one.name) == name));
    }
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => Err(ambiguous(object, name, several)),
    }
}

/// Names of one address are one variable, and tables of symbols repeat each other.
fn one_an_address<'o>(variables: impl Iterator<Item = &'o Variable>) -> Vec<&'o Variable> {
    let mut seen = HashSet::new();
    variables
        .filter(|variable| seen.insert(variable.address))
        .collect()
}

fn ambiguous(object: &Opened, name: &str, variables: &[&Variable]) -> Error {
    let listed = variables.iter().map(|one| match one.address {
        Some(address) => format!("{} (address 0x{address:x})", one.name),
        None => format!("{} (each thread's own)", one.name),
    });
    Error::usage(format!(
        "`{name}` is ambiguous in {}: {} variables match: {}",
        object.shown(),
        variables.len(),
        shortened(listed.collect())
    ))
    .next(
        "write the name as listed, if that tells them apart; else read the value where it is an \
         argument, or behind one",
    )
}

/// Zero; its size is not known.
const NOTHING: Reading = Reading {
    constant: 0,
    offsets: [0; MAX_READS],
    base: NO_REGISTER,
    index: NO_REGISTER,
    scale: 0,
    shift: 0,
    reads: 0,
    size: 0,
    signed: 0,
    pad: [0; 5],
};

fn in_register(register: Register) -> Reading {
    Reading {
        base: register.index(),
        ..NOTHING
    }
}

/// An integer argument at the entry of a function (System V AMD64 ABI, 3.2.3): those that find no
/// register stand above the return address, eight bytes each.
fn argument_of_function(argument: u8) -> Reading {
    let index = usize::from(argument);
    if let Some(register) = Register::ARGUMENTS.get(index) {
        return in_register(*register);
    }
    let above = index - Register::ARGUMENTS.len() + 1;
    let mut reading = in_register(Register::Rsp);
    reading.offsets[0] = 8 * above as i32;
    reading.reads = 1;
    reading
}

fn argument_of_usdt(symbol: &str, site: &UsdtSite, argument: u8) -> Result<Reading> {
    let Some(found) = site.arguments.get(usize::from(argument)) else {
        return Err(Error::usage(format!(
            "`{symbol}` has no argument {argument} at 0x{:x}, it has {}",
            site.file_offset,
            site.arguments.len()
        ))
        .next("arguments count from 0; `readelf -n` shows them"));
    };
    let unreadable = || {
        Error::usage(format!(
            "argument {argument} of `{symbol}` at 0x{:x} is `{}`, which cannot be read",
            site.file_offset, found.text
        ))
        .next(
            "choose another argument: floating point, thread-local ones, and variables of whose \
             name there are several are not read",
        )
    };
    let reading = match found.value.ok_or_else(unreadable)? {
        ArgumentValue::Constant(constant) => Reading {
            constant,
            ..NOTHING
        },
        ArgumentValue::Register { register, shift } => Reading {
            shift,
            ..in_register(register)
        },
        ArgumentValue::Memory {
            base,
            index,
            displacement,
        } => {
            let mut offsets = [0; MAX_READS];
            offsets[0] = i32::try_from(displacement).map_err(|_| unreadable())?;
            Reading {
                base: base.map_or(NO_REGISTER, Register::index),
                index: index.map_or(NO_REGISTER, |(register, _)| register.index()),
                scale: index.map_or(0, |(_, scale)| scale),
                offsets,
                reads: 1,
                ..NOTHING
            }
        }
    };
    Ok(Reading {
        size: found.size,
        ..reading
    })
}
