//! Separate debug files: a stripped object in, the file that has its full symbol table out.
//!
//! Looked for by build id and by debug link, in the root that the object's process has and in
//! ours, and then in the object itself (`.gnu_debugdata`). A file of another build would give wrong
//! names: it is taken only if its build id is the object's, or, where one of the two has none, if
//! the checksum in the link is the file's.

mod mini;
mod rooted;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use log::debug;

use crate::elf::Sections;
pub use crate::elf::{DefinedSymbol, DefinedSymbols};
use crate::go::{Inlined, program};
use mini::NotUnpacked;
pub use rooted::{Root, reopen_regular};

/// Where debug files are kept, in any root.
const DEBUG_FOLDER: &str = "usr/lib/debug";
/// The largest file whose checksum is computed; a second or two.
const MAX_CHECKED_BYTES: u64 = 8 << 30;

/// What an object says about where its symbols are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Its GNU build id.
    build_id: Option<Vec<u8>>,
    /// The name of its debug file, and that file's CRC-32.
    debug_link: Option<(OsString, u32)>,
    /// Whether it names another file at all, also as supplement (`.gnu_debugaltlink`).
    links: bool,
    /// Whether it has a full symbol table itself.
    has_symtab: bool,
    /// Whether it has DWARF itself.
    has_dwarf: bool,
    /// Where `.gnu_debugdata` stands in the file.
    mini: Option<(u64, u64)>,
}

impl Links {
    /// Its GNU build id; empty when it has none.
    #[must_use]
    pub fn build_id(&self) -> &[u8] {
        self.build_id.as_deref().unwrap_or_default()
    }

    /// Reads them. A file that is no 64-bit ELF has none.
    #[must_use]
    pub fn read(object: &File) -> Self {
        let Ok(sections) = Sections::read(object) else {
            return Self::default();
        };
        Self {
            build_id: sections.build_id(object),
            debug_link: sections.debug_link(object),
            links: sections.has(".gnu_debuglink")
                || sections.has(".gnu_debugaltlink")
                || sections.has(".debug_sup"),
            has_symtab: sections.has_symtab(),
            has_dwarf: sections.has(".debug_info"),
            mini: sections.place(".gnu_debugdata"),
        }
    }

    /// Whether it has a full symbol table itself.
    #[must_use]
    pub fn has_symtab(&self) -> bool {
        self.has_symtab
    }

    /// Whether its own DWARF can be read without opening further files that it names: such a name
    /// is the target's word, and could be that of a device.
    #[must_use]
    pub fn has_plain_dwarf(&self) -> bool {
        self.has_dwarf && !self.links
    }

    /// Whether it names another file.
    pub(crate) fn has_links(&self) -> bool {
        self.links
    }
}

/// A debug file that was found and belongs to the object.
#[derive(Debug)]
pub struct DebugFile {
    /// Open for reading.
    pub file: File,
    /// Where it was found, as seen in that root, for messages.
    pub shown: String,
    /// What it says about itself.
    pub links: Links,
    /// Of the memory for files that are unpacked.
    _part: Option<mini::Part>,
}

/// What a search came to.
#[derive(Debug, Default)]
pub struct Search {
    /// The debug file.
    pub found: Option<DebugFile>,
    /// Files that were there but are of another build, one sentence each.
    pub refused: Vec<String>,
    /// Whether symbols that are packed in the object found no memory.
    pub no_room: bool,
}

/// Looks for the debug file of an object. `roots` are the roots to look in, the process's own
/// first; `path` is the object's path as the process sees it. An object that has a full symbol
/// table needs none.
#[must_use]
pub fn find(object: &File, links: &Links, roots: &[Root], path: &str) -> Search {
    let mut search = Search::default();
    if links.has_symtab {
        return search;
    }
    for root in roots {
        for candidate in candidates(links, path) {
            let file = match root.open(&candidate) {
                Ok(file) => file,
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        debug!("debug file /{}: {error}", candidate.display());
                    }
                    continue;
                }
            };
            let shown = format!("/{}", candidate.display());
            let found = Links::read(&file);
            if !found.has_symtab && !found.has_dwarf {
                continue;
            }
            match belongs(links, &found, &file) {
                Ok(()) => {
                    debug!("names of {path} are from {shown}");
                    search.found = Some(DebugFile {
                        file,
                        shown,
                        links: found,
                        _part: None,
                    });
                    return search;
                }
                Err(why) => {
                    let sentence = format!("{shown} is not used for {path}: {why}");
                    if !search.refused.contains(&sentence) {
                        search.refused.push(sentence);
                    }
                }
            }
        }
    }
    if let Some(place) = links.mini {
        match packed(object, place, path) {
            Ok(debug) => search.found = Some(debug),
            Err(error) => {
                search.no_room = matches!(error, NotUnpacked::NoRoom);
                search
                    .refused
                    .push(format!(".gnu_debugdata of {path} is not used: {error}"));
            }
        }
    }
    search
}

/// The symbols that are packed in an object. A file without any is let go: it is memory.
fn packed(
    object: &File,
    (offset, length): (u64, u64),
    path: &str,
) -> Result<DebugFile, NotUnpacked> {
    let (file, part) = mini::unpack(object, offset, length)?;
    let links = Links::read(&file);
    if !links.has_symtab {
        return Err(NotUnpacked::NoSymbols);
    }
    Ok(DebugFile {
        file,
        shown: format!("{path} (.gnu_debugdata)"),
        links,
        _part: Some(part),
    })
}

/// Where a debug file may be, below a root, the most specific first.
fn candidates(links: &Links, path: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let Some(id) = &links.build_id
        && id.len() > 1
    {
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (folder, name) = hex.split_at(2);
        all.push(PathBuf::from(format!(
            "{DEBUG_FOLDER}/.build-id/{folder}/{name}.debug"
        )));
    }
    if let Some((name, _)) = &links.debug_link
        && let Some(folder) = Path::new(path.trim_start_matches('/')).parent()
    {
        // The object itself may be named like its debug file.
        all.push(folder.join(".debug").join(name));
        all.push(folder.join(name));
        all.push(Path::new(DEBUG_FOLDER).join(folder).join(name));
    }
    all
}

/// Whether a debug file is of the same build as the object.
fn belongs(object: &Links, found: &Links, file: &File) -> Result<(), String> {
    if let (Some(wanted), Some(id)) = (&object.build_id, &found.build_id) {
        return if wanted == id {
            Ok(())
        } else {
            Err("it is of another build (its build id differs)".to_owned())
        };
    }
    let Some((_, wanted)) = &object.debug_link else {
        return Err("it has no build id to know it by".to_owned());
    };
    match checksum(file) {
        Ok(sum) if sum == *wanted => Ok(()),
        Ok(sum) => Err(format!(
            "it is of another build (its CRC is {sum:#010x}, and the link says {wanted:#010x})"
        )),
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}

/// CRC-32 of a whole file.
fn checksum(file: &File) -> io::Result<u32> {
    const BLOCK: usize = 1 << 20;
    if file.metadata()?.len() > MAX_CHECKED_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut block = vec![0; BLOCK];
    let mut offset = 0;
    while offset < MAX_CHECKED_BYTES {
        let count = file.read_at(&mut block, offset)?;
        if count == 0 {
            break;
        }
        hasher.update(&block[..count]);
        offset += count as u64;
    }
    Ok(hasher.finalize())
}

/// The function symbols of a debug file.
///
/// # Errors
///
/// When its symbol table cannot be read.
pub fn functions(file: &File) -> io::Result<DefinedSymbols> {
    Sections::read(file)?.functions(file)
}

/// The functions of a program of Go that has no symbol table, by address, as its runtime knows them.
#[must_use]
pub fn functions_of_go(file: &File) -> Option<DefinedSymbols> {
    program::functions_of(&Sections::read(file).ok()?, file)
}

/// The calls that the compiler of Go has inlined into a program's functions.
#[must_use]
pub fn inlined_by_go(file: &File) -> Option<Inlined> {
    program::inlined_in(&Sections::read(file).ok()?, file)
}

/// The variables of a file: of its symbol table, or else those that it exports.
///
/// # Errors
///
/// When its symbol table cannot be read.
pub fn variables(file: &File) -> io::Result<DefinedSymbols> {
    Sections::read(file)?.variables(file)
}

#[cfg(test)]
mod tests;
