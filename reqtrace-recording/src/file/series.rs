//! The files of one trace in, its events out, as if there were one file.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use super::reader::{Ending, Reader};
use crate::error::{Error, Result};
use crate::event::{Event, Header};

/// Files of one trace, in the order in which they were written.
#[derive(Debug)]
pub struct Series {
    files: Vec<(PathBuf, Header)>,
}

/// Opens a recording.
fn open(path: &PathBuf) -> Result<Reader<BufReader<File>>> {
    Reader::open(BufReader::new(File::open(path)?))
}

/// Whether both are of one trace.
fn are_one(one: &Header, other: &Header) -> bool {
    let of = |header: &Header| header.part.trace_start_ns;
    of(one) == of(other) && one.host == other.host && one.profile_text == other.profile_text
}

impl Series {
    /// Looks at these files. They may be given in any order.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`], with the file; [`Error::Mixed`] when they are not of one trace, or one comes twice.
    pub fn open(paths: impl IntoIterator<Item = PathBuf>) -> Result<Self, (PathBuf, Error)> {
        let files = paths.into_iter().map(|path| match open(&path) {
            Ok(reader) => Ok((path, reader.header().clone())),
            Err(error) => Err((path, error)),
        });
        Self::of(files.collect::<Result<_, _>>()?)
    }

    /// These files, which have these headers.
    ///
    /// # Errors
    ///
    /// [`Error::Mixed`], as [`Series::open`].
    pub fn of(mut files: Vec<(PathBuf, Header)>) -> Result<Self, (PathBuf, Error)> {
        files.sort_by_key(|(_, header)| header.part.number);
        for pair in files.windows(2) {
            let [(path, one), (other_path, other)] = pair else {
                continue;
            };
            let other_name = other_path.display();
            let why = if one.part.number == 0 || !are_one(one, other) {
                format!("it and {other_name} are not of one trace")
            } else if one.part.number == other.part.number {
                format!("it and {other_name} are the same part of their trace")
            } else {
                continue;
            };
            return Err((path.clone(), Error::Mixed(why)));
        }
        if files.is_empty() {
            return Err((PathBuf::new(), Error::NotARecording));
        }
        Ok(Self { files })
    }

    /// The header of the first.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.files[0].1
    }

    /// Hands all events to `each`, in order: what a file repeats of those before comes once. The inner error is that of
    /// `each`, which ends reading.
    ///
    /// # Errors
    ///
    /// With the file that cannot be read, or has blocks of a newer version.
    pub fn read<E>(
        &self,
        mut each: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<Result<Ending, E>, (PathBuf, Error)> {
        let first = self.header().part.number;
        let mut all = Ending {
            goes_before: first > 1,
            ..Ending::default()
        };
        let (mut before, mut is_whole) = (first, false);
        for (index, (path, header)) in self.files.iter().enumerate() {
            let is_last = index + 1 == self.files.len();
            let failed = |error| (path.clone(), error);
            let missing = header.part.number.saturating_sub(before).saturating_sub(1);
            let mut take = |event: Event<'_>| match event {
                Event::End(_) if !is_last => Ok(()),
                event => each(event),
            };
            let mut reader = open(path).map_err(failed)?;
            let goes_on = is_whole && missing == 0 && header.part.unwritten == 0;
            let read = match goes_on {
                true => reader.read_on(&mut take),
                false => reader.read(&mut take),
            };
            let ending = match read.map_err(failed)? {
                Ok(ending) => ending,
                Err(error) => return Ok(Err(error)),
            };
            is_whole = ending.is_whole();
            before = header.part.number;
            all.missing_files += u64::from(missing);
            all.add(&ending);
        }
        Ok(Ok(all))
    }
}
