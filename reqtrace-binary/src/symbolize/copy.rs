//! A file's symbols and debug information in, a copy of them out that nobody else can change.
//!
//! blazesym maps the files that it reads, and a mapped file that its owner cuts short ends the reader by
//! SIGBUS. So it gets a file in memory with the few sections that it needs, read piece by piece. That is
//! also where compressed sections are unpacked, as their stated sizes may be lies.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer};
use goblin::elf::SectionHeader;
use goblin::elf::compression_header::compression_header64::SIZEOF_CHDR;
use goblin::elf::compression_header::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use goblin::elf::section_header::{
    SHF_COMPRESSED, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_NULL, SHT_STRTAB, SHT_SYMTAB,
};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::elf::{FileHeader, Sections, compression};

/// Bytes that are copied at a time.
const BLOCK: usize = 1 << 20;

/// What copies may take in a trace: they are memory.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    /// Files of which something was left out for it.
    cut: u64,
}

/// A server with its libraries and their debug files has some 200 MiB, a browser 1 GiB.
const MAX_BYTES: u64 = 1 << 30;

impl Default for Room {
    fn default() -> Self {
        Self {
            bytes: MAX_BYTES,
            cut: 0,
        }
    }
}

impl Room {
    /// Files that were not copied whole, because all together are too large.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }
}

/// The symbols of one file.
pub(super) struct Copy {
    symbolizer: Symbolizer,
    file: File,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Copy").field(&self.file).finish()
    }
}

impl Copy {
    /// Copies the symbol tables of a 64-bit little-endian ELF file, and with `debug` its DWARF.
    ///
    /// # Errors
    ///
    /// When it is no such file, or cannot be read.
    pub(super) fn of(file: &File, debug: bool, room: &mut Room) -> io::Result<Self> {
        const NO_FOLDERS: [&str; 0] = [];
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(true)
            // Its own takes a C function `f` for the type that C++ writes so.
            .enable_demangling(false)
            // Debug files are looked for by us: in the process's root, and verified.
            .set_debug_dirs(Some(NO_FOLDERS))
            .build();
        Ok(Self {
            symbolizer,
            file: copy(file, debug, room)?,
        })
    }

    /// The symbol that covers an address, from ELF symbols or from debug information.
    pub(super) fn symbol(&self, address: u64, debug: bool) -> Option<Sym<'_>> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut elf = Elf::new(PathBuf::from(path));
        elf.debug_syms = debug;
        self.symbolizer
            .symbolize_single(&Source::Elf(elf), Input::VirtOffset(address))
            .ok()
            .and_then(Symbolized::into_sym)
            .filter(|symbol| {
                // A symbol without a size is trusted at its first byte only: behind it may be
                // anything.
                let size = symbol.size.map_or(1, |size| size as u64);
                let end = symbol.addr.saturating_add(size);
                !symbol.name.is_empty() && (symbol.addr..end).contains(&address)
            })
    }
}

fn copy(file: &File, debug: bool, room: &mut Room) -> io::Result<File> {
    let length = file.metadata()?.len();
    let header = FileHeader::read(file)?;
    let programs = header.programs(file)?;
    let sections = Sections::of(&header, file)?;
    if sections.headers().is_empty() {
        return Err(io::Error::other("it has no sections"));
    }
    let mut copied = sections.headers().to_vec();
    let out = File::from(memfd_create("symbols", MemfdFlags::CLOEXEC)?);
    let mut end = header.image(&programs, &copied)?.len() as u64;
    let mut cut = false;
    // Symbols first: they are what names most.
    for of_debug in [false, true] {
        for section in &mut copied {
            let is_debug = sections.name(section).starts_with(b".debug_");
            if is_debug != of_debug || matches!(section.sh_type, SHT_NOBITS | SHT_NULL) {
                continue;
            }
            let is_wanted = match is_debug {
                true => debug,
                false => matches!(
                    section.sh_type,
                    SHT_SYMTAB | SHT_STRTAB | SHT_NOTE | SHT_DYNSYM
                ),
            };
            let to = end.next_multiple_of(16);
            let size = match is_wanted {
                true => contents(file, length, section, &out, to, room.bytes),
                false => Ok(None),
            };
            match size {
                // Its contents stand elsewhere now, as they are.
                Ok(Some(size)) => {
                    if matches!(section.sh_type, SHT_SYMTAB | SHT_DYNSYM) {
                        bound_symbols(&out, to, size)?;
                    }
                    section.sh_flags &= !u64::from(SHF_COMPRESSED);
                    section.sh_offset = to;
                    section.sh_size = size;
                    room.bytes -= size.min(room.bytes);
                    end = to + size;
                }
                Ok(None) => section.sh_type = SHT_NOBITS,
                Err(error) => {
                    cut |= error.kind() == io::ErrorKind::FileTooLarge;
                    section.sh_type = SHT_NOBITS;
                }
            }
        }
    }
    room.cut += u64::from(cut);
    out.write_all_at(&header.image(&programs, &copied)?, 0)?;
    Ok(out)
}

/// Takes the size from symbols that would end behind the last address: blazesym adds it to their address,
/// unchecked.
fn bound_symbols(out: &File, at: u64, size: u64) -> io::Result<()> {
    const ENTRY: usize = 24;
    const SIZE: usize = 16;
    let mut block = vec![0; ENTRY * 4096];
    let mut done = 0;
    while size - done >= ENTRY as u64 {
        let want = block
            .len()
            .min(usize::try_from(size - done).unwrap_or(usize::MAX));
        let want = want / ENTRY * ENTRY;
        out.read_exact_at(&mut block[..want], at + done)?;
        for (index, entry) in block[..want].chunks_exact(ENTRY).enumerate() {
            let number = |from: usize| {
                let bytes = entry[from..from + 8].try_into();
                u64::from_le_bytes(bytes.unwrap_or_default())
            };
            if number(8).checked_add(number(SIZE)).is_none() {
                let place = at + done + (index * ENTRY + SIZE) as u64;
                out.write_all_at(&[0; 8], place)?;
            }
        }
        done += want as u64;
    }
    Ok(())
}

/// Copies the contents of a section, unpacked; gives their size. [`io::ErrorKind::FileTooLarge`] when
/// they have more bytes than `most`.
fn contents(
    file: &File,
    length: u64,
    section: &SectionHeader,
    out: &File,
    to: u64,
    most: u64,
) -> io::Result<Option<u64>> {
    let (offset, size) = (section.sh_offset, section.sh_size);
    if offset.checked_add(size).is_none_or(|end| end > length) {
        return Ok(None);
    }
    let mut from = Part {
        file,
        at: offset,
        left: size,
    };
    if section.sh_flags & u64::from(SHF_COMPRESSED) == 0 {
        if size > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let copied = pour(&mut from, out, to, size)?;
        return Ok((copied == size).then_some(size));
    }
    if size < SIZEOF_CHDR as u64 {
        return Ok(None);
    }
    let mut header = [0; SIZEOF_CHDR];
    from.read_exact(&mut header)?;
    let Some(packed) = compression(&header) else {
        return Ok(None);
    };
    let size = packed.ch_size;
    if size > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // One byte more would tell that the size is a lie.
    let copied = match packed.ch_type {
        ELFCOMPRESS_ZLIB => pour(&mut flate2::read::ZlibDecoder::new(from), out, to, size + 1)?,
        ELFCOMPRESS_ZSTD => pour(
            &mut zstd::stream::read::Decoder::new(from)?,
            out,
            to,
            size + 1,
        )?,
        _ => return Ok(None),
    };
    Ok((copied == size).then_some(size))
}

/// Part of a file, read without its own position.
struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..want], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

fn pour(from: &mut impl Read, out: &File, mut to: u64, most: u64) -> io::Result<u64> {
    let mut block = vec![0; BLOCK.min(usize::try_from(most).unwrap_or(BLOCK))];
    let mut left = most;
    while left > 0 {
        let want = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = from.read(&mut block[..want])?;
        if count == 0 {
            break;
        }
        out.write_all_at(&block[..count], to)?;
        to += count as u64;
        left -= count as u64;
    }
    Ok(most - left)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn own() -> Vec<u8> {
        fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn table_of(bytes: &[u8]) -> usize {
        let header = FileHeader::read(bytes).unwrap();
        usize::try_from(header.fields().e_shoff).unwrap()
    }

    /// A section, and the offset of its header in the file.
    fn header_of(bytes: &[u8], wanted: &[u8]) -> (SectionHeader, usize) {
        let sections = Sections::read(bytes).unwrap();
        let mut headers = sections.headers().iter();
        let index = headers.position(|section| sections.name(section) == wanted);
        let index = index.unwrap();
        (
            sections.headers()[index].clone(),
            table_of(bytes) + index * 64,
        )
    }

    fn function_address() -> u64 {
        let maps = crate::maps::executable(std::process::id()).unwrap();
        let address = header_of as *const () as u64;
        let map = maps.iter().find(|map| map.contains(address)).unwrap();
        let offset = address - map.start + map.offset;
        let own = crate::unwind::Object::read(own().as_slice()).unwrap();
        crate::unwind::Object::address_of(&own.segments, offset).unwrap()
    }

    #[test]
    fn names_are_those_of_the_file_and_stay_when_it_is_cut() {
        let file = written(&own());
        let address = function_address();
        let copy = Copy::of(file.as_file(), true, &mut Room::default()).unwrap();
        file.as_file().set_len(0).unwrap();
        let name = copy.symbol(address, false).unwrap().name.into_owned();
        assert!(name.contains("header_of"), "{name}");
        let symbol = copy.symbol(address, true).unwrap();
        assert!(symbol.name.contains("header_of"), "{}", symbol.name);
    }

    #[test]
    fn what_is_too_large_is_left_out_and_counted() {
        let file = written(&own());
        let mut room = Room {
            bytes: 1000,
            cut: 0,
        };
        let copy = Copy::of(file.as_file(), true, &mut room).unwrap();
        assert_eq!(room.cut(), 1);
        assert!(copy.file.metadata().unwrap().len() < 100_000);
        assert!(copy.symbol(function_address(), false).is_none());
    }

    /// blazesym reserves what a header states, and unpacks whatever comes.
    #[test]
    fn sizes_that_are_lies_do_no_harm() {
        let mut bytes = own();
        let (section, at) = header_of(&bytes, b".debug_info");
        let offset = usize::try_from(section.sh_offset).unwrap();
        let flags = section.sh_flags | u64::from(SHF_COMPRESSED);
        bytes[at + 8..at + 16].copy_from_slice(&flags.to_le_bytes());
        let zeros = vec![0; 1 << 20];
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&zeros).unwrap();
        let packed = packed.finish().unwrap();
        for size in [100, 1 << 20, u64::MAX] {
            let mut header = vec![0; SIZEOF_CHDR];
            header[0] = 1;
            header[8..16].copy_from_slice(&size.to_le_bytes());
            header.extend(&packed);
            bytes[offset..offset + header.len()].copy_from_slice(&header);
            let file = written(&bytes);
            let copy = Copy::of(file.as_file(), true, &mut Room::default()).unwrap();
            assert!(copy.symbol(function_address(), false).is_some());
            copy.symbol(function_address(), true);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_headers_are_read(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        ) {
            let mut bytes = fs::read("/bin/true").unwrap();
            let table = table_of(&bytes);
            for (place, value) in changes {
                let at = place.index(64 + bytes.len() - table);
                let at = if at < 64 { at } else { table + at - 64 };
                bytes[at] = value;
            }
            let file = written(&bytes);
            if let Ok(copy) = Copy::of(file.as_file(), true, &mut Room::default()) {
                copy.symbol(0x2000, false);
                copy.symbol(0x2000, true);
            }
        }
    }
}
