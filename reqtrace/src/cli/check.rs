//! `reqtrace check`: resolves a profile in a process or a program and prints what would be probed,
//! and what its named waits match. Nothing is attached to it.

mod markers;
mod waits;
mod words;

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::library::{self, Library, no_profile};
use super::outputs::parse_pids;
use super::profiles::print;
use markers::describe;
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::attach::{PlanTables, plan_probes, safety, trial};
use reqtrace_profile::{Profile, Profiles};
use reqtrace_resolve::{
    Choice, ObjectFile, Process, ResolvedProfile, Target, resolve, resolve_file, settle,
};
use waits::Waits;

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Profile: the path of a TOML file, or a name that `reqtrace profiles` lists. Repeat it for several
    /// services: each process takes the one whose `executables` fit. Without it, the one made for the program
    #[arg(long = "profile", value_name = "PROFILE")]
    pub profiles: Vec<String>,

    /// Resolve it in this process; several with commas, or repeat the option
    #[arg(
        short,
        long = "pid",
        value_name = "PID[,PID…]",
        value_delimiter = ',',
        conflicts_with = "binary"
    )]
    pub pids: Vec<String>,

    /// Resolve it in this program or library, which need not run
    #[arg(value_name = "BINARY")]
    pub binary: Option<PathBuf>,

    /// Print only the places that would be probed, for other programs: a line each with marker, offset
    /// in the file, file and request type, tabs between
    #[arg(long)]
    pub sites: bool,
}

/// Runs it. Without a process and a program only the profile is checked.
///
/// # Errors
///
/// What is wrong with the profile, what cannot be resolved, or what a trace would be refused for.
pub fn run(args: &CheckArgs) -> Result<()> {
    let profiles = profiles(args)?;
    let of_program = |file: &ObjectFile| -> Result<&Profile> {
        Ok(&profiles.all()[profiles.of_program(file.file_name())?])
    };
    let pids = parse_pids(&args.pids)?;
    if let Some(binary) = &args.binary {
        let target = Target::file(binary);
        let profile = of_program(target.executable())?;
        let (profile, choices) = settle(profile, std::slice::from_ref(&target))?;
        let resolved = resolve_file(&profile, binary)?;
        if args.sites {
            return print(&sites(&resolved));
        }
        return report(&profile, (&resolved, &choices), &target, None);
    }
    if pids.is_empty() {
        let valid = profiles.all().iter().map(|profile| {
            format!(
                "profile {}: valid (request types: {}; named waits: {}); give -p PID or a program \
                 to resolve it\n",
                profile.name,
                names(profile.requests.iter().map(|request| &request.name)),
                names(profile.waits.iter().map(|wait| &wait.name))
            )
        });
        return print(&valid.collect::<String>());
    }
    for (index, &pid) in pids.iter().enumerate() {
        if index > 0 && !args.sites {
            print("\n")?;
        }
        let process = Process::open(pid)?;
        let within = |error: Error| {
            if pids.len() > 1 {
                error.within(format!("process {pid} ({})", process.comm))
            } else {
                error
            }
        };
        let profile = of_program(&process.executable).map_err(within)?;
        let target = Target::Process(&process);
        let settled = settle(profile, std::slice::from_ref(&target)).map_err(within)?;
        let (profile, choices) = settled;
        let resolved = resolve(&profile, &process).map_err(within)?;
        if args.sites {
            print(&sites(&resolved))?;
            continue;
        }
        report(&profile, (&resolved, &choices), &target, Some(&process)).map_err(within)?;
    }
    Ok(())
}

/// Those that are named, or made for what is named.
fn profiles(args: &CheckArgs) -> Result<Profiles> {
    if !args.profiles.is_empty() {
        let named = args.profiles.iter().map(|name| library::load(name));
        return Profiles::new(named.collect::<Result<_>>()?);
    }
    let library = Library::read();
    let made_for = |target: &Target<'_>, shown: String| {
        let first = library.first_for(target.executable().file_name(), args.sites);
        first.ok_or_else(|| no_profile(&library, target, shown))
    };
    if let Some(binary) = &args.binary {
        let shown = binary.display().to_string();
        return Ok(made_for(&Target::file(binary), shown)?.into());
    }
    let (mut found, mut names) = (Vec::new(), BTreeSet::new());
    for pid in parse_pids(&args.pids)? {
        let process = Process::open(pid)?;
        if !names.insert(process.executable.file_name().to_owned()) {
            continue;
        }
        let shown = format!("process {pid} ({})", process.comm);
        let profile = made_for(&Target::Process(&process), shown)?;
        if !found.contains(&profile) {
            found.push(profile);
        }
    }
    if found.is_empty() {
        return Err(
            Error::usage("nothing to check: no profile, no process and no program given")
                .next("--profile NAME checks a profile, -p PID or a program what is made for it"),
        );
    }
    Profiles::new(found)
}

/// Prints what was resolved. What the gate of a trace would refuse comes last, as an error.
fn report(
    profile: &Profile,
    (resolved, choices): (&ResolvedProfile, &[Choice]),
    target: &Target<'_>,
    process: Option<&Process>,
) -> Result<()> {
    let executable = &target.executable().shown;
    let mut text = match process {
        Some(process) => format!(
            "profile {} in process {} ({}), {executable}\n",
            profile.name, process.pid, process.comm
        ),
        None => format!("profile {} in {executable}\n", profile.name),
    };
    for (spec, request) in profile.requests.iter().zip(&resolved.requests) {
        let choice = choices.iter().find(|choice| choice.request == spec.name);
        text.push_str(&describe(spec, (request, choice), target)?);
    }
    let mut waits = Waits::of(profile, target)?;
    for wait in &profile.waits {
        text.push('\n');
        text.push_str(&waits.describe(wait));
    }
    let pids: Vec<u32> = process.iter().map(|process| process.pid).collect();
    let judgement = safety::judge(std::slice::from_ref(resolved), &pids);
    let mut notes: Vec<String> = Vec::new();
    let closer = resolved.notes.iter().cloned().chain(waits.advice());
    notes.extend(closer.map(|note| format!("note: {note}")));
    let warnings = resolved.warnings.iter().chain(&judgement.warnings);
    notes.extend(warnings.map(|warning| format!("warning: {warning}")));
    if !notes.is_empty() {
        text.push('\n');
        text.push_str(&notes.join("\n"));
        text.push('\n');
    }
    print(&text)?;
    // What a trace would say of markers that are at one place.
    let resolved = std::slice::from_ref(resolved);
    let plans = plan_probes(resolved, &mut PlanTables::new(true))?;
    let refused = judgement.refused.into_iter().chain(judgement.doubted);
    // Without the permission to try it, what every kernel refuses has been looked at.
    let untaken = || trial::refused(&plans).ok().flatten();
    refused
        .into_iter()
        .next()
        .or_else(untaken)
        .map_or(Ok(()), Err)
}

/// The probed places, a line each.
fn sites(resolved: &ResolvedProfile) -> String {
    let mut text = String::new();
    for request in &resolved.requests {
        for (role, marker) in request.markers() {
            let name = role.name();
            for site in &marker.sites {
                text.push_str(&format!(
                    "{name}\t0x{:x}\t{}\t{}\n",
                    site.file_offset, marker.object_shown, request.name
                ));
            }
        }
    }
    text
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    // Several waits may have one name.
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name.as_str()) {
            all.push(name);
        }
    }
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}
