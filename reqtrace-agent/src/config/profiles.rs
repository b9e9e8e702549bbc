//! `[profiles]`: its TOML in; how often stacks become a profile, and where it goes, out.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use reqtrace_base::error::Result;
use reqtrace_base::quantity;
use serde::{Deserialize, Serialize};

use super::toml_at::Table;
use super::{Share, bytes, otlp, read, text, time};
use crate::spool::Folders;

const DIR: &str = "\"/var/lib/reqtrace/profiles\"";
const PYROSCOPE: &str = "\"http://127.0.0.1:4040\"";
/// A folder of the target that readers pass by, as its name begins with a dot.
const SPOOL: &str = ".spool";
const LONGEST: Duration = Duration::from_secs(3_600);
/// Two of the largest profiles fit.
const LEAST_ROOM: u64 = 8 << 20;

/// Profiles of where requests are off the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpu {
    /// The requests of a profile ended in this time: whole windows.
    pub every: Duration,
    /// Where their files are handed over; `None`: there are none.
    pub folder: Option<Folder>,
    /// A Pyroscope, or what takes profiles as one does, without a slash at its end; `None`: they are not sent.
    pub pyroscope: Option<String>,
}

/// Where files of profiles go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Where whole files are handed over.
    pub dir: PathBuf,
    /// Where they are made.
    pub spool: PathBuf,
    /// Bytes of all files of this machine in both folders.
    pub max: u64,
    /// What is left free of the file system.
    pub keep_free: Share,
}

pub(super) fn read(mut table: Table<'_>, window: Duration) -> Result<OffCpu> {
    let every = match table.take("every") {
        Some(value) => {
            let every = read::time(&value, "\"60s\"")?;
            let is_whole = every.as_nanos().is_multiple_of(window.as_nanos().max(1));
            if !is_whole || every > LONGEST {
                let window = time(window);
                return Err(value.refuse(
                    format_args!(
                        "a profile has a whole number of windows, which are {window}, up to 1 h"
                    ),
                    format!("write every = \"{window}\", or twice that, …"),
                ));
            }
            every
        }
        // The first whole number of windows from a minute on.
        None => window * 60_u32.div_ceil(u32::try_from(window.as_secs()).unwrap_or(60).max(1)),
    };
    let pyroscope = table.take("pyroscope");
    let pyroscope = pyroscope.map(|value| {
        value.parsed(PYROSCOPE, |text| {
            otlp::base(text, "/push.v1.PusherService/Push")
        })
    });
    let pyroscope = pyroscope.transpose()?;
    let dir = table.take("dir").map(|value| read::path(&value, DIR));
    let folder = match dir.transpose()? {
        Some(dir) => Some(folder(&mut table, dir)?),
        None => {
            for key in ["spool", "max", "keep-free"] {
                if let Some(value) = table.take(key) {
                    return Err(value.refuse(
                        "there is no folder that it is about",
                        format!("add dir = {DIR}, or leave it out"),
                    ));
                }
            }
            None
        }
    };
    // A key that is none is the cause of what is missing, more often than not.
    let nowhere = table.error("profiles go nowhere");
    table.end()?;
    if folder.is_none() && pyroscope.is_none() {
        return Err(nowhere.next(format!(
            "add dir = {DIR}, or pyroscope = {PYROSCOPE}, or both"
        )));
    }
    Ok(OffCpu {
        every,
        folder,
        pyroscope,
    })
}

fn folder(table: &mut Table<'_>, dir: PathBuf) -> Result<Folder> {
    let spool = table.take("spool").map(|value| read::path(&value, DIR));
    let max = table.take("max");
    let keep_free = table.take("keep-free").map(|value| read::share(&value));
    let folder = Folder {
        spool: spool.transpose()?.unwrap_or_else(|| dir.join(SPOOL)),
        dir,
        max: match &max {
            Some(value) => value.parsed("\"500MB\"", quantity::bytes)?,
            None => 500 << 20,
        },
        keep_free: keep_free.transpose()?.unwrap_or(Share::of_percent(5.0)),
    };
    match max.filter(|_| folder.max < LEAST_ROOM) {
        Some(value) => Err(value.refuse(
            format_args!("two profiles have to fit, {}", bytes(LEAST_ROOM)),
            "write max = \"500MB\"",
        )),
        None => Ok(folder),
    }
}

impl OffCpu {
    /// Where their files are, and how much room they have.
    pub(crate) fn folders(&self) -> Option<Folders<'_>> {
        let folder = self.folder.as_ref()?;
        Some(Folders {
            dir: &folder.dir,
            spool: &folder.spool,
            max: folder.max,
            keep_free: folder.keep_free.part(),
        })
    }

    /// The section, with everything that it leaves out.
    pub(super) fn effective(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "\n[profiles]\nevery = \"{}\"", time(self.every));
        if let Some(folder) = &self.folder {
            let path = |path: &PathBuf| text(&path.to_string_lossy());
            let _ = writeln!(
                out,
                "dir = {}\nspool = {}\nmax = \"{}\"\nkeep-free = \"{}%\"",
                path(&folder.dir),
                path(&folder.spool),
                bytes(folder.max),
                folder.keep_free.percent()
            );
        }
        if let Some(pyroscope) = &self.pyroscope {
            let _ = writeln!(out, "pyroscope = {}", text(pyroscope));
        }
        out
    }

    /// What is done, in a line.
    pub(crate) fn words(&self) -> String {
        let folder = self.folder.as_ref();
        let folder = folder.map(|folder| format!("into {}", folder.dir.display()));
        let pyroscope = self.pyroscope.as_ref().map(|to| format!("to {to}"));
        let to: Vec<String> = folder.into_iter().chain(pyroscope).collect();
        format!(
            "profiles (experimental): off-CPU time of each request type, every {}, {}",
            time(self.every),
            to.join(" and ")
        )
    }
}
