//! x86 code: a range of an object in, its instructions and where they lead out.

use std::ops::Range;

use iced_x86::{ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction};

use reqtrace_binary::elf::Object;

/// A function larger than this is not decoded, bytes: a symbol's size is not to be trusted blindly, and each instruction takes
/// 50 to 100 bytes of memory.
pub(super) const MAX_FUNCTION: u64 = 2 << 20;

/// The instructions of a range of addresses, one after the other; the last one may be invalid or cut
/// off.
pub(super) fn decoder(object: &Object, range: Range<u64>) -> impl Iterator<Item = Instruction> {
    let code = object.code(range.start);
    let length = (range.end.saturating_sub(range.start) as usize).min(code.len());
    let mut decoder = Decoder::with_ip(64, &code[..length], range.start, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// How many bytes of prefixes an instruction begins with.
pub(super) fn prefixes(bytes: &[u8]) -> usize {
    let is_prefix = |byte: &&u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    bytes.iter().take_while(is_prefix).count()
}

/// What to call an instruction in messages: `lock add`.
pub(super) fn name_of(code: &Instruction) -> String {
    let name = format!("{:?}", code.mnemonic()).to_lowercase();
    if code.has_lock_prefix() {
        format!("lock {name}")
    } else {
        name
    }
}

/// Where a direct jump goes, conditional or not.
pub(super) fn direct_target(code: &Instruction) -> Option<u64> {
    matches!(
        code.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
    )
    .then(|| code.near_branch_target())
}

/// Where a call or a jump goes, also one through the global offset table.
pub(super) fn branch_target(object: &Object, code: &Instruction) -> Option<u64> {
    match code.flow_control() {
        FlowControl::Call => Some(code.near_branch_target()),
        FlowControl::IndirectCall | FlowControl::IndirectBranch => code
            .is_ip_rel_memory_operand()
            .then(|| object.in_offset_table(code.ip_rel_memory_address()))
            .flatten(),
        _ => direct_target(code),
    }
}

/// Whether nothing goes on at the instruction behind it.
pub(super) fn ends_flow(code: &Instruction) -> bool {
    matches!(
        code.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    )
}

/// The low four bits of `Jcc`'s opcode; `None` for what is no `Jcc`.
pub(super) fn condition_of(code: &Instruction) -> Option<u8> {
    match code.condition_code() {
        ConditionCode::None => None,
        ConditionCode::o => Some(0x0),
        ConditionCode::no => Some(0x1),
        ConditionCode::b => Some(0x2),
        ConditionCode::ae => Some(0x3),
        ConditionCode::e => Some(0x4),
        ConditionCode::ne => Some(0x5),
        ConditionCode::be => Some(0x6),
        ConditionCode::a => Some(0x7),
        ConditionCode::s => Some(0x8),
        ConditionCode::ns => Some(0x9),
        ConditionCode::p => Some(0xa),
        ConditionCode::np => Some(0xb),
        ConditionCode::l => Some(0xc),
        ConditionCode::ge => Some(0xd),
        ConditionCode::le => Some(0xe),
        ConditionCode::g => Some(0xf),
    }
}
