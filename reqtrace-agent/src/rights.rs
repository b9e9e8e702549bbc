//! Privileges of the processes: what each still does in; no more than that, for good, out.

use std::io;

use reqtrace_base::error::{Error, Result};
use reqtrace_binary::status::Status;
use reqtrace_capture::attach::{goes_by_process, maps_go_by_descriptor, perf_events_want_admin};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, no_new_privs, set_capabilities, set_no_new_privs,
};
use rustix::time::{ClockId, clock_gettime};

use crate::metrics::Process;
use crate::user::User;

/// What attaching needs while sessions come and go.
const ATTACHING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    // Files of other users that are traced, also those that are mapped and were removed.
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    // Addresses of the kernel's functions.
    .union(CapabilitySet::SYSLOG)
    // The thread that reads the ring comes first.
    .union(CapabilitySet::SYS_NICE);

/// Gives up all but what attaching needs, of the calling thread and of those that it will make.
///
/// # Errors
///
/// When the kernel refuses, which it never does for fewer capabilities.
pub(crate) fn keep_for_attaching() -> Result<()> {
    let mut keep = ATTACHING;
    // Some kernels want it for probes that are perf events, which are set only where links cannot tell processes apart.
    keep.set(
        CapabilitySet::SYS_ADMIN,
        !goes_by_process() && perf_events_want_admin() == Some(true),
    );
    keep_only(keep)
}

/// Gives up all.
///
/// # Errors
///
/// When the kernel refuses, or some are left.
pub(crate) fn give_up_all() -> Result<()> {
    keep_only(CapabilitySet::empty())?;
    let left = names();
    match left.is_empty() {
        true => Ok(()),
        false => Err(Error::failed(format!(
            "the worker has capabilities that it cannot give up: {}",
            left.join(", ")
        ))),
    }
}

fn keep_only(keep: CapabilitySet) -> Result<()> {
    let failed = |error: rustix::io::Errno| {
        Error::failed("privileges could not be given up").because(io::Error::from(error))
    };
    // Before: without it a program that root starts has all again.
    set_no_new_privs(true).map_err(failed)?;
    let own = capabilities(None).map_err(failed)?;
    let left = own.permitted.intersection(keep);
    let sets = CapabilitySets {
        effective: left,
        permitted: left,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(failed)
}

/// Becomes this user, if there is one, and gives up all privileges, for this thread and those that it will make: another process
/// attaches. Where the kernel wants a capability of who uses tables that one stays.
///
/// # Errors
///
/// When the kernel refuses.
pub(crate) fn trace_without(user: Option<&User>) -> Result<()> {
    know_the_clock();
    let mut keep = CapabilitySet::empty();
    keep.set(CapabilitySet::BPF, !maps_go_by_descriptor()?);
    if let Some(user) = user {
        become_user(user).map_err(|error| {
            Error::failed(format!("the agent could not become the user {}", user.name))
                .because(error)
                .next("that needs root with CAP_SETUID and CAP_SETGID, until it has begun")
        })?;
    }
    keep_only(keep)?;
    // The worker has the same user: it may not look into this process.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        Error::failed("other processes could look into this one").because(io::Error::from(error))
    })
}

/// rustix looks for the kernel's clock in `/proc/self/auxv` when it is first asked for the time, in a program that is linked
/// statically, on kernels before 6.4. A process that is not dumpable may not read that, and rustix panics.
fn know_the_clock() {
    let _ = clock_gettime(ClockId::Monotonic);
}

/// Capabilities stay until they are given up.
fn become_user(user: &User) -> io::Result<()> {
    let done = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: plain numbers, and an empty list.
    unsafe {
        done(libc::prctl(libc::PR_SET_KEEPCAPS, 1))?;
        done(libc::setgroups(0, std::ptr::null()))?;
        done(libc::setresgid(user.group, user.group, user.group))?;
        done(libc::setresuid(user.number, user.number, user.number))
    }
}

fn names() -> Vec<String> {
    let own = capabilities(None).map(|own| own.permitted | own.effective);
    named(own.unwrap_or(CapabilitySet::empty()))
}

fn named(capabilities: CapabilitySet) -> Vec<String> {
    let names = capabilities.iter_names();
    names.map(|(name, _)| format!("CAP_{name}")).collect()
}

/// What this process is, and has, as the calling thread has it.
pub(crate) fn process(name: &str) -> Process {
    let status = Status::of("self").ok();
    Process {
        name: name.to_owned(),
        user: geteuid().as_raw(),
        capabilities: names(),
        no_new_privileges: no_new_privs().unwrap_or(false),
        resident_bytes: status.and_then(|of| of.resident_bytes()).unwrap_or(0),
    }
}

/// What another one is, and has, as its first thread has it; `None` when it has ended.
pub(crate) fn other(name: &str, pid: u32) -> Option<Process> {
    let status = Status::of(pid).ok()?;
    let capabilities = CapabilitySet::from_bits_retain(status.capabilities()?);
    Some(Process {
        name: name.to_owned(),
        // Real and effective.
        user: *status.users().get(1)?,
        capabilities: named(capabilities),
        no_new_privileges: status.has_no_new_privileges(),
        resident_bytes: status.resident_bytes().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, since capabilities are a thread's.
    fn left(give_up: fn() -> Result<()>) -> Process {
        let thread = std::thread::spawn(move || {
            give_up().unwrap();
            process("it")
        });
        thread.join().unwrap()
    }

    #[test]
    fn one_process_keeps_what_attaching_needs_and_the_other_nothing() {
        let worker = left(give_up_all);
        assert_eq!(worker.capabilities, Vec::<String>::new());
        assert!(worker.no_new_privileges && worker.resident_bytes > 0);
        let attaching = left(keep_for_attaching);
        assert!(attaching.no_new_privileges);
        for name in [
            "CAP_NET_ADMIN",
            "CAP_SETUID",
            "CAP_DAC_OVERRIDE",
            "CAP_KILL",
        ] {
            assert!(
                !attaching.capabilities.iter().any(|own| own == name),
                "{name}"
            );
        }
        let own = other("it", std::process::id()).unwrap();
        assert_eq!(own.user, geteuid().as_raw());
        assert!(own.resident_bytes > 0);
        // A test without privileges has none to keep.
        let may = capabilities(None).unwrap().permitted;
        let keeps = attaching.capabilities.iter().any(|own| own == "CAP_BPF");
        assert_eq!(keeps, may.contains(CapabilitySet::BPF));
    }
}
