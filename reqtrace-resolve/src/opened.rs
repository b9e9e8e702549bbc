//! Objects that were opened: a file in; the object with all that is asked of it later, parsed once, out.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use reqtrace_base::plain::Plain;
use reqtrace_binary::files::Files;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::maps::FileKey;

use super::hazards::{Hazards, hazards};
use super::runtime::Shapes;
use reqtrace_base::error::Result;
use reqtrace_binary::debuginfo::{self, DebugFile};
use reqtrace_binary::elf::Object;

/// A file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFile {
    /// The file.
    pub open: LazyFile,
    /// Its path as the process sees it, without ` (deleted)`.
    pub shown: String,
}

impl ObjectFile {
    /// A file by its path, which no process need have mapped.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            open: LazyFile::at(path),
            shown: Plain::of(&path.to_string_lossy()).into(),
        }
    }

    /// The last component of its path.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.shown.rsplit('/').next().unwrap_or(&self.shown)
    }
}

/// An object with the symbols of its debug file.
#[derive(Debug)]
pub struct Opened {
    object: Object,
    /// Debug files that were found and are of another build, one sentence each.
    pub refused: Vec<String>,
    hazards: OnceLock<Hazards>,
    /// Its debug file, if it has one.
    debug: Option<DebugFile>,
    /// What of tokio is found in it by its shape.
    shapes: OnceLock<Shapes>,
    /// Its variables, when they were asked for.
    variables: OnceLock<Vec<Variable>>,
}

/// A global variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name as it stands in the file.
    pub name: String,
    /// Its address as linked; `None`: each thread has its own.
    pub address: Option<u64>,
}

impl Opened {
    pub(super) fn new(object: Object, refused: Vec<String>, debug: Option<DebugFile>) -> Self {
        Self {
            object,
            refused,
            hazards: OnceLock::new(),
            debug,
            shapes: OnceLock::new(),
            variables: OnceLock::new(),
        }
    }

    /// Its global variables, and those of its debug file.
    pub fn variables(&self) -> &[Variable] {
        self.variables.get_or_init(|| {
            let own = self.object.variables();
            let mut all: Vec<Variable> = own
                .map(|(name, address)| Variable {
                    name: name.to_owned(),
                    address,
                })
                .collect();
            // A debug file that cannot be read has none.
            let debug = self.debug.as_ref();
            let more = debug.map(|debug| debuginfo::variables(&debug.file));
            if let Some(Ok(more)) = more {
                all.extend(more.named().map(|(name, address)| Variable {
                    name: name.to_owned(),
                    address: Some(address),
                }));
            }
            all
        })
    }

    /// What of tokio is found in it by its shape.
    pub(super) fn shapes(&self) -> &Shapes {
        self.shapes.get_or_init(|| Shapes::of(&self.object))
    }

    /// What probes do not go well with.
    #[must_use]
    pub fn hazards(&self) -> Hazards {
        *self.hazards.get_or_init(|| hazards(&self.object))
    }
}

impl Deref for Opened {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

/// Objects by file, and by the name that they have in messages. Clones are the same objects.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    known: Arc<Mutex<Known>>,
    /// What they are read from.
    pub(super) files: Files,
}

type Known = HashMap<(FileKey, String), Arc<Opened>>;

impl Objects {
    /// Knows none yet; files are opened with others who want them.
    #[must_use]
    pub fn with_files(files: Files) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// The object of a file, if it is kept here; else what `open` gives, which is kept if it is to be.
    pub(super) fn get(
        &self,
        file: &ObjectFile,
        keeps: bool,
        open: impl FnOnce() -> Result<(Opened, Option<FileKey>)>,
    ) -> Result<Arc<Opened>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |key| (key, file.shown.clone());
        let key = file.open.key().ok();
        if let Some(opened) = key.and_then(|key| known.get(&name(key))) {
            return Ok(Arc::clone(opened));
        }
        let (opened, key) = open()?;
        let opened = Arc::new(opened);
        if let Some(key) = key.filter(|_| keeps) {
            known.insert(name(key), Arc::clone(&opened));
        }
        Ok(opened)
    }
}
