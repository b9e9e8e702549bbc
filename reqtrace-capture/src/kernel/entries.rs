//! Code of the kernel that a waker's stack is searched for: `/proc/kallsyms` in, its addresses out.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// Begin and end of the section `.entry.text` that has `asm_common_interrupt` and its like; Linux 5.8 and later.
const BEGIN: &str = "__irqentry_text_start";
const END: &str = "__irqentry_text_end";

/// What takes a segment for a connection.
const SEGMENTS: &str = "tcp_rcv_established";

/// Addresses of code: the first one, and the one behind it; `[0, 0]` where the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelCode {
    /// Where interrupts and exceptions enter the kernel.
    pub(crate) interrupts: [u64; 2],
    /// The function that takes segments for connections.
    pub(crate) segments: [u64; 2],
}

impl KernelCode {
    /// Asks the kernel; for segments too, if they are wanted.
    pub(crate) fn read(segments: bool) -> Self {
        match File::open("/proc/kallsyms") {
            Ok(file) => Self::of(BufReader::new(file), segments),
            Err(_) => Self::default(),
        }
    }

    /// Symbols are in the order of addresses, and those of interrupts are near the begin on most kernels: nothing behind what is
    /// wanted is read.
    fn of(symbols: impl BufRead, segments: bool) -> Self {
        let mut code = Self::default();
        let mut begins = [0; 2];
        for line in symbols.lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            let address = words
                .next()
                .and_then(|word| u64::from_str_radix(word, 16).ok());
            let (Some(address), Some(name)) = (address, words.nth(1)) else {
                continue;
            };
            if begins[1] != 0 && address > begins[1] && code.segments[1] == 0 {
                code.segments = [begins[1], address];
            }
            match name {
                BEGIN => begins[0] = address,
                END if begins[0] != 0 && begins[0] < address => {
                    code.interrupts = [begins[0], address];
                }
                SEGMENTS if segments => begins[1] = address,
                _ => {}
            }
            if code.interrupts[1] != 0 && (code.segments[1] != 0 || !segments) {
                break;
            }
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "ffffffff81000000 T _text\nffffffff81000300 T __irqentry_text_start\n\
                       ffffffff81000d40 T asm_common_interrupt\nffffffff81000f70 T __irqentry_text_end\n\
                       ffffffff81001000 T entry_SYSCALL_64\nffffffff82000000 T tcp_rcv_established\n\
                       ffffffff82000000 T alias\nffffffff82000a00 t tcp_next\t[module]\n";
    const INTERRUPTS: [u64; 2] = [0xffff_ffff_8100_0300, 0xffff_ffff_8100_0f70];

    #[test]
    fn what_is_wanted_is_found_or_nothing_is() {
        let found = |text: &str| KernelCode::of(text.as_bytes(), true);
        let segments = [0xffff_ffff_8200_0000, 0xffff_ffff_8200_0a00];
        assert_eq!(
            found(ALL),
            KernelCode {
                interrupts: INTERRUPTS,
                segments
            }
        );
        let few = KernelCode::of(ALL.as_bytes(), false);
        assert_eq!((few.interrupts, few.segments), (INTERRUPTS, [0, 0]));
        // Addresses are hidden; one of them is missing; a line that is none.
        let hidden = "0000000000000000 T __irqentry_text_start\n0000000000000000 T __irqentry_text_end\n\
                      0000000000000000 T tcp_rcv_established\n0000000000000000 T tcp_next\n";
        for lacking in [
            hidden,
            "ffffffff81000f70 T __irqentry_text_end\n",
            "ffffffff81000300 T __irqentry_text_start\nx\n",
            "ffffffff82000000 T tcp_rcv_established\n",
        ] {
            assert_eq!(found(lacking), KernelCode::default(), "{lacking}");
        }
    }
}
