//! Call frame information: `.eh_frame` in, the extent of code without symbols and the state of
//! its stack pointer out.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, LittleEndian, UnwindContext,
    UnwindSection as _, X86_64,
};

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

    fn eh_frame<'a>(&self, bytes: &'a [u8]) -> EhFrame<gimli::EndianSlice<'a, LittleEndian>> {
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

    pub(super) fn at_entry_level(&self, bytes: &[u8], address: u64) -> Option<bool> {
        let &(_, _, offset) = self.entry(address)?;
        let eh_frame = self.eh_frame(bytes);
        let bases = self.bases();
        let entry = eh_frame
            .fde_from_offset(&bases, EhFrameOffset(offset), EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(&eh_frame, &bases, &mut context, address)
            .ok()?;
        // At an entry the CFA, the caller's stack pointer, is just above the return address.
        Some(matches!(
            row.cfa(),
            CfaRule::RegisterAndOffset { register, offset: 8 } if *register == X86_64::RSP
        ))
    }
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
    /// entry. `None`: nothing is said about it.
    #[must_use]
    pub fn at_entry_level(&self, address: u64) -> Option<bool> {
        self.frames.at_entry_level(self.bytes, address)
    }
}
