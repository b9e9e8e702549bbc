//! One uprobe by a perf event of its own, on any kernel: a place and a loaded program in, a
//! [`OwnedFd`] out.
//!
//! The system calls are made here, and not by aya, because aya 0.14 cannot set the *reference
//! counter* of a uprobe: a counter in the program's data that the kernel raises as long as the
//! probe is set. A program whose USDT probes are guarded by it (`PostgreSQL`) never comes to them
//! while it is 0.

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::super::system::{bpf_fd, owned};
use super::{BPF_LINK_CREATE, Place};
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::procfs;

/// Where the kernel tells about its uprobe events.
const PMU: &str = "/sys/bus/event_source/devices/uprobe";

/// `BPF_PERF_EVENT` of `enum bpf_attach_type`.
const BPF_PERF_EVENT: u32 = 41;

/// `PERF_FLAG_FD_CLOEXEC`.
const PERF_FLAG_FD_CLOEXEC: libc::c_long = 8;

/// How the running kernel numbers its uprobe events. Read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UprobeEvents {
    kind: u32,
    return_bit: u32,
    counter_shift: u32,
}

/// The first 72 bytes of the kernel's `struct perf_event_attr` (`PERF_ATTR_SIZE_VER1`, 2.6.33).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    /// Address of the path.
    config1: u64,
    /// Offset in the file.
    config2: u64,
}

/// `union bpf_attr` as `BPF_LINK_CREATE` of a perf event reads it.
#[repr(C)]
struct LinkCreateAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

impl UprobeEvents {
    /// Asks the running kernel.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when it has no uprobes, or sysfs is not there.
    pub(super) fn of_kernel() -> Result<Self> {
        let read = |file: &str| {
            let path = format!("{PMU}/{file}");
            fs::read_to_string(&path).map_err(|error| {
                Error::unsupported(format!("{path} cannot be read"))
                    .because(error)
                    .next("the kernel needs CONFIG_UPROBE_EVENTS, and sysfs mounted on /sys")
            })
        };
        let strange = |file: &str, text: &str| {
            Error::unsupported(format!("{PMU}/{file} says {:?}", text.trim()))
        };
        let bit = |file: &str| {
            let text = read(file)?;
            first_bit(&text).ok_or_else(|| strange(file, &text))
        };
        let kind = read("type")?;
        Ok(Self {
            kind: kind.trim().parse().map_err(|_| strange("type", &kind))?,
            return_bit: bit("format/retprobe")?,
            counter_shift: bit("format/ref_ctr_offset")?,
        })
    }

    /// Sets a probe.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(super) fn attach(self, program: BorrowedFd<'_>, place: &Place<'_>) -> io::Result<OwnedFd> {
        let file = place.object.open()?;
        let event = self.open(place, &procfs::descriptor(&file))?;
        let attr = LinkCreateAttr {
            prog_fd: number(program.as_raw_fd()),
            target_fd: number(event.as_raw_fd()),
            attach_type: BPF_PERF_EVENT,
            flags: 0,
            cookie: place.cookie,
        };
        // The link keeps the event.
        // SAFETY: the kernel reads as many bytes as the size says, and takes the rest as 0.
        unsafe {
            bpf_fd(
                BPF_LINK_CREATE,
                &raw const attr,
                size_of::<LinkCreateAttr>(),
            )
        }
    }

    fn open(self, place: &Place<'_>, path: &Path) -> io::Result<OwnedFd> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let attr = PerfEventAttr {
            kind: self.kind,
            size: size_of::<PerfEventAttr>() as u32,
            config: self.config(place)?,
            config1: path.as_ptr() as u64,
            config2: place.file_offset,
            ..PerfEventAttr::default()
        };
        // Of all processes an event is opened on one CPU, and is hit on all.
        let (process, cpu) = match place.process {
            Some(process) => (i64::from(process), -1_i64),
            None => (-1, 0),
        };
        // SAFETY: the kernel reads `size` bytes, and the path, which lives until it returns.
        let event = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                process,
                cpu,
                -1_i64,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        owned(event)
    }

    fn config(self, place: &Place<'_>) -> io::Result<u64> {
        let counter = place.counter.unwrap_or(0);
        // The kernel has 32 bits for it.
        let counter = u32::try_from(counter).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("its semaphore is at offset {counter:#x}, beyond 4 GiB"),
            )
        })?;
        Ok(
            u64::from(counter) << self.counter_shift
                | u64::from(place.on_return) << self.return_bit,
        )
    }
}

/// Whether the kernel wants `CAP_SYS_ADMIN` for a uprobe's perf event, where `CAP_PERFMON` should do: tried
/// in a thread that has only that. `None` when it cannot be tried, for want of `CAP_PERFMON`.
#[must_use]
pub fn perf_events_want_admin() -> Option<bool> {
    let events = UprobeEvents::of_kernel().ok()?;
    std::thread::spawn(move || {
        let perfmon = CapabilitySet::PERFMON;
        let sets = CapabilitySets {
            effective: perfmon,
            permitted: perfmon,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).ok()?;
        // The kernel judges before it looks at the file.
        let file = LazyFile::at("/nonexistent");
        let nowhere = Place {
            object: &file,
            file_offset: 0,
            counter: None,
            on_return: false,
            process: None,
            cookie: 0,
        };
        let error = events.open(&nowhere, file.path()).err()?;
        Some(error.kind() == io::ErrorKind::PermissionDenied)
    })
    .join()
    .ok()
    .flatten()
}

/// What there is to say when the kernel does not permit a probe; `None` when it was refused for another reason.
pub(crate) fn not_permitted(error: &io::Error) -> Option<Error> {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return None;
    }
    let what = match perf_events_want_admin() {
        Some(true) => "not permitted to set probes: on this kernel that needs CAP_SYS_ADMIN",
        _ => "not permitted to set probes",
    };
    let next = "run it as root: sudo reqtrace …, or on Linux 6.6 or later, where CAP_BPF and CAP_PERFMON will do";
    Some(
        Error::unsupported(what)
            .because(error.to_string())
            .next(next),
    )
}

/// The first bit of a field as sysfs describes it: `config:32-63` or `config:0`.
fn first_bit(text: &str) -> Option<u32> {
    let bits = text.trim().strip_prefix("config:")?;
    let first = bits.split('-').next()?.parse().ok()?;
    (first < u64::BITS).then_some(first)
}

/// Descriptors are not negative.
fn number(fd: i32) -> u32 {
    fd.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: UprobeEvents = UprobeEvents {
        kind: 8,
        return_bit: 0,
        counter_shift: 32,
    };

    fn config(counter: Option<u64>, on_return: bool) -> io::Result<u64> {
        let object = LazyFile::at("/bin/true");
        EVENTS.config(&Place {
            object: &object,
            file_offset: 0,
            counter,
            on_return,
            process: None,
            cookie: 0,
        })
    }

    #[test]
    fn the_bits_of_an_event_are_where_sysfs_says() {
        assert_eq!(first_bit("config:32-63\n"), Some(32));
        assert_eq!(first_bit("config:0\n"), Some(0));
        for strange in ["config1:0", "config:", "config:x-63", "config:64-70", ""] {
            assert_eq!(first_bit(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_counter_beyond_32_bits_is_an_error_not_another_counter() {
        assert_eq!(config(None, true).unwrap(), 1);
        assert_eq!(config(Some(0x885_936), false).unwrap(), 0x885_936 << 32);
        assert_eq!(
            config(Some(1 << 32), false).unwrap_err().to_string(),
            "its semaphore is at offset 0x100000000, beyond 4 GiB"
        );
    }
}
