//! Outputs: paths in, exporters out, all of them opened before tracing starts.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Exporter;
use super::csv::CsvExporter;
use super::flamegraph::FlamegraphExporter;
use super::folded::{FoldedExporter, FoldedOptions};
use super::json::JsonExporter;
use crate::error::{Error, Result};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// A folder for all four files (`--out`), created if it is missing.
    pub out: Option<PathBuf>,
    /// `--csv`.
    pub csv: Option<Target>,
    /// `--folded`.
    pub folded: Option<Target>,
    /// `-f`: folded stacks on standard output as well.
    pub folded_on_stdout: bool,
    /// `--flamegraph`.
    pub flamegraph: Option<Target>,
    /// `--json`.
    pub json: Option<Target>,
    /// What folded stacks and the flame graph hold.
    pub stacks: FoldedOptions,
    /// `--slower-than`: CSV rows at or above this latency only; 0 for all.
    pub slower_than_ns: u64,
}

impl OutputOptions {
    /// Whether standard output is taken by one of the outputs, so that the table goes elsewhere.
    #[must_use]
    pub fn uses_stdout(&self) -> bool {
        self.wanted()
            .iter()
            .any(|(_, target)| *target == Target::Stdout)
    }

    fn wanted(&self) -> Vec<(Format, Target)> {
        let mut wanted = Vec::new();
        if let Some(folder) = &self.out {
            for format in [
                Format::Json,
                Format::Csv,
                Format::Folded,
                Format::Flamegraph,
            ] {
                wanted.push((format, Target::File(folder.join(format.file_name()))));
            }
        }
        for (format, target) in [
            (Format::Json, &self.json),
            (Format::Csv, &self.csv),
            (Format::Folded, &self.folded),
            (Format::Flamegraph, &self.flamegraph),
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
}

impl Format {
    fn file_name(self) -> &'static str {
        match self {
            Self::Json => "summary.json",
            Self::Csv => "requests.csv",
            Self::Folded => "stacks.folded",
            Self::Flamegraph => "flamegraph.svg",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Json => "--json",
            Self::Csv => "--csv",
            Self::Folded => "--folded",
            Self::Flamegraph => "--flamegraph",
        }
    }
}

/// Opens all outputs. `classes` are the names of the wait classes, for the CSV's header. Folders are
/// checked before anything is created.
///
/// # Errors
///
/// [`crate::error::Kind::Usage`] for a path that cannot be written, for one path that two outputs
/// want, and for two outputs on standard output.
pub fn open(options: &OutputOptions, classes: &[String]) -> Result<Vec<Box<dyn Exporter>>> {
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
                .is_none_or(|folder| path.parent() != Some(folder))
        {
            check_file(*format, path)?;
        }
    }
    if let Some(folder) = &options.out {
        fs::create_dir_all(folder).map_err(|error| {
            let folder = folder.display();
            Error::usage(format!("the folder {folder} of --out could not be made"))
                .because(error)
                .next("name a folder below one that you may write to")
        })?;
    }
    wanted
        .into_iter()
        .map(|(format, target)| exporter(format, &target, options, classes))
        .collect()
}

fn exporter(
    format: Format,
    target: &Target,
    options: &OutputOptions,
    classes: &[String],
) -> Result<Box<dyn Exporter>> {
    let (out, name): (Box<dyn Write>, String) = match target {
        Target::Stdout => (Box::new(io::stdout()), "standard output".to_owned()),
        Target::File(path) => {
            let file = File::create(path).map_err(|error| unwritable(format, path, error))?;
            (Box::new(BufWriter::new(file)), path.display().to_string())
        }
    };
    let out = Box::new(UntilClosed::new(out));
    Ok(match format {
        Format::Json => Box::new(JsonExporter::new(out, &name)),
        Format::Csv => Box::new(CsvExporter::new(
            out,
            &name,
            classes,
            options.slower_than_ns,
        )?),
        Format::Folded => Box::new(FoldedExporter::new(out, &name, options.stacks)),
        Format::Flamegraph => Box::new(FlamegraphExporter::new(out, &name, options.stacks)),
    })
}

fn check_folder(folder: &Path) -> Result<()> {
    if folder.exists() && !folder.is_dir() {
        return Err(Error::usage(format!(
            "--out {} is a file, and a folder is needed",
            folder.display()
        ))
        .next("name a folder, or use --csv, --folded, --flamegraph or --json for one file"));
    }
    Ok(())
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
    Ok(())
}

fn unwritable(format: Format, path: &Path, error: io::Error) -> Error {
    Error::usage(format!(
        "{} {} cannot be written",
        format.option(),
        path.display()
    ))
    .because(error)
    .next("name a file in a folder that you may write to")
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
