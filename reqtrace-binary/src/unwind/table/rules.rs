//! Rules: one row of `.eh_frame` in, out what the kernel programs can follow, or why not.

use gimli::{
    CfaRule, Encoding, Operation, Register, RegisterRule, UnwindExpression, UnwindTableRow, X86_64,
};
use reqtrace_common::unwind::{Cfa, MAX_CFA_WORDS, MAX_RBP_WORDS, Rbp, Rule};

use super::stats::UnsupportedCause;
use super::{Fde, PLT_ENTRY, Section, Slice};

/// Where the kernel puts rsp in a signal frame, seen from the trampoline.
const SIGNAL_RSP: i64 = 160;

/// What a row of `.eh_frame` becomes.
pub(super) enum Translated {
    Rule(Rule),
    /// A procedure linkage table, and the byte of an entry from which on one more word is pushed.
    Plt(u8),
}

pub(super) fn translate(
    row: &UnwindTableRow<usize>,
    section: &Section<'_>,
    fde: &Fde<'_>,
) -> Result<Translated, UnsupportedCause> {
    let return_address = row.register(X86_64::RA);
    if return_address == Some(RegisterRule::Undefined) {
        return Ok(Translated::Rule(Rule::bare(Cfa::Outermost)));
    }
    let expression = |expression: &UnwindExpression<usize>| {
        understand(expression, section, fde.cie().encoding())
    };
    if fde.is_signal_trampoline() {
        // The letter S alone does not say that the kernel's frame is here.
        return match row.cfa() {
            CfaRule::Expression(cfa)
                if expression(cfa) == Some(Known::At(X86_64::RSP, SIGNAL_RSP)) =>
            {
                Ok(Translated::Rule(Rule::bare(Cfa::Signal)))
            }
            _ => Err(UnsupportedCause::CfaExpression),
        };
    }
    if return_address != Some(RegisterRule::Offset(-8)) {
        return Err(UnsupportedCause::ReturnAddress);
    }
    let (cfa, cfa_words) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let cfa = match *register {
                X86_64::RSP => Cfa::Rsp,
                X86_64::RBP => Cfa::Rbp,
                _ => return Err(UnsupportedCause::CfaRegister),
            };
            (cfa, words(*offset).ok_or(UnsupportedCause::CfaOffset)?)
        }
        CfaRule::Expression(cfa) => match expression(cfa) {
            Some(Known::At(X86_64::RBP, offset)) => (
                Cfa::AtRbp,
                words(offset.saturating_neg()).ok_or(UnsupportedCause::CfaOffset)?,
            ),
            Some(Known::Plt(pushed)) => {
                return match row.register(X86_64::RBP) {
                    None | Some(RegisterRule::SameValue) => Ok(Translated::Plt(pushed)),
                    Some(_) => Err(UnsupportedCause::FramePointer),
                };
            }
            _ => return Err(UnsupportedCause::CfaExpression),
        },
    };
    let rbp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => Rbp::Same,
        Some(RegisterRule::Offset(offset)) => offset
            .checked_neg()
            .and_then(words)
            .and_then(|words| u8::try_from(words).ok())
            .filter(|words| (1..=MAX_RBP_WORDS).contains(words))
            .map(Rbp::BelowCfa)
            .ok_or(UnsupportedCause::FramePointer)?,
        Some(RegisterRule::Expression(place))
            if cfa == Cfa::AtRbp && expression(&place) == Some(Known::Place(X86_64::RBP, 0)) =>
        {
            Rbp::AtRbp
        }
        Some(_) => return Err(UnsupportedCause::FramePointer),
    };
    Ok(Translated::Rule(Rule {
        cfa,
        cfa_words,
        rbp,
    }))
}

/// Bytes to 8-byte words, if the row format can hold them.
fn words(offset: i64) -> Option<u32> {
    let offset = u32::try_from(offset).ok()?;
    (offset % 8 == 0 && offset / 8 <= MAX_CFA_WORDS).then_some(offset / 8)
}

/// The expressions that occur.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// Register + offset.
    Place(Register, i64),
    /// What stands at register + offset.
    At(Register, i64),
    /// rsp + 8, and 8 more from this byte of each 16-byte entry on.
    Plt(u8),
}

fn understand(
    expression: &UnwindExpression<usize>,
    section: &Section<'_>,
    encoding: Encoding,
) -> Option<Known> {
    /// One more than the longest that is known.
    const MOST: usize = 10;
    let mut operations = expression.get(section).ok()?.operations(encoding);
    let mut found = Vec::with_capacity(MOST);
    while let Some(operation) = operations.next().ok()? {
        if found.len() == MOST {
            return None;
        }
        found.push(operation);
    }
    let base = |operation: &Operation<Slice<'_>>| match *operation {
        Operation::RegisterOffset {
            register, offset, ..
        } => Some((register, offset)),
        _ => None,
    };
    let (register, offset) = base(found.first()?)?;
    match &found[1..] {
        [] => Some(Known::Place(register, offset)),
        [
            Operation::Deref {
                size: 8,
                space: false,
                ..
            },
        ] => Some(Known::At(register, offset)),
        [
            pc,
            Operation::UnsignedConstant { value: 15 },
            Operation::And,
            Operation::UnsignedConstant { value: pushed },
            Operation::Ge,
            Operation::UnsignedConstant { value: 3 },
            Operation::Shl,
            Operation::Plus,
        ] if (register, offset) == (X86_64::RSP, 8)
            && base(pc) == Some((X86_64::RA, 0))
            && (1..PLT_ENTRY).contains(pushed) =>
        {
            u8::try_from(*pushed).ok().map(Known::Plt)
        }
        _ => None,
    }
}
