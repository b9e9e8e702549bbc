//! `reqtrace check`: resolves a profile in a process or a program and prints what would be probed,
//! and what its named waits match. Nothing is attached.

mod waits;

use std::path::PathBuf;

use super::library;
use super::outputs::parse_pids;
use super::profiles::print;
use crate::attach::safety;
use crate::error::{Error, Result};
use crate::profile::{At, MarkerSpec, PlaceSpec, Profile, Profiles, RequestSpec, ReturnProbe};
use crate::resolve::{
    ObjectFile, Process, ResolvedMarker, ResolvedProfile, ResolvedRequest, Target, resolve,
    resolve_file, returns, symbols,
};
use waits::Waits;

/// Sites printed for one marker before the rest is only counted.
const MAX_SITES: usize = 12;

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Profile: the path of a TOML file, or a name that `reqtrace profiles` lists. Repeat it for several
    /// services: each process takes the one whose `executables` fit
    #[arg(long = "profile", value_name = "PROFILE", required = true)]
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
    let named = args.profiles.iter().map(|name| library::load(name));
    let profiles = Profiles::new(named.collect::<Result<_>>()?)?;
    let of_program = |file: &ObjectFile| -> Result<&Profile> {
        Ok(&profiles.all()[profiles.of_program(file.file_name())?])
    };
    let pids = parse_pids(&args.pids)?;
    if let Some(binary) = &args.binary {
        let target = Target::file(binary);
        let profile = of_program(target.executable())?;
        let resolved = resolve_file(profile, binary)?;
        if args.sites {
            return print(&sites(&resolved));
        }
        return report(profile, &resolved, &target, None);
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
        let resolved = resolve(profile, &process).map_err(within)?;
        if args.sites {
            print(&sites(&resolved))?;
            continue;
        }
        let target = Target::Process(&process);
        report(profile, &resolved, &target, Some(&process)).map_err(within)?;
    }
    Ok(())
}

/// Prints what was resolved. What the gate of a trace would refuse comes last, as an error.
fn report(
    profile: &Profile,
    resolved: &ResolvedProfile,
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
        text.push_str(&describe(spec, request, target)?);
    }
    let mut waits = Waits::of(profile, target)?;
    for wait in &profile.waits {
        text.push('\n');
        text.push_str(&waits.describe(wait));
    }
    let pids: Vec<u32> = process.iter().map(|process| process.pid).collect();
    let judgement = safety::judge(std::slice::from_ref(resolved), &pids)?;
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
    let refused = judgement.refused.into_iter().chain(judgement.doubted);
    refused.into_iter().next().map_or(Ok(()), Err)
}

/// The probed places, a line each.
fn sites(resolved: &ResolvedProfile) -> String {
    let mut text = String::new();
    for request in &resolved.requests {
        for (name, marker) in [("begin", &request.begin), ("end", &request.end)] {
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

fn describe(spec: &RequestSpec, request: &ResolvedRequest, target: &Target<'_>) -> Result<String> {
    let probe = request.return_probe;
    let end = spec.end.as_ref();
    let mut text = format!("\nrequest {}\n", request.name);
    text.push_str(&marker(
        "begin",
        Some(&spec.begin),
        &request.begin,
        probe,
        target,
    )?);
    text.push_str(&marker("end", end, &request.end, probe, target)?);
    text.push_str(if request.same_frame {
        "  an end belongs to its begin by the stack pointer\n"
    } else {
        "  begin and end are not of one call: told apart by thread only\n"
    });
    match (&request.unlabelled, spec.labels.is_empty()) {
        (Some(why), _) => text.push_str(&format!("  no label: {why}\n")),
        (None, false) => text.push_str("  a label is read at begin, with --labels\n"),
        (None, true) => {}
    }
    Ok(text)
}

fn marker(
    name: &str,
    spec: Option<&MarkerSpec>,
    marker: &ResolvedMarker,
    probe: ReturnProbe,
    target: &Target<'_>,
) -> Result<String> {
    let is_usdt = spec.is_some_and(|spec| matches!(spec.place, PlaceSpec::Usdt { .. }));
    let how = match (marker.at, probe) {
        _ if is_usdt => "USDT",
        (At::Entry, _) if !marker.is_function => "instruction",
        (At::Entry, _) => "entry",
        (At::Return, ReturnProbe::Sites) => "return",
        (At::Return, ReturnProbe::Uretprobe) => "return by uretprobe",
    };
    let mut sites: Vec<String> = marker
        .sites
        .iter()
        .take(MAX_SITES)
        .map(|site| match (site.condition, site.semaphore) {
            (Some(_), _) => format!("0x{:x} (conditional)", site.file_offset),
            (None, Some(_)) => format!("0x{:x} (semaphore)", site.file_offset),
            (None, None) => format!("0x{:x}", site.file_offset),
        })
        .collect();
    if marker.sites.len() > MAX_SITES {
        sites.push("…".to_owned());
    }
    let count = marker.sites.len();
    let plural = if count == 1 { "" } else { "s" };
    let function = if is_usdt || !marker.is_function {
        String::new()
    } else {
        format!("function at offset 0x{:x} · ", marker.entry_offset)
    };
    let mut text = format!(
        "  {name:<5} {} ({how})\n        {} · {function}{count} probe{plural}: {}\n",
        marker.symbol,
        marker.object_shown,
        sites.join(" ")
    );
    if !is_usdt {
        text.push_str(&places(name, marker, probe, target)?);
    }
    let skipped = match spec {
        Some(spec) => skipped(spec, marker, target)?,
        None => Vec::new(),
    };
    if !skipped.is_empty() {
        text.push_str(&format!(
            "        tried first and not found: {}\n",
            skipped.join(", ")
        ));
    }
    Ok(text)
}

/// The instructions that stand for an entry or a return, and which ones the kernel must single-step.
fn places(
    name: &str,
    marker: &ResolvedMarker,
    probe: ReturnProbe,
    target: &Target<'_>,
) -> Result<String> {
    let is_return = marker.at == At::Return;
    if is_return && probe == ReturnProbe::Uretprobe {
        return Ok(String::new());
    }
    let object = target.open(&ObjectFile {
        open: marker.object.clone(),
        shown: marker.object_shown.clone(),
    })?;
    let mut text = String::new();
    for site in marker.sites.iter().take(MAX_SITES) {
        let found = object
            .address_of(site.file_offset)
            .and_then(|address| returns::instruction_at(&object, address));
        let Some((instruction, is_emulated)) = found else {
            continue;
        };
        if !is_return && site.distance == 0 && is_emulated {
            continue;
        }
        let place = match (site.distance, is_return) {
            (0, _) => String::new(),
            (bytes, true) => format!(", {bytes} bytes before the return"),
            (bytes, false) => format!(", {bytes} bytes behind the entry"),
        };
        let how = if is_emulated {
            "emulated by the kernel"
        } else {
            "single-stepped by the kernel, which is slower"
        };
        text.push_str(&format!(
            "        {name} at 0x{:x} {instruction}{place} ({how})\n",
            site.file_offset
        ));
    }
    Ok(text)
}

/// Alternatives of a marker before the one that was taken, which this program does not have.
fn skipped(spec: &MarkerSpec, marker: &ResolvedMarker, target: &Target<'_>) -> Result<Vec<String>> {
    let PlaceSpec::Function { patterns, .. } = &spec.place else {
        return Ok(Vec::new());
    };
    if patterns.len() < 2 {
        return Ok(Vec::new());
    }
    let object = target.open(&ObjectFile {
        open: marker.object.clone(),
        shown: marker.object_shown.clone(),
    })?;
    let mut skipped = Vec::new();
    for pattern in patterns {
        if symbols::find(&object, pattern)?.is_some() {
            break;
        }
        skipped.push(pattern.clone());
    }
    Ok(skipped)
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
