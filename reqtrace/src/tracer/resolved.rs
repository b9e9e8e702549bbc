//! Where the profile's markers are: the profile and the processes in, resolved profiles out, and
//! notices of what a user should know of them.

use std::collections::BTreeMap;

use log::{debug, info};

use crate::capture::Notices;
use crate::error::{Error, Result};
use crate::profile::{Profile, builtin};
use crate::resolve::{Process, ResolvedProfile, Target, resolve, unmatched_without_symbols};

/// Adds the probes of a child that was there before: none when it runs the same files as a process
/// that was resolved, or a program that the profile does not fit.
pub(super) fn resolve_child(
    profile: &Profile,
    pid: u32,
    processes: &mut Vec<Process>,
    resolved: &mut Vec<ResolvedProfile>,
) {
    // It may have left, and it is nothing that the user named: no error.
    let Ok(mut process) = Process::open(pid) else {
        return;
    };
    if let Some(first) = processes.first() {
        process.use_objects(&first.opened);
    }
    let shown = |process: &Process| -> Vec<String> {
        let files = process.objects.iter();
        files.map(|file| file.shown.clone()).collect()
    };
    let known = processes.iter().any(|known| {
        known.executable.shown == process.executable.shown && shown(known) == shown(&process)
    });
    if !known {
        match resolve(profile, &process) {
            Ok(found) => resolved.push(found),
            Err(error) => debug!("child {pid} ({}) has no markers: {error}", process.comm),
        }
    }
    processes.push(process);
}

/// Resolves the profile in every process; prints each warning once.
///
/// # Errors
///
/// The first process in which it cannot be resolved.
pub(super) fn resolve_all(
    profile: &Profile,
    processes: &[Process],
    notices: &Notices,
) -> Result<Vec<ResolvedProfile>> {
    let mut all = Vec::new();
    let mut warnings = BTreeMap::new();
    for process in processes {
        let resolved = resolve(profile, process)
            .map_err(|error| error.within(format!("process {} ({})", process.pid, process.comm)))?;
        for warning in &resolved.warnings {
            warnings.insert(warning.clone(), ());
        }
        for note in &resolved.notes {
            info!("{note}");
        }
        all.push(resolved);
    }
    for warning in warnings.keys() {
        notices.warn(warning);
    }
    for request in all.iter().flat_map(|profile| &profile.requests) {
        debug!(
            "request {}: begin {} ({} probes), end {} ({} probes)",
            request.name,
            request.begin.symbol,
            request.begin.sites.len(),
            request.end.symbol,
            request.end.sites.len()
        );
    }
    Ok(all)
}

/// A label that was asked for and cannot be had is said, not left out silently.
pub(super) fn say_unlabelled(
    profile: &Profile,
    resolved: &[ResolvedProfile],
    notices: &Notices,
) -> Result<()> {
    if profile
        .requests
        .iter()
        .all(|request| request.labels.is_empty())
    {
        return Err(Error::usage(format!(
            "--labels: the profile `{}` does not say where a label is",
            profile.name
        ))
        .next(format!(
            "give a request a label, such as label = {{ arg = 0 }}: docs/profiles.md; \
             built-in profiles with labels: {}",
            builtin::with_labels().join(", ")
        )));
    }
    let mut said = Vec::new();
    for request in resolved.iter().flat_map(|profile| &profile.requests) {
        if let Some(why) = &request.unlabelled
            && !said.contains(&why)
        {
            notices.warn(why);
            said.push(why);
        }
    }
    Ok(())
}

/// Named waits without a match, of the first process's executable; what cannot be read now could be
/// read before, and is no reason to end.
pub(super) fn unmatched_waits(
    profile: &Profile,
    processes: &[Process],
) -> Vec<(String, Vec<String>)> {
    let Some(process) = processes.first() else {
        return Vec::new();
    };
    unmatched_without_symbols(profile, &Target::Process(process)).unwrap_or_else(|error| {
        debug!("named waits are not checked: {error}");
        Vec::new()
    })
}
