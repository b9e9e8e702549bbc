//! `[rows]`: its TOML in; which requests get a row, where their files go and how large they become, out.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use reqtrace_base::error::Result;
use reqtrace_base::quantity;
use serde::{Deserialize, Serialize};

use super::toml_at::Table;
use super::{Share, bytes, read, text, time};
#[cfg(feature = "parquet")]
use crate::spool::Folders;

const DIR: &str = "\"/var/lib/reqtrace/rows\"";
/// A folder of the target that readers of tables pass by, as its name begins with a dot.
const SPOOL: &str = ".spool";
const LONGEST: Duration = Duration::from_secs(3_600);
const SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// Rows of requests in files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// Where whole files are handed over.
    pub dir: PathBuf,
    /// Where they are made.
    pub spool: PathBuf,
    /// A request that takes longer is slow where its rule has no `slo`; all slow ones get a row.
    pub keep_slow: Option<Duration>,
    /// One of so many of the others gets one.
    pub one_in: u32,
    /// The requests of a file ended in this time.
    pub every: Duration,
    /// It is closed before it gets larger.
    pub bytes: u64,
    /// Bytes of all files of this machine in both folders.
    pub max: u64,
    /// What is left free of the file system.
    pub keep_free: Share,
}

pub(super) fn read(mut table: Table<'_>) -> Result<Rows> {
    let dir = read::path(&table.need("dir", DIR)?, DIR)?;
    let spool = table.take("spool").map(|value| read::path(&value, DIR));
    let spool = spool.transpose()?;
    let mut rows = Rows {
        spool: spool.unwrap_or_else(|| dir.join(SPOOL)),
        dir,
        keep_slow: None,
        one_in: 100,
        every: Duration::from_secs(300),
        bytes: 64 << 20,
        max: 500 << 20,
        keep_free: Share::of_percent(5.0),
    };
    if let Some(value) = table.take("keep-slow") {
        rows.keep_slow = Some(read::time(&value, "\"20ms\"")?);
    }
    if let Some(value) = table.take("one-in") {
        rows.one_in = value.number(1..=1_000_000, "100")?;
    }
    if let Some(value) = table.take("roll") {
        roll(
            &mut rows,
            value.table("roll", "{ every = \"5m\", bytes = \"64MB\" }")?,
        )?;
    }
    let max = table.take("max");
    if let Some(value) = &max {
        rows.max = value.parsed("\"500MB\"", quantity::bytes)?;
    }
    if let Some(value) = max.filter(|_| rows.max < 2 * rows.bytes) {
        let (file, least) = (bytes(rows.bytes), bytes(2 * rows.bytes));
        return Err(value.refuse(
            format_args!("a file may have {file}, and two have to fit"),
            format!("write max = \"{least}\", or smaller files: roll = {{ bytes = \"1MB\" }}"),
        ));
    }
    rows.max = rows.max.max(2 * rows.bytes);
    if let Some(value) = table.take("keep-free") {
        rows.keep_free = read::share(&value)?;
    }
    table.end()?;
    Ok(rows)
}

fn roll(rows: &mut Rows, mut table: Table<'_>) -> Result<()> {
    if let Some(value) = table.take("every") {
        rows.every = read::time(&value, "\"5m\"")?;
        if rows.every < Duration::from_secs(1) || rows.every > LONGEST {
            return Err(value.refuse("a file has 1 s to 1 h", "write every = \"5m\""));
        }
    }
    if let Some(value) = table.take("bytes") {
        rows.bytes = value.parsed("\"64MB\"", quantity::bytes)?;
        if !SIZES.contains(&rows.bytes) {
            return Err(value.refuse("a file has 1 MB to 1 GB", "write bytes = \"64MB\""));
        }
    }
    table.end()
}

impl Rows {
    /// Where its files are, and how much room they have.
    #[cfg(feature = "parquet")]
    pub(crate) fn folders(&self) -> Folders<'_> {
        Folders {
            dir: &self.dir,
            spool: &self.spool,
            max: self.max,
            keep_free: self.keep_free,
        }
    }

    /// The section, with everything that it leaves out.
    pub(super) fn effective(&self) -> String {
        let path = |path: &PathBuf| text(&path.to_string_lossy());
        let mut out = String::new();
        let _ = write!(
            out,
            "\n[rows]\ndir = {}\nspool = {}\n",
            path(&self.dir),
            path(&self.spool)
        );
        if let Some(slow) = self.keep_slow {
            let _ = writeln!(out, "keep-slow = \"{}\"", time(slow));
        }
        let _ = write!(
            out,
            "one-in = {}\nroll = {{ every = \"{}\", bytes = \"{}\" }}\nmax = \"{}\"\nkeep-free = \"{}%\"\n",
            self.one_in,
            time(self.every),
            bytes(self.bytes),
            bytes(self.max),
            self.keep_free.percent()
        );
        out
    }

    /// What is done, in a line.
    pub(crate) fn words(&self) -> String {
        let which = match self.one_in {
            1 => "all requests".to_owned(),
            n => format!("all slow and incomplete requests and one in {n} of the others"),
        };
        format!("rows: {which}, into {}", self.dir.display())
    }
}
