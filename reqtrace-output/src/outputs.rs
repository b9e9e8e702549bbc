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

use super::blame_csv::BlameExporter;
use super::csv::{CsvExporter, IntervalsExporter, Limits};
use super::flamegraph::FlamegraphExporter;
use super::folded::{FoldedExporter, FoldedOptions, Shows};
use super::html::HtmlExporter;
use super::json::JsonExporter;
use super::perfetto::PerfettoExporter;
use super::pprof::PprofExporter;
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Exporter, Report};
use reqtrace_base::error::{Error, Result};

use output::{Handle, Output};
use place::{Folder, Place, Refused};
use sink::Sink;
pub use sink::{Asked, give_up_privileges};

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output (`-`).
    Stdout,
    /// A file, replaced if it exists.
    File(PathBuf),
}

impl From<PathBuf> for Target {
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::Stdout
        } else {
            Self::File(path)
        }
    }
}

/// All outputs that were asked for.
#[derive(Clone, Debug, Default)]
pub struct OutputOptions {
    /// A folder for all files (`--out`), created if it is missing.
    pub out: Option<PathBuf>,
    /// Whether the trace has blame: then the folder gets `blame.csv`, `chains.folded` and `chains.svg` too.
    pub blame: bool,
    /// `--csv`.
    pub csv: Option<Target>,
    /// `--folded`.
    pub folded: Option<Target>,
    /// `-f`: folded stacks on standard output as well.
    pub folded_on_stdout: bool,
    /// `--flamegraph`.
    pub flamegraph: Option<Target>,
    /// `--html`.
    pub html: Option<Target>,
    /// `--json`.
    pub json: Option<Target>,
    /// `--intervals`, of a trace with blame.
    pub intervals: Option<Target>,
    /// `--pprof`.
    pub pprof: Option<Target>,
    /// `--perfetto`.
    pub perfetto: Option<Target>,
    /// What folded stacks and the flame graph hold.
    pub stacks: FoldedOptions,
    /// Which rows of the CSV.
    pub rows: Limits,
    /// Whether the outputs may hold labels: then they are for their owner only.
    pub private: bool,
    /// Of a trace that runs: whether a signal asks for its end. It never waits for an output.
    pub asked: Option<Asked>,
}

impl OutputOptions {
    /// Whether standard output is taken by one of the outputs, so that the table goes elsewhere.
    #[must_use]
    pub fn uses_stdout(&self) -> bool {
        self.wanted()
            .iter()
            .any(|(_, target)| *target == Target::Stdout)
    }

    /// Whether a file will be written in a folder of another user: then a right to that is needed until
    /// the end, when files get their names.
    #[must_use]
    pub fn are_in_foreign_folders(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let is_foreign = |path: &Path| {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            std::fs::metadata(folder)
                .is_ok_and(|seen| seen.uid() != own && seen.mode() & 0o002 == 0)
        };
        self.wanted().iter().any(|(_, target)| match target {
            Target::File(path) => is_foreign(path),
            _ => false,
        })
    }

    fn wanted(&self) -> Vec<(Format, Target)> {
        let mut wanted = Vec::new();
        if let Some(folder) = &self.out {
            for format in [
                Format::Json,
                Format::Csv,
                Format::Folded,
                Format::Flamegraph,
                Format::Html,
            ] {
                wanted.push((format, Target::File(folder.join(format.file_name()))));
            }
            let of_blame = [Format::Blame, Format::Chains, Format::ChainGraph];
            for format in of_blame.into_iter().filter(|_| self.blame) {
                wanted.push((format, Target::File(folder.join(format.file_name()))));
            }
        }
        for (format, target) in [
            (Format::Json, &self.json),
            (Format::Csv, &self.csv),
            (Format::Folded, &self.folded),
            (Format::Flamegraph, &self.flamegraph),
            (Format::Html, &self.html),
            (Format::Intervals, &self.intervals),
            (Format::Pprof, &self.pprof),
            (Format::Perfetto, &self.perfetto),
        ] {
            wanted.extend(target.clone().map(|target| (format, target)));
        }
        if self.folded_on_stdout && self.folded != Some(Target::Stdout) {
            wanted.push((Format::Folded, Target::Stdout));
        }
        wanted
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
    Folded,
    Flamegraph,
    Html,
    Blame,
    Chains,
    ChainGraph,
    Intervals,
    Pprof,
    Perfetto,
}

impl Format {
    fn file_name(self) -> &'static str {
        match self {
            Self::Json => "summary.json",
            Self::Csv => "requests.csv",
            Self::Folded => "stacks.folded",
            Self::Flamegraph => "flamegraph.svg",
            Self::Html => "report.html",
            Self::Blame => "blame.csv",
            Self::Chains => "chains.folded",
            Self::ChainGraph => "chains.svg",
            Self::Intervals => "intervals.csv",
            Self::Pprof => "profile.pb.gz",
            Self::Perfetto => "trace.pftrace",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Json => "--json",
            Self::Csv => "--csv",
            Self::Folded => "--folded",
            Self::Flamegraph => "--flamegraph",
            Self::Html => "--html",
            Self::Blame | Self::Chains | Self::ChainGraph => "--out",
            Self::Intervals => "--intervals",
            Self::Pprof => "--pprof",
            Self::Perfetto => "--perfetto",
        }
    }
}

/// Looks whether all outputs can be written; makes nothing.
///
/// # Errors
///
/// As [`open`].
pub fn check(options: &OutputOptions) -> Result<()> {
    let wanted = options.wanted();
    for (index, (format, target)) in wanted.iter().enumerate() {
        if let Some((other, _)) = wanted[..index].iter().find(|(_, other)| other == target) {
            return Err(twice(*other, *format, target));
        }
    }
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
            check_file(*format, path)?;
        }
    }
    Ok(())
}

/// Opens all outputs, those on standard output last. `columns` are those of the trace, for the CSV's header. Everything is checked before anything is created.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Usage`] for a path that cannot be written, for one path that two outputs
/// want, and for two outputs on standard output.
pub fn open(options: &OutputOptions, columns: &Columns) -> Result<Vec<Box<dyn Exporter>>> {
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

/// Opens a file that has its name from the beginning, such as a recording: what was in it is gone. It
/// follows no link, and no folder of another user. `option` is what asked for it, for messages;
/// `private`: it is for its owner only.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Usage`] when it cannot be written.
pub fn create(option: &str, path: &Path, private: bool) -> Result<File> {
    place::open_now(path, private).map_err(|refused| unwritable(option, path, refused))
}

fn exporter(
    format: Format,
    target: &Target,
    options: &OutputOptions,
    columns: &Columns,
) -> Result<Box<dyn Exporter>> {
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
                .map_err(|refused| unwritable(format.option(), path, refused))?;
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
    let stacks = Shows::Stacks(options.stacks);
    let exporter: Box<dyn Exporter> = match format {
        Format::Json => Box::new(JsonExporter::new(out, &name)),
        Format::Csv => Box::new(CsvExporter::new(out, &name, columns, options.rows)),
        Format::Folded => Box::new(FoldedExporter::new(out, &name, stacks)),
        Format::Flamegraph => Box::new(FlamegraphExporter::new(out, &name, stacks)),
        Format::Html => Box::new(HtmlExporter::new(out, &name)),
        Format::Blame => Box::new(BlameExporter::new(out, &name)),
        Format::Chains => Box::new(FoldedExporter::new(out, &name, Shows::Chains)),
        Format::ChainGraph => Box::new(FlamegraphExporter::new(out, &name, Shows::Chains)),
        Format::Intervals => Box::new(IntervalsExporter::new(out, &name, options.rows)),
        Format::Pprof => {
            let all_requests = options.rows.slower_than_ns == 0;
            let exporter = PprofExporter::new(out, &name, options.stacks, all_requests);
            Box::new(exporter)
        }
        Format::Perfetto => Box::new(PerfettoExporter::new(out, &name, columns, options.rows)),
    };
    Ok(Box::new(Output::new(exporter, handle, partial, name)))
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

fn check_file(format: Format, path: &Path) -> Result<()> {
    let option = format.option();
    let shown = path.display();
    if path.is_dir() {
        return Err(Error::usage(format!(
            "{option} {shown} is a folder, and a file is needed"
        ))
        .next(format!(
            "{option} {}",
            path.join(format.file_name()).display()
        )));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
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

fn twice(one: Format, other: Format, target: &Target) -> Error {
    let place = match target {
        Target::Stdout => "standard output".to_owned(),
        Target::File(path) => path.display().to_string(),
    };
    Error::usage(format!(
        "{} and {} would both go to {place}",
        one.option(),
        other.option()
    ))
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
