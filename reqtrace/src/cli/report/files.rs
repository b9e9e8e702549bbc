//! Which files a report reads: paths of the command line in, the files of one trace out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use reqtrace_base::error::{Error, Result};
use reqtrace_output::outputs::{RECORDING, RUNNING};
use reqtrace_recording::{self as recording, Header, Reader, Series};

/// What is read.
pub(in crate::cli) struct Given {
    pub(in crate::cli) series: Series,
    /// For messages.
    pub(in crate::cli) name: String,
    /// All that were given, with those of folders.
    pub(in crate::cli) files: Vec<PathBuf>,
    /// Files of a folder that cannot be read.
    pub(in crate::cli) unreadable: u64,
}

/// Opens files of one trace, and those in folders.
///
/// # Errors
///
/// Usage errors: files that cannot be read or are no recordings, folders without one, and files of several traces.
pub(in crate::cli) fn open(paths: &[PathBuf]) -> Result<Given> {
    let mut found = Vec::new();
    let mut unreadable = 0;
    let mut all = paths.to_vec();
    for path in paths {
        if !path.is_dir() {
            let header = header_of(path).map_err(|error| not_readable(path, error))?;
            found.push((path.clone(), header));
            continue;
        }
        let before = found.len();
        let files = in_folder(path)?;
        for file in &files {
            match header_of(file) {
                Ok(header) => found.push((file.clone(), header)),
                Err(error) => {
                    unreadable += 1;
                    let name = file.display();
                    reqtrace_base::say!("reqtrace: {name} is left out: {error}");
                }
            }
        }
        if found.len() == before {
            return Err(without_recordings(path, files.len()));
        }
        all.extend(files);
        one_trace(path, &found[before..])?;
    }
    let name = match paths {
        [path] => path.display().to_string(),
        [first, others @ ..] => format!("{} and {} more", first.display(), others.len()),
        [] => String::new(),
    };
    let series = Series::of(found).map_err(|(path, error)| not_reported(&path, error))?;
    let first = series.header().part.number;
    let is_one_file = matches!(paths, [path] if !path.is_dir());
    if first > 1 && !is_one_file {
        reqtrace_base::say!(
            "reqtrace: {name} begins with file {first} of its trace; the report begins there"
        );
    }
    Ok(Given {
        series,
        name,
        files: all,
        unreadable: unreadable as u64,
    })
}

fn header_of(path: &Path) -> Result<Header, recording::Error> {
    let reader = Reader::open(BufReader::new(File::open(path)?))?;
    Ok(reader.header().clone())
}

/// The recordings of a folder, in order; the one that is being written too.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| {
        Error::usage(format!("{} cannot be read", folder.display())).because(error)
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(RUNNING).unwrap_or(&name);
        if name.ends_with(RECORDING) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn without_recordings(folder: &Path, files: usize) -> Error {
    let name = folder.display();
    let what = match files {
        0 => format!("{name} has no file that ends with {RECORDING}"),
        _ => format!("{name} has no recording that can be read"),
    };
    Error::usage(what).next("give the folder that a trace with --record and --roll has written")
}

/// Refuses a folder with files of several traces.
fn one_trace(folder: &Path, found: &[(PathBuf, Header)]) -> Result<()> {
    let mut traces: BTreeMap<String, usize> = BTreeMap::new();
    for (path, header) in found {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let trace = match header.part.number {
            0 => name.into_owned(),
            _ => name.split('.').next().unwrap_or_default().to_owned(),
        };
        *traces.entry(trace).or_default() += 1;
    }
    let Some((last, _)) = traces.last_key_value().filter(|_| traces.len() > 1) else {
        return Ok(());
    };
    let count = traces.len();
    let names: Vec<&str> = traces.keys().map(String::as_str).collect();
    Err(Error::usage(format!(
        "{} has the files of {count} traces: {}",
        folder.display(),
        names.join(", ")
    ))
    .next(format!(
        "report one of them: reqtrace report {}/{last}.*",
        folder.display()
    )))
}

/// A file that cannot be read is an error of usage.
fn not_readable(path: &Path, error: recording::Error) -> Error {
    match error {
        recording::Error::Io(error) => {
            Error::usage(format!("{} cannot be read", path.display())).because(error)
        }
        other => not_reported(path, other),
    }
}

/// Why a recording cannot be reported, and what to do.
pub(in crate::cli) fn not_reported(path: &Path, error: recording::Error) -> Error {
    let name = path.display();
    let next = match &error {
        recording::Error::Newer { .. } => {
            "report it with the reqtrace that recorded it, or a newer one"
        }
        recording::Error::Foreign { .. } => {
            "report it with a reqtrace that knows the system calls of that machine"
        }
        recording::Error::NotARecording => "give the file that a trace with --record has written",
        recording::Error::NoHeader => "record again: the beginning of this one was never written",
        recording::Error::Mixed(_) => "give the files of one trace: their names begin alike",
        recording::Error::Io(_) => {
            return Error::failed(format!("{name} cannot be read")).because(error);
        }
    };
    Error::usage(format!("{name} cannot be reported: {error}")).next(next)
}
