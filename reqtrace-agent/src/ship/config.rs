//! The shipper's configuration: its TOML in; which folder is sent where, checked for all that can be checked without the other
//! end, out.

mod engines;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_base::error::Result;
use reqtrace_base::quantity;

use self::engines::{of_clickhouse, of_s3};
use crate::config::read::{self, metrics, parsed, path, time};
use crate::config::toml_at::{Source, Table, Value};
use crate::http::Retry;

pub(super) use engines::{ClickHouse, S3};

/// Where metrics are read without a setting.
const LISTEN: &str = "127.0.0.1:9465";
const DIR: &str = "\"/var/lib/reqtrace/rows\"";
const ROLLUPS: &str = "\"/var/lib/reqtrace/rollups\"";
const STATE: &str = "/var/lib/reqtrace-ship";
const LONGEST: Duration = Duration::from_secs(3_600);

/// What is sent, where to, and how.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// The agent's `[rows] dir`.
    pub(super) dir: PathBuf,
    /// The folder of its roll-ups; `None`: they are not sent.
    pub(super) rollups: Option<PathBuf>,
    /// Where it is remembered what was sent, and what was refused is kept.
    pub(super) state: PathBuf,
    /// Files stay when they were sent.
    pub(super) keep: bool,
    /// How often it looks for new files.
    pub(super) every: Duration,
    /// A file that takes longer is tried again.
    pub(super) timeout: Duration,
    /// How long it waits after a failure: twice as long after each.
    pub(super) retry: Retry,
    /// Bytes of files that were refused.
    pub(super) refused_max: u64,
    pub(super) listen: SocketAddr,
    pub(super) to: Target,
}

/// Who takes the files.
#[derive(Clone, Debug)]
pub(super) enum Target {
    ClickHouse(ClickHouse),
    S3(S3),
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Usage errors: it cannot be read, or what is wrong in it, with the line, the value and what to write instead.
    pub(super) fn read(path: &Path) -> Result<Self> {
        Self::parse(&read::text(path)?, &path.display().to_string())
    }

    /// Reads a text; `name` is what messages call it.
    pub(super) fn parse(text: &str, name: &str) -> Result<Self> {
        let source = Source { name, text };
        let parsed = parsed(source)?;
        let (span, keys) = (parsed.span(), parsed.get_ref());
        let mut file = Table::new(source, "the file", keys, span);
        let table = file.need("ship", &format!("…: a table [ship] with dir = {DIR}"))?;
        let mut ship = table.table("[ship]", &format!("{{ dir = {DIR} }}"))?;
        let rollups = ship.take("rollups").map(|value| path(&value, ROLLUPS));
        let rollups = rollups.transpose()?;
        let (listen, _) = metrics(file.take("metrics"), LISTEN)?;
        let (clickhouse, s3) = (file.take("clickhouse"), file.take("s3"));
        file.end()?;
        let to = match (clickhouse, s3) {
            (Some(value), None) => {
                let such_as = "{ url = \"https://clickhouse.example:8443\" }";
                Target::ClickHouse(of_clickhouse(
                    value.table("[clickhouse]", such_as)?,
                    rollups.is_some(),
                )?)
            }
            (None, Some(value)) => {
                let such_as = "{ bucket = \"rows\" }";
                Target::S3(of_s3(value.table("[s3]", such_as)?, rollups.is_some())?)
            }
            (Some(_), Some(value)) => {
                let what = "a shipper sends to one engine, and [clickhouse] is there, too";
                let next = "leave one out; a second shipper with keep = true and a state of its own sends to the other";
                return Err(value.refuse(what, next));
            }
            (None, None) => {
                return Err(source
                    .error(&(0..0), "nothing says where files are sent")
                    .next("add [clickhouse] with a url, or [s3] with endpoint and bucket"));
            }
        };
        of_ship(ship, rollups, listen, to)
    }

    /// What is done, in a line.
    pub(super) fn words(&self) -> String {
        let to = match &self.to {
            Target::ClickHouse(to) => {
                format!("ClickHouse, {}, table {}", to.url, to.table.join("."))
            }
            Target::S3(to) => format!("S3, {}{}", to.bucket.base_url(), to.prefix),
        };
        let after = if self.keep { "kept" } else { "removed" };
        let rollups = self.rollups.as_ref().map_or_else(String::new, |dir| {
            let to = match &self.to {
                Target::ClickHouse(to) => format!("table {}", to.rollups_table.join(".")),
                Target::S3(to) => to.rollups_prefix.clone(),
            };
            format!("; the same of {}, to {to}", dir.display())
        });
        format!(
            "files of {} go to {to}, and are {after} then{rollups}",
            self.dir.display()
        )
    }
}

fn of_ship(
    mut table: Table<'_>,
    rollups: Option<PathBuf>,
    listen: SocketAddr,
    to: Target,
) -> Result<Config> {
    let dir = path(&table.need("dir", DIR)?, DIR)?;
    let mut config = Config {
        dir,
        rollups,
        state: PathBuf::from(STATE),
        keep: false,
        every: Duration::from_secs(5),
        timeout: Duration::from_secs(120),
        retry: Retry {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(120),
        },
        refused_max: 100 << 20,
        listen,
        to,
    };
    if let Some(value) = table.take("state") {
        config.state = path(&value, &format!("\"{STATE}\""))?;
        let next = format!("write state = \"{STATE}\"");
        let is_inside = |dir: &PathBuf| config.state.starts_with(dir);
        if is_inside(&config.dir) {
            return Err(value.refuse("it is inside dir, which is the agent's", next));
        }
        if config.rollups.as_ref().is_some_and(is_inside) {
            return Err(value.refuse("it is inside rollups, which is the agent's", next));
        }
    }
    if let Some(value) = table.take("keep") {
        config.keep = value.boolean()?;
    }
    if let Some(value) = table.take("every") {
        config.every = up_to_an_hour(&value, "\"5s\"")?;
    }
    if let Some(value) = table.take("timeout") {
        config.timeout = up_to_an_hour(&value, "\"2m\"")?;
    }
    if let Some(value) = table.take("retry") {
        let mut retry = value.table("retry", "{ first = \"1s\", longest = \"2m\" }")?;
        if let Some(value) = retry.take("first") {
            config.retry.first = up_to_an_hour(&value, "\"1s\"")?;
        }
        if let Some(value) = retry.take("longest") {
            config.retry.longest = up_to_an_hour(&value, "\"2m\"")?;
        }
        retry.end()?;
        if config.retry.longest < config.retry.first {
            let next = "write retry = { first = \"1s\", longest = \"2m\" }";
            return Err(value.refuse("longest is shorter than first", next));
        }
    }
    if let Some(value) = table.take("refused-max") {
        config.refused_max = value.parsed("\"100MB\"", quantity::bytes)?;
    }
    table.end()?;
    Ok(config)
}

fn up_to_an_hour(value: &Value<'_>, such_as: &str) -> Result<Duration> {
    let given = time(value, such_as)?;
    match given <= LONGEST {
        true => Ok(given),
        false => Err(value.refuse(
            "it is longer than an hour",
            format!("write {} = {such_as}", value.key),
        )),
    }
}
