//! What compiling a table met: counts, and why rows are not understood.

use std::time::Duration;

/// Why a row says [`reqtrace_common::unwind::Cfa::Unsupported`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnsupportedCause {
    /// The frame is found from a register other than rsp and rbp.
    CfaRegister,
    /// The frame is found by another expression than the known ones.
    CfaExpression,
    /// The frame's offset is negative, no multiple of 8, or too large.
    CfaOffset,
    /// The return address does not stand below the frame.
    ReturnAddress,
    /// rbp is lost or stands in another register. Going on with a wrong one would name functions
    /// that were never called.
    FramePointer,
    /// The instructions cannot be decoded.
    Malformed,
}

impl UnsupportedCause {
    /// All causes, in the order of [`TableStats::unsupported`].
    pub const ALL: [Self; 6] = [
        Self::CfaRegister,
        Self::CfaExpression,
        Self::CfaOffset,
        Self::ReturnAddress,
        Self::FramePointer,
        Self::Malformed,
    ];
}

/// How often a cause made rows unsupported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsupported {
    /// Rows of `.eh_frame`.
    pub rows: u64,
    /// Bytes of code that they stand for.
    pub bytes: u64,
}

/// What compiling a table met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Functions, or parts of functions, with unwind information.
    pub functions: u64,
    /// Bytes of `.eh_frame`.
    pub frame_bytes: u64,
    /// Bytes of code that have a rule, unsupported ones included.
    pub covered_bytes: u64,
    /// Rows that are unsupported, by cause in the order of [`UnsupportedCause::ALL`].
    pub unsupported: [Unsupported; UnsupportedCause::ALL.len()],
    /// Functions left out: empty, outside of executable segments, or a second one at an address.
    pub dropped: u64,
    /// Functions cut because the next one begins inside of them.
    pub overlapping: u64,
    /// Entries that could not be parsed.
    pub malformed: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl TableStats {
    /// All unsupported rows together.
    #[must_use]
    pub fn all_unsupported(&self) -> Unsupported {
        self.unsupported
            .iter()
            .fold(Unsupported::default(), |sum, one| Unsupported {
                rows: sum.rows + one.rows,
                bytes: sum.bytes + one.bytes,
            })
    }
}
