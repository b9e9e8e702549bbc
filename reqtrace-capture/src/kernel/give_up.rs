//! Giving up privileges: what reading targets does not need goes as soon as all probes are set.
//!
//! In: what the rest of the trace still has to do. Out: a thread that can do no more than that. The kernel
//! keeps capabilities per thread; threads that are made later inherit those of the one that makes them.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use reqtrace_base::error::{Error, Result};

/// What reading other processes needs: their memory maps, files that only they can see, and files that
/// are mapped but have been removed (`/proc/PID/map_files`, 5.9).
const READING: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHECKPOINT_RESTORE);
/// What setting a probe by a perf event needs. Links of `uprobe_multi` (6.6) need nothing but the program,
/// which is loaded by then.
const PERF_PROBES: CapabilitySet = CapabilitySet::PERFMON.union(CapabilitySet::SYS_ADMIN);
/// What a change of maps without privileges needs on kernels before 5.19, while
/// `kernel.unprivileged_bpf_disabled` is set.
const MAPS: CapabilitySet = CapabilitySet::BPF;

/// What a trace still has to do beside reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct StillNeeded {
    /// Set probes by perf events: in children, on kernels without `uprobe_multi`.
    pub perf_probes: bool,
    /// Use maps on a kernel that wants a capability for it.
    pub maps: bool,
    /// Rename files in folders of another user.
    pub foreign_folders: bool,
    /// Send signals to a program that it has started.
    pub signals: bool,
}

/// Gives up all capabilities of this thread but those for reading processes and for what is still needed,
/// and the right to get any by running a program. Returns the names of those that are left.
///
/// # Errors
///
/// When the kernel refuses, which it never does for fewer capabilities.
pub fn give_up(needed: StillNeeded) -> Result<Vec<String>> {
    let failed = |error: rustix::io::Errno| {
        Error::failed("privileges could not be given up").because(io::Error::from(error))
    };
    let mut keep = READING;
    keep.set(PERF_PROBES, needed.perf_probes);
    keep.set(MAPS, needed.maps);
    keep.set(CapabilitySet::DAC_OVERRIDE, needed.foreign_folders);
    keep.set(CapabilitySet::KILL, needed.signals);
    let own = capabilities(None).map_err(failed)?;
    let left = own.permitted.intersection(keep);
    set_capabilities(
        None,
        CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        },
    )
    .map_err(failed)?;
    set_no_new_privs(true).map_err(failed)?;
    Ok(left
        .iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, since capabilities are a thread's.
    fn left(needed: StillNeeded) -> Vec<String> {
        std::thread::spawn(move || give_up(needed).unwrap())
            .join()
            .unwrap()
    }

    #[test]
    fn what_is_left_is_for_reading() {
        let left = left(StillNeeded::default());
        let reading = [
            "CAP_DAC_READ_SEARCH",
            "CAP_SYS_PTRACE",
            "CAP_CHECKPOINT_RESTORE",
        ];
        assert!(
            left.iter().all(|name| reading.contains(&name.as_str())),
            "{left:?}"
        );
    }

    #[test]
    fn probes_that_come_later_keep_what_they_need() {
        let needed = StillNeeded {
            perf_probes: true,
            ..StillNeeded::default()
        };
        // A test without privileges has none to keep.
        let may = capabilities(None).unwrap().permitted;
        let left = left(needed);
        assert_eq!(
            left.iter().any(|name| name == "CAP_PERFMON"),
            may.contains(CapabilitySet::PERFMON)
        );
        assert!(!left.iter().any(|name| name == "CAP_NET_ADMIN"));
    }
}
