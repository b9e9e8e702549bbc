//! What fits: a [`Search`] in, the objects with what was found in each out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Search;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::elf::Object;
use reqtrace_resolve::missing::missing;
use reqtrace_resolve::search::{Match, NameMatcher, search};
use reqtrace_resolve::usdt::{UsdtProbe, usdt_probes};
use reqtrace_resolve::{ObjectFile, Opened, Process, Target};

/// Everything that fits.
pub(super) struct Findings {
    /// Objects in which something was found; the executable first.
    pub(super) objects: Vec<Finding>,
    /// Objects that were searched.
    pub(super) searched: usize,
    /// Objects that could not be, and why.
    pub(super) unreadable: Vec<String>,
    /// Debug files that were not used, and why.
    pub(super) unused: Vec<String>,
}

/// What was found in one object.
pub(super) struct Finding {
    /// The file.
    pub(super) file: ObjectFile,
    /// Whether it is the program itself, so that a profile need not name it.
    pub(super) is_executable: bool,
    /// The same, parsed.
    pub(super) object: Arc<Opened>,
    /// By name.
    pub(super) functions: Vec<Match>,
    /// By name.
    pub(super) probes: Vec<UsdtProbe>,
    /// Notes of probes that could not be read.
    pub(super) malformed_notes: usize,
}

impl Findings {
    /// Searches.
    ///
    /// # Errors
    ///
    /// No such process or file, no such object, nothing found.
    pub(super) fn of(search: &Search, wanted_object: Option<&str>) -> Result<Self> {
        let processes: Vec<Process> = search
            .pids
            .iter()
            .map(|&pid| Process::open(pid))
            .collect::<Result<_>>()?;
        let targets = match &search.binary {
            Some(binary) => vec![Target::file(binary)],
            None => processes.iter().map(Target::Process).collect(),
        };
        let mut findings = Self {
            objects: Vec::new(),
            searched: 0,
            unreadable: Vec::new(),
            unused: Vec::new(),
        };
        let mut executable = None;
        for (target, file) in files(&targets, wanted_object)? {
            let is_executable = file == *target.executable();
            let object = match target.look_at(&file) {
                Ok(object) => {
                    findings.unused.extend(object.refused.iter().cloned());
                    object
                }
                Err(error) if is_executable || wanted_object.is_some() => return Err(error),
                Err(error) => {
                    findings.unreadable.push(error.to_string());
                    continue;
                }
            };
            findings.searched += 1;
            let found = Finding::of(file, is_executable, object, &search.pattern);
            if !found.functions.is_empty() || !found.probes.is_empty() {
                findings.objects.push(found);
            } else if is_executable {
                executable = Some(found.object);
            }
        }
        if findings.objects.is_empty() {
            return Err(nothing(
                search,
                &findings,
                executable.as_deref().map(|object| &**object),
            ));
        }
        Ok(findings)
    }

    /// Number of functions and probes found.
    pub(super) fn count(&self) -> usize {
        let of = |found: &Finding| found.functions.len() + found.probes.len();
        self.objects.iter().map(of).sum()
    }
}

impl Finding {
    fn of(file: ObjectFile, is_executable: bool, object: Arc<Opened>, pattern: &str) -> Self {
        let matcher = NameMatcher::new(pattern);
        let mut notes = usdt_probes(&object);
        notes
            .probes
            .retain(|probe| matcher.matches(&probe.full_name()) || matcher.matches(&probe.name));
        Self {
            functions: search(&object, pattern),
            probes: notes.probes,
            malformed_notes: notes.malformed,
            file,
            is_executable,
            object,
        }
    }
}

/// The files to search, each once, with the target that has it.
fn files<'a>(
    targets: &'a [Target<'a>],
    wanted: Option<&str>,
) -> Result<Vec<(&'a Target<'a>, ObjectFile)>> {
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for target in targets {
        let chosen: Vec<&ObjectFile> = match (target, wanted) {
            (Target::Process(process), Some(wanted)) => vec![process.object(Some(wanted))?],
            (Target::Process(process), None) => std::iter::once(&process.executable)
                .chain(&process.objects)
                .collect(),
            (Target::File(file), _) => vec![file],
        };
        for file in chosen {
            let identity = file.open.inode().unwrap_or_default();
            if seen.insert((identity, file.shown.clone())) {
                files.push((target, file.clone()));
            }
        }
    }
    Ok(files)
}

fn nothing(search: &Search, findings: &Findings, executable: Option<&Object>) -> Error {
    let objects = match findings.searched {
        1 => "the object".to_owned(),
        many => format!("the {many} objects"),
    };
    let error = Error::usage(format!(
        "no function and no USDT probe fits `{}` in {objects} searched",
        search.pattern
    ));
    let advice = executable.and_then(|object| {
        let missing = missing(object, std::slice::from_ref(&search.pattern), None, &[]);
        missing.advice().map(str::to_owned)
    });
    let error = if findings.unused.is_empty() {
        error
    } else {
        // A debug file that could not be used may be all that is wrong.
        error.because(findings.unused.join("; "))
    };
    match advice {
        Some(advice) => error.next(advice),
        None => error.next("without --object all objects are searched; '*' lists what there is"),
    }
}
