//! Names of code generated at run time: `/tmp/perf-PID.map` of a process in, names by address out.
//!
//! The file is written by the process (JVM agents, Node's `--perf-basic-prof`, LuaJIT, .NET), in
//! its own mount namespace and under the id that it has in its own PID namespace. `/tmp` is
//! everybody's: the file is read only if it is a regular one that the process's user owns, and
//! whatever it holds are names and nothing else.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use super::names::clean;
use crate::debuginfo::{Root, reopen_regular};

/// The largest file that is read; a large JVM's has some 10 MB. What is behind is left out.
const MAX_BYTES: u64 = 64 << 20;
/// Functions that are kept at most.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Characters of a name that are kept.
const MAX_NAME: usize = 512;

/// The perf map of one process, kept open.
#[derive(Debug)]
pub(super) struct PerfMap {
    file: File,
    /// Size of the file when it was last read.
    read_bytes: Option<u64>,
    functions: Functions,
}

/// Why a process has none.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoMap {
    /// It wrote none.
    #[error("there is none")]
    Missing,
    /// There is something of that name that is not to be trusted.
    #[error("{0}")]
    Refused(String),
}

impl PerfMap {
    /// Opens the map of a process.
    pub(super) fn open(tgid: u32) -> Result<Self, NoMap> {
        let status =
            fs::read_to_string(format!("/proc/{tgid}/status")).map_err(|_| NoMap::Missing)?;
        let root = Root::at(format!("/proc/{tgid}/root").as_ref()).map_err(|_| NoMap::Missing)?;
        Self::open_in(&root, &status)
    }

    fn open_in(root: &Root, status: &str) -> Result<Self, NoMap> {
        let inner = fields(status, "NSpid").last().copied();
        let pid = inner.ok_or(NoMap::Missing)?;
        let path = PathBuf::from(format!("tmp/perf-{pid}.map"));
        let refused = |why: String| NoMap::Refused(format!("/{}: {why}", path.display()));
        let handle = match root.look(&path) {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoMap::Missing),
            Err(error) => return Err(refused(error.to_string())),
        };
        let metadata = handle
            .metadata()
            .map_err(|error| refused(error.to_string()))?;
        if !metadata.is_file() {
            return Err(refused("it is no regular file".to_owned()));
        }
        // Real, effective, saved, and the one that new files get.
        let users = fields(status, "Uid");
        if !users.iter().skip(1).any(|&user| user == metadata.uid()) {
            return Err(refused(format!(
                "it belongs to user {}, and the process does not",
                metadata.uid()
            )));
        }
        let file = reopen_regular(&handle).map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            file,
            read_bytes: None,
            functions: Functions::default(),
        })
    }

    /// The function at an address. The file is read again when it has grown and the address is not
    /// known.
    pub(super) fn name(&mut self, address: u64) -> Option<&str> {
        if self.functions.name(address).is_none() {
            self.read();
        }
        self.functions.name(address)
    }

    fn read(&mut self) {
        let Ok(metadata) = self.file.metadata() else {
            return;
        };
        if self.read_bytes == Some(metadata.len()) {
            return;
        }
        self.read_bytes = Some(metadata.len());
        if metadata.len() > MAX_BYTES {
            log::warn!(
                "a perf map has {} MiB; only its first {} MiB are read",
                metadata.len() >> 20,
                MAX_BYTES >> 20
            );
        }
        // At most MAX_BYTES.
        let mut bytes = vec![0; metadata.len().min(MAX_BYTES) as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) | Err(_) => break,
                Ok(count) => filled += count,
            }
        }
        self.functions = Functions::parse(&bytes[..filled]);
    }
}

/// Functions by their first address; they do not overlap.
#[derive(Debug, Default)]
struct Functions(BTreeMap<u64, (u64, Box<str>)>);

impl Functions {
    /// Lines of `START SIZE NAME`, in hexadecimal. A later line holds where an earlier one said
    /// something else: code is thrown away and its memory used again.
    fn parse(bytes: &[u8]) -> Self {
        let mut functions = Self::default();
        // The last line may be half written.
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if functions.0.len() >= MAX_FUNCTIONS {
                break;
            }
            if let Some((start, end, name)) = line.strip_suffix(b"\n").and_then(parse_line) {
                functions.insert(start, end, name);
            }
        }
        functions
    }

    fn insert(&mut self, start: u64, end: u64, name: Box<str>) {
        // One before it may reach into it, or beyond.
        if let Some((&before, (reach, _))) = self.0.range_mut(..start).next_back()
            && *reach > start
        {
            let old_reach = *reach;
            *reach = start;
            if old_reach > end {
                let name = self.0[&before].1.clone();
                self.0.insert(end, (old_reach, name));
            }
        }
        let inside: Vec<u64> = self.0.range(start..end).map(|(&at, _)| at).collect();
        for at in inside {
            if let Some((reach, name)) = self.0.remove(&at)
                && reach > end
            {
                self.0.insert(end, (reach, name));
            }
        }
        self.0.insert(start, (end, name));
    }

    fn name(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, Box<str>)> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.splitn(3, ' ');
    let mut hex = || {
        let word = words.next()?;
        u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (hex()?, hex()?);
    let end = start.checked_add(size).filter(|end| *end > start)?;
    let name: String = clean(words.next()?.trim()).chars().take(MAX_NAME).collect();
    (!name.is_empty()).then(|| (start, end, name.into()))
}

/// The numbers of a line of `/proc/PID/status`.
fn fields(status: &str, name: &str) -> Vec<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(|rest| {
            rest.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use proptest::prelude::*;

    use super::*;

    fn names(text: &str, addresses: &[u64]) -> Vec<String> {
        let functions = Functions::parse(text.as_bytes());
        let name = |&address: &u64| functions.name(address).unwrap_or("-").to_owned();
        addresses.iter().map(name).collect()
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let text = "1000 10 one\nnonsense\n\n2000\n2000 zz x\n3000 0 empty\n\
                    ffffffffffffffff 10 beyond\n0x4000 0x8 a name; with a semicolon\n5000 10 cut";
        assert_eq!(
            names(
                text,
                &[
                    0xfff, 0x1000, 0x100f, 0x1010, 0x2000, 0x3000, 0x4001, 0x5000
                ]
            ),
            [
                "-",
                "one",
                "one",
                "-",
                "-",
                "-",
                "a name: with a semicolon",
                "-"
            ]
        );
    }

    #[test]
    fn a_later_line_holds() {
        let text = "1000 100 old\n1040 20 new\n";
        assert_eq!(
            names(
                text,
                &[0x1000, 0x103f, 0x1040, 0x105f, 0x1060, 0x10ff, 0x1100]
            ),
            ["old", "old", "new", "new", "old", "old", "-"]
        );
        let text = "1000 10 a\n1010 10 b\n1020 10 c\n1008 20 over\n";
        assert_eq!(
            names(text, &[0x1007, 0x1008, 0x1027, 0x1028]),
            ["a", "over", "over", "c"]
        );
    }

    proptest! {
        #[test]
        fn the_last_line_that_covers_an_address_names_it(
            lines in prop::collection::vec((0_u64..200, 1_u64..50), 1..40),
            address in 0_u64..260,
        ) {
            let text: String = (0_usize..)
                .zip(&lines)
                .map(|(at, (start, size))| format!("{start:x} {size:x} f{at}\n"))
                .collect();
            let wanted = lines
                .iter()
                .rposition(|(start, size)| (*start..start + size).contains(&address))
                .map_or_else(|| "-".to_owned(), |at| format!("f{at}"));
            prop_assert_eq!(names(&text, &[address]), [wanted]);
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Functions::parse(&bytes).name(0x1000);
        }
    }

    const STATUS: &str = "Name:\tx\nUid:\t7\t7\t7\t7\nNSpid:\t4711\t12\n";

    fn open(folder: &std::path::Path) -> Result<PerfMap, NoMap> {
        PerfMap::open_in(&Root::at(folder).unwrap(), STATUS)
    }

    fn refusal(folder: &std::path::Path) -> String {
        match open(folder) {
            Err(NoMap::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Owners can be set by root only; the end-to-end tests do the same with a live process.
    #[test]
    fn only_a_regular_file_of_the_processs_user_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("tmp")).unwrap();
        assert!(matches!(open(root), Err(NoMap::Missing)));
        let map = root.join("tmp/perf-12.map");
        let target = root.join("tmp/target");
        fs::write(&target, "1000 10 f\n").unwrap();
        symlink("/tmp/target", &map).unwrap();
        assert!(refusal(root).contains("no regular file"));
        fs::remove_file(&map).unwrap();
        fs::create_dir(&map).unwrap();
        assert!(refusal(root).contains("no regular file"));
        fs::remove_dir(&map).unwrap();
        fs::write(&map, "1000 10 f\n").unwrap();
        if fs::metadata(&map).unwrap().uid() != 7 {
            assert!(refusal(root).contains("belongs to user"));
        }
        if chown(&map, Some(7), None).is_ok() {
            let mut opened = open(root).unwrap();
            assert_eq!(opened.name(0x1001), Some("f"));
            assert_eq!(opened.name(0x2000), None);
            // It grows while the process runs.
            fs::write(&map, "1000 10 f\n2000 10 g\n").unwrap();
            assert_eq!(opened.name(0x2000), Some("g"));
        }
    }
}
