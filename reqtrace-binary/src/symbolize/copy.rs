//! A file's symbols and debug information in, a copy of them out that nobody else can change.
//!
//! blazesym maps the files that it reads, and a mapped file that its owner cuts short ends the reader by
//! SIGBUS. So it gets a file in memory with the few sections that it needs, read piece by piece. That is
//! also where compressed sections are unpacked, as their stated sizes may be lies.

use std::cell::Cell;
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

use super::dwarf;
use crate::contained::contained;
use crate::debuginfo::Links;
use crate::elf::{FileHeader, Sections, compression};

/// Bytes that are copied at a time.
const BLOCK: usize = 1 << 20;

/// What copies may take in a trace: they are memory.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    /// Files of which something was left out for it.
    cut: u64,
    /// Files whose symbols or debug information blazesym cannot stand.
    given_up: u64,
}

/// A server with its libraries and their debug files has some 200 MiB, a browser 1 GiB.
const MAX_BYTES: u64 = 1 << 30;

impl Default for Room {
    fn default() -> Self {
        Self {
            bytes: MAX_BYTES,
            cut: 0,
            given_up: 0,
        }
    }
}

impl Room {
    /// Files that were not copied whole, because all together are too large.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Files whose symbols or debug information are not read, as blazesym cannot stand them.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }
}

/// The symbols of one file.
pub(super) struct Copy {
    symbolizer: Symbolizer,
    file: File,
    /// For messages.
    name: String,
    symbols: Cell<Trust>,
    dwarf: Cell<Trust>,
}

/// Whether blazesym is asked.
#[derive(Clone, std::marker::Copy, Debug, PartialEq, Eq)]
enum Trust {
    Asked,
    /// It would open a further file, which the target names.
    Linked,
    /// It could not stand it, or has panicked.
    GivenUp,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Copy").field(&self.file).finish()
    }
}

impl Copy {
    /// Copies the symbol tables of a 64-bit little-endian ELF file, and with `debug` its DWARF. `name` is
    /// how messages call it.
    ///
    /// # Errors
    ///
    /// When it is no such file, or cannot be read.
    pub(super) fn of(file: &File, name: &str, debug: bool, room: &mut Room) -> io::Result<Self> {
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
        let file = copy(file, debug, room)?;
        let dwarf = trust_in_dwarf(&file, name, room)?;
        Ok(Self {
            symbolizer,
            file,
            name: name.to_owned(),
            symbols: Cell::new(Trust::Asked),
            dwarf: Cell::new(dwarf),
        })
    }

    /// The symbol that covers an address, from ELF symbols or from debug information.
    pub(super) fn symbol(&self, address: u64, debug: bool, room: &mut Room) -> Option<Sym<'_>> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut elf = Elf::new(PathBuf::from(path));
        elf.debug_syms = debug;
        let symbol = self.ask(debug, room, |symbolizer| {
            symbolizer.symbolize_single(&Source::Elf(elf), Input::VirtOffset(address))
        });
        symbol?
            .ok()
            .and_then(Symbolized::into_sym)
            .filter(|symbol| {
                // A symbol without a size is trusted at its first byte only: behind it may be
                // anything. blazesym adds addresses and sizes unchecked: a wrong sum does not cover it.
                let size = symbol.size.map_or(1, |size| size as u64);
                let end = symbol.addr.saturating_add(size);
                !symbol.name.is_empty() && (symbol.addr..end).contains(&address)
            })
    }

    /// Asks blazesym. Once it has panicked, it is not asked again for the same of this file: the names of
    /// one file must not end a trace.
    fn ask<'a, T>(
        &'a self,
        debug: bool,
        room: &mut Room,
        question: impl FnOnce(&'a Symbolizer) -> T,
    ) -> Option<T> {
        let trust = if debug { &self.dwarf } else { &self.symbols };
        if trust.get() != Trust::Asked {
            return None;
        }
        let answer = contained(|| question(&self.symbolizer));
        if answer.is_none() {
            let (what, other) = match debug {
                true => ("debug information", &self.symbols),
                false => ("symbols", &self.dwarf),
            };
            log::info!(
                "{}: its {what} cannot be read, and is not asked for again",
                self.name
            );
            room.given_up += u64::from(other.get() != Trust::GivenUp);
            trust.set(Trust::GivenUp);
        }
        answer
    }
}

/// Whether blazesym can be asked for the debug information of a copy. The copy counts: the file itself may
/// have changed since it was looked at.
fn trust_in_dwarf(copy: &File, name: &str, room: &mut Room) -> io::Result<Trust> {
    if Links::read(copy).has_links() {
        return Ok(Trust::Linked);
    }
    let sections = Sections::read(copy)?;
    // SAFETY: it is in memory, and nobody else has it.
    let bytes = unsafe { memmap2::Mmap::map(copy)? };
    let contents = |name| {
        let section = sections.find(name);
        section
            .and_then(|section| bytes.get(section.file_range()?))
            .unwrap_or_default()
    };
    let checked = dwarf::check(contents(".debug_info"), contents(".debug_abbrev"));
    Ok(match checked {
        Ok(()) => Trust::Asked,
        Err(why) => {
            log::info!("{name}: its debug information is not read: {why}");
            room.given_up += 1;
            Trust::GivenUp
        }
    })
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
    use crate::fuzz::{Program, WRAPS};

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
        let copy = Copy::of(file.as_file(), "own", true, &mut Room::default()).unwrap();
        file.as_file().set_len(0).unwrap();
        let room = &mut Room::default();
        let name = copy.symbol(address, false, room).unwrap().name.into_owned();
        assert!(name.contains("header_of"), "{name}");
        let symbol = copy.symbol(address, true, room).unwrap();
        assert!(symbol.name.contains("header_of"), "{}", symbol.name);
    }

    #[test]
    fn what_is_too_large_is_left_out_and_counted() {
        let file = written(&own());
        let mut room = Room {
            bytes: 1000,
            ..Room::default()
        };
        let copy = Copy::of(file.as_file(), "own", true, &mut room).unwrap();
        assert_eq!(room.cut(), 1);
        assert!(copy.file.metadata().unwrap().len() < 100_000);
        assert!(copy.symbol(function_address(), false, &mut room).is_none());
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
            let mut room = Room::default();
            let copy = Copy::of(file.as_file(), "own", true, &mut room).unwrap();
            let address = function_address();
            assert!(copy.symbol(address, false, &mut room).is_some());
            copy.symbol(address, true, &mut room);
        }
    }

    #[test]
    fn what_made_blazesym_panic_is_given_up_and_counted() {
        let file = written(&own());
        let mut room = Room::default();
        let copy = Copy::of(file.as_file(), "own", true, &mut room).unwrap();
        let address = function_address();
        let broken = |_: &Symbolizer| -> u32 { panic!("on purpose") };
        assert_eq!(copy.ask(true, &mut room, broken), None);
        assert_eq!(copy.ask(true, &mut room, |_| 7), None);
        assert!(copy.symbol(address, true, &mut room).is_none());
        assert!(copy.symbol(address, false, &mut room).is_some());
        assert_eq!(room.given_up(), 1);
        // It is one file.
        assert_eq!(copy.ask(false, &mut room, broken), None);
        assert!(copy.symbol(address, false, &mut room).is_none());
        assert_eq!(room.given_up(), 1);
    }

    /// blazesym calls itself for each level: without a bound the stack ends.
    #[test]
    fn functions_that_nest_too_deep_are_not_read() {
        for (depth, is_read) in [(0, true), (500, true), (1_000_000, false)] {
            let nested = Program {
                depth,
                ..Program::default()
            };
            let file = written(&nested.image().unwrap());
            let mut room = Room::default();
            let copy = Copy::of(file.as_file(), "nested", true, &mut room).unwrap();
            assert_eq!(copy.symbol(0x1110, false, &mut room).unwrap().name, "f");
            let symbol = copy.symbol(0x1110, true, &mut room);
            assert_eq!(symbol.is_some(), is_read);
            assert_eq!(room.given_up(), u64::from(!is_read));
            if let Some(symbol) = symbol {
                assert_eq!((&*symbol.name, &*symbol.inlined[0].name), ("f", "g"));
            }
        }
    }

    /// blazesym adds them unchecked. Where overflow is checked it panics, elsewhere the sums wrap.
    #[test]
    fn functions_behind_the_last_address_are_no_names_and_no_end() {
        let wraps = Program {
            wraps: true,
            ..Program::default()
        };
        let file = written(&wraps.image().unwrap());
        let mut room = Room::default();
        let copy = Copy::of(file.as_file(), "wraps", true, &mut room).unwrap();
        for debug in [false, true] {
            assert!(copy.symbol(WRAPS, debug, &mut room).is_none());
            assert!(copy.symbol(u64::MAX, debug, &mut room).is_none());
        }
        assert_eq!(room.given_up(), u64::from(cfg!(debug_assertions)));
    }

    /// The file may have changed since its links were read, and what it names may be a pipe. blazesym
    /// takes one that does not exist for none.
    #[test]
    fn no_further_file_is_looked_for() {
        let linked = Program {
            supplement: Some("/does/not/exist"),
            ..Program::default()
        };
        let file = written(&linked.image().unwrap());
        let mut room = Room::default();
        let copy = Copy::of(file.as_file(), "linked", true, &mut room).unwrap();
        assert!(copy.symbol(0x1110, false, &mut room).is_some());
        assert!(copy.symbol(0x1110, true, &mut room).is_none());
        assert_eq!(room.given_up(), 0);
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
            let mut room = Room::default();
            if let Ok(copy) = Copy::of(file.as_file(), "own", true, &mut room) {
                copy.symbol(0x2000, false, &mut room);
                copy.symbol(0x2000, true, &mut room);
            }
        }
    }
}
