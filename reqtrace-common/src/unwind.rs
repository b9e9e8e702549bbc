//! Unwind tables: what user space compiles `.eh_frame` into, and what the kernel programs walk
//! user stacks with.
//!
//! A table is a sorted run of [`Row`]s in one big array that all objects share. A chunk index over
//! each table's addresses leaves a handful of rows to search.

/// One row of a table: how to find the caller's frame, from `pc` up to the next row's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// First address it holds for, bytes from the start of the object's table.
    pub pc: u32,
    /// A packed [`Rule`].
    pub rule: u32,
}

/// How to find the canonical frame address (CFA), from which the return address stands 8 bytes
/// below.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// No function is known here.
    None = 0,
    /// rsp + offset.
    Rsp = 1,
    /// rbp + offset.
    Rbp = 2,
    /// What linkers write for the procedure linkage table: rsp + 8, and 8 more from the eleventh
    /// byte of each 16-byte entry on.
    Plt = 3,
    /// The outermost function of a thread: there is no caller.
    Outermost = 4,
    /// An expression that is not understood, or another register.
    Unsupported = 5,
    /// The frame that the kernel made for a signal handler: the registers stand in it.
    Signal = 6,
    /// The value that stands at rbp − offset: a function that realigned its stack.
    AtRbp = 7,
    /// By the frame pointer, because the mapping has no table; never in a table.
    FramePointer = 8,
}

/// How to find the caller's rbp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rbp {
    /// It is unchanged.
    Same,
    /// It stands this many 8-byte words below the CFA: 1 to [`MAX_RBP_WORDS`].
    BelowCfa(u8),
    /// It stands where rbp points.
    AtRbp,
}

/// The farthest place of a saved rbp, in words below the CFA.
pub const MAX_RBP_WORDS: u8 = 254;
/// The largest CFA offset, in words.
pub const MAX_CFA_WORDS: u32 = (1 << 21) - 1;

/// A decoded row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How to find the CFA.
    pub cfa: Cfa,
    /// Its offset in 8-byte words, at most [`MAX_CFA_WORDS`].
    pub cfa_words: u32,
    /// How to find the caller's rbp.
    pub rbp: Rbp,
}

impl Rule {
    /// A rule without offsets.
    #[must_use]
    pub const fn bare(cfa: Cfa) -> Self {
        Self {
            cfa,
            cfa_words: 0,
            rbp: Rbp::Same,
        }
    }

    /// Packs: bits 0–2 how the CFA is found, 3–10 where rbp is, 11–31 the CFA's offset in words.
    #[must_use]
    pub const fn pack(self) -> u32 {
        let rbp = match self.rbp {
            Rbp::Same => 0,
            Rbp::BelowCfa(words) => words as u32,
            Rbp::AtRbp => 255,
        };
        self.cfa as u32 | rbp << 3 | self.cfa_words << 11
    }

    /// The reverse of [`Rule::pack`].
    #[must_use]
    #[inline]
    pub const fn unpack(bits: u32) -> Self {
        let cfa = match bits & 7 {
            1 => Cfa::Rsp,
            2 => Cfa::Rbp,
            3 => Cfa::Plt,
            4 => Cfa::Outermost,
            5 => Cfa::Unsupported,
            6 => Cfa::Signal,
            7 => Cfa::AtRbp,
            _ => Cfa::None,
        };
        let rbp = match (bits >> 3) & 255 {
            0 => Rbp::Same,
            255 => Rbp::AtRbp,
            words => Rbp::BelowCfa(words as u8),
        };
        Self {
            cfa,
            cfa_words: bits >> 11,
            rbp,
        }
    }
}

/// Bytes of code per entry of the chunk index.
pub const CHUNK_SHIFT: u32 = 8;
/// Rows that a search inside one chunk can tell apart: 2 to the power of this.
pub const SEARCH_STEPS: usize = 9;

/// Rows and index entries come in blocks of 2 to the power of this: one map entry each, so that a
/// table is uploaded with few system calls.
pub const BLOCK_SHIFT: u32 = 8;
/// Rows, or index entries, per block.
pub const BLOCK: usize = 1 << BLOCK_SHIFT;

/// An executable mapping of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Subtract from an address to get its offset in the object's table.
    pub bias: u64,
    /// First entry of the object's chunk index; entry `i` is the number of the last row that
    /// begins at or below chunk `i`.
    pub index_start: u32,
    /// Number of chunks; the index has one entry more. 0: the object has no table, and
    /// `index_start` is [`WALK_STOPS`] or [`WALK_BY_FRAME_POINTERS`].
    pub chunks: u32,
}

/// A walk stops at a mapping without a table.
pub const WALK_STOPS: u32 = 0;
/// A walk goes through a mapping without a table by frame pointers.
pub const WALK_BY_FRAME_POINTERS: u32 = 1;

/// Mappings per process: what a large server has, several times over.
pub const MAX_MAPPINGS: usize = 256;
/// Steps of a binary search over them.
pub const MAPPING_STEPS: usize = 9;

/// The executable mappings of one address space, sorted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mappings {
    /// Used entries.
    pub len: u32,
    /// Another number each time that mappings are stored, of whichever process.
    pub generation: u32,
    /// Sorted by address, not overlapping.
    pub entries: [Mapping; MAX_MAPPINGS],
}

/// Whether the eight bytes of code before an address, first byte lowest, can end in a call
/// (x86-64: `e8` with 4 bytes behind, or `ff /2` with its 0 to 5 bytes).
#[must_use]
#[inline]
pub fn ends_in_call(before: u64) -> bool {
    let byte = |back: u32| (before >> (64 - 8 * back)) & 0xff;
    let indirect = |back: u32| byte(back) == 0xff && (byte(back - 1) >> 3) & 7 == 2;
    byte(5) == 0xe8 || indirect(2) || indirect(3) || indirect(4) || indirect(6) || indirect(7)
}

/// Whether the code at a return address, first byte lowest, takes its stack pointer from its frame pointer. Interpreters
/// return to such code without a call before it: HotSpot's has `mov -16(%rbp),%rsp`, from JDK 21 on
/// `mov -16(%rbp),%rcx; lea (%rbp,%rcx,8),%rsp`.
#[must_use]
#[inline]
pub fn restores_stack(code: u64) -> bool {
    code & 0x00ff_ffff == 0x65_8b48 || code & 0xffff_ffff_00ff_ffff == 0xcd64_8d48_004d_8b48
}

/// Words between the stack pointer and the return address at code that is `add $n,%rsp; ret`, first byte lowest; `None`
/// at any other. Python's trampolines keep no frame pointer, and return to this.
#[must_use]
#[inline]
pub fn words_before_return(code: u64) -> Option<u64> {
    let bytes = (code >> 24) & 0xff;
    (code & 0xff_00ff_ffff == 0xc3_00c4_8348 && bytes < 128 && bytes & 7 == 0).then_some(bytes / 8)
}

/// Why a walk stopped; stored with the stack.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stop {
    /// It reached the thread's outermost function.
    #[default]
    Complete = 0,
    /// The walk was by frame pointers, which cannot tell.
    FramePointers = 1,
    /// An address in no executable mapping that is known.
    NoMapping = 2,
    /// A mapping without unwind information (JIT code, hand-written code).
    NoTable = 3,
    /// No row holds for the address.
    NoRow = 4,
    /// An expression or register that is not understood.
    Unsupported = 5,
    /// A stack page that is not resident.
    NotResident = 6,
    /// More frames than a stack keeps.
    TooDeep = 7,
    /// The next frame would not lie above this one.
    NotAscending = 8,
}

impl Stop {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Complete,
        Self::FramePointers,
        Self::NoMapping,
        Self::NoTable,
        Self::NoRow,
        Self::Unsupported,
        Self::NotResident,
        Self::TooDeep,
        Self::NotAscending,
    ];

    /// The reason with this number; numbers that are none are [`Stop::TooDeep`].
    #[must_use]
    pub fn of(number: u32) -> Self {
        Self::ALL
            .get(number as usize)
            .copied()
            .unwrap_or(Self::TooDeep)
    }

    /// The words in `[truncated: …]`; `None` when the stack is whole, as far as is known.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        Some(match self {
            Self::Complete | Self::FramePointers => return None,
            Self::NoMapping => "no mapping",
            Self::NoTable => "no unwind table",
            Self::NoRow => "no unwind row",
            Self::Unsupported => "unsupported expression",
            Self::NotResident => "stack not resident",
            Self::TooDeep => "too deep",
            Self::NotAscending => "not ascending",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_survives_packing() {
        for cfa in [
            Cfa::None,
            Cfa::Rsp,
            Cfa::Rbp,
            Cfa::Plt,
            Cfa::Outermost,
            Cfa::AtRbp,
        ] {
            for cfa_words in [0, 1, 2, 4096, MAX_CFA_WORDS] {
                for rbp in [
                    Rbp::Same,
                    Rbp::AtRbp,
                    Rbp::BelowCfa(2),
                    Rbp::BelowCfa(MAX_RBP_WORDS),
                ] {
                    let rule = Rule {
                        cfa,
                        cfa_words,
                        rbp,
                    };
                    assert_eq!(Rule::unpack(rule.pack()), rule);
                }
            }
        }
    }

    #[test]
    fn calls_are_told_from_other_code() {
        let before = |code: &[u8]| {
            let mut bytes = [0x90; 8];
            bytes[8 - code.len()..].copy_from_slice(code);
            ends_in_call(u64::from_le_bytes(bytes))
        };
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd4],
            &[0xff, 0x50, 0x18],
            &[0xff, 0x54, 0x24, 0x08],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x94, 0x24, 1, 2, 3, 4],
        ] {
            assert!(before(call), "{call:x?}");
        }
        for other in [
            &[0xe9, 1, 2, 3, 4][..],
            &[0xc3],
            &[0xff, 0xe0],
            &[0x48, 0x89, 0xe5],
            &[],
        ] {
            assert!(!before(other), "{other:x?}");
        }
    }

    #[test]
    fn what_stands_at_a_return_address_says_where_the_caller_is() {
        let at = |code: &[u8]| {
            let mut bytes = [0x90; 8];
            bytes[..code.len()].copy_from_slice(code);
            u64::from_le_bytes(bytes)
        };
        assert!(restores_stack(at(&[0x48, 0x8b, 0x65, 0xf0])));
        assert!(restores_stack(at(&[
            0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd
        ])));
        for other in [
            &[0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0x24][..],
            &[0x48, 0x8b, 0x45, 0xf0],
            &[0x48, 0x89, 0xe5],
        ] {
            assert!(!restores_stack(at(other)), "{other:x?}");
        }
        let words = |code| words_before_return(at(code));
        assert_eq!(words(&[0x48, 0x83, 0xc4, 0x08, 0xc3]), Some(1));
        assert_eq!(words(&[0x48, 0x83, 0xc4, 0x78, 0xc3]), Some(15));
        for other in [
            &[0x48, 0x83, 0xc4, 0x08, 0x5d][..],
            &[0x48, 0x83, 0xc4, 0x07, 0xc3],
            &[0x48, 0x83, 0xc4, 0xf8, 0xc3],
            &[0x48, 0x83, 0xec, 0x08, 0xc3],
            &[0x5d, 0xc3],
        ] {
            assert_eq!(words(other), None, "{other:x?}");
        }
    }

    #[test]
    fn reasons_are_in_order() {
        for (index, stop) in Stop::ALL.into_iter().enumerate() {
            assert_eq!(stop as usize, index);
        }
    }
}
