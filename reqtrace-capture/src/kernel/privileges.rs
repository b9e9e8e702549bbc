//! Privileges. In: `/proc/self`. Out: nothing, or an error that names what is missing.

use reqtrace_base::error::{Error, Result};
use reqtrace_binary::status::Status;

/// Capabilities that tracing needs, with their bit (`linux/capability.h`).
const NEEDED: [(&str, u32); 3] = [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_SYS_PTRACE", 19)];
/// Stands for `CAP_BPF` and `CAP_PERFMON` too.
const CAP_SYS_ADMIN: u32 = 21;
/// Says how far the kernel is locked down; in securityfs.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
/// The inode of the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Checks that this process may load and attach kernel programs.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Unsupported`], naming the missing capabilities or the namespace.
pub fn check() -> Result<()> {
    capabilities()?;
    pid_namespace().map(drop)
}

/// What this process may do: a phrase for people.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Unsupported`], naming the missing capabilities.
pub fn capabilities() -> Result<String> {
    let missing = missing(own_capabilities());
    if missing.is_empty() {
        return Ok(NEEDED.map(|(name, _)| name).join(", "));
    }
    let user = rustix::process::geteuid().as_raw();
    let error = Error::unsupported(format!(
        "not permitted to trace: {} missing (effective user id {user})",
        missing.join(", ")
    ));
    Err(error.next(how_to_get(&missing, user)))
}

/// The command or option that gives what is missing.
fn how_to_get(missing: &[&str], user: u32) -> String {
    if user != 0 {
        return "run it as root: sudo reqtrace …".to_owned();
    }
    let options: Vec<String> = missing
        .iter()
        .map(|name| format!("--cap-add {}", name.trim_start_matches("CAP_")))
        .collect();
    format!(
        "this root has not all capabilities: run it on the host, or start the container with {}",
        options.join(" ")
    )
}

/// Which PID namespace this process is in: a phrase for people.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Unsupported`], when it is not the initial one.
pub fn pid_namespace() -> Result<String> {
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() != INITIAL_PID_NAMESPACE => Err(Error::unsupported(
            format!(
                "reqtrace runs in the PID namespace {}, but the kernel counts in the initial one",
                namespace.display()
            ),
        )
        .next("run it on the host, or in a container with the host's PID namespace (--pid=host)")),
        _ => Ok("the initial one".to_owned()),
    }
}

/// How far the kernel is locked down, even for root: a phrase for people.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Unsupported`], when kernel programs may not read the kernel's memory.
pub fn lockdown() -> Result<String> {
    lockdown_of(std::fs::read_to_string(LOCKDOWN).ok().as_deref())
}

fn lockdown_of(text: Option<&str>) -> Result<String> {
    let Some(text) = text else {
        return Ok("not in this kernel, or securityfs is not mounted".to_owned());
    };
    // `none [integrity] confidentiality`: the one in brackets holds.
    let mode = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text.trim(), |(mode, _)| mode);
    if mode != "confidentiality" {
        return Ok(mode.to_owned());
    }
    let error = Error::unsupported(
        "the kernel is locked down for confidentiality: kernel programs may not read its memory",
    );
    Err(error
        .next("boot with lockdown=integrity, or without Secure Boot; it cannot be changed later"))
}

/// Whether `CAP_PERFMON`, or what stands for it, is there.
#[must_use]
pub fn may_use_perf() -> bool {
    !missing(own_capabilities()).contains(&"CAP_PERFMON")
}

/// The seccomp mode of a process (`self`, or a number): 0 none, 1 strict, 2 a filter. `None` when
/// it cannot be read.
#[must_use]
pub fn seccomp_mode(process: &str) -> Option<u32> {
    Status::of(process).ok()?.seccomp()
}

fn own_capabilities() -> u64 {
    let status = Status::of("self").ok();
    status.and_then(|status| status.capabilities()).unwrap_or(0)
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
    fn a_root_without_capabilities_is_not_told_to_be_root() {
        assert!(how_to_get(&["CAP_BPF"], 1000).contains("sudo"));
        let advice = how_to_get(&["CAP_BPF", "CAP_PERFMON"], 0);
        assert!(
            advice.contains("--cap-add BPF --cap-add PERFMON"),
            "{advice}"
        );
    }

    #[test]
    fn lockdown_is_read_from_the_brackets() {
        let of = |text| lockdown_of(Some(text));
        assert_eq!(of("[none] integrity confidentiality").unwrap(), "none");
        assert_eq!(of("none [integrity] confidentiality").unwrap(), "integrity");
        let error = of("none integrity [confidentiality]\n").unwrap_err();
        assert_eq!(error.kind(), reqtrace_base::error::Kind::Unsupported);
        assert!(error.advice().unwrap().contains("lockdown=integrity"));
        assert!(lockdown_of(None).unwrap().contains("not in this kernel"));
    }
}
