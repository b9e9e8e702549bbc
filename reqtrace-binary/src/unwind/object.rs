//! Objects: an ELF file or image in, its `.eh_frame`, segments and build id out.
//!
//! Only the few parts that are needed are read, and never through a mapping of the file: a file
//! that shrinks under us is an error and not a signal.

use std::fs::File;
use std::io;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};

use crate::elf::{u16_at, u32_at, u64_at};

const HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
const SECTION_HEADER_SIZE: usize = 64;
const ELF_CLASS_64: u8 = 2;
const ELF_LITTLE_ENDIAN: u8 = 1;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const SHT_PROGBITS: u32 = 1;
const SHT_X86_64_UNWIND: u32 = 0x7000_0001;
const NT_GNU_BUILD_ID: u32 = 3;
/// The largest `.eh_frame` that is read: tens of times what the largest browsers have.
const MAX_FRAMES_BYTES: u64 = 256 << 20;
/// The largest note segment and table of section names that is read.
const MAX_SMALL_BYTES: u64 = 1 << 20;

/// Something to read an object from.
pub trait ReadAt {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    ///
    /// When the bytes are not there.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buffer.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

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
        let mut header = [0; HEADER_SIZE];
        source
            .read_exact_at(&mut header, 0)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => ObjectError::NotElf,
                _ => ObjectError::Io(error),
            })?;
        if !header.starts_with(b"\x7fELF") {
            return Err(ObjectError::NotElf);
        }
        let (class, machine) = (header[4], u16_at(&header, 18));
        if class != ELF_CLASS_64 || header[5] != ELF_LITTLE_ENDIAN || machine != EM_X86_64 {
            return Err(ObjectError::Machine { class, machine });
        }
        let headers = program_headers(source, &header)?;
        let segments: Vec<Segment> = headers
            .iter()
            .filter(|header| header.kind == PT_LOAD)
            .map(|header| header.segment)
            .collect();
        let frames = match frames_by_section(source, &header)? {
            Some(frames) => frames,
            None => frames_by_header(source, &headers, &segments)?.ok_or(ObjectError::NoFrames)?,
        };
        Ok(Self {
            build_id: build_id(source, &headers),
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

struct ProgramHeader {
    kind: u32,
    segment: Segment,
}

fn program_headers<S: ReadAt + ?Sized>(
    source: &S,
    header: &[u8],
) -> Result<Vec<ProgramHeader>, ObjectError> {
    if usize::from(u16_at(header, 54)) != PROGRAM_HEADER_SIZE {
        return Err(ObjectError::Malformed("ELF header"));
    }
    let mut bytes = vec![0; usize::from(u16_at(header, 56)) * PROGRAM_HEADER_SIZE];
    source.read_exact_at(&mut bytes, u64_at(header, 32))?;
    Ok(bytes
        .chunks_exact(PROGRAM_HEADER_SIZE)
        .map(|bytes| ProgramHeader {
            kind: u32_at(bytes, 0),
            segment: Segment {
                executable: u32_at(bytes, 4) & PF_X != 0,
                offset: u64_at(bytes, 8),
                address: u64_at(bytes, 16),
                file_size: u64_at(bytes, 32),
                memory_size: u64_at(bytes, 40),
            },
        })
        .collect())
}

/// Section headers may be missing or stripped; then there is nothing, and no error.
fn frames_by_section<S: ReadAt + ?Sized>(
    source: &S,
    header: &[u8],
) -> Result<Option<Frames>, ObjectError> {
    let (table, size) = (u64_at(header, 40), usize::from(u16_at(header, 58)));
    let (count, names) = (
        usize::from(u16_at(header, 60)),
        usize::from(u16_at(header, 62)),
    );
    if table == 0 || size != SECTION_HEADER_SIZE || names >= count {
        return Ok(None);
    }
    let mut sections = vec![0; count * SECTION_HEADER_SIZE];
    if source.read_exact_at(&mut sections, table).is_err() {
        return Ok(None);
    }
    let section = |index: usize| &sections[index * SECTION_HEADER_SIZE..][..SECTION_HEADER_SIZE];
    let range = |section: &[u8]| (u64_at(section, 24), u64_at(section, 32));
    let (offset, length) = range(section(names));
    let Ok(names) = read(
        source,
        "table of section names",
        offset,
        length,
        MAX_SMALL_BYTES,
    ) else {
        return Ok(None);
    };
    for section in (0..count).map(section) {
        // In a file of debug symbols the section is there without its contents (SHT_NOBITS).
        if !matches!(u32_at(section, 4), SHT_PROGBITS | SHT_X86_64_UNWIND) {
            continue;
        }
        let name = names.get(u32_at(section, 0) as usize..).unwrap_or_default();
        if name.starts_with(b".eh_frame\0") {
            let (offset, length) = range(section);
            return Ok(Some(Frames {
                address: u64_at(section, 16),
                bytes: read(source, ".eh_frame", offset, length, MAX_FRAMES_BYTES)?,
            }));
        }
    }
    Ok(None)
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
        .find(|header| header.kind == PT_GNU_EH_FRAME)
        .map(|header| header.segment)
    else {
        return Ok(None);
    };
    let length = header.file_size.min(PREFIX);
    let bytes = read(source, ".eh_frame_hdr", header.offset, length, PREFIX)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
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

fn build_id<S: ReadAt + ?Sized>(source: &S, headers: &[ProgramHeader]) -> Option<Vec<u8>> {
    headers
        .iter()
        .filter(|header| header.kind == PT_NOTE)
        .find_map(|header| {
            let Segment {
                offset, file_size, ..
            } = header.segment;
            build_id_note(&read(source, "note", offset, file_size, MAX_SMALL_BYTES).ok()?)
        })
}

fn build_id_note(mut notes: &[u8]) -> Option<Vec<u8>> {
    const NOTE_HEADER: usize = 12;
    while notes.len() >= NOTE_HEADER {
        let name_size = u32_at(notes, 0) as usize;
        let size = u32_at(notes, 4) as usize;
        let kind = u32_at(notes, 8);
        let start = NOTE_HEADER.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let contents = notes.get(start..start.checked_add(size)?)?;
        if kind == NT_GNU_BUILD_ID && notes[NOTE_HEADER..].starts_with(b"GNU\0") && size > 0 {
            return Some(contents.to_vec());
        }
        notes = notes.get(start.checked_add(size.checked_next_multiple_of(4)?)?..)?;
    }
    None
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
