//! The journal of a file that is being made: its records in, on disk before the file is; the records of a file whose agent was
//! killed out.
//!
//! ```text
//! frame: kind (1 byte) · length (4) · CRC-32 of kind, length and contents (4) · contents
//! file:  head · records · records · … · whole
//! ```
//!
//! A file of records has no footer until it is whole, so what was in it could not be read. The last frame says that the file is
//! whole: from then on it is that which is handed over, and the journal's records are not. Who is killed before makes the file
//! again from the records, who is killed behind it hands the file over, if it is still in the spool.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Of, Record};
use crate::spool::paths;

/// Of records as they are in this version: others get another number.
const HEAD: u8 = 4;
const RECORDS: u8 = 2;
const WHOLE: u8 = 3;
/// Bytes before the contents of a frame.
const BEFORE: usize = 9;
/// Bytes of a frame, and of its records before they are compressed: a batch of rows has 256.
const MOST: u32 = 256 << 20;
/// Of zstd: the fastest.
const LEVEL: i32 = 1;

/// What all records of a file have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) of: Of,
    pub(crate) slow_ns: Option<u64>,
    pub(crate) one_in: u32,
    /// Of its partition, since the Unix epoch.
    pub(crate) hour: u64,
}

/// A journal that is written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Whether all of it outlasts a crash of the machine.
    is_synced: bool,
}

impl Journal {
    /// Begins one.
    pub(crate) fn begin(path: PathBuf, head: &Head) -> io::Result<Self> {
        let mut own = Self {
            file: paths::file(&path, true)?,
            path,
            bytes: 0,
            is_synced: false,
        };
        own.add_frame(HEAD, &encoded(head)?)?;
        Ok(own)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds records. They outlast a crash of the agent, and from the next [`Journal::sync`] on one of the machine.
    pub(crate) fn add<R: Record>(&mut self, records: &[R]) -> io::Result<()> {
        let contents = zstd::bulk::compress(&encoded(&records)?, LEVEL)?;
        self.add_frame(RECORDS, &contents)
    }

    /// The file is whole, and synced: it is to be handed over.
    pub(crate) fn note_whole(&mut self) -> io::Result<()> {
        self.add_frame(WHOLE, &[])?;
        self.sync()
    }

    /// Lets what was added outlast a crash of the machine.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// It is no longer needed.
    pub(crate) fn remove(self) {
        // If it cannot be removed now, the next start finds that its file was handed over.
        let _ = std::fs::remove_file(self.path);
    }

    fn add_frame(&mut self, kind: u8, contents: &[u8]) -> io::Result<()> {
        let length = u32::try_from(contents.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(BEFORE + contents.len());
        frame.push(kind);
        frame.extend(length.to_le_bytes());
        frame.extend(crc(kind, length, contents).to_le_bytes());
        frame.extend(contents);
        self.is_synced = false;
        self.file.write_all(&frame)?;
        self.bytes += frame.len() as u64;
        Ok(())
    }
}

/// The journal of an agent that was killed.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) head: Head,
    pub(crate) is_whole: bool,
    path: PathBuf,
    /// Up to the first frame that is not there, or not as it was written.
    bytes: u64,
}

impl Left {
    /// Looks through one; `None`: not even its head was written.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let mut from = BufReader::new(File::open(path)?);
        let contents = match next(&mut from)? {
            Some((HEAD, contents)) => contents,
            None => return Ok(None),
            Some(_) => {
                let what = "it is of another version, whose reqtrace reads it";
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
        };
        let mut bytes = (BEFORE + contents.len()) as u64;
        let mut is_whole = false;
        while let Some((kind, more)) = next(&mut from)? {
            bytes += (BEFORE + more.len()) as u64;
            is_whole |= kind == WHOLE;
        }
        Ok(Some(Self {
            head: decoded(&contents)?,
            is_whole,
            path: path.to_owned(),
            bytes,
        }))
    }

    /// Hands over its records.
    pub(crate) fn records<R: Record>(
        &self,
        mut take: impl FnMut(R) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut from = BufReader::new(File::open(&self.path)?);
        while let Some((kind, contents)) = next(&mut from)? {
            if kind == RECORDS {
                let contents = zstd::bulk::decompress(&contents, MOST as usize)?;
                let records: Vec<R> = decoded(&contents)?;
                records.into_iter().try_for_each(&mut take)?;
            }
        }
        Ok(())
    }

    /// What its file will take, at most.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Goes on behind the last whole frame.
    pub(crate) fn go_on(&self) -> io::Result<Journal> {
        let file = OpenOptions::new().append(true).open(&self.path)?;
        file.set_len(self.bytes)?;
        Ok(Journal {
            file,
            path: self.path.clone(),
            bytes: self.bytes,
            is_synced: false,
        })
    }
}

/// The next frame; `None` where there is none, or a part of one.
fn next(from: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut before = [0; BEFORE];
    match from.read_exact(&mut before) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = before;
    let (length, sum) = (
        u32::from_le_bytes([l0, l1, l2, l3]),
        u32::from_le_bytes([c0, c1, c2, c3]),
    );
    if length > MOST {
        return Ok(None);
    }
    let mut contents = Vec::new();
    from.take(length.into()).read_to_end(&mut contents)?;
    let is_it = contents.len() == length as usize && crc(kind, length, &contents) == sum;
    Ok(is_it.then_some((kind, contents)))
}

fn crc(kind: u8, length: u32, contents: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&[kind]);
    sum.update(&length.to_le_bytes());
    sum.update(contents);
    sum.finalize()
}

fn encoded(what: &impl Serialize) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(what).map_err(io::Error::other)
}

fn decoded<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests;
