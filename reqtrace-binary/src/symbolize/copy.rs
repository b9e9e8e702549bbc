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
use std::rc::Rc;

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
use crate::elf::{FileHeader, MAX_SYMBOL_NAME, Sections, compression};

/// Bytes that are copied at a time.
const BLOCK: usize = 1 << 20;

/// What copies may take in a trace: they are memory.
#[derive(Debug)]
pub(super) struct Room {
    most: u64,
    taken: Rc<Cell<u64>>,
    /// Files of which something was left out for it.
    cut: u64,
    /// Files whose symbols or debug information blazesym cannot stand.
    given_up: u64,
}

/// A server with its libraries and their debug files has some 200 MiB, a browser 1 GiB.
const MAX_BYTES: u64 = 1 << 30;

impl Default for Room {
    fn default() -> Self {
        Self::of(MAX_BYTES)
    }
}

impl Room {
    /// For so many bytes.
    pub(super) fn of(most: u64) -> Self {
        Self {
            most,
            taken: Rc::default(),
            cut: 0,
            given_up: 0,
        }
    }

    /// All of it.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// What is left of it.
    pub(super) fn left(&self) -> u64 {
        self.most.saturating_sub(self.taken.get())
    }

    /// One more file is not copied whole, because all together are too large.
    pub(super) fn cuts(&mut self) {
        self.cut += 1;
    }

    /// Files that were not copied whole.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Files whose symbols or debug information are not read, as blazesym cannot stand them.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    fn take(&self, bytes: u64) -> Part {
        self.taken.set(self.taken.get().saturating_add(bytes));
        Part {
            bytes,
            of: Rc::clone(&self.taken),
        }
    }
}

/// Part of a [`Room`], which is given back with the copy that has it.
struct Part {
    bytes: u64,
    of: Rc<Cell<u64>>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.set(self.of.get().saturating_sub(self.bytes));
    }
}

/// The symbols of one file.
pub(super) struct Copy {
    symbolizer: Symbolizer,
    file: File,
    _part: Part,
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
        let (file, bytes) = copy(file, debug, room)?;
        let part = room.take(bytes);
        let dwarf = trust_in_dwarf(&file, name, room)?;
        Ok(Self {
            symbolizer,
            file,
            _part: part,
            name: name.to_owned(),
            symbols: Cell::new(Trust::Asked),
            dwarf: Cell::new(dwarf),
        })
    }

    /// Whether the other one has the same in it.
    pub(super) fn is_like(&self, other: &Self) -> io::Result<bool> {
        let length = self.file.metadata()?.len();
        if length != other.file.metadata()?.len() {
            return Ok(false);
        }
        let (mut one, mut two) = (vec![0; BLOCK], vec![0; BLOCK]);
        for at in (0..length).step_by(BLOCK) {
            let size = usize::try_from(length - at).map_or(BLOCK, |left| left.min(BLOCK));
            self.file.read_exact_at(&mut one[..size], at)?;
            other.file.read_exact_at(&mut two[..size], at)?;
            if one[..size] != two[..size] {
                return Ok(false);
            }
        }
        Ok(true)
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
                has_real_names(symbol) && (symbol.addr..end).contains(&address)
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

/// Whether a symbol has a name, and neither its own nor those of what is inlined into it are longer than any real one.
fn has_real_names(symbol: &Sym<'_>) -> bool {
    let mut inlined = symbol.inlined.iter();
    !symbol.name.is_empty()
        && symbol.name.len() < MAX_SYMBOL_NAME
        && inlined.all(|function| function.name.len() < MAX_SYMBOL_NAME)
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
    let checked = dwarf::check(
        contents(".debug_info"),
        contents(".debug_abbrev"),
        [".debug_ranges", ".debug_rnglists"].map(contents),
    );
    Ok(match checked {
        Ok(()) => Trust::Asked,
        Err(why) => {
            log::info!("{name}: its debug information is not read: {why}");
            room.given_up += 1;
            Trust::GivenUp
        }
    })
}

/// How many bytes a copy would take.
///
/// # Errors
///
/// As [`Copy::of`].
pub(super) fn size(file: &File, debug: bool) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let sections = Sections::read(file)?;
    let mut sizes = sections.headers().iter().map(|section| {
        let is_copied = is_wanted(&sections, section, debug) && is_in(section, length);
        match is_copied {
            true => Ok(unpacked(file, section)?.map_or(0, |(size, _)| size)),
            false => Ok(0),
        }
    });
    sizes.try_fold(0, |sum: u64, size: io::Result<u64>| {
        Ok(sum.saturating_add(size?))
    })
}

fn is_wanted(sections: &Sections, section: &SectionHeader, debug: bool) -> bool {
    match is_debug(sections, section) {
        true => debug && !matches!(section.sh_type, SHT_NOBITS | SHT_NULL),
        false => matches!(
            section.sh_type,
            SHT_SYMTAB | SHT_STRTAB | SHT_NOTE | SHT_DYNSYM
        ),
    }
}

fn is_debug(sections: &Sections, section: &SectionHeader) -> bool {
    sections.name(section).starts_with(b".debug_")
}

/// A copy, and how many bytes of sections are in it.
fn copy(file: &File, debug: bool, room: &Room) -> io::Result<(File, u64)> {
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
    let mut bytes = 0;
    // Symbols first: they are what names most.
    for of_debug in [false, true] {
        for (index, section) in copied.iter_mut().enumerate() {
            if is_debug(&sections, section) != of_debug {
                continue;
            }
            // No contents of the others are copied; at their places there are others now.
            let is_wanted = index > 0 && is_wanted(&sections, section, debug);
            let to = end.next_multiple_of(16);
            let size = match is_wanted {
                true => contents(file, length, section, &out, to, room.left() - bytes),
                false => Ok(None),
            };
            match size {
                // Its contents stand elsewhere now, as they are.
                Ok(Some(size)) => {
                    section.sh_flags &= !u64::from(SHF_COMPRESSED);
                    section.sh_offset = to;
                    section.sh_size = size;
                    bytes += size;
                    end = to + size;
                }
                Ok(None) | Err(_) => section.sh_type = SHT_NOBITS,
            }
        }
    }
    out.write_all_at(&header.image(&programs, &copied)?, 0)?;
    Ok((out, bytes))
}

fn is_in(section: &SectionHeader, length: u64) -> bool {
    let end = section.sh_offset.checked_add(section.sh_size);
    end.is_some_and(|end| end <= length)
}

/// How large the contents of a section are, and how they are packed; `None` where nobody knows how to unpack them.
fn unpacked(file: &File, section: &SectionHeader) -> io::Result<Option<(u64, Packed)>> {
    if section.sh_flags & u64::from(SHF_COMPRESSED) == 0 {
        return Ok(Some((section.sh_size, Packed::Not)));
    }
    if section.sh_size < SIZEOF_CHDR as u64 {
        return Ok(None);
    }
    let mut header = [0; SIZEOF_CHDR];
    file.read_exact_at(&mut header, section.sh_offset)?;
    let Some(header) = compression(&header) else {
        return Ok(None);
    };
    let packed = match header.ch_type {
        ELFCOMPRESS_ZLIB => Packed::Zlib,
        ELFCOMPRESS_ZSTD => Packed::Zstd,
        _ => return Ok(None),
    };
    Ok(Some((header.ch_size, packed)))
}

#[derive(Clone, std::marker::Copy, Debug)]
enum Packed {
    Not,
    Zlib,
    Zstd,
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
    if !is_in(section, length) {
        return Ok(None);
    }
    let Some((size, packed)) = unpacked(file, section)? else {
        return Ok(None);
    };
    if size > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let header = match packed {
        Packed::Not => 0,
        Packed::Zlib | Packed::Zstd => SIZEOF_CHDR as u64,
    };
    let mut from = Stretch {
        file,
        at: section.sh_offset + header,
        left: section.sh_size - header,
    };
    // One byte more would tell that the size is a lie.
    let copied = match packed {
        Packed::Not => pour(&mut from, out, to, size)?,
        Packed::Zlib => pour(&mut flate2::read::ZlibDecoder::new(from), out, to, size + 1)?,
        Packed::Zstd => pour(
            &mut zstd::stream::read::Decoder::new(from)?,
            out,
            to,
            size + 1,
        )?,
    };
    Ok((copied == size).then_some(size))
}

/// Part of a file, read without its own position.
struct Stretch<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Stretch<'_> {
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
