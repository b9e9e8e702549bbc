//! `[rows]`: its TOML in; which requests get a row, where their files go and how large they become, out.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use reqtrace_base::error::Result;
use reqtrace_base::quantity;
use serde::{Deserialize, Serialize};

use super::toml_at::{Table, Value};
use super::{Share, bytes, read, text, time};
#[cfg(feature = "parquet")]
use crate::spool::Folders;

const DIR: &str = "\"/var/lib/reqtrace/rows\"";
/// A folder of the target that readers of tables pass by, as its name begins with a dot.
const SPOOL: &str = ".spool";
/// The folder of roll-ups, beside that of rows.
const ROLLUPS: &str = "rollups";
const ROLLUPS_DIR: &str = "\"/var/lib/reqtrace/rollups\"";
/// A file of roll-ups is in memory until it is handed over.
const ROLLUP_BYTES: u64 = 4 << 20;
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
    /// Figures of each minute in files of their own; `None`: there are none.
    pub rollups: Option<Rollups>,
}

/// Where roll-ups go: the rest is as for rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollups {
    /// Where whole files are handed over.
    pub dir: PathBuf,
    /// Where they are made.
    pub spool: PathBuf,
    /// Bytes of all files of this machine in both folders.
    pub max: u64,
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
        rollups: None,
    };
    if let Some(value) = table.take("rollups") {
        rows.rollups = rollups(&rows, &value)?;
    }
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

/// `true` or a table; without a folder it is one beside that of rows, for who reads all tables below that would mix them up.
fn rollups(rows: &Rows, value: &Value<'_>) -> Result<Option<Rollups>> {
    let usual = |dir: PathBuf| Rollups {
        spool: dir.join(SPOOL),
        dir,
        max: 100 << 20,
    };
    let beside = rows.dir.with_file_name(ROLLUPS);
    if !value.is_table() {
        return match value.boolean() {
            Ok(true) => apart(usual(beside), rows, value).map(Some),
            Ok(false) => Ok(None),
            Err(_) => Err(value.refuse(
                "this is neither true nor false, nor a table",
                format!("write rollups = true, or rollups = {{ dir = {ROLLUPS_DIR} }}"),
            )),
        };
    }
    let mut table = value.table("rollups", &format!("{{ dir = {ROLLUPS_DIR} }}"))?;
    let dir = table.take("dir");
    let dir = dir.map(|value| read::path(&value, ROLLUPS_DIR));
    let mut rollups = usual(dir.transpose()?.unwrap_or(beside));
    if let Some(value) = table.take("spool") {
        rollups.spool = read::path(&value, ROLLUPS_DIR)?;
    }
    if let Some(value) = table.take("max") {
        rollups.max = value.parsed("\"100MB\"", quantity::bytes)?;
        if rollups.max < 2 * ROLLUP_BYTES {
            return Err(value.refuse(
                format_args!("two files of {} have to fit", bytes(ROLLUP_BYTES)),
                "write max = \"100MB\"",
            ));
        }
    }
    table.end()?;
    apart(rollups, rows, value).map(Some)
}

fn apart(rollups: Rollups, rows: &Rows, value: &Value<'_>) -> Result<Rollups> {
    let (own, other) = (&rollups.dir, &rows.dir);
    match own.starts_with(other) || other.starts_with(own) {
        false => Ok(rollups),
        true => Err(value.refuse(
            format_args!(
                "{} and dir = {} are one inside the other: who reads all tables below one would mix them up",
                own.display(),
                other.display()
            ),
            format!("write rollups = {{ dir = {ROLLUPS_DIR} }}"),
        )),
    }
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
    /// The same of the files of roll-ups; `None`: there are none.
    pub(crate) fn of_rollups(&self) -> Option<Self> {
        let Rollups { dir, spool, max } = self.rollups.clone()?;
        Some(Self {
            dir,
            spool,
            max,
            bytes: ROLLUP_BYTES,
            rollups: None,
            ..self.clone()
        })
    }

    /// Where its files are, and how much room they have.
    #[cfg(feature = "parquet")]
    pub(crate) fn folders(&self) -> Folders<'_> {
        Folders {
            dir: &self.dir,
            spool: &self.spool,
            max: self.max,
            keep_free: self.keep_free.part(),
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
        match &self.rollups {
            Some(rollups) => {
                let _ = writeln!(
                    out,
                    "rollups = {{ dir = {}, spool = {}, max = \"{}\" }}",
                    path(&rollups.dir),
                    path(&rollups.spool),
                    bytes(rollups.max)
                );
            }
            None => out.push_str("rollups = false\n"),
        }
        out
    }

    /// What is done, in a line.
    pub(crate) fn words(&self) -> String {
        let which = match self.one_in {
            1 => "all requests".to_owned(),
            n => format!("all slow and incomplete requests and one in {n} of the others"),
        };
        let rollups = self.rollups.as_ref().map_or_else(String::new, |of| {
            format!("; roll-ups of each minute, into {}", of.dir.display())
        });
        format!("rows: {which}, into {}{rollups}", self.dir.display())
    }
}
