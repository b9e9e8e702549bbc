//! ClickHouse by HTTP: a file of rows or roll-ups in; an `INSERT` of it out, which the server does once however often it is sent.
//!
//! Files of different profiles have different columns: what the table has no column for goes into its maps `attributes`,
//! `parts` and `causes`, so that a table needs no change for a new wait class.

use std::fs::File;

use reqtrace_base::error::Result;
use reqtrace_output::parquet::{About, FileColumn, Kind};
use ureq::Agent;
use ureq::http::HeaderValue;
use url::Url;

use super::config::ClickHouse;
use super::folder::{Found, What};
use crate::http::{Failure, Outcome, outcome};

/// Columns that may be null in the tables, too: not known.
const NULL: [&str; 3] = ["slow", "slow_above_ns", "waited_before_ns"];
/// Columns that files have only where requests have a key.
const OF_KEYS: [&str; 2] = ["parked_ns", "queued_ns"];

/// Sends a file; its name is its token, and in each of its rows.
pub(super) fn send(
    to: &ClickHouse,
    client: &Agent,
    file: &File,
    found: &Found,
    columns: &[FileColumn],
) -> Outcome {
    let password = match to
        .password
        .as_ref()
        .map(super::secret::Secret::lines)
        .transpose()
    {
        Ok(lines) => lines.and_then(|lines| lines.into_iter().next()),
        Err(error) => return Outcome::Failed(Failure::Denied, error.to_string()),
    };
    let headers = [
        ("X-ClickHouse-User", to.user.clone()),
        ("X-ClickHouse-Key", password),
    ];
    let mut request = client
        .post(address(to, found, columns).as_str())
        .content_type("application/vnd.apache.parquet");
    for (header, value) in headers {
        let Some(value) = value else { continue };
        let Ok(mut value) = HeaderValue::from_str(&value) else {
            return Outcome::Failed(
                Failure::Denied,
                format!("{header} cannot be sent: it has other than printing characters"),
            );
        };
        value.set_sensitive(true);
        request = request.header(header, value);
    }
    outcome(request.send(file))
}

/// The address, with the statement and how it is done.
fn address(to: &ClickHouse, found: &Found, columns: &[FileColumn]) -> Url {
    let mut url = to.url.clone();
    url.query_pairs_mut()
        .append_pair("query", &statement(to, found, columns))
        .append_pair("insert_deduplicate", "1")
        .append_pair("insert_deduplication_token", &found.name)
        .append_pair("deduplicate_blocks_in_dependent_materialized_views", "1")
        // What is accepted is in the table, whole, and the status says whether it is.
        .append_pair("async_insert", "0")
        // By its name of before 23.11, which later ones know, too.
        .append_pair("insert_distributed_sync", "1")
        .append_pair("wait_end_of_query", "1")
        // The same file is cut into the same blocks each time: tokens are theirs.
        .append_pair("input_format_parquet_preserve_order", "1")
        .append_pair("max_insert_threads", "1");
    url
}

/// The statement.
fn statement(to: &ClickHouse, found: &Found, columns: &[FileColumn]) -> String {
    let maps = [
        ("attributes", About::Attribute),
        ("parts", About::Part),
        ("causes", About::Cause),
    ];
    match found.what {
        What::Rows => insert(&to.table, &found.name, columns, &maps),
        // There are none of attributes.
        What::Rollups => insert(&to.rollups_table, &found.name, columns, &maps[1..]),
    }
}

/// The statement, with these maps.
fn insert(
    [database, table]: &[String; 2],
    name: &str,
    columns: &[FileColumn],
    maps: &[(&str, About)],
) -> String {
    let fixed = columns.iter().filter(|column| column.about == About::Fixed);
    let mut names: Vec<String> = vec!["file".to_owned()];
    let mut values: Vec<String> = vec![format!("'{}'", escaped(name))];
    for FileColumn { name, kind, .. } in fixed {
        names.push(quoted(name));
        values.push(match (kind, name.as_str()) {
            (_, null) if NULL.contains(&null) => quoted(name),
            (Kind::Numbers, _) => quoted(name),
            (Kind::Flag, _) => format!("ifNull({}, false)", quoted(name)),
            (Kind::Text, _) => format!("ifNull({}, '')", quoted(name)),
            (Kind::Number | Kind::Rising | Kind::Length, _) => {
                format!("ifNull({}, 0)", quoted(name))
            }
            (Kind::Time, _) => format!("assumeNotNull({})", quoted(name)),
        });
    }
    for key in OF_KEYS {
        if !columns.iter().any(|column| column.name == key) {
            names.push(quoted(key));
            values.push("0".to_owned());
        }
    }
    for (map, about) in maps {
        names.push((*map).to_owned());
        values.push(of_map(
            columns.iter().filter(|column| column.about == *about),
            *about,
        ));
    }
    let structure: Vec<String> = columns
        .iter()
        .map(|column| format!("{} {}", quoted(&column.name), of_kind(column.kind)))
        .collect();
    format!(
        "INSERT INTO {}.{} ({}) SELECT {} FROM input('{}') FORMAT Parquet",
        quoted(database),
        quoted(table),
        names.join(", "),
        values.join(", "),
        escaped(&structure.join(", "))
    )
}

/// Columns as a map without those that say nothing.
fn of_map<'a>(columns: impl Iterator<Item = &'a FileColumn>, about: About) -> String {
    let pairs: Vec<String> = columns
        .map(|column| {
            let key = match about {
                About::Attribute => column.name.as_str(),
                _ => {
                    let name = column.name.strip_suffix("_ns").unwrap_or(&column.name);
                    name.strip_prefix("cause_")
                        .filter(|_| about == About::Cause)
                        .unwrap_or(name)
                }
            };
            let none = if about == About::Attribute { "''" } else { "0" };
            format!(
                "'{}', ifNull({}, {none})",
                escaped(key),
                quoted(&column.name)
            )
        })
        .collect();
    match (pairs.is_empty(), about) {
        (true, _) => "map()".to_owned(),
        (false, About::Attribute) => {
            format!("mapFilter((k, v) -> v != '', map({}))", pairs.join(", "))
        }
        (false, _) => format!("mapFilter((k, v) -> v != 0, map({}))", pairs.join(", ")),
    }
}

fn of_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "Nullable(String)",
        Kind::Number | Kind::Rising | Kind::Length => "Nullable(Int64)",
        Kind::Time => "Nullable(DateTime64(9, 'UTC'))",
        Kind::Flag => "Nullable(Bool)",
        Kind::Numbers => "Array(Int64)",
    }
}

/// As a name in a statement: what a column is called is a matter of profiles.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

/// As the inside of a text in a statement.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

/// Checks what can be checked before the first file.
///
/// # Errors
///
/// Usage errors: a secret that cannot be read.
pub(super) fn check(to: &ClickHouse) -> Result<()> {
    to.password
        .as_ref()
        .map_or(Ok(()), |secret| secret.lines().map(|_| ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: Kind, about: About) -> FileColumn {
        FileColumn {
            name: name.to_owned(),
            kind,
            about,
        }
    }

    #[test]
    fn columns_of_a_profile_go_into_maps_and_names_cannot_leave_their_quotes() {
        let columns = [
            column("host", Kind::Text, About::Fixed),
            column("start", Kind::Time, About::Fixed),
            column("us`er'", Kind::Text, About::Attribute),
            column("latency_ns", Kind::Length, About::Fixed),
            column("redo_log_ns", Kind::Length, About::Part),
            column("parked_ns", Kind::Length, About::Fixed),
            column("cause_disk_ns", Kind::Length, About::Cause),
            column("slow", Kind::Flag, About::Fixed),
        ];
        let tables = [["reqtrace", "requests"], ["reqtrace", "rollups"]];
        let [table, rollups_table] = tables.map(|names| names.map(str::to_owned));
        let to = ClickHouse {
            url: Url::parse("http://localhost").unwrap(),
            table,
            rollups_table,
            user: None,
            password: None,
            ca: None,
        };
        let file = |what, name: &str| Found {
            what,
            modified: std::time::SystemTime::UNIX_EPOCH,
            bytes: 1,
            path: std::path::PathBuf::new(),
            place: String::new(),
            name: name.to_owned(),
        };
        let sql = statement(&to, &file(What::Rows, "rows-h-b-1.parquet"), &columns);
        assert_eq!(
            sql,
            "INSERT INTO `reqtrace`.`requests` (file, `host`, `start`, `latency_ns`, `parked_ns`, `slow`, `queued_ns`, \
             attributes, parts, causes) SELECT 'rows-h-b-1.parquet', ifNull(`host`, ''), assumeNotNull(`start`), \
             ifNull(`latency_ns`, 0), ifNull(`parked_ns`, 0), `slow`, 0, \
             mapFilter((k, v) -> v != '', map('us`er\\'', ifNull(`us\\`er'`, ''))), \
             mapFilter((k, v) -> v != 0, map('redo_log', ifNull(`redo_log_ns`, 0))), \
             mapFilter((k, v) -> v != 0, map('disk', ifNull(`cause_disk_ns`, 0))) FROM input('`host` Nullable(String), \
             `start` Nullable(DateTime64(9, \\'UTC\\')), `us\\\\`er\\'` Nullable(String), `latency_ns` Nullable(Int64), \
             `redo_log_ns` Nullable(Int64), `parked_ns` Nullable(Int64), `cause_disk_ns` Nullable(Int64), \
             `slow` Nullable(Bool)') FORMAT Parquet"
        );
        let columns = [
            column("level", Kind::Text, About::Fixed),
            column("slow", Kind::Number, About::Fixed),
            column("disk_ns", Kind::Length, About::Part),
            column("histogram", Kind::Numbers, About::Fixed),
        ];
        let file = file(What::Rollups, "rollups-h-b-1.parquet");
        assert_eq!(
            statement(&to, &file, &columns),
            "INSERT INTO `reqtrace`.`rollups` (file, `level`, `slow`, `histogram`, `parked_ns`, `queued_ns`, parts, causes) \
             SELECT 'rollups-h-b-1.parquet', ifNull(`level`, ''), `slow`, `histogram`, 0, 0, \
             mapFilter((k, v) -> v != 0, map('disk', ifNull(`disk_ns`, 0))), map() FROM input('`level` Nullable(String), \
             `slow` Nullable(Int64), `disk_ns` Nullable(Int64), `histogram` Array(Int64)') FORMAT Parquet"
        );
    }
}
