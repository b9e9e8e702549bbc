//! `[clickhouse]` and `[s3]`: their TOML in; where files are sent, out.

use std::path::PathBuf;

use reqtrace_base::error::Result;
use rusty_s3::{Bucket, UrlStyle};
use url::Url;

use super::ROLLUPS;
use crate::config::read::path;
use crate::config::toml_at::{Table, Value};
use crate::ship::secret::Secret;

const NO_ROLLUPS: &str = "nothing says where roll-ups are, which would go there";

#[derive(Clone, Debug)]
pub(crate) struct ClickHouse {
    pub(crate) url: Url,
    /// Database and table.
    pub(crate) table: [String; 2],
    /// The same of roll-ups.
    pub(crate) rollups_table: [String; 2],
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    /// Certificates that are trusted instead of Mozilla's.
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct S3 {
    pub(crate) bucket: Bucket,
    pub(crate) prefix: String,
    /// The same of roll-ups.
    pub(crate) rollups_prefix: String,
    /// Lines: the key's id, its secret and, if there is one, the session's token.
    pub(crate) key: Secret,
    pub(crate) ca: Option<PathBuf>,
}

pub(super) fn of_clickhouse(mut table: Table<'_>, has_rollups: bool) -> Result<ClickHouse> {
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

pub(super) fn of_s3(mut table: Table<'_>, has_rollups: bool) -> Result<S3> {
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
