//! What reqtrace knows about the running kernel: BTF offsets, version, privileges, clocks.
//!
//! In: `/sys/kernel/btf/vmlinux`, `uname`, `/proc/self`. Out: [`Host`], or an error that says what
//! is missing (exit code 3).

pub mod btf;
pub mod clock;
pub mod cpus;
pub mod doctor;
mod files;
pub mod give_up;
pub mod privileges;
pub mod processes;
pub(crate) mod sockets;
pub mod threads;
pub mod uretprobe;
pub mod usage;

use std::path::{Path, PathBuf};

use reqtrace_base::error::{Error, Result};

pub use files::FileOffsets;
pub use sockets::SocketTypes;

/// Where the kernel shows its BTF.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
/// Names another BTF file; for tests and bug reports.
const BTF_VARIABLE: &str = "REQTRACE_BTF";
/// `sched_switch` has its four arguments in today's order since this version.
const OLDEST: (u32, u32) = (5, 18);

/// Tracepoints that the kernel programs are attached to, in this order: all before the first uprobe, so
/// that no block of a request goes unseen.
pub(crate) const TRACEPOINTS: [&str; 6] = [
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "task_rename",
    "sched_waking",
    "sched_switch",
];

/// The tracepoint that says what a thread in a page fault wants; only with blame, and where the kernel has
/// it.
pub(crate) const PAGE_FAULT: &str = "page_fault_user";

/// The machine, as far as tracing depends on it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name in the network; empty when it has none.
    pub name: String,
    /// `uname -r`.
    pub release: String,
    /// Where the BTF was read from.
    pub btf_path: PathBuf,
    /// Offsets in the running kernel's structures.
    pub offsets: TaskOffsets,
    /// Offsets on the way to the file behind a descriptor.
    pub file_offsets: FileOffsets,
}

/// Byte offsets in `task_struct`, and in what uprobes hang on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOffsets {
    /// `pid`: the thread id.
    pub pid: u32,
    /// `tgid`: the process id.
    pub tgid: u32,
    /// `se.sum_exec_runtime`: CPU time, nanoseconds.
    pub ran: u32,
    /// `stack`: lowest address of the kernel stack.
    pub stack: u32,
    /// `utask`: what uprobes keep of the thread.
    pub utask: u32,
    /// `uprobe_task.return_instances`.
    pub return_instances: u32,
    /// `uprobe_task.vaddr`: the probed instruction that is being stepped over.
    pub probed: u32,
    /// `uprobe_task.xol_vaddr`: the copy of it that is executed.
    pub probed_copy: u32,
    /// `mm`.
    pub mm: u32,
    /// `mm_struct.uprobes_state.xol_area`.
    pub xol_area: u32,
    /// `xol_area.vaddr`: the page of copies and of the trampoline.
    pub xol_area_address: u32,
    /// `return_instance.stack`.
    pub instance_stack: u32,
    /// `return_instance.orig_ret_vaddr`.
    pub instance_original: u32,
    /// `return_instance.next`.
    pub instance_next: u32,
}

impl Host {
    /// Looks at the machine.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when it cannot be traced on: wrong architecture, a
    /// kernel that is too old, locked down or has no BTF, privileges missing.
    pub fn examine() -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Error::unsupported(format!(
                "this machine is {}; reqtrace knows the registers of x86-64 only",
                std::env::consts::ARCH
            )));
        }
        let release = release()?;
        check_version(&release)?;
        privileges::check()?;
        privileges::lockdown()?;
        let btf_path = btf_path();
        let (offsets, file_offsets) = offsets(&btf_path)?;
        Ok(Self {
            name: name(),
            release,
            btf_path,
            offsets,
            file_offsets,
        })
    }
}

/// Where the kernel's type information is read from.
fn btf_path() -> PathBuf {
    std::env::var_os(BTF_VARIABLE).map_or_else(|| BTF_PATH.into(), PathBuf::from)
}

/// Name of the machine.
fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn release() -> Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|text| text.trim().to_owned())
        .map_err(|error| {
            Error::unsupported("/proc/sys/kernel/osrelease cannot be read")
                .because(error)
                .next("mount -t proc proc /proc")
        })
}

/// The first two numbers of the running kernel's release; `None` when it has none.
#[must_use]
pub fn running_version() -> Option<(u32, u32)> {
    version(&release().ok()?)
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn check_version(release: &str) -> Result<()> {
    let Some(version) = version(release) else {
        return Err(Error::unsupported(format!(
            "the kernel's release `{release}` has no version"
        )));
    };
    if version < OLDEST {
        return Err(Error::unsupported(format!(
            "the kernel is {release}; reqtrace needs {}.{} or later",
            OLDEST.0, OLDEST.1
        )));
    }
    Ok(())
}

fn offsets(path: &Path) -> Result<(TaskOffsets, FileOffsets)> {
    let data = std::fs::read(path).map_err(|error| {
        Error::unsupported(format!(
            "the kernel's type information {} is missing",
            path.display()
        ))
        .because(error)
        .next(btf_advice())
    })?;
    let types = btf::Types::parse(&data).map_err(|what| {
        Error::unsupported(format!("{}: {what}", path.display())).next(btf_advice())
    })?;
    let missing = |structure: &str, member: &str| {
        Error::unsupported(format!(
            "{}: {structure}.{member} is missing",
            path.display()
        ))
        .next(btf_advice())
    };
    let offset = |structure, member| {
        types
            .member_offset(structure, member)
            .ok_or_else(|| missing(structure, member))
    };
    let files =
        FileOffsets::of(&types).map_err(|(structure, member)| missing(structure, member))?;
    let task = TaskOffsets {
        pid: offset("task_struct", "pid")?,
        tgid: offset("task_struct", "tgid")?,
        ran: offset("task_struct", "se")? + offset("sched_entity", "sum_exec_runtime")?,
        stack: offset("task_struct", "stack")?,
        utask: offset("task_struct", "utask")?,
        return_instances: offset("uprobe_task", "return_instances")?,
        probed: offset("uprobe_task", "vaddr")?,
        probed_copy: offset("uprobe_task", "xol_vaddr")?,
        mm: offset("task_struct", "mm")?,
        xol_area: offset("mm_struct", "uprobes_state")? + offset("uprobes_state", "xol_area")?,
        xol_area_address: offset("xol_area", "vaddr")?,
        instance_stack: offset("return_instance", "stack")?,
        instance_original: offset("return_instance", "orig_ret_vaddr")?,
        instance_next: offset("return_instance", "next")?,
    };
    Ok((task, files))
}

/// What to do about type information that is not there or not usable.
fn btf_advice() -> &'static str {
    if std::env::var_os(BTF_VARIABLE).is_some() {
        "unset REQTRACE_BTF, or let it name the running kernel's BTF"
    } else {
        "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian, Ubuntu, Fedora and RHEL kernels are)"
    }
}

#[cfg(test)]
mod tests {
    use super::check_version;
    use reqtrace_base::error::Kind;

    #[test]
    fn old_kernels_are_refused() {
        for good in ["5.18.0", "6.1.0-56-cloud-amd64", "6.18.44-fc", "7.0"] {
            check_version(good).unwrap();
        }
        for bad in ["5.17.9", "4.19.0-27-amd64"] {
            let error = check_version(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.to_string().contains(bad));
        }
        check_version("unknown").unwrap_err();
    }
}
