//! The shipper's configuration: its TOML in; which folder is sent where, checked for all that can be checked without the other
//! end, out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_base::error::Result;
use reqtrace_base::quantity;
use rusty_s3::{Bucket, UrlStyle};
use url::Url;

use super::secret::Secret;
use crate::config::read::{self, metrics, parsed, path, time};
use crate::config::toml_at::{Source, Table, Value};
use crate::http::Retry;

/// Where metrics are read without a setting.
const LISTEN: &str = "127.0.0.1:9465";
const DIR: &str = "\"/var/lib/reqtrace/rows\"";
const ROLLUPS: &str = "\"/var/lib/reqtrace/rollups\"";
const NO_ROLLUPS: &str = "nothing says where roll-ups are, which would go there";
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

#[derive(Clone, Debug)]
pub(super) struct ClickHouse {
    pub(super) url: Url,
    /// Database and table.
    pub(super) table: [String; 2],
    /// The same of roll-ups.
    pub(super) rollups_table: [String; 2],
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    /// Certificates that are trusted instead of Mozilla's.
    pub(super) ca: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct S3 {
    pub(super) bucket: Bucket,
    pub(super) prefix: String,
    /// The same of roll-ups.
    pub(super) rollups_prefix: String,
    /// Lines: the key's id, its secret and, if there is one, the session's token.
    pub(super) key: Secret,
    pub(super) ca: Option<PathBuf>,
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

fn of_clickhouse(mut table: Table<'_>, has_rollups: bool) -> Result<ClickHouse> {
    let such_as = "\"https://clickhouse.example:8443\"";
    let at = table.need("url", such_as)?;
    let url = url(&at, such_as)?;
    let names = |text: &str| {
        let names: Vec<&str> = text.split('.').collect();
        let is_plain = |name: &&str| {
            let mut letters = name.chars();
            letters
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
                && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match names.as_slice() {
            [database, table] if names.iter().all(is_plain) => {
                Ok([(*database).to_owned(), (*table).to_owned()])
            }
            _ => Err("this is no DATABASE.TABLE of letters, digits and _".to_owned()),
        }
    };
    let usual = |table: &str| ["reqtrace".to_owned(), table.to_owned()];
    let of_rows = table
        .take("table")
        .map(|value| value.parsed("\"reqtrace.requests\"", names));
    let of_rollups = table.take("rollups-table");
    if let Some(value) = of_rollups.as_ref().filter(|_| !has_rollups) {
        let next = format!("add rollups = {ROLLUPS} to [ship], or leave it out");
        return Err(value.refuse(NO_ROLLUPS, next));
    }
    let of_rollups = of_rollups.map(|value| value.parsed("\"reqtrace.rollups\"", names));
    let user = table
        .take("user")
        .map(|value| value.text("\"reqtrace\"").map(str::to_owned));
    let password = secret(&mut table, "password-file")?;
    let ca = ca(&mut table)?;
    let to = ClickHouse {
        url,
        table: of_rows.transpose()?.unwrap_or_else(|| usual("requests")),
        rollups_table: of_rollups.transpose()?.unwrap_or_else(|| usual("rollups")),
        user: user.transpose()?,
        password,
        ca,
    };
    let is_secret = to.password.is_some();
    end_encrypted(table, &at, &to.url, is_secret)?;
    Ok(to)
}

fn of_s3(mut table: Table<'_>, has_rollups: bool) -> Result<S3> {
    let such_as = "\"https://s3.eu-central-1.amazonaws.com\"";
    let at = table.need("endpoint", such_as)?;
    let endpoint = url(&at, such_as)?;
    let bucket_at = table.need("bucket", "\"reqtrace-rows\"")?;
    let bucket = bucket_at.text("\"reqtrace-rows\"")?;
    let region = table.need("region", "\"eu-central-1\"")?;
    let region = region.text("\"eu-central-1\"")?;
    let is_path = table.take("path-style").map(|value| value.boolean());
    let style = match is_path.transpose()? {
        Some(true) => UrlStyle::Path,
        _ => UrlStyle::VirtualHost,
    };
    let prefix = |text: &str| match text.starts_with('/') || !text.ends_with('/') {
        true => Err("a prefix ends with a slash and begins with none".to_owned()),
        false => Ok(text.to_owned()),
    };
    let of_rows = table
        .take("prefix")
        .map(|value| value.parsed("\"reqtrace/\"", prefix));
    let of_rows = of_rows.transpose()?.unwrap_or_default();
    let of_rollups = table.take("rollups-prefix");
    let rollups_prefix = match (&of_rollups, has_rollups) {
        (Some(value), true) => value.parsed("\"reqtrace-rollups/\"", prefix)?,
        (Some(value), false) => {
            let next = format!("add rollups = {ROLLUPS} to [ship], or leave it out");
            return Err(value.refuse(NO_ROLLUPS, next));
        }
        (None, true) => {
            let what = "[s3] has no `rollups-prefix`, and [ship] has rollups";
            return Err(at.refuse(what, "add rollups-prefix = \"reqtrace-rollups/\""));
        }
        (None, false) => String::new(),
    };
    // Who reads all tables below one would mix them up.
    let is_inside = rollups_prefix.starts_with(&of_rows) || of_rows.starts_with(&rollups_prefix);
    if let Some(value) = of_rollups.filter(|_| is_inside) {
        return Err(value.refuse(
            format_args!("it and prefix = \"{of_rows}\" are one inside the other"),
            "write prefix = \"reqtrace/\" and rollups-prefix = \"reqtrace-rollups/\"",
        ));
    }
    let key = secret(&mut table, "key-file")?;
    let ca = ca(&mut table)?;
    let bucket = Bucket::new(
        endpoint.clone(),
        style,
        bucket.to_owned(),
        region.to_owned(),
    );
    let bucket = bucket.map_err(|error| {
        bucket_at.refuse(
            error,
            "give a bucket's name, or add path-style = true if its name cannot be part of a host's",
        )
    })?;
    let Some(key) = key else {
        let what = "[s3] has no `key-file`";
        let next = "add key-file = \"/etc/reqtrace/s3.key\": a file with the key's id in its first line and its secret in the second";
        table.end()?;
        return Err(at.refuse(what, next));
    };
    end_encrypted(table, &at, &endpoint, true)?;
    Ok(S3 {
        bucket,
        prefix: of_rows,
        rollups_prefix,
        key,
        ca,
    })
}

fn url(value: &Value<'_>, such_as: &str) -> Result<Url> {
    let parse = |text: &str| {
        let url = Url::parse(text).map_err(|error| format!("this is no URL: {error}"))?;
        match url.scheme() {
            "http" | "https" if url.host_str().is_some() => Ok(url),
            scheme => Err(format!("{scheme}: is neither https: nor http:")),
        }
    };
    let url = value.parsed(such_as, parse)?;
    // The value is not shown: it has a password.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(value
            .error("it has a user or a password, which everybody would see")
            .next(format!(
                "write {} = {such_as}, and a file for the secret",
                value.key
            )));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(value.refuse(
            "it ends with a query",
            format!("write {} = {such_as}", value.key),
        ));
    }
    Ok(url)
}

fn secret(table: &mut Table<'_>, key: &'static str) -> Result<Option<Secret>> {
    let such_as = format!("\"/etc/reqtrace/{key}\"");
    let Some(value) = table.take(key) else {
        return Ok(None);
    };
    let secret = Secret::named(value.text(&such_as)?);
    secret.map(Some).map_err(|why| {
        let next = format!(
            "write {key} = {such_as}, or the name of a credential: LoadCredential= of its unit"
        );
        value.refuse(why, next)
    })
}

fn ca(table: &mut Table<'_>) -> Result<Option<PathBuf>> {
    let such_as = "\"/etc/ssl/certs/ca-certificates.crt\"";
    let value = table.take("ca").map(|value| path(&value, such_as));
    value.transpose()
}

/// The last key: whether secrets may go over the network for everybody to read.
fn end_encrypted(mut table: Table<'_>, at: &Value<'_>, url: &Url, is_secret: bool) -> Result<()> {
    let is_allowed = table.take("unencrypted").map(|value| value.boolean());
    let is_allowed = is_allowed.transpose()?.unwrap_or(false);
    table.end()?;
    let is_here = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if url.scheme() == "http" && !is_here && !is_allowed {
        let what = match is_secret {
            true => "rows and the secret would go unencrypted over the network",
            false => "rows would go unencrypted over the network",
        };
        let next = "write https://, or add unencrypted = true if the network is trusted";
        return Err(at.refuse(what, next));
    }
    Ok(())
}
