//! `/proc/PID/status`: a process or thread in, the fields of it that tracing asks for out. It is read and parsed
//! here only.

use std::fmt::Display;
use std::io;

use crate::procfs::read;

/// The status of a process or thread at one moment.
#[derive(Clone, Debug)]
pub struct Status(String);

impl Status {
    /// That of a process, or of `self`, or of `PID/task/TID`.
    ///
    /// # Errors
    ///
    /// When it has left, or is not ours to look at.
    pub fn of(process: impl Display) -> io::Result<Self> {
        // A name may have any bytes.
        let bytes = read(format!("/proc/{process}/status"))?;
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// One that was read before.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Its name; empty when it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.field("Name").unwrap_or_default()
    }

    /// The process of a thread.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.field("Tgid")?.parse().ok()
    }

    /// Who started the process, or has taken it over.
    #[must_use]
    pub fn parent(&self) -> Option<u32> {
        self.field("PPid")?.parse().ok()
    }

    /// Whether it has ended and waits to be reaped.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        self.field("State")
            .is_some_and(|state| state.starts_with(['Z', 'X']))
    }

    /// Whether it runs a program: only kernel threads, and what has ended, have no address space.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        self.field("VmSize").is_some()
    }

    /// Bytes of memory that it has; `None` without an address space.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        self.bytes("VmRSS")
    }

    /// The same without pages of files, which the kernel takes back when it needs them, and pages that are shared.
    #[must_use]
    pub fn anonymous_bytes(&self) -> Option<u64> {
        self.bytes("RssAnon")
    }

    fn bytes(&self, field: &str) -> Option<u64> {
        let kib = self.field(field)?.strip_suffix("kB")?.trim();
        Some(kib.parse::<u64>().ok()? << 10)
    }

    /// Its users: real, effective, saved, and the one that new files get.
    #[must_use]
    pub fn users(&self) -> Vec<u32> {
        self.numbers("Uid")
    }

    /// Its numbers, from this PID namespace to its own; none when they are not known.
    #[must_use]
    pub fn own_numbers(&self) -> Vec<u32> {
        self.numbers("NSpid")
    }

    /// Its effective capabilities, a bit for each.
    #[must_use]
    pub fn capabilities(&self) -> Option<u64> {
        u64::from_str_radix(self.field("CapEff")?, 16).ok()
    }

    /// Whether it can get no privileges by running a program.
    #[must_use]
    pub fn has_no_new_privileges(&self) -> bool {
        self.field("NoNewPrivs") == Some("1")
    }

    /// Its seccomp mode: 0 none, 1 strict, 2 a filter.
    #[must_use]
    pub fn seccomp(&self) -> Option<u32> {
        self.field("Seccomp")?.parse().ok()
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        let words = self.field(name).unwrap_or_default().split_whitespace();
        let numbers: Result<_, _> = words.map(str::parse).collect();
        numbers.unwrap_or_default()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        rest.map(str::trim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = Status::of_text(
            "Name:\ta: b\nState:\tZ (zombie)\nTgid:\t7\nPid:\t9\nPPid:\t1\nUid:\t1\t2\t3\t4\nNSpid:\t9\t3\n\
             CapEff:\t000001fffeffffff\nSeccomp:\t2\nSeccomp_filters:\t1\n",
        );
        assert_eq!((status.name(), status.process()), ("a: b", Some(7)));
        assert_eq!(status.parent(), Some(1));
        assert!(status.is_zombie() && !status.has_memory());
        assert_eq!(status.users(), [1, 2, 3, 4]);
        assert_eq!(status.own_numbers(), [9, 3]);
        assert_eq!(status.capabilities(), Some(0x1ff_feff_ffff));
        assert_eq!(status.seccomp(), Some(2));
    }

    #[test]
    fn what_is_missing_or_malformed_is_none() {
        for text in ["", "Name\n", "Tgid:\tx\nUid:\t1 x\nCapEff:\tg\n"] {
            let status = Status::of_text(text);
            assert_eq!((status.name(), status.process()), ("", None));
            assert!(status.users().is_empty() && status.own_numbers().is_empty());
            assert_eq!((status.capabilities(), status.seccomp()), (None, None));
        }
    }

    #[test]
    fn this_process_has_one() {
        let own = Status::of(std::process::id()).unwrap();
        assert_eq!(own.process(), Some(std::process::id()));
        assert!(own.has_memory() && !own.is_zombie() && own.users().len() == 4);
        assert!(own.resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(Status::of(u32::MAX).is_err());
    }
}
