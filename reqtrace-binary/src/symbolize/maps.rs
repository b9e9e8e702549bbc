//! `/proc/PID/maps`: text in, executable [`Mapping`]s out.

/// What is behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file, by the path the process sees; a deleted one too.
    File {
        /// Path, without ` (deleted)`.
        path: String,
        /// Device as the kernel prints it, and inode: the same file in another process.
        id: (String, u64),
    },
    /// A name in brackets without the brackets, such as `vdso`.
    Special(String),
    /// Memory without a name.
    Anonymous,
}

/// One executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// What is behind it.
    pub backing: Backing,
}

impl Mapping {
    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The executable mappings, in order of address. Lines that are not understood are left out.
#[must_use]
pub fn executable(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        word
    };
    let (start, end) = word().split_once('-')?;
    let permissions = word();
    let offset = word();
    let device = word();
    let inode = word();
    if permissions.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let name = rest.trim_start();
    let backing = if name.is_empty() || name.starts_with("[anon") {
        Backing::Anonymous
    } else if let Some(name) = name.strip_prefix('[') {
        Backing::Special(name.trim_end_matches(']').to_owned())
    } else {
        Backing::File {
            path: unescape(name.strip_suffix(" (deleted)").unwrap_or(name)),
            id: (device.to_owned(), inode.parse().ok()?),
        }
    };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        backing,
    })
}

/// The kernel writes a line break in a path as `\012`.
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_mappings_are_kept() {
        let text = "\
55d0c0000000-55d0c0100000 r--p 00000000 fe:00 4711                       /usr/sbin/mariadbd
55d0c0100000-55d0c0900000 r-xp 00100000 fe:00 4711                       /usr/sbin/mariadbd
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7f0000002000-7f0000003000 r-xp 00000000 fe:00 12                         /tmp/a file.so (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
garbage
";
        let maps = executable(text);
        assert_eq!(maps.len(), 4);
        assert_eq!(maps[0].offset, 0x10_0000);
        assert!(maps[0].contains(0x55d0_c010_0000) && !maps[0].contains(0x55d0_c090_0000));
        assert_eq!(maps[1].backing, Backing::Anonymous);
        let Backing::File { path, id } = &maps[2].backing else {
            panic!("a file");
        };
        assert_eq!((path.as_str(), id.1), ("/tmp/a file.so", 12));
        assert_eq!(maps[3].backing, Backing::Special("vdso".to_owned()));
    }
}
