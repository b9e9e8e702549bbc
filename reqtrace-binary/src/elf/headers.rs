//! Headers: an ELF file in; its header, program headers and section headers out, by goblin's parsers, and
//! back into bytes.

use std::io;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::compression_header::CompressionHeader;
use goblin::elf::compression_header::compression_header64::SIZEOF_CHDR;
use goblin::elf::header::header64::SIZEOF_EHDR;
use goblin::elf::header::{EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_DYN};
use goblin::elf::{Elf, Header, ProgramHeader, SectionHeader};
use scroll::ctx::{SizeWith, TryFromCtx};
use scroll::{Pread as _, Pwrite as _};

use super::source::{self, ReadAt};

/// 64 bits, little-endian.
pub(crate) const CONTEXT: Ctx = Ctx {
    container: Container::Big,
    le: Endian::Little,
};
/// Program headers that are read: the kernel loads no program with more (`load_elf_phdrs`).
const MAX_PROGRAMS: u64 = 65_536 / 56;
/// Section headers that are read.
const MAX_SECTIONS: u64 = 1 << 16;

/// Why headers could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file could not be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no ELF file.
    #[error("it is no ELF file")]
    NotElf,
    /// It has not 64 bits, little-endian.
    #[error("it is for another machine (ELF class {class}, machine {machine})")]
    Machine {
        /// 1: 32 bits, 2: 64 bits.
        class: u8,
        /// `e_machine`.
        machine: u16,
    },
    /// They contradict themselves.
    #[error("its {0} is malformed")]
    Malformed(&'static str),
}

impl From<HeaderError> for io::Error {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Io(error) => error,
            other => Self::other(other),
        }
    }
}

/// The header of an ELF file of 64 bits, little-endian, for any machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileHeader(Header);

impl FileHeader {
    /// That of a shared object for x86-64 with so many section headers, the last of which is that of
    /// their names, and one program header.
    pub(crate) fn shared_object(sections: usize) -> Self {
        let mut header = Header::new(CONTEXT);
        header.e_type = ET_DYN;
        header.e_machine = EM_X86_64;
        header.e_phnum = 1;
        header.e_shnum = sections as u16;
        header.e_shstrndx = header.e_shnum - 1;
        Self(header)
    }

    /// Reads it.
    pub(crate) fn read<S: ReadAt + ?Sized>(source: &S) -> Result<Self, HeaderError> {
        let mut bytes = [0; SIZEOF_EHDR];
        source
            .read_exact_at(&mut bytes, 0)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => HeaderError::NotElf,
                _ => HeaderError::Io(error),
            })?;
        if !bytes.starts_with(ELFMAG) {
            return Err(HeaderError::NotElf);
        }
        let class = bytes[EI_CLASS];
        if class != ELFCLASS64 || bytes[EI_DATA] != ELFDATA2LSB {
            let machine = u16::from_le_bytes([bytes[18], bytes[19]]);
            return Err(HeaderError::Machine { class, machine });
        }
        let header = Elf::parse_header(&bytes).map_err(|_| HeaderError::NotElf)?;
        Ok(Self(header))
    }

    /// Its fields.
    pub(crate) fn fields(&self) -> &Header {
        &self.0
    }

    /// The program headers.
    pub(crate) fn programs<S: ReadAt + ?Sized>(
        &self,
        source: &S,
    ) -> Result<Vec<ProgramHeader>, HeaderError> {
        let count = u64::from(self.0.e_phnum);
        if count == 0 {
            return Ok(Vec::new());
        }
        let size = ProgramHeader::size_with(&CONTEXT);
        if usize::from(self.0.e_phentsize) != size || count > MAX_PROGRAMS {
            return Err(HeaderError::Malformed("table of program headers"));
        }
        table(source, self.0.e_phoff, count, size)
    }

    /// The section headers; none when there are none.
    pub(crate) fn sections<S: ReadAt + ?Sized>(
        &self,
        source: &S,
    ) -> Result<Vec<SectionHeader>, HeaderError> {
        const MALFORMED: HeaderError = HeaderError::Malformed("table of section headers");
        let offset = self.0.e_shoff;
        if offset == 0 {
            return Ok(Vec::new());
        }
        let size = SectionHeader::size_with(&CONTEXT);
        if usize::from(self.0.e_shentsize) != size {
            return Err(MALFORMED);
        }
        let count = match self.0.e_shnum {
            // The first one has the number, when it is too large for the header.
            0 => {
                let first: Vec<SectionHeader> = table(source, offset, 1, size)?;
                first.first().map_or(0, |first| first.sh_size)
            }
            count => u64::from(count),
        };
        if count > MAX_SECTIONS {
            return Err(MALFORMED);
        }
        table(source, offset, count, size)
    }

    /// The bytes of a file that has nothing but these headers, at its beginning.
    pub(crate) fn image(
        mut self,
        programs: &[ProgramHeader],
        sections: &[SectionHeader],
    ) -> io::Result<Vec<u8>> {
        let of_programs = size_in_file::<ProgramHeader>(programs.len());
        let of_sections = size_in_file::<SectionHeader>(sections.len());
        self.0.e_phoff = SIZEOF_EHDR as u64;
        self.0.e_shoff = (SIZEOF_EHDR + of_programs) as u64;
        let mut bytes = vec![0; SIZEOF_EHDR + of_programs + of_sections];
        let at = &mut 0;
        let header = bytes.gwrite_with(self.0, at, CONTEXT.le);
        header.map_err(io::Error::other)?;
        for program in programs {
            let written = bytes.gwrite_with(program.clone(), at, CONTEXT);
            written.map_err(io::Error::other)?;
        }
        for section in sections {
            let written = bytes.gwrite_with(section.clone(), at, CONTEXT);
            written.map_err(io::Error::other)?;
        }
        Ok(bytes)
    }
}

fn size_in_file<T: SizeWith<Ctx>>(count: usize) -> usize {
    count * T::size_with(&CONTEXT)
}

/// The header of a compressed section.
pub(crate) fn compression(bytes: &[u8; SIZEOF_CHDR]) -> Option<CompressionHeader> {
    bytes.pread_with(0, CONTEXT).ok()
}

/// Reads a table of headers; `count` was looked at by the caller.
fn table<S, T>(source: &S, offset: u64, count: u64, size: usize) -> Result<Vec<T>, HeaderError>
where
    S: ReadAt + ?Sized,
    T: for<'a> TryFromCtx<'a, Ctx, Error = goblin::error::Error>,
{
    let length = count * size as u64;
    let bytes = source::read(source, offset, length, length)?;
    let at = &mut 0;
    (0..count)
        .map(|_| {
            let header = bytes.gread_with(at, CONTEXT);
            header.map_err(|_| HeaderError::Malformed("table of headers"))
        })
        .collect()
}
