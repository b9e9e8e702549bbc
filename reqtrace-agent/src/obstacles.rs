//! What is in the way of tracing on this machine: kernel, privileges and other tracers in, a line for each out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use reqtrace_base::error::Error;
use reqtrace_base::plain::Plain;
use reqtrace_capture::attach::self_test;
use reqtrace_capture::kernel::doctor::examine;
use reqtrace_capture::kernel::finding::{Finding, State};

use crate::processes::{Id, Seen};

/// There is one hierarchy of control groups if it has this file.
const UNIFIED: &str = "/sys/fs/cgroup/cgroup.controllers";
/// The names of security modules that may refuse.
const MODULES: &str = "/sys/kernel/security/lsm";

/// Everything that does not work as it should; empty when all does.
pub(crate) fn obstacles(processes: &BTreeMap<Id, Seen>) -> String {
    let mut findings = examine();
    if findings.iter().all(|of| of.state != State::Missing)
        && let Err(error) = self_test::run()
    {
        findings.push(refused(&error));
    }
    findings.extend(control_groups(Path::new(UNIFIED)));
    findings.extend(others(processes, std::process::id()));
    let mut out = String::new();
    for finding in findings.iter().filter(|of| of.state != State::Ok) {
        let (word, subject) = (finding.state.word(), finding.subject);
        let _ = writeln!(out, "{word}: {subject}: {}", finding.seen);
        if let Some(next) = &finding.next {
            let _ = writeln!(out, "  next: {next}");
        }
    }
    out
}

/// A probe on this program itself is refused although all capabilities are there.
fn refused(error: &Error) -> Finding {
    let modules = std::fs::read_to_string(MODULES).unwrap_or_default();
    let cause = std::error::Error::source(error);
    let is_denied = cause.is_some_and(|cause| {
        let text = cause.to_string();
        text.contains("Operation not permitted") || text.contains("Permission denied")
    });
    match is_denied {
        true => Finding::missing(
            "security module",
            &Error::unsupported(format!(
                "{error}, although the capabilities are there: a security module forbids it ({})",
                if modules.is_empty() { "which ones there are is not shown" } else { modules.trim() }
            ))
            .next("look for the denial: journalctl -k | grep -i -E 'avc|apparmor'; then allow bpf and perf_event_open"),
        ),
        false => Finding::missing("probes", error),
    }
}

fn control_groups(unified: &Path) -> Option<Finding> {
    let is_unified = unified.exists();
    (!is_unified).then(|| {
        Finding::degraded(
            "control groups",
            "of version 1: cgroup and unit of a rule are those of systemd's hierarchy, and limits of CPU time are not known",
            "boot with systemd.unified_cgroup_hierarchy=1",
        )
    })
}

/// Other processes of reqtrace.
fn others(processes: &BTreeMap<Id, Seen>, own: u32) -> Option<Finding> {
    let is_tracer = |seen: &Seen| ["reqtrace", "reqtrace-attach"].contains(&seen.comm.as_str());
    let mut others = processes
        .iter()
        .filter(|(id, seen)| id.pid != own && is_tracer(seen));
    let (id, seen) = others.next()?;
    let more = match others.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Finding::degraded(
        "another reqtrace",
        format!(
            "process {} ({}){more}: what both trace pays for both",
            id.pid,
            Plain::of(&seen.exe)
        ),
        "that is well if it is the agent of this configuration; else let one have all rules",
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_denied_with_all_capabilities_is_a_security_modules_doing() {
        let error =
            |cause: &'static str| Error::unsupported("the kernel did not take it").because(cause);
        let denied = refused(&error("Operation not permitted (os error 1)"));
        assert_eq!(
            (denied.subject, denied.state),
            ("security module", State::Missing)
        );
        assert!(denied.next.unwrap().contains("apparmor"));
        assert_eq!(
            refused(&error("Invalid argument (os error 22)")).subject,
            "probes"
        );
    }

    #[test]
    fn old_control_groups_and_other_tracers_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cgroup.controllers");
        assert_eq!(control_groups(&file).unwrap().subject, "control groups");
        std::fs::write(&file, "cpu\n").unwrap();
        assert_eq!(control_groups(&file), None);
        let seen = |comm: &str| Seen {
            exe: "/usr/bin/reqtrace".to_owned(),
            file: (1, 2),
            comm: comm.to_owned(),
            cgroup: String::new(),
            parent: 1,
            is_host: true,
            age: Duration::ZERO,
        };
        let id = |pid| Id { pid, start: 1 };
        let mut all = BTreeMap::from([(id(7), seen("reqtrace")), (id(8), seen("bash"))]);
        assert_eq!(others(&all, 7), None);
        all.insert(id(9), seen("reqtrace-attach"));
        all.insert(id(10), seen("reqtrace"));
        let found = others(&all, 7).unwrap();
        assert!(
            found
                .seen
                .starts_with("process 9 (/usr/bin/reqtrace) and 1 more"),
            "{}",
            found.seen
        );
    }
}
