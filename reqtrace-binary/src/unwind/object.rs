//! Objects: an ELF file or image in, its `.eh_frame`, segments and build id out.
//!
//! Only the few parts that are needed are read, and never through a mapping of the file: a file
//! that shrinks under us is an error and not a signal.

use std::io;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use goblin::elf::ProgramHeader;
use goblin::elf::header::{ELFCLASS64, EM_X86_64};
use goblin::elf::program_header::{PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE};
use goblin::elf::section_header::{SHT_PROGBITS, SHT_X86_64_UNWIND};

use crate::elf::{FileHeader, HeaderError, ReadAt, Sections, build_id};

/// The largest `.eh_frame` that is read: tens of times what the largest browsers have.
const MAX_FRAMES_BYTES: u64 = 256 << 20;
/// The largest note segment that is read.
const MAX_SMALL_BYTES: u64 = 1 << 20;

/// Why an object has no tables.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// It could not be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no ELF file.
    #[error("it is no ELF file")]
    NotElf,
    /// It is one for another machine.
    #[error("it is for another machine (ELF class {class}, machine {machine}); x86-64 is needed")]
    Machine {
        /// 1: 32 bits, 2: 64 bits.
        class: u8,
        /// `e_machine`.
        machine: u16,
    },
    /// It has no `.eh_frame`.
    #[error("it has no .eh_frame")]
    NoFrames,
    /// A part is larger than any real one.
    #[error("its {part} has {bytes} bytes")]
    TooLarge {
        /// Which part.
        part: &'static str,
        /// Its size.
        bytes: u64,
    },
    /// A part contradicts itself.
    #[error("its {0} is malformed")]
    Malformed(&'static str),
}

impl From<HeaderError> for ObjectError {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Io(error) => Self::Io(error),
            HeaderError::NotElf => Self::NotElf,
            HeaderError::Machine { class, machine } => Self::Machine { class, machine },
            HeaderError::Malformed(part) => Self::Malformed(part),
        }
    }
}

/// A part of an object that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Where it begins in the file.
    pub offset: u64,
    /// The address it is linked at.
    pub address: u64,
    /// Bytes of it in the file.
    pub file_size: u64,
    /// Bytes of it in memory.
    pub memory_size: u64,
    /// Whether it is executable.
    pub executable: bool,
}

/// The `.eh_frame` of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frames {
    /// The address it is linked at.
    pub address: u64,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// What unwinding needs of an ELF object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// The GNU build id, where there is one.
    pub build_id: Option<Vec<u8>>,
    /// Loaded segments, in the file's order.
    pub segments: Vec<Segment>,
    /// Its unwind information.
    pub frames: Frames,
}

impl Object {
    /// Reads an object of 64 bits for x86-64.
    ///
    /// # Errors
    ///
    /// When it is none, or has no `.eh_frame`.
    pub fn read<S: ReadAt + ?Sized>(source: &S) -> Result<Self, ObjectError> {
        let header = FileHeader::read(source)?;
        let machine = header.fields().e_machine;
        if machine != EM_X86_64 {
            return Err(ObjectError::Machine {
                class: ELFCLASS64,
                machine,
            });
        }
        let headers = header.programs(source)?;
        let loaded = headers.iter().filter(|header| header.p_type == PT_LOAD);
        let segments: Vec<Segment> = loaded.map(Segment::of).collect();
        let frames = match frames_by_section(source, &header)? {
            Some(frames) => frames,
            None => frames_by_header(source, &headers, &segments)?.ok_or(ObjectError::NoFrames)?,
        };
        Ok(Self {
            build_id: build_id_of(source, &headers),
            segments,
            frames,
        })
    }

    /// The linked address of what stands at `offset` in the file, by the executable segment that
    /// has it. Segments are mapped in whole pages, so it may lie a little outside of the segment.
    #[must_use]
    pub fn address_of(segments: &[Segment], offset: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        segments
            .iter()
            .filter(|segment| segment.executable)
            .find(|segment| {
                let first = segment.offset & !(PAGE - 1);
                let end = segment.offset.saturating_add(segment.file_size);
                first <= offset && offset < end
            })
            .map(|segment| {
                offset
                    .wrapping_sub(segment.offset)
                    .wrapping_add(segment.address)
            })
    }
}

impl Segment {
    fn of(header: &ProgramHeader) -> Self {
        Self {
            offset: header.p_offset,
            address: header.p_vaddr,
            file_size: header.p_filesz,
            memory_size: header.p_memsz,
            executable: header.p_flags & PF_X != 0,
        }
    }
}

/// Section headers may be missing or stripped; then there is nothing, and no error.
fn frames_by_section<S: ReadAt + ?Sized>(
    source: &S,
    header: &FileHeader,
) -> Result<Option<Frames>, ObjectError> {
    let Ok(sections) = Sections::of(header, source) else {
        return Ok(None);
    };
    let Some(section) = sections.find(".eh_frame") else {
        return Ok(None);
    };
    if !matches!(section.sh_type, SHT_PROGBITS | SHT_X86_64_UNWIND) {
        return Ok(None);
    }
    let (offset, length) = (section.sh_offset, section.sh_size);
    Ok(Some(Frames {
        address: section.sh_addr,
        bytes: read(source, ".eh_frame", offset, length, MAX_FRAMES_BYTES)?,
    }))
}

/// By what the dynamic loader uses: PT_GNU_EH_FRAME points to `.eh_frame_hdr`, and that to
/// `.eh_frame`, which ends with a zero word.
fn frames_by_header<S: ReadAt + ?Sized>(
    source: &S,
    headers: &[ProgramHeader],
    segments: &[Segment],
) -> Result<Option<Frames>, ObjectError> {
    const MALFORMED: ObjectError = ObjectError::Malformed(".eh_frame_hdr");
    /// Version, three encodings, and the pointer.
    const PREFIX: u64 = 20;
    let Some(header) = headers
        .iter()
        .find(|header| header.p_type == PT_GNU_EH_FRAME)
    else {
        return Ok(None);
    };
    let length = header.p_filesz.min(PREFIX);
    let bytes = read(source, ".eh_frame_hdr", header.p_offset, length, PREFIX)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr);
    let Ok(Pointer::Direct(address)) = EhFrameHdr::new(&bytes, LittleEndian)
        .parse(&bases, 8)
        .map(|header| header.eh_frame_ptr())
    else {
        return Err(MALFORMED);
    };
    let segment = segments
        .iter()
        .find(|segment| {
            address
                .checked_sub(segment.address)
                .is_some_and(|inside| inside < segment.file_size)
        })
        .ok_or(MALFORMED)?;
    let inside = address - segment.address;
    let offset = segment.offset.checked_add(inside).ok_or(MALFORMED)?;
    let length = (segment.file_size - inside).min(MAX_FRAMES_BYTES);
    Ok(Some(Frames {
        address,
        bytes: read(source, ".eh_frame", offset, length, MAX_FRAMES_BYTES)?,
    }))
}

fn build_id_of<S: ReadAt + ?Sized>(source: &S, headers: &[ProgramHeader]) -> Option<Vec<u8>> {
    let notes = headers.iter().filter(|header| header.p_type == PT_NOTE);
    notes
        .map(|note| {
            read(
                source,
                "note",
                note.p_offset,
                note.p_filesz,
                MAX_SMALL_BYTES,
            )
        })
        .find_map(|bytes| build_id(&bytes.ok()?))
}

fn read<S: ReadAt + ?Sized>(
    source: &S,
    part: &'static str,
    offset: u64,
    length: u64,
    most: u64,
) -> Result<Vec<u8>, ObjectError> {
    let too_large = ObjectError::TooLarge {
        part,
        bytes: length,
    };
    if length > most {
        return Err(too_large);
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| too_large)?];
    source.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
