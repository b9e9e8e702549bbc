//! Where the profile's markers are: the profile and the processes in, resolved profiles out, and
//! notices of what a user should know of them.

use std::collections::BTreeMap;

use log::{debug, info};

use crate::attach::ServiceOf;
use crate::capture::Notices;
use crate::error::{Error, Result};
use crate::profile::{Profiles, RequestSpec, builtin};
use crate::resolve::{Process, ResolvedProfile, Target, resolve, unmatched_without_symbols};

/// Tells the service of a process by its program.
pub(super) fn service_of(profiles: &Profiles) -> ServiceOf {
    let profiles = profiles.clone();
    Box::new(move |pid| {
        if profiles.all().len() == 1 {
            return Some(0);
        }
        let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let path = path.to_string_lossy();
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
        let name = path.rsplit('/').next().unwrap_or(path);
        profiles.of_program(name).ok()
    })
}

/// Adds the probes of a child that was there before: none when it runs the same files as a process
/// that was resolved, or a program that no profile fits.
pub(super) fn resolve_child(
    profiles: &Profiles,
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
        match resolve_one(profiles, &process) {
            Ok(found) => resolved.push(found),
            Err(error) => debug!("child {pid} ({}) has no markers: {error}", process.comm),
        }
    }
    processes.push(process);
}

/// Resolves in a process the profile that its program takes.
fn resolve_one(profiles: &Profiles, process: &Process) -> Result<ResolvedProfile> {
    let index = profiles.of_program(process.executable.file_name())?;
    Ok(ResolvedProfile {
        service: index,
        first_type: profiles.first_type(index),
        ..resolve(&profiles.all()[index], process)?
    })
}

/// Resolves in every process the profile that its program takes; prints each warning once.
///
/// # Errors
///
/// The first process in which it cannot be resolved; a profile that no process takes.
pub(super) fn resolve_all(
    profiles: &Profiles,
    processes: &[Process],
    notices: &Notices,
) -> Result<Vec<ResolvedProfile>> {
    let mut all = Vec::new();
    let mut warnings = BTreeMap::new();
    for process in processes {
        let resolved = resolve_one(profiles, process)
            .map_err(|error| error.within(format!("process {} ({})", process.pid, process.comm)))?;
        for warning in &resolved.warnings {
            warnings.insert(warning.clone(), ());
        }
        for note in &resolved.notes {
            info!("{note}");
        }
        all.push(resolved);
    }
    for (index, profile) in profiles.all().iter().enumerate() {
        if !all.iter().any(|resolved| resolved.service == index) {
            return Err(Error::usage(format!(
                "no process for the profile `{}`, which is made for {}",
                profile.name,
                profile.executables.join(" or ")
            ))
            .next("add its processes with -p PID, or leave the profile out"));
        }
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
    profiles: &Profiles,
    resolved: &[ResolvedProfile],
    notices: &Notices,
) -> Result<()> {
    if !profiles.requests().any(RequestSpec::has_texts) {
        let which = match profiles.all() {
            [one] => format!("the profile `{}` does not say", one.name),
            _ => format!("none of the profiles {} says", profiles.names()),
        };
        return Err(
            Error::usage(format!("--labels: {which} where a label or a text is")).next(format!(
                "give a request a label, such as label = {{ arg = 0 }}: docs/profiles.md; \
             built-in profiles with labels: {}",
                builtin::with_labels().join(", ")
            )),
        );
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

/// An attribute that cannot be read is said, but for texts that nobody asked for.
pub(super) fn say_unread(resolved: &[ResolvedProfile], labels: bool, notices: &Notices) {
    let mut said = Vec::new();
    for request in resolved.iter().flat_map(|profile| &profile.requests) {
        for unread in &request.unread {
            let text = format!(
                "request `{}`: the attribute `{}` is not read: {}",
                request.name, unread.attribute, unread.why
            );
            if unread.is_read {
                info!("{text}; it is read in another way");
            } else if (labels || !unread.is_text) && !said.contains(&text) {
                notices.warn(&text);
                said.push(text);
            }
        }
    }
}

/// Named waits without a match, of each profile in the executable of its first process; what cannot be
/// read now could be read before, and is no reason to end.
pub(super) fn unmatched_waits(
    profiles: &Profiles,
    processes: &[Process],
) -> Vec<(String, Vec<String>)> {
    let mut unmatched = Vec::new();
    for (index, profile) in profiles.all().iter().enumerate() {
        let takes = |process: &&Process| {
            let program = process.executable.file_name();
            profiles.of_program(program).is_ok_and(|of| of == index)
        };
        let Some(process) = processes.iter().find(takes) else {
            continue;
        };
        match unmatched_without_symbols(profile, &Target::Process(process)) {
            Ok(found) => unmatched.extend(found),
            Err(error) => debug!("named waits of {} are not checked: {error}", profile.name),
        }
    }
    unmatched
}
