//! What to trace with what: options in; a profile, processes, and perhaps a program that waits to be
//! started, out. What was chosen for the user is printed.

use std::collections::BTreeSet;

use super::started::Started;
use super::targets;
use crate::cli::library::{self, Library, no_profile};
use crate::cli::options::TraceOptions;
use crate::cli::running::{Processes, Running};
use crate::cli::show::room;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use reqtrace_capture::kernel::processes;
use reqtrace_profile::{Profile, Profiles};
use reqtrace_resolve::{Process, Target};

/// What a trace begins with.
pub(super) struct Choice {
    pub(super) profiles: Profiles,
    /// As named by the user, or found; in the order in which they were.
    pub(super) processes: Vec<Process>,
    /// The program behind `--`: it is one of the processes, and has not begun.
    pub(super) started: Option<Started>,
}

/// Chooses what the options leave open.
///
/// # Errors
///
/// Usage errors: no such profile or process, no profile is made for a program, or more than one
/// server fits.
pub(super) fn choose(options: &TraceOptions) -> Result<Choice> {
    let named = options.profiles.iter().map(|name| library::load(name));
    let named: Vec<Profile> = named.collect::<Result<_>>()?;
    let named = (!named.is_empty())
        .then(|| Profiles::new(named))
        .transpose()?;
    if !options.command.is_empty() {
        return command(options, named);
    }
    let pids = targets::pids(options)?;
    let open = |pids: &[u32]| -> Result<Vec<Process>> {
        pids.iter().map(|&pid| Process::open(pid)).collect()
    };
    let (profiles, processes) = match named {
        Some(profiles) if pids.is_empty() => {
            let servers = profiles.all().iter().map(only_server);
            let processes = open(&servers.collect::<Result<Vec<_>>>()?)?;
            (profiles, processes)
        }
        Some(profiles) => (profiles, open(&pids)?),
        None => {
            let processes = open(&pids)?;
            let profiles = for_processes(&processes, options.outputs.quiet)?;
            (profiles, processes)
        }
    };
    Ok(Choice {
        profiles,
        processes,
        started: None,
    })
}

/// A program to start. Where it is behind another one (`setpriv … PROGRAM`), it is the first word that
/// the profile is made for.
fn command(options: &TraceOptions, named: Option<Profiles>) -> Result<Choice> {
    let (profiles, started) = match named {
        Some(profiles) => {
            let [profile] = profiles.all() else {
                return Err(Error::usage(format!(
                    "a program to start, and the profiles of several services: {}",
                    profiles.names()
                ))
                .next("start the programs yourself, and give their processes with -p"));
            };
            let fits = |name: &str| profile.is_made_for(name);
            let started = Started::prepare(&options.command, fits)?;
            (profiles, started)
        }
        None => {
            let library = Library::read();
            let fits = |name: &str| !library.made_for(name).is_empty();
            let started = Started::prepare(&options.command, fits)?;
            let name = started.executable_name();
            let profile = library
                .first_for(&name, options.outputs.quiet)
                .ok_or_else(|| {
                    let target = Target::file(started.path());
                    no_profile(&library, &target, started.path().display())
                })?;
            (profile.into(), started)
        }
    };
    let started = started.start()?;
    Ok(Choice {
        profiles,
        processes: vec![started.process()],
        started: Some(started),
    })
}

/// The one running server that a profile is made for.
fn only_server(profile: &Profile) -> Result<u32> {
    let name = &profile.name;
    if profile.executables.is_empty() {
        return Err(Error::usage(format!(
            "no process given, and the profile `{name}` does not say which executables it is made \
             for"
        ))
        .next("give -p PID, such as -p $(pgrep -d, -x NAME), or --comm NAME"));
    }
    let processes = Processes::read();
    let servers = processes.of(profile);
    let made_for = profile.executables.join(" or ");
    match servers.as_slice() {
        [one] => Ok(one.pid),
        [] if processes.some_hidden => Err(Error::unsupported(format!(
            "no process given, and not permitted to look for a running {made_for} among other \
             users' processes"
        ))
        .next("run it as root: sudo reqtrace …")),
        [] => Err(Error::usage(format!(
            "no process given, and no {made_for} is running, which the profile `{name}` is made for"
        ))
        .next(format!(
            "start it and run this again, start it with reqtrace --profile {name} -- PROGRAM …, or \
             give -p PID"
        ))),
        many => Err(Error::usage(format!(
            "no process given, and the profile `{name}` is made for {} servers that are running",
            many.len()
        ))
        .next(format!("say which{}:\n{}", master_of(many), listed(many)))),
    }
}

/// What started all of them, if that is one program: it stands for them and for those to come.
fn master_of(servers: &[&Running]) -> String {
    let parents: BTreeSet<u32> = servers.iter().map(|server| server.parent).collect();
    match parents.first() {
        Some(&parent) if parents.len() == 1 && parent > 1 => {
            let name = processes::comm(parent).unwrap_or_default();
            format!(
                ", or -p {parent} ({}), which has started all of them, for all and those to come",
                Plain::of(&name)
            )
        }
        _ => String::new(),
    }
}

fn listed(servers: &[&Running]) -> String {
    let lines: Vec<String> = servers
        .iter()
        .map(|server| {
            let option = format!("    -p {:<8} ", server.pid);
            let room = room(&std::io::stderr(), option.len());
            format!("{option}{}", server.command_line(room))
        })
        .collect();
    lines.join("\n")
}

/// The profiles that are made for these processes, each once.
fn for_processes(processes: &[Process], quiet: bool) -> Result<Profiles> {
    let library = Library::read();
    let mut named: Vec<&Process> = processes.iter().collect();
    named.sort_by_key(|process| process.executable.file_name());
    named.dedup_by_key(|process| process.executable.file_name());
    let mut profiles: Vec<Profile> = Vec::new();
    for process in named {
        let first = library.first_for(process.executable.file_name(), quiet);
        let first = first.ok_or_else(|| without_profile(process, &library))?;
        if !profiles.contains(&first) {
            profiles.push(first);
        }
    }
    Profiles::new(profiles)
}

/// A process whose program has no profile: perhaps a child of it has.
fn without_profile(process: &Process, library: &Library) -> Error {
    let below = processes::descendants(&[process.pid]);
    let running = Processes::read();
    let servers = running.with_profile(library);
    let child = servers.iter().find(|(one, _)| below.contains(&one.pid));
    let shown = format!(
        "process {} ({})",
        process.pid,
        process.executable.file_name()
    );
    let error = no_profile(library, &Target::Process(process), shown);
    match child {
        Some((child, profile)) => error.next(format!(
            "its child {0} ({1}) has the profile {profile}: -p {0}",
            child.pid, child.executable
        )),
        None => error,
    }
}
