//! Where the profile's markers are: the profile and the processes in, resolved profiles out, and
//! notices of what a user should know of them.

use std::collections::BTreeMap;
use std::io;

use log::{debug, info};

use super::latecomers::Probed;
use crate::attach::{Identity, ServiceOf};
use crate::events::{Notices, UnitsOfPrograms};
use crate::kernel::processes;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::procfs;
use reqtrace_profile::{Profile, Profiles, RequestSpec, builtin};
use reqtrace_recording::UnmatchedWait;
use reqtrace_resolve::{
    Process, ResolvedProfile, Target, resolve, settle, unmatched_without_symbols,
};

/// What a process runs.
pub(super) struct Program {
    /// File name of the executable.
    pub(super) name: String,
    pub(super) file: Identity,
}

impl Program {
    /// What it runs now; `None` when it has left, or that may not be seen.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Self::look(pid).ok()
    }

    /// The same, with the reason.
    ///
    /// # Errors
    ///
    /// When it has left, or that may not be seen.
    pub(super) fn look(pid: u32) -> io::Result<Self> {
        let (path, (device, inode)) = procfs::executable(pid)?;
        let name = path.file_name().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            file: Identity::Inode(device, inode),
        })
    }
}

/// What was found in the processes that a user named.
#[derive(Default)]
pub(super) struct Found {
    pub(super) resolved: Vec<ResolvedProfile>,
    /// Processes in which markers were found, each with its service.
    services: BTreeMap<u32, usize>,
    /// Programs of theirs.
    programs: BTreeMap<Identity, usize>,
    /// The file names of these programs: another version of one has another file.
    names: BTreeMap<String, usize>,
    /// Both for who comes later: their probes are set before the trace begins, at 0.
    pub(super) probed: Probed,
    /// Whether some run no program that a profile is made for: only what they start is traced.
    pub(super) has_masters: bool,
    /// What units of these programs are called.
    pub(super) units: UnitsOfPrograms,
    /// Processes of which no request is seen, although a profile is made for their program.
    pub(super) unprobed: u64,
}

impl Found {
    fn add(&mut self, process: &Process, resolved: ResolvedProfile) {
        let service = resolved.service;
        self.services.insert(process.pid, service);
        let file = Identity::of(&process.executable.open);
        self.units.add(file.clone(), resolved.units.clone());
        self.programs.insert(file.clone(), service);
        let name = process.executable.file_name().to_owned();
        self.names.insert(name.clone(), service);
        self.probed.add(Program { name, file }, 0);
        self.resolved.push(resolved);
    }

    /// Tells the service of a process by its program: one that a profile is made for, or that of a process
    /// which the user named.
    pub(super) fn service_of(&self, profiles: &Profiles) -> ServiceOf {
        let profiles = profiles.clone();
        let (services, programs) = (self.services.clone(), self.programs.clone());
        let names = self.names.clone();
        Box::new(move |pid| {
            if let Some(service) = services.get(&pid) {
                return Some(*service);
            }
            if profiles.all().len() == 1 && !profiles.name_programs() {
                return Some(0);
            }
            let program = Program::of(pid)?;
            let of_program = || match profiles.name_programs() {
                true => None,
                false => profiles.of_program(&program.name).ok(),
            };
            profiles
                .made_for(&program.name)
                .or_else(|| programs.get(&program.file).copied())
                .or_else(|| names.get(&program.name).copied())
                .or_else(of_program)
        })
    }
}

/// Adds the probes of a child that was there before: none when it runs the same files as a process
/// that was resolved, or a program that no profile fits.
pub(super) fn resolve_child(
    profiles: &Profiles,
    pid: u32,
    processes: &mut Vec<Process>,
    found: &mut Found,
    notices: &Notices,
) {
    // It may have left, and it is nothing that the user named: no error.
    let Ok(mut process) = Process::open(pid) else {
        return;
    };
    let is_made_for = profiles.made_for(process.executable.file_name()).is_some();
    let program = Identity::of(&process.executable.open);
    if profiles.name_programs() && !is_made_for && !found.programs.contains_key(&program) {
        processes.push(process);
        return;
    }
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
            Ok(resolved) => found.add(&process, resolved),
            Err(error) if is_made_for => {
                found.unprobed += 1;
                let name = &process.comm;
                notices.warn(format_args!(
                    "requests of process {pid} ({name}) are not seen: {error}"
                ));
            }
            Err(error) => debug!("child {pid} ({}) has no markers: {error}", process.comm),
        }
    }
    processes.push(process);
}

/// Chooses among the alternatives of each profile, by the processes that take it.
///
/// # Errors
///
/// As [`settle`].
pub(super) fn settle_all(
    profiles: Profiles,
    processes: &[Process],
    notices: &Notices,
) -> Result<Profiles> {
    if !profiles.all().iter().any(Profile::has_alternatives) {
        return Ok(profiles);
    }
    let mut all = Vec::new();
    for (index, profile) in profiles.all().iter().enumerate() {
        // What a process that runs another program will start is not there yet.
        let takes = |process: &&Process| {
            let program = process.executable.file_name();
            let is_other = profiles.name_programs() && profiles.made_for(program).is_none();
            !is_other && profiles.of_program(program).is_ok_and(|of| of == index)
        };
        let targets: Vec<Target<'_>> = processes
            .iter()
            .filter(takes)
            .map(Target::Process)
            .collect();
        let (settled, choices) = settle(profile, &targets)?;
        for choice in choices {
            let name = &choice.request;
            match (choice.taken, choice.is_unknown) {
                (Some(_), true) => notices.note(format_args!(
                    "request `{name}` is traced as its [[request.instead]] says, which may cost more than is \
                     needed: {}",
                    choice.why
                )),
                (Some(_), false) => info!(
                    "request `{name}` is traced as its [[request.instead]] says: {}",
                    choice.why
                ),
                (None, _) => info!("request `{name}` is traced as it stands: {}", choice.why),
            }
        }
        all.push(settled);
    }
    Profiles::new(all)
}

/// Resolves in a process the profile that its program takes.
pub(super) fn resolve_one(profiles: &Profiles, process: &Process) -> Result<ResolvedProfile> {
    let index = profiles.of_program(process.executable.file_name())?;
    Ok(ResolvedProfile {
        service: index,
        first_type: profiles.first_type(index),
        ..resolve(&profiles.all()[index], process)?
    })
}

/// Descendants of a process that run a program which a profile is made for.
fn served_by(profiles: &Profiles, pid: u32) -> usize {
    let descendants = processes::descendants(&[pid]);
    let programs = descendants.into_iter().filter_map(Program::of);
    programs
        .filter(|program| profiles.made_for(&program.name).is_some())
        .count()
}

/// A process that the user named and that is no server itself: what it starts is.
fn say_followed(profiles: &Profiles, process: &Process, notices: &Notices) {
    let now = match served_by(profiles, process.pid) {
        0 => "none of its descendants does yet, and those that will are traced".to_owned(),
        1 => "its descendants that do are traced, 1 now".to_owned(),
        many => format!("its descendants that do are traced, {many} now"),
    };
    notices.note(format_args!(
        "process {} ({}) runs {}, which no profile is made for ({}): {now}",
        process.pid,
        process.comm,
        process.executable.file_name(),
        profiles.programs(),
    ));
}

/// Resolves in every process the profile that its program takes; prints each warning once. With `follow` a
/// process that runs another program than the profiles are made for need not have the markers: its
/// descendants may.
///
/// # Errors
///
/// The first process in which it cannot be resolved; a profile that no process takes.
pub(super) fn resolve_all(
    profiles: &Profiles,
    processes: &[Process],
    follow: bool,
    notices: &Notices,
) -> Result<Found> {
    let mut all = Found::default();
    let mut warnings = BTreeMap::new();
    for process in processes {
        let may_be_master = follow
            && profiles.name_programs()
            && profiles.made_for(process.executable.file_name()).is_none();
        let resolved = match may_be_master && served_by(profiles, process.pid) > 0 {
            true => None,
            false => Some(resolve_one(profiles, process)),
        };
        let resolved = match resolved {
            Some(Ok(resolved)) => resolved,
            Some(Err(error)) if !may_be_master => {
                return Err(error.within(format!("process {} ({})", process.pid, process.comm)));
            }
            _ => {
                say_followed(profiles, process, notices);
                all.has_masters = true;
                continue;
            }
        };
        for warning in &resolved.warnings {
            warnings.insert(warning.clone(), ());
        }
        for note in &resolved.notes {
            info!("{note}");
        }
        all.add(process, resolved);
    }
    for (index, profile) in profiles.all().iter().enumerate() {
        let is_of = |resolved: &ResolvedProfile| resolved.service == index;
        if !all.has_masters && !all.resolved.iter().any(is_of) {
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
    for request in all.resolved.iter().flat_map(|profile| &profile.requests) {
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

/// A label that was asked for and cannot be had is reported, not left out silently.
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
    let mut reported = Vec::new();
    for request in resolved.iter().flat_map(|profile| &profile.requests) {
        if let Some(why) = &request.unlabelled
            && !reported.contains(&why)
        {
            notices.warn(why);
            reported.push(why);
        }
    }
    Ok(())
}

/// An attribute that cannot be read is reported, but for texts that nobody asked for.
pub(super) fn say_unread(resolved: &[ResolvedProfile], labels: bool, notices: &Notices) {
    let mut reported = Vec::new();
    for request in resolved.iter().flat_map(|profile| &profile.requests) {
        for unread in &request.unread {
            let text = format!(
                "request `{}`: the attribute `{}` is not read: {}",
                request.name, unread.attribute, unread.why
            );
            if unread.is_read {
                info!("{text}; it is read in another way");
            } else if (labels || !unread.is_text) && !reported.contains(&text) {
                notices.warn(&text);
                reported.push(text);
            }
        }
    }
}

/// Named waits without a match, of each profile in the executable of its first process; what cannot be
/// read now could be read before, and is no reason to end.
pub(super) fn unmatched_waits(profiles: &Profiles, processes: &[Process]) -> Vec<UnmatchedWait> {
    let mut unmatched = Vec::new();
    for (index, profile) in profiles.all().iter().enumerate() {
        let takes = |process: &&Process| {
            let program = process.executable.file_name();
            profiles.of_program(program).is_ok_and(|of| of == index)
        };
        let is_made_for =
            |process: &&Process| profiles.made_for(process.executable.file_name()) == Some(index);
        let fitting = processes.iter().find(is_made_for);
        let Some(process) = fitting.or_else(|| processes.iter().find(takes)) else {
            continue;
        };
        match unmatched_without_symbols(profile, &Target::Process(process)) {
            Ok(found) => {
                let found = found.into_iter();
                unmatched.extend(found.map(|(wait, functions)| UnmatchedWait { wait, functions }));
            }
            Err(error) => debug!("named waits of {} are not checked: {error}", profile.name),
        }
    }
    unmatched
}
