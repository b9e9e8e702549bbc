//! Outputs: paths in, exporters out, all of them opened before anything is attached.
//!
//! A file is written beside its place and gets its name when it is whole: what was there before stays
//! until then. Each output has a thread that writes, and one that fails does not end the others.

mod output;
mod place;
mod sink;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::chunks::Limits;
use super::folded::FoldedOptions;
use super::formats::{Chosen, FORMATS, Format, Kind};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Exporter, Report};
use reqtrace_base::error::{Error, Result};

use output::{Handle, Output};
use place::{Folder, Place, Refused};
pub use place::{Keep, PARTIAL as RUNNING, RECORDING, Removed, RolledFolder};
use sink::Sink;
pub use sink::{Asked, give_up_privileges, give_up_privileges_but_files};

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output (`-`, `/dev/stdout` and the like).
    Stdout,
    /// A file, replaced if it exists.
    File(PathBuf),
}

impl From<PathBuf> for Target {
    fn from(path: PathBuf) -> Self {
        const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
        if STDOUT.iter().any(|name| path.as_os_str() == *name) {
            Self::Stdout
        } else {
            Self::File(path)
        }
    }
}

/// All outputs that were asked for.
#[derive(Clone, Debug, Default)]
pub struct OutputSpec {
    /// A folder for the files of [`Format::is_in_folder`] (`--out`), created if it is missing.
    pub out: Option<PathBuf>,
    /// Whether the trace has blame: then the folder gets more files.
    pub blame: bool,
    /// Outputs with a place of their own.
    pub targets: Vec<(&'static Format, Target)>,
    /// Files that none of these may replace, with what they are: the recording that is written or read.
    pub taken: Vec<(&'static str, PathBuf)>,
    /// What folded stacks and the flame graph hold.
    pub stacks: FoldedOptions,
    /// Which rows of the CSV.
    pub rows: Limits,
    /// Whether the outputs may hold labels: then they are for their owner only.
    pub private: bool,
    /// Of a trace that runs: whether a signal asks for its end. It waits for an output at its end only.
    pub asked: Option<Asked>,
}

impl OutputSpec {
    /// Whether a file will be written in a folder of another user: then a right to that is needed until
    /// the end, when files get their names.
    #[must_use]
    pub fn are_in_foreign_folders(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let is_foreign = |path: &Path| {
            std::fs::metadata(folder_of(path))
                .is_ok_and(|seen| seen.uid() != own && seen.mode() & 0o002 == 0)
        };
        self.wanted().iter().any(|(_, target)| match target {
            Target::File(path) => is_foreign(path),
            Target::Stdout => false,
        })
    }

    /// Whether rows go where somebody may read them while the trace runs: to standard output, a pipe or a device.
    #[must_use]
    pub fn are_rows_read_meanwhile(&self) -> bool {
        let is_stream = |path: &Path| std::fs::metadata(path).is_ok_and(|seen| !seen.is_file());
        self.targets.iter().any(|(format, target)| {
            let is_read = match target {
                Target::Stdout => true,
                Target::File(path) => is_stream(path),
            };
            is_read && matches!(format.kind, Kind::Rows(_))
        })
    }

    fn wanted(&self) -> Vec<(&'static Format, Target)> {
        let in_folder = self.out.iter().flat_map(|folder| {
            let formats = FORMATS
                .iter()
                .filter(|format| format.is_in_folder(self.blame));
            formats.map(|format| (format, Target::File(folder.join(format.file_name))))
        });
        in_folder.chain(self.targets.iter().cloned()).collect()
    }
}

/// Looks whether all outputs can be written; makes nothing.
///
/// # Errors
///
/// As [`open`].
pub fn check(options: &OutputSpec) -> Result<()> {
    let wanted = options.wanted();
    let taken = options.taken.iter();
    let taken = taken.map(|(what, path)| ((*what).to_owned(), Target::File(path.clone())));
    let outputs = wanted.iter();
    let outputs = outputs.map(|(format, target)| (format.asked_by(), target.clone()));
    check_apart(taken.chain(outputs))?;
    if let Some(folder) = &options.out {
        check_folder(folder)?;
    }
    for (format, target) in &wanted {
        if let Target::File(path) = target
            && options
                .out
                .as_deref()
                .is_none_or(|folder| path.parent() != Some(folder) || folder.exists())
        {
            check_file(&format.asked_by(), path, format.file_name)?;
        }
    }
    Ok(())
}

/// Looks whether all of these, each with what asked for it, have places of their own.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Usage`] when two go to one place.
pub fn check_apart(all: impl IntoIterator<Item = (String, Target)>) -> Result<()> {
    let mut taken: Vec<(String, Target)> = Vec::new();
    for (asked_by, target) in all {
        let place = match &target {
            Target::Stdout => Target::Stdout,
            Target::File(path) => Target::File(same_for_all(path)),
        };
        // There is room for all.
        let is_nowhere = place == Target::File("/dev/null".into());
        if let Some((other, _)) = taken.iter().find(|(_, other)| *other == place)
            && !is_nowhere
        {
            return Err(twice(other, &asked_by, &target));
        }
        taken.push((asked_by, place));
    }
    Ok(())
}

/// An exporter that any thread may have.
pub type BoxedExporter = Box<dyn Exporter + Send>;

/// Exporters that stay with this thread from now on, as the analysis takes them.
#[must_use]
pub fn settled(exporters: Vec<BoxedExporter>) -> Vec<Box<dyn Exporter>> {
    let settled = exporters.into_iter().map(|exporter| exporter as _);
    settled.collect()
}

/// Opens all outputs, those on standard output last. `columns` are those of the trace, for the CSV's header. Everything is checked before anything is created.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Usage`] for a path that cannot be written, for one path that two outputs
/// want, and for two outputs on standard output.
pub fn open(options: &OutputSpec, columns: &Columns) -> Result<Vec<BoxedExporter>> {
    check(options)?;
    if let Some(folder) = &options.out {
        Folder::reach(folder, true).map_err(|refused| {
            let folder = folder.display();
            let advice = refused.advice();
            Error::usage(format!("the folder {folder} of --out could not be made"))
                .because(refused)
                .next(advice)
        })?;
    }
    let (stdout, files): (Vec<_>, Vec<_>) = options
        .wanted()
        .into_iter()
        .partition(|(_, target)| *target == Target::Stdout);
    files
        .into_iter()
        .chain(stdout)
        .map(|(format, target)| exporter(format, &target, options, columns))
        .collect()
}

/// Completes all outputs; what was left out of them is in the report. One that fails does not keep the
/// others.
///
/// # Errors
///
/// The first failure; the others are printed.
pub fn finish(report: &mut Report, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
    let left_out = exporters.iter().flat_map(|exporter| exporter.left_out());
    report.losses.extend(left_out);
    let mut first = Ok(());
    for exporter in exporters {
        if let Err(error) = exporter.finish(report) {
            match first {
                Ok(()) => first = Err(error),
                Err(_) => reqtrace_base::say!("reqtrace: {error}"),
            }
        }
    }
    first
}

/// Opens a file that has its name from the beginning, such as a recording, and that no other reqtrace writes. It
/// follows no link, and no folder of another user. What is in it stays until [`empty`]. `option` is what asked
/// for it, for messages; `private`: it is for its owner only.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Usage`] when it cannot be written.
pub fn create(option: &str, path: &Path, private: bool) -> Result<File> {
    place::open_now(path, private).map_err(|refused| unwritable(option, path, refused))
}

/// Empties a file that [`create`] has opened; a pipe or a device stays what it is.
///
/// # Errors
///
/// Those of the system calls.
pub fn empty(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => file.set_len(0),
        false => Ok(()),
    }
}

/// Opens the folder of a recording of many files, and makes it if it is not there. `private`: they are for their owner
/// only; `keep`: what may stay in it.
///
/// # Errors
///
/// As [`create`].
pub fn create_folder(option: &str, path: &Path, private: bool, keep: Keep) -> Result<RolledFolder> {
    RolledFolder::open(path, private, keep).map_err(|refused| unwritable(option, path, refused))
}

/// Writes an output that is known whole: a file gets its name when all of it is there.
///
/// # Errors
///
/// When it cannot be written.
pub fn write_now(
    option: &str,
    target: &Target,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let failed =
        |name: &str, error| Error::failed(format!("{name} could not be written")).because(error);
    let Target::File(path) = target else {
        let mut out = UntilClosed::new(io::stdout());
        return write(&mut out).map_err(|error| failed("standard output", error));
    };
    let name = path.display().to_string();
    let place = Place::open(path, true).map_err(|refused| unwritable(option, path, refused))?;
    let written = match place {
        Place::File(partial, mut file) => match write(&mut file) {
            Ok(()) => partial.commit(),
            Err(error) => {
                partial.remove();
                Err(error)
            }
        },
        Place::Stream(mut file) => write(&mut file),
    };
    written.map_err(|error| failed(&name, error))
}

fn exporter(
    format: &'static Format,
    target: &Target,
    options: &OutputSpec,
    columns: &Columns,
) -> Result<BoxedExporter> {
    let (file, partial, name) = match target {
        Target::Stdout => {
            let stdout = io::stdout();
            let file = stdout.as_fd().try_clone_to_owned().map_err(|error| {
                Error::failed("standard output cannot be written").because(error)
            })?;
            (File::from(file), None, "standard output".to_owned())
        }
        Target::File(path) => {
            let place = Place::open(path, options.private)
                .map_err(|refused| unwritable(&format.asked_by(), path, refused))?;
            let name = path.display().to_string();
            match place {
                Place::File(partial, file) => (file, Some(partial), name),
                Place::Stream(file) => (file, None, name),
            }
        }
    };
    let is_stdout = *target == Target::Stdout;
    let sink = Sink::start(file, partial.is_some(), is_stdout, options.asked)
        .map_err(|error| Error::failed(format!("{name} could not be opened")).because(error))?;
    let handle = Handle::new(sink);
    let out = Box::new(handle.clone());
    let exporter: BoxedExporter = match format.kind {
        Kind::Rows(open) => open(out, &name, columns, options.rows),
        Kind::Final { write, wants_page } => Box::new(Final {
            out,
            name: name.clone(),
            chosen: Chosen {
                stacks: options.stacks,
                all_requests: options.rows.slower_than_ns == 0,
            },
            write,
            wants_page,
        }),
    };
    Ok(Box::new(Output::new(exporter, handle, partial, name)))
}

/// An output that takes the report, and no rows.
struct Final {
    out: Box<dyn Write + Send>,
    /// For messages.
    name: String,
    chosen: Chosen,
    write: fn(&Report, Chosen, &mut dyn Write) -> io::Result<()>,
    wants_page: bool,
}

impl Exporter for Final {
    fn wants_page(&self) -> bool {
        self.wants_page
    }

    fn finish(&mut self, report: &Report) -> Result<()> {
        (self.write)(report, self.chosen, &mut self.out).map_err(|error| {
            Error::failed(format!("{} could not be written", self.name)).because(error)
        })
    }
}

fn check_folder(path: &Path) -> Result<()> {
    if path.exists() && !path.is_dir() {
        return Err(Error::usage(format!(
            "--out {} is a file, and a folder is needed",
            path.display()
        ))
        .next(
            "name a folder, or use --html, --csv, --folded, --flamegraph or --json for one file",
        ));
    }
    let writable =
        Folder::reach(path, false).and_then(|folder| folder.is_writable().map_err(Refused::from));
    writable.map_err(|refused| unwritable("--out", path, refused))
}

/// Looks whether a file can be written; makes nothing. `option` is what asked for it and `file_name` what it is called
/// elsewhere, for messages.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Usage`] when it cannot be written.
pub fn check_file(option: &str, path: &Path, file_name: &str) -> Result<()> {
    let shown = path.display();
    if path.is_dir() {
        return Err(Error::usage(format!(
            "{option} {shown} is a folder, and a file is needed"
        ))
        .next(format!("{option} {}", path.join(file_name).display())));
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(Error::usage(format!(
            "{option} {shown}: there is no folder {}",
            folder.display()
        ))
        .next(format!("mkdir -p {}", folder.display())));
    }
    place::check_file(path).map_err(|refused| unwritable(option, path, refused))
}

fn unwritable(option: &str, path: &Path, refused: Refused) -> Error {
    let advice = refused.advice();
    Error::usage(format!("{option} {} cannot be written", path.display()))
        .because(refused)
        .next(advice)
}

/// The folder that a path is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The path that all paths of one file have; links at its end are not followed.
fn same_for_all(path: &Path) -> PathBuf {
    match (folder_of(path).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

fn twice(one: &str, other: &str, target: &Target) -> Error {
    let place = match target {
        Target::Stdout => "standard output".to_owned(),
        Target::File(path) => path.display().to_string(),
    };
    Error::usage(format!("{one} and {other} would both go to {place}"))
        .next("give one of them another file")
}

/// An output whose reader may leave: that is no error, the rest is not written.
pub struct UntilClosed<W> {
    out: Option<W>,
}

impl<W> UntilClosed<W> {
    /// Writes to `out` until it is closed.
    pub fn new(out: W) -> Self {
        Self { out: Some(out) }
    }

    fn unless_closed<T>(&mut self, result: io::Result<T>, otherwise: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = None;
                Ok(otherwise)
            }
            other => other,
        }
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(out) = &mut self.out else {
            return Ok(bytes.len());
        };
        let result = out.write(bytes);
        self.unless_closed(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        let result = out.flush();
        self.unless_closed(result, ())
    }
}

#[cfg(test)]
mod tests;
