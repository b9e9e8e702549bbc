//! What can be probed: the bytes of an instruction in, whether the kernel sets a probe there, and does no
//! harm, out.
//!
//! The rules are those of `arch/x86/kernel/uprobes.c`. They have become wider over time: what only some
//! kernels take is [`Probing::Unsure`], and found out by trying (`attach::trial`).
//!
//! Of an AVX instruction kernels (6.18 among them) look at the byte of the opcode without its map, and take
//! it for what that byte is elsewhere: `vpsrlq` and `vzeroupper` for a conditional jump, `vpor` for a jump,
//! `vcmppd` for a return. A probe there makes the program compute something else, or crash.

use super::instructions::prefixes;

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;

/// Whether the kernel sets a probe on an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// Every kernel does.
    Taken,
    /// Some do, or it is not known here.
    Unsure,
    /// None does, or some do and then change what the program computes: it is such an instruction.
    Refused(&'static str),
}

/// What is known of the instruction that begins with these bytes.
#[must_use]
pub fn probing(bytes: &[u8]) -> Probing {
    let (before, rest) = bytes.split_at(prefixes(bytes));
    for prefix in before {
        match prefix {
            0xf0 => return Probing::Refused("an instruction with a lock prefix"),
            0x26 | 0x2e | 0x36 | 0x3e => {
                return Probing::Refused("an instruction with a segment prefix");
            }
            _ => {}
        }
    }
    if is_avx(rest) {
        return Probing::Refused("an AVX instruction, which it takes for another");
    }
    if bytes.starts_with(&NOP5) {
        return Probing::Refused(
            "a `nop` of five bytes, where Linux 6.18 writes below the stack pointer",
        );
    }
    // 32-bit addresses, 16-bit operands: some kernels do not take jumps and `nop` with the latter.
    let is_plain = !before.contains(&0x66) && !before.contains(&0x67);
    let code = match rest {
        [0x40..=0x4f, code @ ..] => code,
        code => code,
    };
    match code {
        [0xcc | 0xcd | 0xce | 0xcf | 0xf1, ..] => Probing::Refused("a software interrupt"),
        [
            0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef | 0xf4 | 0xfa | 0xfb,
            ..,
        ] => Probing::Refused("an instruction that only the kernel may execute"),
        [0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, ..] | [0x0f, 0x80..=0x8f, ..] if !is_plain => {
            Probing::Unsure
        }
        [
            0x00..=0x05
            | 0x08..=0x0d
            | 0x10..=0x15
            | 0x18..=0x1d
            | 0x20..=0x25
            | 0x28..=0x2d
            | 0x30..=0x35
            | 0x38..=0x3d
            | 0x50..=0x5f
            | 0x63
            | 0x68..=0x6b
            | 0x70..=0x81
            | 0x83..=0x8d
            | 0x8f
            | 0x90..=0x99
            | 0xa8
            | 0xa9
            | 0xb0..=0xc3
            | 0xc6
            | 0xc7
            | 0xc9
            | 0xd1
            | 0xd3
            | 0xe8
            | 0xe9
            | 0xeb
            | 0xf6
            | 0xf7
            | 0xfe
            | 0xff,
            ..,
        ]
        | [
            0x0f,
            0x10..=0x17
            | 0x1e
            | 0x1f
            | 0x28..=0x2f
            | 0x40..=0x77
            | 0x7e..=0x9f
            | 0xa3
            | 0xaf
            | 0xb0
            | 0xb1
            | 0xb3
            | 0xb6
            | 0xb7
            | 0xbb..=0xc1
            | 0xc8..=0xcf,
            ..,
        ] => Probing::Taken,
        _ => Probing::Unsure,
    }
}

/// The kernel makes a call of it, whose return address overwrites what a function without a frame keeps there.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

/// Whether an instruction has a VEX, EVEX or XOP prefix.
fn is_avx(code: &[u8]) -> bool {
    match code {
        [0x62 | 0xc4 | 0xc5, ..] => true,
        // With other bits it is `pop`.
        [0x8f, next, ..] => next & 0x1f >= 8,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_decides_before_the_instruction_does() {
        for refused in [
            &[0xf0, 0x48, 0x83, 0x05, 0, 0, 0, 0, 1][..], // lock addq
            &[0x66, 0xf0, 0x0f, 0xc1, 0x07],              // lock xadd %ax
            &[0x3e, 0xff, 0xe0],                          // notrack jmp *%rax
            &[0x2e, 0x75, 0x08],                          // jne with a hint
            &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], // cs nopw
            &[0xcc],
            &[0xf4],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0xc5, 0xf8, 0x77],                   // vzeroupper
            &[0xc5, 0xa5, 0x73, 0xd7, 0x06],       // vpsrlq
            &[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x07], // vmovups, of AVX-512
            &[0x8f, 0xe8, 0x78, 0xc2, 0xc0, 0],    // vprotd, of XOP
        ] {
            assert!(
                matches!(probing(refused), Probing::Refused(_)),
                "{refused:x?}"
            );
        }
        for taken in [
            &[0x48, 0x8b, 0x05, 0, 0, 0, 0][..], // mov
            &[0xf3, 0x0f, 0x1e, 0xfa],           // endbr64
            &[0x55],
            &[0xc3],
            &[0xf3, 0xc3],       // repz ret
            &[0x64, 0x48, 0x8b], // mov %fs:
            &[0x66, 0x0f, 0xef], // pxor: its second byte is not `out`
        ] {
            let taken_or_unsure = probing(taken);
            assert!(
                !matches!(taken_or_unsure, Probing::Refused(_)),
                "{taken:x?}"
            );
        }
        assert_eq!(probing(&[0xf3, 0x0f, 0x1e, 0xfa]), Probing::Taken);
        assert_eq!(probing(&[0x66, 0x90]), Probing::Unsure);
        assert_eq!(probing(&[0x8f, 0xc0]), Probing::Taken); // pop %rax
        assert_eq!(probing(&[]), Probing::Unsure);
    }
}
