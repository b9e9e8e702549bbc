//! What a path is: a recording, rows, or a folder of them. It is known by the first bytes of files, not by their names.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use reqtrace_base::error::{Error, Result};
use reqtrace_output::formats::Format;

/// What was given.
pub(super) enum Given {
    /// A recording, or a folder with files of one; and what is neither, which a reader of recordings explains.
    Recording,
    /// Files of `--parquet`, in the order of their names.
    #[cfg(feature = "parquet")]
    Parquet(Vec<PathBuf>),
    /// What `--out` has written.
    Csv { rows: PathBuf, summary: PathBuf },
}

/// First bytes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Recording,
    Parquet,
    Rows,
    Other,
}

/// Looks at a path.
///
/// # Errors
///
/// Usage errors: rows without the summary that belongs to them, several files of rows, a build that cannot read them.
pub(super) fn given(path: &Path) -> Result<Given> {
    let name = path.display();
    if !path.is_dir() {
        return match kind_of(path).unwrap_or(Kind::Recording) {
            Kind::Parquet => parquet(vec![path.to_owned()]),
            Kind::Rows => Err(Error::usage(format!(
                "{name} has rows only, and not how long they were recorded"
            ))
            .next("give the folder of --out, which has summary.json too, or a file of --parquet")),
            Kind::Recording | Kind::Other => Ok(Given::Recording),
        };
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unreadable(path, error))? {
        let path = entry.map_err(|error| unreadable(path, error))?.path();
        if path.is_file() {
            files.push((
                kind_of(&path).map_err(|error| unreadable(&path, error))?,
                path,
            ));
        }
    }
    files.sort_by(|one, two| one.1.cmp(&two.1));
    let mut of = |kind: Kind| -> Vec<PathBuf> {
        let own = files.extract_if(.., |(of, _)| *of == kind);
        own.map(|(_, path)| path).collect()
    };
    // A folder may have all of one trace: the recording has most.
    if !of(Kind::Recording).is_empty() {
        return Ok(Given::Recording);
    }
    let files = of(Kind::Parquet);
    if !files.is_empty() {
        return parquet(files);
    }
    let summary = output_in(path, "json");
    match of(Kind::Rows).as_slice() {
        [] if summary.is_file() => Err(Error::usage(format!("{name} has a summary, and no rows"))
            .next("write all again: reqtrace report RECORDING --out FOLDER")),
        [] => Ok(Given::Recording),
        [rows] if summary.is_file() => Ok(Given::Csv {
            rows: rows.clone(),
            summary,
        }),
        [rows] => Err(Error::usage(format!(
            "{} has rows only, and there is no {}",
            rows.display(),
            summary.display()
        ))
        .next("write all again: reqtrace report RECORDING --out FOLDER")),
        [first, second, ..] => Err(Error::usage(format!(
            "{name} has several files of rows: {} and {}",
            first.display(),
            second.display()
        ))
        .next("give a folder as --out writes it; files of --parquet may be several")),
    }
}

/// Where `--out` writes the output of an option.
pub(super) fn output_in(folder: &Path, option: &str) -> PathBuf {
    folder.join(Format::of(option).map_or("", |format| format.file_name))
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::usage(format!("{} cannot be read", path.display())).because(error)
}

#[cfg(feature = "parquet")]
fn parquet(files: Vec<PathBuf>) -> Result<Given> {
    Ok(Given::Parquet(files))
}

#[cfg(not(feature = "parquet"))]
fn parquet(files: Vec<PathBuf>) -> Result<Given> {
    let name = files.first().map(|file| file.display().to_string());
    Err(Error::usage(format!(
        "{} is Parquet, and this reqtrace was built without the feature parquet",
        name.unwrap_or_default()
    ))
    .next("give a recording or a folder of --out"))
}

fn kind_of(path: &Path) -> io::Result<Kind> {
    let mut first = Vec::new();
    File::open(path)?.take(16).read_to_end(&mut first)?;
    Ok(match first.as_slice() {
        [b'P', b'A', b'R', b'1', ..] => Kind::Parquet,
        bytes if bytes.starts_with(b"reqtrace") => Kind::Recording,
        bytes if bytes.starts_with(b"id,start_unix_ns") => Kind::Rows,
        _ => Kind::Other,
    })
}
