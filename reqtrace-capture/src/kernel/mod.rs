//! What reqtrace knows about the running kernel: what it can do, where it keeps what, privileges, clocks.
//!
//! In: `/sys/kernel/btf/vmlinux`, `/proc`. Out: [`Host`], or an error that says what is missing (exit code 3).

mod btf;
pub mod clock;
pub mod cpus;
pub mod doctor;
pub(crate) mod entries;
pub mod features;
pub mod finding;
pub mod give_up;
mod layout;
pub mod memory;
pub(crate) mod priority;
pub mod privileges;
pub mod processes;
pub(crate) mod socket_kinds;
pub mod threads;
pub mod uretprobe;
pub mod usage;

use std::path::{Path, PathBuf};

use reqtrace_base::error::{Error, Result};
use reqtrace_binary::procfs;
use rustc_hash::FxHashSet;

use btf::Types;
pub use features::{Feature, Features, Hidden};
pub use layout::{Layout, Part};

/// Where the kernel shows its BTF.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
/// Names another BTF file; for tests and bug reports.
const BTF_VARIABLE: &str = "REQTRACE_BTF";

/// The machine, as far as tracing depends on it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name in the network; empty when it has none.
    pub name: String,
    /// `uname -r`.
    pub release: String,
    /// CPUs that are online; 0: the kernel does not say.
    pub cpus: u32,
    /// The model of the first of them; empty: the kernel does not say.
    pub cpu_model: String,
    /// Where the BTF was read from.
    pub btf_path: PathBuf,
    /// Where it keeps what.
    pub layout: Layout,
    /// What it can do.
    pub features: Features,
}

impl Host {
    /// Looks at the machine.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when it cannot be traced on: wrong architecture, a
    /// kernel that lacks what ledgers need, is locked down or has no BTF, privileges missing.
    pub fn examine() -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Error::unsupported(format!(
                "this machine is {}; reqtrace knows the registers of x86-64 only",
                std::env::consts::ARCH
            )));
        }
        let release = release()?;
        if !procfs::is_opened_by_another() {
            privileges::check()?;
        }
        privileges::lockdown()?;
        let btf_path = btf_path();
        let (layout, features) = look(&btf_path, &release)?;
        features.check()?;
        Ok(Self {
            name: name(),
            release,
            cpus: aya::util::online_cpus().map_or(0, |cpus| cpus.len() as u32),
            cpu_model: cpu_model(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            btf_path,
            layout,
            features,
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

/// The model of the first CPU in `/proc/cpuinfo`.
fn cpu_model(cpuinfo: &str) -> String {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let model = lines.find(|(name, _)| name.trim() == "model name");
    model.map_or_else(String::new, |(_, model)| model.trim().to_owned())
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

/// The first two numbers of a kernel's release; `None` when it has none.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether CPUs of the running kernel that hit probes at the same time wait for each other.
pub(crate) fn hits_wait() -> bool {
    features::hits_wait(release().ok().and_then(|release| version(&release)))
}

/// Looks through the kernel's types, once.
fn look(path: &Path, release: &str) -> Result<(Layout, Features)> {
    let data = std::fs::read(path).map_err(|error| {
        Error::unsupported(format!(
            "the kernel's type information {} is missing",
            path.display()
        ))
        .because(error)
        .next(btf_advice())
    })?;
    let wanted = features::wanted_types();
    let wanted: FxHashSet<&[u8]> = wanted.iter().map(String::as_bytes).collect();
    let types = Types::parse(&data, |name| wanted.contains(name)).map_err(|what| {
        Error::unsupported(format!("{}: {what}", path.display())).next(btf_advice())
    })?;
    let mut layout = Layout::of(&types);
    let features = Features::of(&types, &mut layout, version(release), Hidden::read()?);
    Ok((layout, features))
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
    use super::*;

    #[test]
    fn the_model_is_that_of_the_first_cpu() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A CPU: fast\n\nprocessor\t: 1\nmodel name\t: B\n";
        assert_eq!(cpu_model(cpuinfo), "A CPU: fast");
        assert_eq!(cpu_model("processor\t: 0\n"), "");
    }

    #[test]
    fn a_version_is_read_from_a_release() {
        for (release, numbers) in [
            ("5.14.0-570.el9.x86_64", Some((5, 14))),
            ("6.1.0-56-cloud-amd64", Some((6, 1))),
            ("7.0", Some((7, 0))),
            ("unknown", None),
        ] {
            assert_eq!(version(release), numbers);
        }
    }

    /// RHEL 9 has new BPF under an old number: by the types of this kernel nothing lacks that a trace needs.
    #[test]
    fn an_old_number_refuses_nothing() {
        let (_, features) = look(Path::new(BTF_PATH), "5.14.0-570.el9.x86_64").unwrap();
        features.check().unwrap();
        assert_eq!(
            features
                .lost_to(features::Wanted {
                    before: true,
                    blame: true,
                    interrupts: false,
                    at_sockets: true
                })
                .unwrap()
                .len(),
            0
        );
        assert!(!features.has(Feature::LocklessHits));
    }
}
