//! What fits: a [`Search`] in, the objects with what was found in each out.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use super::Search;
use crate::error::{Error, Result};
use crate::resolve::elf::Object;
use crate::resolve::search::{Match, NameMatcher, search};
use crate::resolve::usdt::{UsdtProbe, usdt_probes};
use crate::resolve::{ObjectFile, Process, symbols};

/// Everything that fits.
pub(super) struct Findings {
    /// Objects in which something was found; the executable first.
    pub(super) objects: Vec<Finding>,
    /// Objects that were searched.
    pub(super) searched: usize,
    /// Objects that could not be, and why.
    pub(super) unreadable: Vec<String>,
}

/// What was found in one object.
pub(super) struct Finding {
    /// The file.
    pub(super) file: ObjectFile,
    /// Whether it is the program itself, so that a profile need not name it.
    pub(super) is_executable: bool,
    /// The same, parsed.
    pub(super) object: Object,
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
        let files = files(search, wanted_object)?;
        let mut findings = Self {
            objects: Vec::new(),
            searched: 0,
            unreadable: Vec::new(),
        };
        let mut executable = None;
        for (file, is_executable) in files {
            let object = match Object::open(&file.open, &file.shown) {
                Ok(object) => object,
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
            return Err(nothing(search, &findings, executable.as_ref()));
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
    fn of(file: ObjectFile, is_executable: bool, object: Object, pattern: &str) -> Self {
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

/// The files to search, each once, and whether it is the program itself.
fn files(search: &Search, wanted: Option<&str>) -> Result<Vec<(ObjectFile, bool)>> {
    if let Some(binary) = &search.binary {
        return Ok(vec![(ObjectFile::at(binary), true)]);
    }
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for &pid in &search.pids {
        let process = Process::open(pid)?;
        let chosen: Vec<&ObjectFile> = match wanted {
            Some(wanted) => vec![process.object(Some(wanted))?],
            None => std::iter::once(&process.executable)
                .chain(&process.objects)
                .collect(),
        };
        for file in chosen {
            let identity = std::fs::metadata(&file.open)
                .map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()));
            if seen.insert((identity, file.shown.clone())) {
                files.push((file.clone(), *file == process.executable));
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
        let missing = symbols::missing(object, std::slice::from_ref(&search.pattern));
        missing.advice().map(str::to_owned)
    });
    match advice {
        Some(advice) => error.next(advice),
        None => error.next("without --object all objects are searched; '*' lists what there is"),
    }
}
