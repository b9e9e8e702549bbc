//! Call frame information: `.eh_frame` in, the extent of code without symbols and the state of
//! its stack pointer out.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, FrameDescriptionEntry, LittleEndian,
    Pointer, UnwindContext, UnwindSection as _, X86_64,
};

use reqtrace_common::cookie::ReturnSlot;

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// Where every frame description stands, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    section: Range<usize>,
    address: u64,
    /// First address, end, offset in the section.
    entries: Vec<(u64, u64, usize)>,
}

impl Frames {
    /// Lists a `.eh_frame` that stands at `section` of the file and is loaded at `address`. What
    /// cannot be parsed is left out: without it reqtrace decides by symbols alone.
    pub(super) fn parse(bytes: &[u8], section: Range<usize>, address: u64) -> Self {
        let mut frames = Self {
            section,
            address,
            entries: Vec::new(),
        };
        let eh_frame = frames.eh_frame(bytes);
        let bases = frames.bases();
        let mut found = Vec::new();
        let mut entries = eh_frame.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            if let Ok(entry) = partial.parse(EhFrame::cie_from_offset)
                && let Some(end) = entry.initial_address().checked_add(entry.len())
                && entry.len() > 0
            {
                found.push((entry.initial_address(), end, entry.offset()));
            }
        }
        found.sort_unstable();
        frames.entries = found;
        frames
    }

    fn eh_frame<'a>(&self, bytes: &'a [u8]) -> EhFrame<Slice<'a>> {
        EhFrame::new(
            bytes.get(self.section.clone()).unwrap_or_default(),
            LittleEndian,
        )
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.address)
    }

    fn entry(&self, address: u64) -> Option<&(u64, u64, usize)> {
        let after = self
            .entries
            .partition_point(|(start, _, _)| *start <= address);
        self.entries[..after]
            .last()
            .filter(|(_, end, _)| address < *end)
    }

    pub(super) fn range(&self, address: u64) -> Option<Range<u64>> {
        self.entry(address).map(|&(start, end, _)| start..end)
    }

    fn description<'a>(
        &self,
        bytes: &'a [u8],
        offset: usize,
    ) -> Option<FrameDescriptionEntry<Slice<'a>>> {
        self.eh_frame(bytes)
            .fde_from_offset(
                &self.bases(),
                EhFrameOffset(offset),
                EhFrame::cie_from_offset,
            )
            .ok()
    }

    fn cfa(&self, bytes: &[u8], address: u64) -> Option<Cfa> {
        let &(_, _, offset) = self.entry(address)?;
        let entry = self.description(bytes, offset)?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(&self.eh_frame(bytes), &self.bases(), &mut context, address)
            .ok()?;
        Some(match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RSP => {
                Cfa::At(FramePlace::rsp(*offset - 8))
            }
            CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RBP => {
                Cfa::At(FramePlace::rbp(*offset - 8))
            }
            _ => Cfa::Other,
        })
    }

    /// Exception tables of the functions of a range: where each stands, and its function's start.
    fn exception_tables(&self, bytes: &[u8], range: &Range<u64>) -> Option<Vec<(u64, u64)>> {
        let first = self
            .entries
            .partition_point(|(_, end, _)| *end <= range.start);
        let mut tables = Vec::new();
        for &(start, _, offset) in self.entries[first..]
            .iter()
            .take_while(|(start, _, _)| *start < range.end)
        {
            match self.description(bytes, offset)?.lsda() {
                Some(Pointer::Direct(0)) | None => {}
                Some(Pointer::Direct(address)) => tables.push((address, start)),
                Some(Pointer::Indirect(_)) => return None,
            }
        }
        Some(tables)
    }
}

/// Where a function's return address stands, counted from a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePlace {
    /// From `%rbp`, otherwise from `%rsp`.
    pub from_rbp: bool,
    /// Distance above the register, bytes.
    pub bytes: i64,
}

impl FramePlace {
    /// At a function's entry, and at its return.
    pub const AT_RSP: Self = Self::rsp(0);

    /// Above the stack pointer.
    #[must_use]
    pub const fn rsp(bytes: i64) -> Self {
        Self {
            from_rbp: false,
            bytes,
        }
    }

    /// Above the frame pointer.
    #[must_use]
    pub const fn rbp(bytes: i64) -> Self {
        Self {
            from_rbp: true,
            bytes,
        }
    }

    /// As the kernel programs count it; `None` where they cannot.
    #[must_use]
    pub fn slot(self) -> Option<ReturnSlot> {
        if self.bytes % 8 != 0 {
            return None;
        }
        Some(ReturnSlot {
            from_rbp: self.from_rbp,
            words: u16::try_from(self.bytes / 8).ok()?,
        })
    }
}

/// How a row of call frame information gives the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cfa {
    /// By `%rsp` or `%rbp`, as the place of the return address below it.
    At(FramePlace),
    /// By another register or an expression.
    Other,
}

/// Call frame information of an object, with the bytes that it points into.
#[derive(Clone, Copy, Debug)]
pub struct FramesOf<'a> {
    frames: &'a Frames,
    bytes: &'a [u8],
}

impl<'a> FramesOf<'a> {
    pub(super) fn new(frames: &'a Frames, bytes: &'a [u8]) -> Self {
        Self { frames, bytes }
    }

    /// The range of the frame description that covers an address.
    #[must_use]
    pub fn range(&self, address: u64) -> Option<Range<u64>> {
        self.frames.range(address)
    }

    /// Whether, at this instruction, the stack pointer stands where it stood at the function's
    /// entry: the CFA, the caller's stack pointer, is just above the return address. `None`:
    /// it has no name.
    #[must_use]
    pub fn at_entry_level(&self, address: u64) -> Option<bool> {
        let cfa = self.frames.cfa(self.bytes, address)?;
        Some(cfa == Cfa::At(FramePlace::AT_RSP))
    }

    /// Where the return address stands at this instruction; `None` where no row says it, or by
    /// another register or an expression.
    #[must_use]
    pub fn return_address(&self, address: u64) -> Option<FramePlace> {
        match self.frames.cfa(self.bytes, address)? {
            Cfa::At(place) => Some(place),
            Cfa::Other => None,
        }
    }

    /// Exception tables of the functions of a range: where each stands, and its function's start.
    /// `None` when a frame description cannot be read.
    #[must_use]
    pub(crate) fn exception_tables(&self, range: &Range<u64>) -> Option<Vec<(u64, u64)>> {
        self.frames.exception_tables(self.bytes, range)
    }

    /// Whether a frame description begins at an address.
    #[must_use]
    pub fn begins(&self, address: u64) -> bool {
        let entries = &self.frames.entries;
        let from = entries.partition_point(|(start, _, _)| *start < address);
        entries
            .get(from)
            .is_some_and(|(start, _, _)| *start == address)
    }
}
