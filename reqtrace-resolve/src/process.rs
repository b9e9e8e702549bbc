//! A process's own view of its files: a PID in, exactly the files it has mapped
//! out, be they in another mount namespace, replaced or deleted.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use globset::Glob;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::maps::{self, Mapped};
use reqtrace_binary::procfs;
use reqtrace_binary::status::Status;

use super::opened::{ObjectFile, Objects};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use reqtrace_base::text::check_glob;

/// Objects printed by an error before it says how many more there are.
const MAX_LISTED: usize = 20;

/// A process to resolve a profile in.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`).
    pub comm: String,
    /// Its executable.
    pub executable: ObjectFile,
    /// Every file that it has mapped executable, in order of address, the executable included.
    pub objects: Vec<ObjectFile>,
    /// Whether its program runs: else its variables have not got their values yet.
    pub has_begun: bool,
    /// Those that were opened.
    pub opened: Objects,
}

impl Process {
    /// Looks at a process.
    ///
    /// # Errors
    ///
    /// No such process, a thread's id, a zombie or a kernel thread: usage errors. Not permitted:
    /// [`reqtrace_base::error::Kind::Unsupported`].
    pub fn open(pid: u32) -> Result<Self> {
        let status = Status::of(pid).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_process(pid),
            _ => unreadable(pid, "status").because(error),
        })?;
        let comm = of_a_program(pid, &status)?;
        let mappings = maps::executable(pid).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_process(pid),
            _ => unreadable(pid, "maps").because(error),
        })?;
        let executable = LazyFile::executable_of(pid);
        let path = executable.open().and_then(|file| procfs::path_of(&file));
        let path = path.map_err(|error| unreadable(pid, "exe").because(error))?;
        let executable = ObjectFile {
            open: executable,
            shown: Plain::of(&path.to_string_lossy()).into(),
        };
        let mut process = Self {
            pid,
            comm,
            executable,
            objects: Vec::new(),
            has_begun: true,
            opened: Objects::default(),
        };
        let mut known = HashSet::new();
        let in_a_folder = |mapping: &&Mapped| Path::new(&mapping.name).is_absolute();
        for mapping in mappings.into_iter().filter(|mapping| in_a_folder(&mapping)) {
            let shown: String = Plain::of(&mapping.path()).into();
            let file = (mapping.device, mapping.inode);
            let open = match shown == process.executable.shown {
                true => process.executable.open.clone(),
                false => LazyFile::of_mapping(pid, mapping),
            };
            if known.insert((file, shown.clone())) {
                process.objects.push(ObjectFile { open, shown });
            }
        }
        Ok(process)
    }

    /// What is opened for others that use these objects need not be opened again for this one, and the
    /// other way round.
    pub fn use_objects(&mut self, objects: &Objects) {
        self.opened = objects.clone();
    }

    /// The object that a marker names: a file name, a path, or a glob over either. `None`: the
    /// executable.
    ///
    /// # Errors
    ///
    /// Usage errors, with a list: nothing mapped fits, or more than one file does.
    pub fn object(&self, wanted: Option<&str>) -> Result<&ObjectFile> {
        let Some(wanted) = wanted else {
            return Ok(&self.executable);
        };
        let found: Vec<&ObjectFile> = self
            .objects
            .iter()
            .filter(|object| fits(wanted, object))
            .collect();
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(Error::usage(format!(
                "process {} ({}) has not loaded an object `{wanted}`",
                self.pid, self.comm
            ))
            .next(format!("objects it has loaded: {}", list(&self.objects)))),
            many => Err(Error::usage(format!(
                "object `{wanted}` is ambiguous in process {} ({}): {}",
                self.pid,
                self.comm,
                list(many.iter().copied())
            ))
            .next("write its full path")),
        }
    }
}

/// Whether a marker's `object` names this file.
pub(super) fn fits(wanted: &str, object: &ObjectFile) -> bool {
    if wanted == object.shown || wanted == object.file_name() {
        return true;
    }
    // Validated when the profile was read.
    let built = check_glob(wanted)
        .ok()
        .and_then(|()| Glob::new(wanted).ok());
    built.is_some_and(|glob| {
        let glob = glob.compile_matcher();
        glob.is_match(&object.shown) || glob.is_match(object.file_name())
    })
}

fn list<'a>(objects: impl IntoIterator<Item = &'a ObjectFile>) -> String {
    let mut shown: Vec<&str> = objects
        .into_iter()
        .map(|object| object.shown.as_str())
        .collect();
    let more = shown.len().saturating_sub(MAX_LISTED);
    shown.truncate(MAX_LISTED);
    let mut text = shown.join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// The name of a process by its status, if it is one that runs a program.
fn of_a_program(pid: u32, status: &Status) -> Result<String> {
    let comm = Plain::of(status.name()).to_string();
    if let Some(group) = status.process()
        && group != pid
    {
        return Err(Error::usage(format!(
            "{pid} is a thread of process {group} ({comm}), not a process"
        ))
        .next(format!("use -p {group}; all its threads are traced")));
    }
    if status.is_zombie() {
        return Err(Error::usage(format!(
            "process {pid} ({comm}) has ended and waits to be reaped (zombie)"
        ))
        .next("name a process that runs"));
    }
    if !status.has_memory() {
        return Err(Error::usage(format!(
            "process {pid} ({comm}) is a kernel thread: it has no executable"
        ))
        .next("name the PID of a program (did a `$(pgrep …)` come out empty?)"));
    }
    Ok(comm)
}

fn no_process(pid: u32) -> Error {
    Error::usage(format!("no process {pid}"))
        .next("`pgrep -a NAME` finds one (an empty `$(pgrep …)` makes the next word the PID)")
}

fn unreadable(pid: u32, what: &str) -> Error {
    Error::unsupported(format!("not permitted to read /proc/{pid}/{what}"))
        .next(
            "run it as root, which tracing a process needs anyway. If root is refused, too, a container or a security module \
             forbids it: run it on the host, or with CAP_SYS_PTRACE",
        )
}

#[cfg(test)]
mod tests;
