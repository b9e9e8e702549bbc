//! Configurations: what is right gets its defaults, what is wrong its line, its value and what to write instead. And what is
//! remembered, also when it was cut off.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

use super::config::{Config, Target};
use super::state::State;

const SHIP: &str = "[ship]\ndir = \"/rows\"\n";
const CLICKHOUSE: &str = "[clickhouse]\nurl = \"https://ch.example:8443\"\n";

fn parsed(text: &str) -> Config {
    Config::parse(text, "ship.toml").unwrap()
}

#[test]
fn the_smallest_configurations_get_their_defaults() {
    let config = parsed(&format!("{SHIP}{CLICKHOUSE}"));
    assert_eq!(config.state.to_str(), Some("/var/lib/reqtrace-ship"));
    assert!(!config.keep);
    assert_eq!(config.listen.to_string(), "127.0.0.1:9465");
    assert_eq!(
        (config.every, config.timeout),
        (Duration::from_secs(5), Duration::from_secs(120))
    );
    assert_eq!(config.refused_max, 100 << 20);
    assert_eq!(
        config.words(),
        "files of /rows go to ClickHouse, https://ch.example:8443/, table reqtrace.requests, and are removed then"
    );
    let config = parsed(&format!(
        "{SHIP}keep = true\n[s3]\nendpoint = \"http://127.0.0.1:9000\"\nbucket = \"rows\"\nregion = \"here\"\npath-style = true\n\
         prefix = \"a/\"\nkey-file = \"/key\"\n"
    ));
    assert_eq!(
        config.words(),
        "files of /rows go to S3, http://127.0.0.1:9000/rows/a/, and are kept then"
    );
    assert!(matches!(config.to, Target::S3(_)));
    let config = parsed(&format!("{SHIP}rollups = \"/minutes\"\n{CLICKHOUSE}"));
    assert!(
        config
            .words()
            .ends_with("are removed then; the same of /minutes, to table reqtrace.rollups"),
        "{}",
        config.words()
    );
}

#[test]
fn what_is_wrong_is_told_with_its_line_its_value_and_what_to_write_instead() {
    let ship = |line: &str| format!("{SHIP}{line}\n{CLICKHOUSE}");
    let clickhouse = |line: &str| format!("{SHIP}[clickhouse]\n{line}\n");
    let with = |line: &str| format!("{SHIP}{CLICKHOUSE}{line}\n");
    let s3 = |line: &str| format!("{SHIP}[s3]\nendpoint = \"https://s3.example\"\n{line}\n");
    let cases = [
        (
            CLICKHOUSE.to_owned(),
            1,
            "the file has no `ship`",
            "add ship = …: a table [ship]",
        ),
        (
            SHIP.to_owned(),
            1,
            "nothing says where files are sent",
            "[clickhouse] with a url",
        ),
        (
            with("[s3]\nbucket = \"b\""),
            5,
            "a shipper sends to one engine",
            "leave one out",
        ),
        (
            ship("dirs = 1"),
            3,
            "`dirs` (= 1) is no key of [ship]",
            "did you mean `dir`?",
        ),
        (
            with("[shop]\na = 1"),
            5,
            "`shop` is no key of the file",
            "did you mean `ship`?",
        ),
        (
            format!("[ship]\n{CLICKHOUSE}"),
            1,
            "[ship] has no `dir`",
            "add dir = \"/var/lib/reqtrace/rows\"",
        ),
        (
            format!("[ship]\ndir = \"rows\"\n{CLICKHOUSE}"),
            2,
            "dir = \"rows\": this is no whole path",
            "/var/lib/reqtrace/rows",
        ),
        (
            ship("state = \"/rows/state\""),
            3,
            "it is inside dir",
            "state = \"/var/lib/reqtrace-ship\"",
        ),
        (
            format!("{SHIP}state = \"/m/s\"\nrollups = \"/m\"\n{CLICKHOUSE}"),
            3,
            "it is inside rollups",
            "state = \"/var/lib/reqtrace-ship\"",
        ),
        (
            ship("rollups = true"),
            3,
            "rollups = true: this is no text",
            "write rollups = \"/var/lib/reqtrace/rollups\"",
        ),
        (
            with("rollups-table = \"reqtrace.minutes\""),
            5,
            "nothing says where roll-ups are",
            "add rollups = \"/var/lib/reqtrace/rollups\" to [ship]",
        ),
        (
            ship("keep = 1"),
            3,
            "keep = 1: this is no boolean",
            "keep = true",
        ),
        (
            ship("every = \"2h\""),
            3,
            "every = \"2h\": it is longer than an hour",
            "every = \"5s\"",
        ),
        (
            ship("timeout = \"0s\""),
            3,
            "timeout = \"0s\"",
            "timeout = \"2m\"",
        ),
        (
            ship("retry = { first = \"5m\" }"),
            3,
            "longest is shorter than first",
            "retry = { first = \"1s\"",
        ),
        (
            ship("retry = { most = \"5m\" }"),
            3,
            "`most` (= \"5m\") is no key of retry",
            "keys of retry: first, longest",
        ),
        (
            ship("refused-max = \"many\""),
            3,
            "refused-max = \"many\"",
            "refused-max = \"100MB\"",
        ),
        (clickhouse(""), 3, "[clickhouse] has no `url`", "add url = "),
        (
            clickhouse("url = \"ch.example\""),
            4,
            "this is no URL",
            "https://clickhouse.example:8443",
        ),
        (
            clickhouse("url = \"ftp://a\""),
            4,
            "ftp: is neither https: nor http:",
            "https://",
        ),
        (
            clickhouse("url = \"https://ch/?query=x\""),
            4,
            "it ends with a query",
            "https://",
        ),
        (
            clickhouse("url = \"http://ch.example:8123\""),
            4,
            "rows would go unencrypted",
            "unencrypted = true",
        ),
        (
            clickhouse("url = \"http://ch.example\"\npassword-file = \"/secret\""),
            4,
            "rows and the secret would go unencrypted",
            "https://",
        ),
        (
            with("table = \"requests\""),
            5,
            "this is no DATABASE.TABLE",
            "table = \"reqtrace.requests\"",
        ),
        (
            with("table = \"a.b; DROP\""),
            5,
            "this is no DATABASE.TABLE",
            "table = ",
        ),
        (
            with("password = \"x\""),
            5,
            "`password` (= \"x\") is no key of [clickhouse]",
            "did you mean `password-file`?",
        ),
        (
            with("password-file = \"a/b\""),
            5,
            "neither a whole path nor the name of a credential",
            "LoadCredential=",
        ),
        (
            s3("region = \"r\""),
            3,
            "[s3] has no `bucket`",
            "add bucket = ",
        ),
        (
            s3("bucket = \"b\""),
            3,
            "[s3] has no `region`",
            "add region = ",
        ),
        (
            s3("bucket = \"b\"\nregion = \"r\""),
            4,
            "[s3] has no `key-file`",
            "add key-file = ",
        ),
        (
            s3("bucket = \"b\"\nregion = \"r\"\nkey-file = \"/k\"\nprefix = \"/a\""),
            8,
            "a prefix ends with a slash",
            "prefix = \"reqtrace/\"",
        ),
        (
            s3("bucket = \"b\"\nregion = \"r\"\nkey-file = \"/k\"\nrollups-prefix = \"a/\""),
            8,
            "nothing says where roll-ups are",
            "to [ship], or leave it out",
        ),
        (
            s3("bucket = \"b\"\nregion = \"r\"\nkey-file = \"/k\"")
                .replace("[s3]", "rollups = \"/m\"\n[s3]"),
            5,
            "[s3] has no `rollups-prefix`",
            "add rollups-prefix = \"reqtrace-rollups/\"",
        ),
        (
            s3("bucket = \"b\"\nregion = \"r\"\nkey-file = \"/k\"\nprefix = \"a/\"\nrollups-prefix = \"a/m/\"")
                .replace("[s3]", "rollups = \"/m\"\n[s3]"),
            10,
            "it and prefix = \"a/\" are one inside the other",
            "rollups-prefix = \"reqtrace-rollups/\"",
        ),
        (
            with("[metrics]\nlisten = \"0.0.0.0:1\""),
            6,
            "other machines could read the metrics",
            "public = true",
        ),
        ("[ship\n".to_owned(), 1, "", "docs/agent.md"),
    ];
    for (text, line, what, advice) in cases {
        let error = Config::parse(&text, "ship.toml").unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("ship.toml:{line}: ")),
            "{text}\n{message}"
        );
        assert!(message.contains(what), "{text}\n{message}");
        let next = error.advice().unwrap_or_default();
        assert!(next.contains(advice), "{text}\n{message}\n{next}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn a_password_in_a_url_is_refused_and_not_shown() {
    let text = format!("{SHIP}[clickhouse]\nurl = \"https://me:canary@ch.example\"\n");
    let error = Config::parse(&text, "ship.toml").unwrap_err();
    let message = format!("{error} {}", error.advice().unwrap_or_default());
    assert!(
        message.contains("ship.toml:4: url: it has a user or a password")
            && !message.contains("canary"),
        "{message}"
    );
}

#[test]
fn names_are_remembered_and_a_line_that_was_cut_off_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = parsed(&format!("{SHIP}{CLICKHOUSE}"));
    config.state = folder.path().join("state");
    let mut state = State::open(&config).unwrap();
    state.remember("rows-1").unwrap();
    state.remember("rows-2").unwrap();
    drop(state);
    let list = config.state.join("sent");
    let mut torn = fs::OpenOptions::new().append(true).open(&list).unwrap();
    torn.write_all(b"rows-3").unwrap();
    let mut state = State::open(&config).unwrap();
    assert_eq!(
        ["rows-1", "rows-2", "rows-3"].map(|name| state.is_sent(name)),
        [true, true, false]
    );
    // What follows does not begin in the line that was cut off.
    state.remember("rows-4").unwrap();
    drop(state);
    assert_eq!(
        fs::read_to_string(&list).unwrap(),
        "rows-1\nrows-2\nrows-4\n"
    );
    // Names of files that have gone are forgotten when they are many.
    let mut state = State::open(&config).unwrap();
    for number in 5..1_100 {
        state.remember(&format!("rows-{number}")).unwrap();
    }
    state
        .forget_all_but(&BTreeSet::from(["rows-2", "rows-7"]))
        .unwrap();
    state.remember("rows-x").unwrap();
    assert_eq!(
        fs::read_to_string(&list).unwrap(),
        "rows-2\nrows-7\nrows-x\n"
    );
}

#[test]
fn refused_files_are_kept_up_to_their_bound_with_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = parsed(&format!("{SHIP}{CLICKHOUSE}"));
    (config.state, config.refused_max) = (folder.path().join("state"), 250);
    let state = State::open(&config).unwrap();
    let mut gone = 0;
    for number in 1..=4 {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100]).unwrap();
        gone += state
            .set_aside(&mut file, &format!("rows-{number}.parquet"), "400: no")
            .unwrap();
    }
    assert_eq!(gone, 2);
    let refused = config.state.join("refused");
    let names = fs::read_dir(&refused).unwrap();
    let names: BTreeSet<_> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let kept = [
        "rows-3.parquet",
        "rows-3.parquet.why",
        "rows-4.parquet",
        "rows-4.parquet.why",
    ];
    assert_eq!(names, kept.map(str::to_owned).into());
    assert_eq!(
        fs::read_to_string(refused.join("rows-4.parquet.why")).unwrap(),
        "400: no\n"
    );
    assert_eq!(fs::read(refused.join("rows-4.parquet")).unwrap(), [7; 100]);
}
