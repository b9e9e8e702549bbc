//! Markers by number: an offset in a file, or an address as linked, in; the instruction there out, or why
//! there is none.

use super::Resolver;
use super::found::Found;
use crate::Doubt;
use crate::opened::ObjectFile;
use crate::starts::{self, Begins};
use crate::symbols;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::elf::Object;
use reqtrace_profile::At;

/// A number that says where an instruction is.
#[derive(Clone, Copy)]
pub(super) enum Number {
    /// Bytes in the file.
    Offset(u64),
    /// Virtual address as linked, such as frames have.
    Address(u64),
}

impl Number {
    fn address(self, object: &Object) -> Option<u64> {
        match self {
            Self::Offset(offset) => object.address_of(offset),
            Self::Address(address) => object.file_offset(address).map(|_| address),
        }
    }

    /// An address, written as this number is.
    fn written(self, object: &Object, address: u64) -> String {
        match self {
            Self::Offset(_) => format!("0x{:x}", object.file_offset(address).unwrap_or(address)),
            Self::Address(_) => format!("0x{address:x}"),
        }
    }

    /// The same digits, taken for the other kind.
    fn other(self) -> Self {
        match self {
            Self::Offset(number) => Self::Address(number),
            Self::Address(number) => Self::Offset(number),
        }
    }

    fn shown(self) -> String {
        match self {
            Self::Offset(offset) => format!("offset 0x{offset:x}"),
            Self::Address(address) => format!("address 0x{address:x}"),
        }
    }
}

impl Resolver<'_> {
    /// The instruction at an offset or an address.
    pub(super) fn instruction(&mut self, file: ObjectFile, number: Number) -> Result<Found> {
        let object = self.open(&file)?;
        let shown = number.shown();
        let Some(address) = number.address(&object) else {
            let what = format!("{shown} is not in the code of {}", file.shown);
            let advice = mistaken(&object, number).unwrap_or_else(|| {
                "an `offset` is one in the file, an `address` one of the file as linked, such as \
                 0x64c60 of the frame [shop+0x64c60]; neither is an address in memory"
                    .to_owned()
            });
            return Err(Error::usage(what).next(advice));
        };
        let refused = |why: String, advice: String| {
            let what = format!(
                "no instruction is known to begin at {shown} of {}: {why}. A probe inside an \
                 instruction changes what the program computes",
                file.shown
            );
            Err(Error::usage(what).next(mistaken(&object, number).unwrap_or(advice)))
        };
        let mut doubt = None;
        match starts::begins(&object, address) {
            Begins::Proven => {}
            Begins::Unknown => doubt = Some(unknown(&shown, &file)),
            Begins::Inside(start, name) => {
                let first = number.written(&object, start);
                return refused(
                    format!("it is inside the instruction `{name}` at {first}"),
                    format!("write {first} if that instruction is meant"),
                );
            }
            Begins::Doubtful(why) => {
                return refused(why, "mark a function, or another place".to_owned());
            }
        }
        let is_function = begins_function(&object, address);
        if !is_function && let Some(other) = other_function(&object, number) {
            self.warn(format!(
                "{shown} of {} is in the middle of a function, and 0x{other:x} is the beginning of \
                 one: {}",
                file.shown,
                mistaken(&object, number).unwrap_or_default()
            ));
        }
        self.doubts.extend(doubt);
        let offset = object.file_offset(address).unwrap_or(address);
        Ok(Found {
            symbol: format!("0x{offset:x}"),
            bodies: vec![symbols::body(&object, address)],
            at: At::Entry,
            is_function,
            usdt: Vec::new(),
            is_fixed: true,
            is_movable: false,
            instructions: Vec::new(),
            file,
        })
    }
}

fn begins_function(object: &Object, address: u64) -> bool {
    let symbols = object.symbols();
    let from = symbols.partition_point(|symbol| symbol.address < address);
    let is_symbol = symbols.get(from).is_some_and(|it| it.address == address);
    is_symbol || object.frames().begins(address)
}

/// Where an instruction begins if the number is of the other kind, as a number of its own kind.
fn read_otherwise(object: &Object, number: Number) -> Option<(u64, u64)> {
    let address = number.other().address(object)?;
    let is_proven = starts::begins(object, address) == Begins::Proven;
    let offset = object.file_offset(address).filter(|_| is_proven)?;
    (offset != address).then_some((address, offset))
}

/// A function begins where the number leads if it is of the other kind: what to write for it.
fn other_function(object: &Object, number: Number) -> Option<u64> {
    let (address, offset) = read_otherwise(object, number)?;
    begins_function(object, address).then_some(match number {
        Number::Offset(_) => offset,
        Number::Address(_) => address,
    })
}

/// What to say of a number that is wrong, and would be right if it were of the other kind.
fn mistaken(object: &Object, number: Number) -> Option<String> {
    let (address, offset) = read_otherwise(object, number)?;
    Some(match number {
        Number::Offset(_) => format!(
            "did you mean 0x{offset:x}? 0x{address:x} reads as an address, such as frames have: \
             write address = 0x{address:x}, or offset = 0x{offset:x}"
        ),
        Number::Address(_) => format!(
            "did you mean 0x{address:x}? 0x{offset:x} reads as an offset in the file: write \
             offset = 0x{offset:x}, or address = 0x{address:x}"
        ),
    })
}

fn unknown(shown: &str, file: &ObjectFile) -> Doubt {
    Doubt {
        what: format!(
            "nothing tells whether an instruction begins at {shown} of {}: no symbol and no frame \
             description (.eh_frame) has the function around it, and a probe inside an instruction \
             changes what the program computes",
            file.shown
        ),
        next: "mark a function, or a place that has a symbol or .eh_frame around it; --yes if a \
               disassembly shows that an instruction begins there",
    }
}
