//! Empty kernel programs where a tracer has its own: what is lost with them is what the traps of
//! the kernel cost, and nothing of a tracer.
//!
//! In: places in files, as `reqtrace check --sites` prints them. Out: programs of two instructions
//! ("return 0") on them, gone when dropped.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// `r0 = 0; exit`.
const RETURN_ZERO: [u64; 2] = [0xb7, 0x95];
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
/// The kernel's number for perf events of uprobes.
const UPROBE_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// A place to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
}

/// The places in what `reqtrace check --sites` prints: tabs between marker, offset, file, request. Markers
/// that share a place have one probe there.
pub(crate) fn parse_sites(text: &str) -> Result<Vec<Site>> {
    let sites: Result<Vec<Site>> = text
        .lines()
        .map(|line| {
            let wrong = || format!("`reqtrace check --sites` printed {line:?}");
            let fields: Vec<&str> = line.split('\t').collect();
            let [_, offset, file, _] = fields.as_slice() else {
                anyhow::bail!(wrong());
            };
            let digits = offset.strip_prefix("0x").with_context(wrong)?;
            Ok(Site {
                file: file.into(),
                offset: u64::from_str_radix(digits, 16).with_context(wrong)?,
            })
        })
        .collect();
    let mut once = Vec::new();
    for site in sites? {
        if !once.contains(&site) {
            once.push(site);
        }
    }
    Ok(once)
}

/// Programs and what holds them in place.
pub(crate) struct EmptyPrograms {
    _held: Vec<OwnedFd>,
}

impl EmptyPrograms {
    /// One program on all places, for every process that runs the files.
    pub(crate) fn on_sites(sites: &[Site]) -> Result<Self> {
        Self::named(b"empty\0", sites)
    }

    /// The same by another name, of at most 15 letters and a zero.
    pub(crate) fn named(name: &[u8], sites: &[Site]) -> Result<Self> {
        let kind = std::fs::read_to_string(UPROBE_TYPE).context(UPROBE_TYPE)?;
        let kind: u32 = kind.trim().parse().context(UPROBE_TYPE)?;
        let program = load(BPF_PROG_TYPE_KPROBE, name)?;
        let mut descriptors = Vec::new();
        for site in sites {
            let event = open_uprobe(kind, &site.file, site.offset).with_context(|| {
                format!(
                    "empty probe at {} + {:#x}",
                    site.file.display(),
                    site.offset
                )
            })?;
            control(&event, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())?;
            control(&event, PERF_EVENT_IOC_ENABLE, 0)?;
            descriptors.push(event);
        }
        descriptors.push(program);
        Ok(Self { _held: descriptors })
    }

    /// One program on every switch between threads.
    pub(crate) fn on_switches() -> Result<Self> {
        #[repr(C)]
        struct Attributes {
            name: u64,
            program: u32,
            padding: u32,
        }
        let program = load(BPF_PROG_TYPE_RAW_TRACEPOINT, b"empty_switch\0")?;
        let name = c"sched_switch";
        let attributes = Attributes {
            name: name.as_ptr() as u64,
            program: u32::try_from(program.as_raw_fd())?,
            padding: 0,
        };
        let link =
            bpf(BPF_RAW_TRACEPOINT_OPEN, &attributes).context("empty program on switches")?;
        Ok(Self {
            _held: vec![link, program],
        })
    }
}

fn load(kind: u32, name: &[u8]) -> Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        instructions: u32,
        code: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
    }
    let mut padded = [0; 16];
    padded
        .iter_mut()
        .zip(name)
        .for_each(|(to, from)| *to = *from);
    let license = c"GPL";
    let attributes = Attributes {
        kind,
        instructions: RETURN_ZERO.len() as u32,
        code: RETURN_ZERO.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: padded,
    };
    bpf(BPF_PROG_LOAD, &attributes).context("the kernel takes no empty program")
}

/// The system call `bpf` with a command that returns a descriptor.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are as the kernel has them, zero beyond, and outlive the call, as
    // does what their pointers point to.
    let number = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    descriptor(number)
}

fn open_uprobe(kind: u32, file: &Path, offset: u64) -> Result<OwnedFd> {
    /// `struct perf_event_attr`, as far as version 1 of it goes.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        wakeup: u32,
        breakpoint: u32,
        path: u64,
        offset: u64,
    }
    let path = CString::new(file.as_os_str().as_bytes())?;
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        path: path.as_ptr() as u64,
        offset,
        ..Attributes::default()
    };
    // Of all processes; the CPU is only where the event is kept, the program runs on all of them.
    let (process, cpu, group) = (-1, 0, -1);
    // SAFETY: attributes and path outlive the call; the numbers ask for no memory of ours.
    let number = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            process,
            cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    Ok(descriptor(number)?)
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_int) -> Result<()> {
    // SAFETY: both requests take a number, and the descriptor is ours.
    if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error()).context("perf event")
    }
}

fn descriptor(number: libc::c_long) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = i32::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given it to us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_understood() {
        let sites = parse_sites("begin\t0x70f0\t/usr/sbin/x y\trequest\n").unwrap();
        assert_eq!(
            sites,
            [Site {
                file: "/usr/sbin/x y".into(),
                offset: 0x70f0
            }]
        );
        let error = parse_sites("profile x\n").unwrap_err().to_string();
        assert!(error.contains("profile x"), "{error}");
        assert!(parse_sites("end\t12\t/x\tr\n").is_err());
    }
}
