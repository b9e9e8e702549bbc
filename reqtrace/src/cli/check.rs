//! `reqtrace check`: resolves a profile in a process or a program and prints what would be probed.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::options::parse_pids;
use super::profiles::print;
use crate::error::{Error, Result};
use crate::profile::{At, Profile, ReturnProbe, builtin};
use crate::resolve::{
    Process, ResolvedMarker, ResolvedProfile, Target, resolve, resolve_file, unmatched_functions,
};

/// Sites printed for one marker before the rest is only counted.
const MAX_SITES: usize = 12;

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Profile: the path of a TOML file, or the name of a built-in one
    #[arg(long, value_name = "PROFILE")]
    pub profile: String,

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
}

/// Runs it. Without a process and a program only the profile is checked.
///
/// # Errors
///
/// What is wrong with the profile, or what cannot be resolved.
pub fn run(args: &CheckArgs) -> Result<()> {
    let profile = builtin::load(&args.profile)?;
    let pids = parse_pids(&args.pids)?;
    let mut text = String::new();
    if let Some(binary) = &args.binary {
        let resolved = resolve_file(&profile, binary)?;
        let target = Target::file(binary);
        describe(&mut text, &profile, &resolved, &target)?;
    }
    for pid in &pids {
        let process = Process::open(*pid)?;
        let resolved = resolve(&profile, &process).map_err(|error| {
            if pids.len() > 1 {
                error.within(format!("process {pid} ({})", process.comm))
            } else {
                error
            }
        })?;
        if pids.len() > 1 {
            line(&mut text, format_args!("process {pid} ({})", process.comm))?;
        }
        let target = Target::Process(&process);
        describe(&mut text, &profile, &resolved, &target)?;
    }
    if args.binary.is_none() && pids.is_empty() {
        line(
            &mut text,
            format_args!(
                "profile {}: valid (request types: {}; named waits: {}); give -p PID or a \
                 program to resolve it",
                profile.name,
                names(profile.requests.iter().map(|request| &request.name)),
                names(profile.waits.iter().map(|wait| &wait.name))
            ),
        )?;
    }
    print(&text)
}

fn describe(
    text: &mut String,
    profile: &Profile,
    resolved: &ResolvedProfile,
    target: &Target<'_>,
) -> Result<()> {
    for request in &resolved.requests {
        line(text, format_args!("request {}", request.name))?;
        let probe = request.return_probe;
        marker(text, "begin", &request.begin, probe)?;
        marker(text, "end", &request.end, probe)?;
        let tie = if request.same_frame {
            "an end belongs to its begin by the stack pointer"
        } else {
            "begin and end are in different functions: told apart by thread only"
        };
        line(text, format_args!("  {tie}"))?;
    }
    let unmatched = unmatched_functions(profile, target)?;
    for (wait, patterns) in &unmatched {
        line(
            text,
            format_args!(
                "note: wait `{wait}`: no function of the executable matches {}",
                patterns.join(", ")
            ),
        )?;
    }
    if !unmatched.is_empty() {
        line(
            text,
            format_args!("note: these matchers stay silent; debug symbols may name what they need"),
        )?;
    }
    for warning in &resolved.warnings {
        line(text, format_args!("warning: {warning}"))?;
    }
    Ok(())
}

fn marker(
    text: &mut String,
    name: &str,
    marker: &ResolvedMarker,
    probe: ReturnProbe,
) -> Result<()> {
    let how = match (marker.at, probe) {
        (At::Entry, _) => "entry",
        (At::Return, ReturnProbe::Sites) => "return",
        (At::Return, ReturnProbe::Uretprobe) => "return by uretprobe",
    };
    line(text, format_args!("  {name:<5} {} ({how})", marker.symbol))?;
    let mut sites: Vec<String> = marker
        .sites
        .iter()
        .take(MAX_SITES)
        .map(|site| match site.condition {
            Some(_) => format!("0x{:x} (conditional)", site.file_offset),
            None => format!("0x{:x}", site.file_offset),
        })
        .collect();
    if marker.sites.len() > MAX_SITES {
        sites.push("…".to_owned());
    }
    let count = marker.sites.len();
    let plural = if count == 1 { "" } else { "s" };
    line(
        text,
        format_args!(
            "        {} · function at offset 0x{:x} · {count} probe{plural}: {}",
            marker.object_shown,
            marker.entry_offset,
            sites.join(" ")
        ),
    )
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(text, "{content}").map_err(|error| Error::failed("cannot format").because(error))
}
