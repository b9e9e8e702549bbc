//! Where markers are looked for: a process or a file in, its objects, with the symbols of their debug
//! files, out.

use std::path::Path;
use std::sync::Arc;

use reqtrace_binary::maps::FileKey;

use super::missing::has_named;
use super::opened::{ObjectFile, Opened};
use super::process::{Process, fits};
use super::usdt::usdt_probes;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::debuginfo::{self, Links, Root};
use reqtrace_binary::elf::{self, Object};

/// Where to look for markers.
#[derive(Clone, Debug)]
pub enum Target<'a> {
    /// The files that a process has mapped.
    Process(&'a Process),
    /// One file, not running.
    File(ObjectFile),
}

impl Target<'_> {
    /// A file by its path.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self::File(ObjectFile::at(path))
    }

    pub(super) fn object(&self, wanted: Option<&str>) -> Result<&ObjectFile> {
        match (self, wanted) {
            (Self::Process(process), wanted) => process.object(wanted),
            (Self::File(file), None) => Ok(file),
            (Self::File(file), Some(wanted)) if fits(wanted, file) => Ok(file),
            (Self::File(file), Some(wanted)) => Err(Error::usage(format!(
                "the marker is in object `{wanted}`, and {} is not that",
                file.shown
            ))
            .next("name that file, or a running process with -p PID")),
        }
    }

    /// Other objects of the target that have a USDT probe, as the process sees them.
    pub(super) fn with_usdt(&self, except: &ObjectFile, provider: &str, name: &str) -> Vec<String> {
        self.others(except, |object| {
            usdt_probes(object).find(provider, name).is_some()
        })
    }

    /// Other objects of the target, as the process sees them.
    fn others(&self, except: &ObjectFile, has: impl Fn(&Object) -> bool) -> Vec<String> {
        let Self::Process(process) = self else {
            return Vec::new();
        };
        let others = process.objects.iter().filter(|file| *file != except);
        others
            .filter(|file| self.look_at(file).is_ok_and(|object| has(&object)))
            .map(|file| file.shown.clone())
            .collect()
    }

    /// Other objects of the target that have a function of one of these names, as the process sees them.
    pub(super) fn with_function(&self, except: &ObjectFile, patterns: &[String]) -> Vec<String> {
        let has = |object: &Object| patterns.iter().any(|pattern| has_named(object, pattern));
        self.others(except, has)
    }

    /// The program itself.
    #[must_use]
    pub fn executable(&self) -> &ObjectFile {
        match self {
            Self::Process(process) => &process.executable,
            Self::File(file) => file,
        }
    }

    /// An object with the symbols of its debug file. Of a process it is opened once, and kept.
    pub fn open(&self, file: &ObjectFile) -> Result<Arc<Opened>> {
        self.get(file, true)
    }

    /// The same, to be looked at once: it is not kept.
    pub fn look_at(&self, file: &ObjectFile) -> Result<Arc<Opened>> {
        self.get(file, false)
    }

    fn get(&self, file: &ObjectFile, keeps: bool) -> Result<Arc<Opened>> {
        match self {
            Self::Process(process) => process.opened.get(file, keeps, || self.read(file)),
            Self::File(_) => Ok(Arc::new(self.read(file)?.0)),
        }
    }

    fn read(&self, file: &ObjectFile) -> Result<(Opened, Option<FileKey>)> {
        let (opened, key) = match self {
            Self::Process(process) => {
                let found = process.opened.files.of(&file.open);
                let (opened, key) = found.map_err(|error| elf::unreadable(&file.shown, error))?;
                (opened, Some(key))
            }
            Self::File(_) => (Arc::new(elf::open(file.open.path(), &file.shown)?), None),
        };
        let mut object = Object::read(&opened, &file.shown)?;
        if object.has_symtab() {
            return Ok((Opened::new(object, Vec::new(), None), key));
        }
        let roots = match self {
            Self::Process(process) => Root::of_process(process.pid),
            Self::File(_) => Root::of_process(std::process::id()),
        };
        let path = match self {
            Self::Process(_) => file.shown.clone(),
            // Links in a path are followed first: the debug file is named by the true one.
            Self::File(_) => std::fs::canonicalize(file.open.path())
                .unwrap_or_else(|_| file.open.path().to_owned())
                .to_string_lossy()
                .into_owned(),
        };
        let mut search = debuginfo::find(&opened, &Links::read(&opened), &roots, &path);
        let mut used = None;
        if let Some(debug) = search.found {
            match debuginfo::functions(&debug.file) {
                Ok(functions) => {
                    object.add(functions);
                    used = Some(debug);
                }
                Err(error) => search
                    .refused
                    .push(format!("{} is not used: {error}", debug.shown)),
            }
        }
        Ok((Opened::new(object, search.refused, used), key))
    }
}
