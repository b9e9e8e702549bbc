//! Privileges. In: `/proc/self`. Out: nothing, or an error that names what is missing.

use crate::error::{Error, Result};

/// Capabilities that tracing needs, with their bit (`linux/capability.h`).
const NEEDED: [(&str, u32); 3] = [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_SYS_PTRACE", 19)];
/// Stands for `CAP_BPF` and `CAP_PERFMON` too.
const CAP_SYS_ADMIN: u32 = 21;
/// The inode of the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Checks that this process may load and attach kernel programs.
///
/// # Errors
///
/// [`crate::error::Kind::Unsupported`], naming the missing capabilities or the namespace.
pub fn check() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing(effective(&status).unwrap_or(0));
    if !missing.is_empty() {
        return Err(Error::unsupported(format!(
            "not permitted to trace: {} missing (effective user id {})",
            missing.join(", "),
            // SAFETY: no precondition.
            unsafe { libc::geteuid() }
        ))
        .next("run it as root: sudo reqtrace …"));
    }
    if let Ok(namespace) = std::fs::read_link("/proc/self/ns/pid")
        && namespace.as_os_str() != INITIAL_PID_NAMESPACE
    {
        return Err(Error::unsupported(format!(
            "reqtrace runs in the PID namespace {}, but the kernel counts in the initial one",
            namespace.display()
        ))
        .next("run it on the host, or in a container with the host's PID namespace (--pid=host)"));
    }
    Ok(())
}

fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn missing(effective: u64) -> Vec<&'static str> {
    let has = |bit: u32| effective >> bit & 1 != 0;
    NEEDED
        .into_iter()
        .filter(|&(name, bit)| !(has(bit) || name != "CAP_SYS_PTRACE" && has(CAP_SYS_ADMIN)))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing(0), ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"]);
        assert_eq!(missing(u64::MAX), Vec::<&str>::new());
        assert_eq!(missing(1 << CAP_SYS_ADMIN), ["CAP_SYS_PTRACE"]);
        assert_eq!(missing(1 << CAP_SYS_ADMIN | 1 << 19), Vec::<&str>::new());
    }

    #[test]
    fn the_status_file_is_read() {
        let status = "Name:\tx\nCapEff:\t000001fffeffffff\nSeccomp:\t0\n";
        assert_eq!(effective(status), Some(0x1ff_feff_ffff));
        assert_eq!(effective("Name:\tx\n"), None);
    }
}
