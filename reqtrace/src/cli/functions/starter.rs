//! A profile to start from: findings in, TOML out that `reqtrace check` accepts.

use std::collections::BTreeSet;

use reqtrace_common::limits::MAX_REQUEST_TYPES;

use super::Search;
use super::find::{Finding, Findings};
use super::proposed;
use super::tasks::Tasks;
use super::watch::Watched;
use super::written::{comment, marker, of_calls, offset, quoted, unique};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::figures::number;
use reqtrace_resolve::search::{Match, Probing};
use reqtrace_resolve::usdt::UsdtProbe;

/// Endings of probes that mark a begin, and what ends it.
const PAIRS: &[(&str, &[&str])] = &[
    ("start", &["done", "end", "finish", "stop", "return"]),
    ("begin", &["end", "done", "finish"]),
    ("entry", &["return", "exit"]),
    ("enter", &["exit", "leave", "return"]),
];

/// Matches that are disassembled, to see which of them can be a request.
const MAX_EXAMINED: usize = 256;

/// Matches named that are not in the profile.
const MAX_LEFT_OUT: usize = 10;

const GOROUTINES: &str = "\
\n# A request is what one goroutine does, on whatever threads.
[runtime]
kind = \"go\"
";

const WAITS: &str = "\
# What a request waits for has a built-in class (disk, network, lock, sleep, …). Give names to the
# waits that matter to you; the first that matches wins:
#
# [[wait]]
# name = \"journal\"
# files = [\"*/journal*\"]          # by the file that is read, written or synced
#
# [[wait]]
# name = \"account lock\"
# functions = [\"*::lock_account*\"]  # by a function on the stack
";

/// A profile, or what is left of it.
pub(super) struct Starter {
    /// The text.
    pub(super) text: String,
    /// Why it is no profile: only what was counted.
    pub(super) lacks: Option<Error>,
}

/// The profile.
///
/// # Errors
///
/// More matches than a profile has request types, unless they were watched; none that can be a
/// request, unless they were.
pub(super) fn profile(
    search: &Search,
    findings: &Findings,
    watched: Option<&Watched>,
) -> Result<Starter> {
    if watched.is_none() && findings.count() > MAX_EXAMINED {
        return Err(too_many(search, findings));
    }
    let mut names = BTreeSet::new();
    // A request of a program of Go is known by its goroutine, a task of tokio is one: neither needs another key.
    let is_go = findings.objects.iter().any(|found| found.object.is_go());
    let tasks = Tasks::of(search, findings);
    let has_tasks = tasks.as_ref().is_some_and(|tasks| tasks.count() > 0);
    let keyed = watched.filter(|_| !is_go && !has_tasks);
    let proposed = keyed.map(|watched| proposed::of(findings, watched, &mut names));
    let proposed = proposed.unwrap_or_default();
    let mut requests = Vec::new();
    let mut left_out = tasks.as_ref().map_or_else(Vec::new, Tasks::left_out);
    for (at, found) in findings.objects.iter().enumerate() {
        for (index, function) in found.functions.iter().enumerate() {
            if proposed.functions.contains(&(at, index)) {
                continue;
            }
            if tasks.as_ref().is_some_and(|tasks| tasks.has(function)) {
                continue;
            }
            if let Some(why) = tasks.as_ref().and_then(|tasks| tasks.refuses(function)) {
                left_out.push(why);
                continue;
            }
            match function.probing(&found.object) {
                Probing::Sites(count) => {
                    let calls = watched.and_then(|watched| watched.calls(at, index));
                    requests.push((calls, of_function(found, function, count)));
                }
                Probing::NeverReturns => left_out.push(format!(
                    "{}: never returns, so it would need an `end`",
                    function.signature
                )),
                Probing::PiecesOnly => left_out.push(format!(
                    "{}: inlined, only pieces of it are left",
                    function.signature
                )),
            }
        }
        for probe in &found.probes {
            match end_of(probe, found) {
                _ if has_tasks => {
                    left_out.push(format!("{}: is no task", probe.full_name()));
                }
                Some(end) => requests.push((None, of_probe(found, probe, end))),
                None if is_end(probe, found) => {}
                None => left_out.push(format!(
                    "{}: no probe is known to end what it begins",
                    probe.full_name()
                )),
            }
        }
    }
    let count = tasks.as_ref().map_or(0, Tasks::count);
    let room = MAX_REQUEST_TYPES - (proposed.requests + count).min(MAX_REQUEST_TYPES);
    if requests.len() > room {
        if watched.is_none() {
            return Err(too_many(search, findings));
        }
        // Those that are called most stay; what was not counted goes last.
        requests.sort_by_key(|(calls, _)| std::cmp::Reverse(*calls));
        let rest = requests.split_off(room);
        left_out.extend(rest.into_iter().map(|(calls, request)| {
            let calls = calls.map_or_else(|| "not counted".to_owned(), of_calls);
            format!(
                "{}: {calls}, and a profile has at most {MAX_REQUEST_TYPES} request types",
                request.name
            )
        }));
    }
    if requests.is_empty() && proposed.requests == 0 && count == 0 {
        let why = match left_out.as_slice() {
            [] => "only code fits that drops values".to_owned(),
            left_out => left_out.join("; "),
        };
        let error = Error::usage(format!(
            "nothing that `{}` fits can be a request by itself: {why}",
            search.pattern,
        ))
        .next("look for a function that is called once a request and returns");
        return match watched {
            Some(_) => Ok(Starter {
                text: proposed.text.trim_start().to_owned(),
                lacks: Some(error),
            }),
            None => Err(error),
        };
    }
    let requests = requests.into_iter().map(|(_, request)| request);
    let mut text = head(search, findings, watched, is_go || has_tasks);
    if is_go {
        text.push_str(GOROUTINES);
    }
    if let Some(tasks) = &tasks {
        text.push_str(&tasks.text(&mut names));
    }
    text.push_str(&proposed.text);
    for request in requests {
        text.push_str(&format!(
            "\n# {}\n[[request]]\nname  = {}\n{}begin = {}\n",
            comment(&request.comment),
            quoted(&unique(&request.name, &mut names)),
            if is_go { "key   = \"unit\"\n" } else { "" },
            request.begin
        ));
        if let Some(end) = request.end {
            text.push_str(&format!("end   = {end}\n"));
        }
    }
    text.push_str(&of_left_out(&left_out));
    text.push('\n');
    text.push_str(WAITS);
    Ok(Starter { text, lacks: None })
}

fn too_many(search: &Search, findings: &Findings) -> Error {
    Error::usage(format!(
        "`{}` fits {} functions and probes; a profile has at most {MAX_REQUEST_TYPES} request types",
        search.pattern,
        number(findings.count() as u64)
    ))
    .next("list them without --as-profile, and give a pattern that fits those you want")
}

/// One `[[request]]` to be.
struct Request {
    name: String,
    comment: String,
    begin: String,
    end: Option<String>,
}

/// What the profile is, and `[profile]`.
fn head(
    search: &Search,
    findings: &Findings,
    watched: Option<&Watched>,
    has_runtime: bool,
) -> String {
    let executable = executable(search, findings);
    let where_ = match (&search.binary, search.pids.as_slice()) {
        (Some(binary), _) => binary.to_string_lossy().into_owned(),
        (None, pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("-p {}", pids.join(","))
        }
    };
    let name = executable.clone().unwrap_or_else(|| "service".to_owned());
    let counted = watched.map(|watched| format!(" --count {}", comment(&watched.seconds)));
    let counted = counted.unwrap_or_default();
    let key = match watched {
        _ if has_runtime => "",
        Some(_) => "",
        None => {
            "# `--count 5` together with --as-profile also looks for a key: requests that change threads\n\
             # need one.\n"
        }
    };
    let mut text = format!(
        "# A start, made by: reqtrace functions {where_} '{}' --as-profile{counted}\n\
         # Keep the functions that are called once a request and return when it is done, and give\n\
         # them the names that your users would. `reqtrace check --profile FILE {where_}` says what\n\
         # would be probed; `reqtrace functions {where_} PATTERN --count 5` how often it is called.\n\
         {key}\n[profile]\nname = {}\n",
        comment(&search.pattern),
        quoted(&name)
    );
    if let Some(executable) = &executable {
        text.push_str(&format!("executables = [{}]\n", quoted(executable)));
    }
    text
}

fn of_left_out(left_out: &[String]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Left out:\n");
    for what in left_out.iter().take(MAX_LEFT_OUT) {
        text.push_str(&format!("#   {}\n", comment(what)));
    }
    let more = left_out.len().saturating_sub(MAX_LEFT_OUT);
    if more > 0 {
        text.push_str(&format!("#   and {more} more\n"));
    }
    text
}

/// The program's file name, where it is known.
fn executable(search: &Search, findings: &Findings) -> Option<String> {
    let known = findings.objects.iter().find(|found| found.is_executable);
    if let Some(found) = known {
        return Some(found.file.file_name().to_owned());
    }
    let process = reqtrace_resolve::Process::open(*search.pids.first()?).ok()?;
    Some(process.executable.file_name().to_owned())
}

fn of_function(found: &Finding, function: &Match, returns: usize) -> Request {
    let place = match function.spelling(&found.object) {
        Some(name) => format!("function = {}", quoted(&name)),
        None => format!("offset = {:#x}", offset(found, function)),
    };
    let s = if returns == 1 { "" } else { "s" };
    Request {
        name: function.short_name().to_owned(),
        comment: format!("{} · {returns} return{s}", function.signature),
        begin: marker(found, &place),
        end: found
            .object
            .is_go()
            .then(|| marker(found, &format!("{place}, at = \"return\""))),
    }
}

fn of_probe(found: &Finding, probe: &UsdtProbe, end: &UsdtProbe) -> Request {
    let place =
        |probe: &UsdtProbe| marker(found, &format!("usdt = {}", quoted(&probe.full_name())));
    Request {
        name: probe.name.clone(),
        comment: format!("from {} to {}", probe.full_name(), end.full_name()),
        begin: place(probe),
        end: Some(place(end)),
    }
}

/// The probe that ends what this one begins, by their names.
fn end_of<'a>(probe: &UsdtProbe, found: &'a Finding) -> Option<&'a UsdtProbe> {
    found
        .probes
        .iter()
        .find(|other| other.provider == probe.provider && ends(&probe.name, &other.name))
}

fn is_end(probe: &UsdtProbe, found: &Finding) -> bool {
    found
        .probes
        .iter()
        .any(|other| other.provider == probe.provider && ends(&other.name, &probe.name))
}

fn ends(begin: &str, end: &str) -> bool {
    PAIRS.iter().any(|(first, lasts)| {
        begin.strip_suffix(first).is_some_and(|head| {
            end.strip_prefix(head)
                .is_some_and(|tail| lasts.contains(&tail))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_belong_to_their_begins() {
        assert!(ends("query__start", "query__done"));
        assert!(ends("gc__begin", "gc__end"));
        assert!(!ends("query__start", "sort__done"));
        assert!(!ends("query__done", "query__start"));
    }
}
