//! Where instructions begin: an [`Object`] and an address in, whether an instruction is certain to begin
//! there out.
//!
//! A breakpoint inside an instruction changes what the instruction does, and with it what the program
//! computes. So nothing is taken for a beginning that is not proven to be one.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{Instruction, OpKind};

use super::instructions::{MAX_FUNCTION, decoder, name_of, prefixes};
use super::symbols;
use reqtrace_binary::elf::Object;

/// Whether an instruction begins at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begins {
    /// Decoding from the start of its function comes to it, and nothing speaks against that.
    Proven,
    /// Neither a frame description nor a symbol has the start of its function.
    Unknown,
    /// It is inside this instruction, whose virtual address this is.
    Inside(u64, String),
    /// Something speaks against the instructions that were decoded.
    Doubtful(String),
}

/// Whether an instruction begins at a virtual address: decoding from the start of its function (of its
/// frame description, else of the symbol before it) comes to it over valid instructions, and neither a
/// direct jump or call of the function, nor an exception, nor another symbol leads into one of those.
#[must_use]
pub fn begins(object: &Object, address: u64) -> Begins {
    let Some(function) = function_around(object, address) else {
        return Begins::Unknown;
    };
    let code = decode(object, &function);
    let end = code
        .values()
        .last()
        .map_or(function.start, Instruction::next_ip);
    if address >= end {
        return Begins::Doubtful(format!(
            "what stands at 0x{end:x}, before it, is no instruction"
        ));
    }
    for (target, from) in entered(object, &function, &code) {
        let before = code.range(..target).next_back();
        if let Some((_, crossed)) = before.filter(|(_, it)| target < it.next_ip()) {
            return Begins::Doubtful(format!(
                "{from} leads to 0x{target:x}, into the middle of what was taken for `{}` at \
                 0x{:x}: data may be among the code",
                name_of(crossed),
                crossed.ip()
            ));
        }
    }
    match code.range(..=address).next_back() {
        Some((start, instruction)) if *start != address => {
            Begins::Inside(*start, name_of(instruction))
        }
        _ => Begins::Proven,
    }
}

/// Where decoding can begin, and to where it can go.
fn function_around(object: &Object, address: u64) -> Option<Range<u64>> {
    let described = object.frames().range(address);
    let range = described.or_else(|| {
        let symbols = object.symbols();
        let after = symbols.partition_point(|symbol| symbol.address <= address);
        let start = symbols[..after].last()?.address;
        Some(symbols::body(object, start)).filter(|body| body.contains(&address))
    })?;
    (range.end - range.start <= MAX_FUNCTION).then_some(range)
}

/// The instructions of a function, by address, up to what is none.
fn decode(object: &Object, function: &Range<u64>) -> BTreeMap<u64, Instruction> {
    decoder(object, function.clone())
        .take_while(|code| !code.is_invalid())
        .map(|code| (code.ip(), code))
        .collect()
}

/// Where the function is entered, as far as that is certain, and from where.
fn entered(
    object: &Object,
    function: &Range<u64>,
    code: &BTreeMap<u64, Instruction>,
) -> Vec<(u64, String)> {
    let of_code = code.values().filter_map(|from| {
        let target = (from.op_count() > 0 && from.op0_kind() == OpKind::NearBranch64)
            .then(|| from.near_branch_target())?;
        // Code written by hand jumps over a `lock`: both are beginnings, and have one end.
        let skipped = code.range(..target).next_back().map(|(_, over)| over);
        let is_behind_prefixes = skipped.is_some_and(|over| {
            target < over.next_ip() && prefixes(object.code(over.ip())) as u64 >= target - over.ip()
        });
        (!is_behind_prefixes).then(|| (target, format!("`{}` at 0x{:x}", name_of(from), from.ip())))
    });
    let pads = object.landing_pads(function).unwrap_or_default();
    let pads = pads.into_iter().map(|pad| (pad, "an exception".to_owned()));
    let symbols = object.symbols();
    let first = symbols.partition_point(|symbol| symbol.address < function.start);
    let symbols = symbols[first..]
        .iter()
        .take_while(|symbol| symbol.address < function.end)
        .map(|symbol| (symbol.address, format!("`{}`", object.name(symbol))));
    let all = of_code.chain(pads).chain(symbols);
    all.filter(|(target, _)| function.contains(target))
        .collect()
}

#[cfg(test)]
mod tests;
