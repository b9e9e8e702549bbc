//! What the kernel does when a probe on an instruction is hit: an instruction in, what it may be
//! used for out.
//!
//! The kernel carries out some instructions itself, in the trap that it has taken anyway. All others
//! are single-stepped in a copy, which is a second trap, and on a virtual machine often an exit to
//! the hypervisor. What it carries out is in `arch/x86/kernel/uprobes.c`.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use reqtrace_binary::frames::FramePlace;

/// Whether every kernel since 4.18 carries out the instruction with these bytes, so that a probe
/// may be moved to it: `jcc`, direct `jmp`, `push` of a register, and the `nop` of one byte.
///
/// Not longer ones: older kernels step them, and 6.18 makes a call of one of five bytes, which
/// writes below the stack pointer. Not `call`: on a shadow stack the kernel's own call is not
/// noted. Prefixes are refused, as some kernels do not set probes behind them.
pub(super) fn is_emulated(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe9 | 0xeb, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0x0f, 0x80..=0x8f, ..]
    )
}

/// Whether an instruction goes on to the next, and takes no longer than a few cycles. What it reads
/// or writes in memory may be a page fault, as any fetch of code may.
pub(super) fn is_harmless(code: &Instruction) -> bool {
    let is_long = matches!(
        code.mnemonic(),
        Mnemonic::Div | Mnemonic::Idiv | Mnemonic::Cpuid
    ) || code.is_string_instruction();
    code.flow_control() == FlowControl::Next && !is_long && !code.is_privileged()
}

/// Whether an instruction touches no memory, or only what stands at the stack pointer.
pub(super) fn is_within_stack(code: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    factory.info(code).used_memory().iter().all(|memory| {
        memory.index() == Register::None
            && !matches!(memory.segment(), Register::FS | Register::GS)
            && memory.base() == Register::RSP
    })
}

/// Whether an instruction changes this 64-bit register or a part of it.
pub(super) fn writes(code: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    factory.info(code).used_registers().iter().any(|used| {
        used.register().is_gpr()
            && used.register().full_register() == register
            && !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
    })
}

/// The same place before an instruction; `place` is behind it. `None`: it is not known.
pub(super) fn before(place: FramePlace, code: &Instruction) -> Option<FramePlace> {
    let own = if place.from_rbp {
        Register::RBP
    } else {
        Register::RSP
    };
    if !writes(code, own) {
        return Some(place);
    }
    if place.from_rbp {
        return None;
    }
    if let Some(bytes) = added_to_rsp(code) {
        return Some(FramePlace::rsp(place.bytes + bytes));
    }
    let to_rsp = code.op_count() > 1
        && code.op0_kind() == OpKind::Register
        && code.op0_register() == Register::RSP;
    match code.mnemonic() {
        Mnemonic::Leave => Some(FramePlace::rbp(place.bytes + 8)),
        Mnemonic::Mov if to_rsp && code.op1_kind() == OpKind::Register => {
            (code.op1_register() == Register::RBP).then(|| FramePlace::rbp(place.bytes))
        }
        Mnemonic::Lea if to_rsp && code.memory_index() == Register::None => {
            let bytes = place.bytes + code.memory_displacement64().cast_signed();
            match code.memory_base() {
                Register::RBP => Some(FramePlace::rbp(bytes)),
                Register::RSP => Some(FramePlace::rsp(bytes)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The same place behind an instruction; `place`, from `%rsp`, is before it.
pub(super) fn behind(place: FramePlace, code: &Instruction) -> Option<FramePlace> {
    if place.from_rbp {
        return None;
    }
    if !writes(code, Register::RSP) {
        return Some(place);
    }
    Some(FramePlace::rsp(place.bytes - added_to_rsp(code)?))
}

/// By how many bytes an instruction raises the stack pointer, where that is certain.
fn added_to_rsp(code: &Instruction) -> Option<i64> {
    let is_register = code.op_count() > 0 && code.op0_kind() == OpKind::Register;
    let of_rsp = is_register && code.op0_register() == Register::RSP;
    match code.mnemonic() {
        Mnemonic::Pop if is_register && !of_rsp && code.op0_register().is_gpr64() => Some(8),
        Mnemonic::Push if code.stack_pointer_increment() == -8 => Some(-8),
        Mnemonic::Add if of_rsp => immediate(code),
        Mnemonic::Sub if of_rsp => immediate(code).map(|bytes| -bytes),
        _ => None,
    }
}

fn immediate(code: &Instruction) -> Option<i64> {
    matches!(
        code.op1_kind(),
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64
    )
    .then(|| code.immediate(1).cast_signed())
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn code(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
    }

    #[test]
    fn what_every_kernel_carries_out() {
        for emulated in [
            &[0x55][..],               // push %rbp
            &[0x41, 0x57],             // push %r15
            &[0x75, 0x08],             // jne
            &[0x0f, 0x85, 0, 0, 0, 0], // jne, long
            &[0xeb, 0x02],             // jmp
            &[0xe9, 0, 0, 0, 0],       // jmp, long
            &[0x90],                   // nop
        ] {
            assert!(is_emulated(emulated), "{emulated:x?}");
        }
        for stepped in [
            &[0xc3][..],               // ret
            &[0xf3, 0x0f, 0x1e, 0xfa], // endbr64
            &[0x48, 0x89, 0xe5],       // mov
            &[0x0f, 0x1f, 0x44, 0, 0], // nop of five bytes
            &[0x66, 0x90],             // nop of two: refused before 6.2
            &[0xe8, 0, 0, 0, 0],       // call
            &[0xff, 0xe0],             // jmp *%rax
            &[0xf3, 0x90],             // pause
            &[0xe2, 0xfe],             // loop
            &[0x3e, 0x75, 0x08],       // jne with a hint
            &[],
        ] {
            assert!(!is_emulated(stepped), "{stepped:x?}");
        }
    }

    #[test]
    fn the_frame_is_followed_through_an_epilogue() {
        // lea -0x28(%rbp),%rsp; pop %rbx; pop %r12; pop %r13; pop %r14; pop %r15; pop %rbp
        let epilogue: [&[u8]; 7] = [
            &[0x48, 0x8d, 0x65, 0xd8],
            &[0x5b],
            &[0x41, 0x5c],
            &[0x41, 0x5d],
            &[0x41, 0x5e],
            &[0x41, 0x5f],
            &[0x5d],
        ];
        let place = epilogue
            .iter()
            .rev()
            .try_fold(FramePlace::AT_RSP, |place, bytes| {
                before(place, &code(bytes))
            });
        assert_eq!(place, Some(FramePlace::rbp(8)));
        // add $0x18,%rsp; pop %rbx
        let place = before(FramePlace::AT_RSP, &code(&[0x5b]))
            .and_then(|place| before(place, &code(&[0x48, 0x83, 0xc4, 0x18])));
        assert_eq!(place, Some(FramePlace::rsp(32)));
        // leave
        let place = before(FramePlace::AT_RSP, &code(&[0xc9]));
        assert_eq!(place, Some(FramePlace::rbp(8)));
        // lea -8(%r10),%rsp, and %rsp itself popped: not known.
        assert_eq!(
            before(FramePlace::AT_RSP, &code(&[0x49, 0x8d, 0x62, 0xf8])),
            None
        );
        assert_eq!(before(FramePlace::AT_RSP, &code(&[0x5c])), None);
        // sub $0x18,%rsp, forwards
        let place = behind(FramePlace::AT_RSP, &code(&[0x48, 0x83, 0xec, 0x18]));
        assert_eq!(place, Some(FramePlace::rsp(24)));
        // and $-32,%rsp
        assert_eq!(
            behind(FramePlace::AT_RSP, &code(&[0x48, 0x83, 0xe4, 0xe0])),
            None
        );
    }

    #[test]
    fn what_takes_long_or_goes_elsewhere_is_not_harmless() {
        for harmless in [
            &[0x5b][..],
            &[0x89, 0xd8],
            &[0x0f, 0x1f, 0x40, 0],
            &[0x48, 0x83, 0xc4, 8],
        ] {
            assert!(is_harmless(&code(harmless)), "{harmless:x?}");
            assert!(is_within_stack(&code(harmless)), "{harmless:x?}");
        }
        // A division, a copy, a system call, a call, a jump.
        for other in [
            &[0xf7, 0xf1][..],
            &[0xf3, 0x48, 0xa5],
            &[0x0f, 0x05],
            &[0xe8, 0, 0, 0, 0],
            &[0x75, 0],
        ] {
            assert!(!is_harmless(&code(other)), "{other:x?}");
        }
        // A load from %rbx, and from the thread's own storage.
        for load in [&[0x8b, 0x03][..], &[0x64, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]] {
            assert!(
                is_harmless(&code(load)) && !is_within_stack(&code(load)),
                "{load:x?}"
            );
        }
    }
}
