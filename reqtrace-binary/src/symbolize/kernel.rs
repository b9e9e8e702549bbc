//! Kernel addresses: `/proc/kallsyms` in, frames out.
//!
//! kallsyms has no sizes, so a function ends where the next symbol begins, whatever that is. Only
//! code is named.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Frame;
use crate::procfs;

/// No kernel function is longer than this: what is farther from the last symbol is unknown.
const MAX_FUNCTION: u64 = 1 << 20;

/// How many of the innermost frames may belong to tracing.
const MAX_TRACING_FRAMES: usize = 16;

/// Names of kernel functions by address.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// Addresses, sorted.
    starts: Vec<u64>,
    /// Where the name of each ends in `text`; one without length is something that is not code.
    ends: Vec<u32>,
    /// All names, one behind the other.
    text: Box<str>,
    hidden: bool,
}

/// What was read last, and which modules the kernel had then. It is as long as somebody has it.
static LAST: Mutex<(Weak<KernelSymbols>, String)> = Mutex::new((Weak::new(), String::new()));

impl KernelSymbols {
    /// The running kernel's symbols, which all who want them share. To be read while the kernel programs are loaded, or else
    /// after: both work.
    #[must_use]
    pub fn read() -> Arc<Self> {
        let modules = modules(&fs::read_to_string("/proc/modules").unwrap_or_default());
        // Whoever waits for it waits for the same.
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.0.upgrade().filter(|_| last.1 == modules) {
            return known;
        }
        let text = procfs::kernel_symbols().and_then(procfs::read_whole);
        let read = Arc::new(Self::read_from(text));
        *last = (Arc::downgrade(&read), modules);
        read
    }

    fn read_from(text: io::Result<Vec<u8>>) -> Self {
        text.map_or_else(
            |_| Self {
                hidden: true,
                ..Self::default()
            },
            |bytes| Self::parse(&String::from_utf8_lossy(&bytes)),
        )
    }

    /// Symbols from the text of `/proc/kallsyms`; empty text is a kernel that hides them.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut symbols: Vec<_> = text.lines().filter_map(symbol).collect();
        // Of several names at one address the first in the file stays: aliases come in a stable
        // order. Code comes before what is not.
        symbols.sort_by_key(|(address, name)| (*address, name.is_empty()));
        symbols.dedup_by_key(|(address, _)| *address);
        let mut names = String::new();
        let ends = symbols.iter().map(|(_, name)| {
            names.push_str(name);
            // Names of all functions are a few MiB.
            u32::try_from(names.len()).unwrap_or(u32::MAX)
        });
        Self {
            ends: ends.collect(),
            starts: symbols.iter().map(|(address, _)| *address).collect(),
            text: names.into(),
            hidden: symbols.is_empty(),
        }
    }

    /// Whether the kernel hides its addresses.
    #[must_use]
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Names of all functions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = (0..self.ends.len()).map(|index| self.name_at(index));
        names.filter(|name| !name.is_empty())
    }

    fn name_at(&self, index: usize) -> &str {
        let end = |index: usize| self.ends.get(index).copied().unwrap_or(0) as usize;
        let begin = index.checked_sub(1).map_or(0, end);
        self.text.get(begin..end(index)).unwrap_or_default()
    }

    /// Frames of a kernel stack, innermost first, without those of tracing itself.
    #[must_use]
    pub fn frames(&self, addresses: &[u64]) -> Vec<Frame> {
        let frames: Vec<_> = addresses
            .iter()
            .map(|&address| match self.name(address.saturating_sub(1)) {
                Some(name) => Frame::new(name),
                None => Frame::new(format!("[kernel+{address:#x}]")),
            })
            .collect();
        without_tracing(frames)
    }

    fn name(&self, address: u64) -> Option<&str> {
        let after = self.starts.partition_point(|start| *start <= address);
        let index = after.checked_sub(1)?;
        let (start, name) = (self.starts.get(index)?, self.name_at(index));
        (!name.is_empty() && address - start < MAX_FUNCTION).then_some(name)
    }
}

/// Names and addresses of the text of `/proc/modules`, which has who uses them, too.
fn modules(text: &str) -> String {
    let places = text.lines().map(|line| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        format!("{name} {}\n", words.nth(4).unwrap_or_default())
    });
    places.collect()
}

/// `ffffffff81000000 T _text`, with `[module]` after the names of modules.
fn symbol(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let name = words.next()?;
    if address == 0 {
        return None;
    }
    let is_code = matches!(kind, "t" | "T" | "w" | "W") && name != "_etext" && name != "_einittext";
    Some((address, if is_code { name } else { "" }))
}

/// Cuts the frames of the scheduler's tracepoint and of the kernel program that hangs on it.
fn without_tracing(mut frames: Vec<Frame>) -> Vec<Frame> {
    let is = |frame: &Frame, name| super::names::without_suffix(&frame.name) == name;
    let tracing = frames.iter().take_while(|frame| is_tracing(&frame.name));
    let tracing = tracing.count();
    // An interrupt that wakes a thread may have come upon `__schedule`.
    let wakes = frames
        .get(tracing)
        .is_some_and(|frame| is(frame, "try_to_wake_up"));
    let schedule = frames
        .iter()
        .take(MAX_TRACING_FRAMES)
        .position(|frame| is(frame, "__schedule"));
    let cut = schedule.filter(|_| !wakes).unwrap_or(tracing);
    frames.drain(..cut);
    frames
}

fn is_tracing(name: &str) -> bool {
    [
        "bpf_prog_",
        "bpf_trampoline_",
        "bpf_trace_run",
        "bpf_get_stack",
        "__bpf_get_stack",
        "__bpf_trace_",
        "__bpf_prog_",
        "__traceiter_",
        "get_perf_callchain",
        "perf_trace_",
        "trace_event_raw_event_",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 t __pfx_schedule
ffffffff81000110 T schedule
ffffffff81000200 T __schedule
ffffffff81000300 T _etext
ffffffff82000000 D jiffies
ffffffffc0000000 t bpf_prog_0123_switch\t[bpf]
ffffffffc0000100 t ext4_sync_file\t[ext4]
";

    fn names(addresses: &[u64]) -> Vec<String> {
        let symbols = KernelSymbols::parse(KALLSYMS);
        let frames = symbols.frames(addresses);
        frames.iter().map(|frame| frame.name.to_string()).collect()
    }

    #[test]
    fn only_code_has_a_name() {
        assert_eq!(names(&[0xffff_ffff_8100_0120]), ["schedule"]);
        assert_eq!(names(&[0xffff_ffff_c000_0110]), ["ext4_sync_file"]);
        for nowhere in [
            0x1000,
            0xffff_ffff_8100_0310,
            0xffff_ffff_8200_0010,
            u64::MAX,
        ] {
            assert_eq!(names(&[nowhere]), [format!("[kernel+{nowhere:#x}]")]);
        }
    }

    #[test]
    fn a_call_at_the_end_of_a_function_names_the_caller() {
        assert_eq!(names(&[0xffff_ffff_8100_0200]), ["schedule"]);
    }

    #[test]
    fn who_uses_a_module_does_not_make_it_another() {
        let text = |uses: u32, at: &str| {
            format!("ext4 1105920 {uses} - Live {at}\njbd2 1 1 ext4, Live 0x0 (E)\n")
        };
        let [first, used, moved] = [(1, "0xf0"), (2, "0xf0"), (1, "0xf1")];
        let of = |(uses, at)| modules(&text(uses, at));
        assert_eq!(of(first), "ext4 0xf0\njbd2 0x0\n");
        assert_eq!(of(first), of(used));
        assert_ne!(of(first), of(moved));
    }

    #[test]
    fn frames_of_tracing_are_cut() {
        let stack = [
            0xffff_ffff_c000_0010,
            0xffff_ffff_8200_0010,
            0xffff_ffff_8100_0210,
            0xffff_ffff_8100_0120,
        ];
        assert_eq!(names(&stack), ["__schedule", "schedule"]);
        assert_eq!(
            names(&[0xffff_ffff_c000_0010, 0xffff_ffff_8100_0120]),
            ["schedule"]
        );
    }

    #[test]
    fn the_running_kernel_is_read() {
        let symbols = KernelSymbols::read();
        if !symbols.hidden() {
            let mut all = 0..symbols.starts.len();
            let found = all.find(|index| symbols.name_at(*index) == "schedule");
            let address = symbols.starts[found.expect("every kernel has it")];
            assert_eq!(&*symbols.frames(&[address + 8])[0].name, "schedule");
            // Whoever asks meanwhile gets the same.
            assert!(Arc::ptr_eq(&symbols, &KernelSymbols::read()));
        }
    }

    #[test]
    fn hidden_addresses_are_noticed() {
        let hidden =
            KernelSymbols::parse("0000000000000000 T _stext\n0000000000000000 T schedule\n");
        assert!(hidden.hidden());
        assert_eq!(&*hidden.frames(&[5])[0].name, "[kernel+0x5]");
    }
}
