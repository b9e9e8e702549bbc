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
    /// It would open a further file, which the target names; or nobody knows what it would read.
    Refused,
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
    let sections = Sections::read(copy)?;
    if !sections.has_names() || Links::read(copy).has_links() {
        return Ok(Trust::Refused);
    }
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
        for (index, section) in copied.iter_mut().enumerate() {
            let is_debug = sections.name(section).starts_with(b".debug_");
            // No contents of these are copied; at their places there are others now.
            if index == 0 || section.sh_type == SHT_NULL {
                section.sh_type = SHT_NOBITS;
            }
            if is_debug != of_debug || section.sh_type == SHT_NOBITS {
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
mod tests;
