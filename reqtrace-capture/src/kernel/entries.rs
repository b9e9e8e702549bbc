//! Where interrupts and exceptions enter the kernel: `/proc/kallsyms` in, the addresses of that code out.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// Begin and end of the section `.entry.text` that has `asm_common_interrupt` and its like; Linux 5.8 and later.
const BEGIN: &str = "__irqentry_text_start";
const END: &str = "__irqentry_text_end";

/// The first address of that code, and the one behind it; `[0, 0]` where the kernel does not say.
pub(crate) fn interrupt_entries() -> [u64; 2] {
    let Ok(file) = File::open("/proc/kallsyms") else {
        return [0, 0];
    };
    between(BufReader::new(file)).unwrap_or([0, 0])
}

/// Symbols are in the order of addresses, and these are near the begin on most kernels: nothing behind them is read.
fn between(symbols: impl BufRead) -> Option<[u64; 2]> {
    let mut begin = None;
    for line in symbols.lines().map_while(Result::ok) {
        let Some((address, name)) = line.split_once(' ').and_then(|(address, rest)| {
            let (_, name) = rest.split_once(' ')?;
            Some((u64::from_str_radix(address, 16).ok()?, name))
        }) else {
            continue;
        };
        match (name, begin) {
            (BEGIN, _) => begin = Some(address),
            (END, Some(begin)) => {
                return (begin != 0 && begin < address).then_some([begin, address]);
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_symbols_are_found_or_nothing_is() {
        let found = |text: &str| between(text.as_bytes());
        let all = "ffffffff81000000 T _text\nffffffff81000300 T __irqentry_text_start\n\
                   ffffffff81000d40 T asm_common_interrupt\nffffffff81000f70 T __irqentry_text_end\n\
                   ffffffff81001000 T entry_SYSCALL_64\n";
        assert_eq!(
            found(all),
            Some([0xffff_ffff_8100_0300, 0xffff_ffff_8100_0f70])
        );
        // Addresses are hidden; one of them is missing; a line that is none.
        let hidden =
            "0000000000000000 T __irqentry_text_start\n0000000000000000 T __irqentry_text_end\n";
        assert_eq!(found(hidden), None);
        assert_eq!(found("ffffffff81000f70 T __irqentry_text_end\n"), None);
        assert_eq!(found("ffffffff81000300 T __irqentry_text_start\nx\n"), None);
    }
}
