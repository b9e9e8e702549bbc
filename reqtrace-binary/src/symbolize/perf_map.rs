//! Names of code generated at run time: `/tmp/perf-PID.map` of a process in, names by address out.
//!
//! The file is written by the process (JVM agents, Node's `--perf-basic-prof`, LuaJIT, .NET), in
//! its own mount namespace and under the id that it has in its own PID namespace. `/tmp` is
//! everybody's: the file is read only if it is a regular one that the process's user owns, and
//! whatever it holds are names and nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use super::names::clean;
use crate::debuginfo::{Root, reopen_regular};
use crate::procfs::{self, Entry};
use crate::status::Status;

/// Bytes of perf maps that are read in a trace, of all processes; a large JVM's has some 10 MB.
const MAX_BYTES: u64 = 256 << 20;
/// Functions that are kept in a trace, of all processes; some 100 bytes each.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Bytes that are read at a time. A line that is longer is left out.
const BLOCK: usize = 256 << 10;
/// Bytes before the end of what was read that tell whether the file is still the same.
const TAIL: usize = 64;
/// Characters of a name that are kept.
const MAX_NAME: usize = 512;

/// What perf maps may take in a trace. They are written by the traced processes, as large and as often
/// as these like.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: u64,
    functions: usize,
    /// Maps that were not read to their end.
    cut: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: MAX_BYTES,
            functions: MAX_FUNCTIONS,
            cut: 0,
        }
    }
}

impl Budget {
    /// Maps that were not read to their end, because all together were too large.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    fn is_spent(&self) -> bool {
        self.bytes == 0 || self.functions == 0
    }
}

/// The perf map of one process, kept open.
#[derive(Debug)]
pub(super) struct PerfMap {
    file: File,
    /// Size of the file when it was last looked at.
    seen: u64,
    /// How far it was taken: to the end of a line, as a rule.
    taken: u64,
    /// The last bytes that were taken.
    tail: Vec<u8>,
    /// Whether `taken` is within a line that is left out.
    in_line: bool,
    is_cut: bool,
    functions: Functions,
}

/// Why a process has none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoMap {
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
        let Some(opener) = procfs::opener() else {
            return open_file(tgid).map(Self::of);
        };
        let opened = opener.open(tgid, Entry::PerfMap);
        opened
            .map(Self::of)
            .map_err(|error| match error.to_string() {
                none if none == NoMap::Missing.to_string() => NoMap::Missing,
                why => NoMap::Refused(why),
            })
    }

    fn of(file: File) -> Self {
        Self {
            file,
            seen: 0,
            taken: 0,
            tail: Vec::new(),
            in_line: false,
            is_cut: false,
            functions: Functions::default(),
        }
    }

    /// The function at an address. What was added to the file since is read first: code is thrown away and its
    /// memory used again.
    pub(super) fn name(&mut self, address: u64, budget: &mut Budget) -> Option<&str> {
        // What could be read is used.
        let _ = self.read(budget);
        self.functions.name(address)
    }

    fn read(&mut self, budget: &mut Budget) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        if size == self.seen {
            return Ok(());
        }
        self.seen = size;
        if size < self.taken || !self.is_as_before()? {
            budget.functions += self.functions.0.len();
            self.functions = Functions::default();
            (self.taken, self.in_line) = (0, false);
            self.tail.clear();
        }
        let mut block = vec![0; (size - self.taken).min(BLOCK as u64) as usize];
        while self.taken < size {
            if budget.is_spent() {
                if !self.is_cut {
                    log::warn!(
                        "perf maps have more than {} MiB or {MAX_FUNCTIONS} functions; the rest has no names",
                        MAX_BYTES >> 20
                    );
                    budget.cut += 1;
                }
                self.is_cut = true;
                break;
            }
            let want = block
                .len()
                .min((size - self.taken).min(budget.bytes) as usize);
            let count = self.file.read_at(&mut block[..want], self.taken)?;
            budget.bytes -= count as u64;
            if !self.take(&block[..count], budget) {
                break;
            }
        }
        Ok(())
    }

    /// Takes whole lines; false when there is none.
    fn take(&mut self, bytes: &[u8], budget: &mut Budget) -> bool {
        let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
            Some(last) => last + 1,
            // No name is that long.
            None if bytes.len() == BLOCK || self.in_line => bytes.len(),
            // The last line may be half written.
            None => 0,
        };
        let mut lines = &bytes[..whole];
        if self.in_line {
            let rest = lines.iter().position(|&byte| byte == b'\n');
            lines = rest.map_or(&[][..], |end| &lines[end + 1..]);
        }
        if whole > 0 {
            self.in_line = bytes[whole - 1] != b'\n';
            let before = self.functions.0.len();
            let most = before.saturating_add(budget.functions);
            self.functions.add(lines, most);
            let added = self.functions.0.len().saturating_sub(before);
            budget.functions = budget.functions.saturating_sub(added);
        }
        self.taken += whole as u64;
        self.tail.extend_from_slice(&bytes[..whole]);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        whole > 0
    }

    /// Whether the file still has what was read from it, as far as its end tells. A process may
    /// write its map again.
    fn is_as_before(&self) -> io::Result<bool> {
        let mut tail = vec![0; self.tail.len()];
        let at = self.taken - tail.len() as u64;
        self.file.read_exact_at(&mut tail, at)?;
        Ok(tail == self.tail)
    }
}

/// Opens the map of a process with this process's own privileges.
pub(crate) fn open_file(tgid: u32) -> Result<File, NoMap> {
    let status = Status::of(tgid).map_err(|_| NoMap::Missing)?;
    let root = Root::here(tgid).map_err(|_| NoMap::Missing)?;
    open_in(&root, &status)
}

fn open_in(root: &Root, status: &Status) -> Result<File, NoMap> {
    let inner = status.own_numbers().last().copied();
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
    let users = status.users();
    if !users.iter().skip(1).any(|&user| user == metadata.uid()) {
        return Err(refused(format!(
            "it belongs to user {}, and the process does not",
            metadata.uid()
        )));
    }
    reopen_regular(&handle).map_err(|error| refused(error.to_string()))
}

/// Functions by their first address; they do not overlap.
#[derive(Debug, Default)]
struct Functions(BTreeMap<u64, (u64, Box<str>)>);

impl Functions {
    #[cfg(test)]
    fn parse(bytes: &[u8]) -> Self {
        let mut functions = Self::default();
        functions.add(bytes, MAX_FUNCTIONS);
        functions
    }

    /// Lines of `START SIZE NAME`, in hexadecimal, as long as there are not more than `most`. A later
    /// line holds where an earlier one had another name: code is thrown away and its memory used
    /// again.
    fn add(&mut self, bytes: &[u8], most: usize) {
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.0.len() >= most {
                break;
            }
            if let Some((start, end, name)) = line.strip_suffix(b"\n").and_then(parse_line) {
                self.insert(start, end, name);
            }
        }
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

/// Reads a map in two parts, as one that grows.
pub(super) fn fuzz(bytes: &[u8], addresses: &[u64]) {
    let mut functions = Functions::default();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for part in [first, second] {
        functions.add(part, MAX_FUNCTIONS);
        for &address in addresses {
            std::hint::black_box(functions.name(address));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
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
        open_in(&Root::at(folder).unwrap(), &Status::of_text(STATUS)).map(PerfMap::of)
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
            assert_eq!(
                opened.name(0x1001, &mut Budget::default()),
                Some("f"),
                "names of its own"
            );
        }
    }

    fn written() -> (tempfile::NamedTempFile, PerfMap, Budget) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let map = PerfMap::of(file.reopen().unwrap());
        (file, map, Budget::default())
    }

    /// A map that grows all the time made each unknown address parse all of it again: a trace of two
    /// seconds took a minute.
    #[test]
    fn what_was_read_is_not_read_again() {
        let (mut file, mut map, mut budget) = written();
        file.write_all(b"1000 10 f\n2000 1").unwrap();
        assert_eq!(map.name(0x1000, &mut budget), Some("f"));
        assert_eq!(map.name(0x2000, &mut budget), None);
        let left = budget.bytes;
        for _ in 0..1000 {
            assert_eq!(map.name(0x2000, &mut budget), None);
        }
        assert_eq!(budget.bytes, left);
        file.write_all(b"0 g\n").unwrap();
        assert_eq!(map.name(0x2000, &mut budget), Some("g"));
        assert_eq!(left - budget.bytes, "2000 10 g\n".len() as u64);
        assert_eq!(map.name(0x100f, &mut budget), Some("f"));
    }

    #[test]
    fn a_known_address_has_the_name_of_the_last_line() {
        let (mut file, mut map, mut budget) = written();
        file.write_all(b"1000 10 f\n2000 10 g\n").unwrap();
        assert_eq!(map.name(0x1008, &mut budget), Some("f"));
        file.write_all(b"1000 8 h\n").unwrap();
        assert_eq!(map.name(0x1000, &mut budget), Some("h"));
        assert_eq!(map.name(0x1008, &mut budget), Some("f"));
        fs::write(file.path(), "1000 10 i\n").unwrap();
        assert_eq!(map.name(0x1008, &mut budget), Some("i"));
    }

    #[test]
    fn a_map_that_is_written_anew_is_read_anew() {
        let (file, mut map, mut budget) = written();
        fs::write(file.path(), "1000 10 f\n2000 10 g\n").unwrap();
        assert_eq!(map.name(0x1000, &mut budget), Some("f"));
        let functions = budget.functions;
        fs::write(file.path(), "3000 10 h\n").unwrap();
        assert_eq!(map.name(0x3000, &mut budget), Some("h"));
        assert_eq!(map.name(0x1000, &mut budget), None);
        assert_eq!(budget.functions, functions + 1);
        fs::write(file.path(), "4000 10 other\n5000 10 text\n").unwrap();
        assert_eq!(map.name(0x5000, &mut budget), Some("text"));
        assert_eq!(map.name(0x3000, &mut budget), None);
    }

    #[test]
    fn a_line_without_an_end_is_left_out() {
        let (mut file, mut map, mut budget) = written();
        file.write_all(b"1000 10 f\n2000 10 ").unwrap();
        file.write_all(&vec![b'x'; 2 * BLOCK + 100]).unwrap();
        assert_eq!(map.name(0x2000, &mut budget), None);
        file.write_all(b"\n3000 10 g\n").unwrap();
        assert_eq!(map.name(0x3000, &mut budget), Some("g"));
        assert_eq!(map.name(0x2000, &mut budget), None);
        assert_eq!(map.name(0x1000, &mut budget), Some("f"));
    }

    #[test]
    fn all_maps_together_are_bounded_and_what_is_cut_is_counted() {
        let mut budget = Budget {
            bytes: 64,
            ..Budget::default()
        };
        let text = "1000 10 f\n".repeat(10);
        for maps in 0..3_u64 {
            let (file, mut map, _) = written();
            fs::write(file.path(), &text).unwrap();
            for _ in 0..2 {
                assert_eq!(map.name(0x2000, &mut budget), None);
            }
            assert_eq!(budget.cut(), maps + 1);
        }
        assert_eq!(budget.bytes, 0);
        let (file, mut map, mut budget) = written();
        fs::write(file.path(), "1000 10 f\n2000 10 g\n3000 10 h\n").unwrap();
        budget.functions = 2;
        assert_eq!(map.name(0x2000, &mut budget), Some("g"));
        assert_eq!(map.name(0x3000, &mut budget), None);
        fs::write(file.path(), "1000 10 f\n2000 10 g\n3000 10 h\n4000 10 i\n").unwrap();
        assert_eq!(map.name(0x4000, &mut budget), None);
        assert_eq!(budget.cut(), 1);
    }
}
