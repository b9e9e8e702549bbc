//! Labels against what was asked of the servers, and labels that cannot be read.
//!
//! Needs root, a kernel with BPF, mariadb-server, postgresql-15, redis-server and redis-tools.

use std::collections::BTreeMap;
use std::path::Path;

use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;

/// How many requests each label has, of one request type.
fn labels(outcome: &Outcome, request: &str) -> BTreeMap<String, u64> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let mut labels = BTreeMap::new();
    for row in outcome.rows().unwrap() {
        if row.request == request && row.complete {
            *labels.entry(row.label).or_default() += 1;
        }
    }
    labels
}

/// How many complete requests have each value of an attribute.
fn texts(outcome: &Outcome, attribute: &str) -> BTreeMap<String, u64> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let mut texts = BTreeMap::new();
    for mut row in outcome.rows().unwrap() {
        if row.complete {
            let text = row.attributes.remove(attribute).unwrap();
            *texts.entry(text).or_default() += 1;
        }
    }
    texts
}

/// Losses by name.
fn unreadable(outcome: &Outcome) -> u64 {
    let losses = outcome.summary().unwrap().losses;
    let of_labels = losses.iter().filter(|loss| loss.name == "label_unreadable");
    of_labels.map(|loss| loss.count).sum()
}

#[test]
fn mariadb_shows_the_text_of_queries_and_prepares_only() {
    let server = MariaDb::open().unwrap();
    let long = format!("select '{}'", "x".repeat(200));
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &["--labels"]).unwrap();
    server.sql("select 1").unwrap();
    server.sql("select 1").unwrap();
    server.sql(&long).unwrap();
    server.sql("select 'tab\tand größe'").unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    let found = texts(&outcome, "sql");
    assert_eq!(found["select 1"], 2, "{found:?}");
    assert_eq!(found[&long], 1, "{found:?}");
    assert_eq!(found["select 'tab\\tand größe'"], 1, "{found:?}");
    // What has no text has no label, and that is no loss: each client's good-bye at least.
    assert!(found[""] >= 4, "{found:?}");
    assert_eq!(unreadable(&outcome), 0);
}

#[test]
fn labels_are_off_unless_asked_for() {
    let server = MariaDb::open().unwrap();
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &[]).unwrap();
    server.sql("select 'secret'").unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    let found = labels(&outcome, "command");
    assert_eq!(found.keys().collect::<Vec<_>>(), [""]);
    assert!(!outcome.csv().unwrap().contains("secret"));
}

#[test]
fn postgresql_shows_the_text_of_each_statement() {
    let server = Server::postgresql().unwrap();
    let profile = Path::new("postgresql-usdt.toml");
    let trace = Trace::start(profile, server.pid(), &["--labels"]).unwrap();
    let sql = ["-c", "select 1", "-c", "select 1", "-c", "select\n2"];
    server.run("psql", &sql).unwrap();
    let outcome = trace.finish().unwrap();
    let found = labels(&outcome, "statement");
    let expected = BTreeMap::from([("select 1".to_owned(), 2), ("select\\n2".to_owned(), 1)]);
    assert_eq!(found, expected);
    assert_eq!(unreadable(&outcome), 0);
}

#[test]
fn redis_shows_the_name_of_each_command() {
    let server = Server::redis().unwrap();
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &["--labels"]).unwrap();
    server
        .redis_benchmark(&["-t", "set,get", "-n", "300", "-c", "4", "-q"])
        .unwrap();
    let outcome = trace.finish().unwrap();
    // The label is what the client wrote, the attribute is Redis's name of it.
    let found = labels(&outcome, "command");
    let expected = [("SET", 300), ("GET", 300), ("CONFIG", 2)];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(found, BTreeMap::from(expected));
    let mut names = BTreeMap::new();
    for row in outcome.rows().unwrap() {
        *names.entry(row.attributes["command"].clone()).or_default() += 1;
    }
    // Those of the other request type have none.
    names.remove("");
    let expected = [("set", 300), ("get", 300), ("config|get", 2)];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(names, BTreeMap::from(expected));
    assert_eq!(unreadable(&outcome), 0);
}

#[test]
fn a_label_that_points_nowhere_is_empty_and_counted() {
    const ORDERS: u64 = 50;
    let shop = Shop::open().unwrap();
    // The order's number taken for an address: nothing is mapped there.
    let text = std::fs::read_to_string(shop::profile()).unwrap();
    let wrong = text.replace("type = \"integer\", size = 8", "type = \"string\"");
    assert_ne!(wrong, text);
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("shop.toml");
    std::fs::write(&profile, wrong).unwrap();
    let trace = Trace::start(&profile, shop.pid(), &["--labels"]).unwrap();
    shop.load(2, ORDERS).unwrap();
    let outcome = trace.finish().unwrap();
    let found = labels(&outcome, "order");
    assert_eq!(found, BTreeMap::from([(String::new(), ORDERS)]));
    assert_eq!(unreadable(&outcome), ORDERS);
    assert!(
        outcome
            .printed()
            .contains("label_unreadable: labels that are empty")
    );
    shop.close().unwrap();
}

#[test]
fn a_number_is_a_label() {
    const ORDERS: u64 = 100;
    let shop = Shop::open().unwrap();
    let trace = Trace::start(&shop::profile(), shop.pid(), &["--labels"]).unwrap();
    shop.load(4, ORDERS).unwrap();
    let outcome = trace.finish().unwrap();
    let found = labels(&outcome, "order");
    let expected: BTreeMap<String, u64> = (0..ORDERS).map(|order| (order.to_string(), 1)).collect();
    assert_eq!(found, expected);
    assert_eq!(unreadable(&outcome), 0);
    shop.close().unwrap();
}

#[test]
fn one_row_a_label_when_grouped() {
    let server = Server::redis().unwrap();
    let more = ["--group-by", "label"];
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &more).unwrap();
    server
        .redis_benchmark(&["-t", "set,get", "-n", "300", "-c", "4", "-q"])
        .unwrap();
    let outcome = trace.finish().unwrap();
    let found = labels(&outcome, "command");
    assert_eq!(found["SET"], 300);
    let table = outcome.stdout.split("Labels of `command`").nth(1).unwrap();
    for (label, count) in [("SET", "300"), ("GET", "300"), ("CONFIG", "2")] {
        let row = table
            .lines()
            .find(|line| line.ends_with(&format!(" {label}")));
        let row = row.unwrap_or_else(|| panic!("no row for {label}: {table}"));
        assert_eq!(row.split_whitespace().next(), Some(count), "{row}");
    }
}

#[test]
fn labels_that_differ_by_a_number_have_one_fingerprint() {
    const ORDERS: u64 = 100;
    let shop = Shop::open().unwrap();
    let table = |by: &str| {
        let more = ["--group-by", by];
        let trace = Trace::start(&shop::profile(), shop.pid(), &more).unwrap();
        shop.load(4, ORDERS).unwrap();
        trace.finish().unwrap().stdout
    };
    let hint = "`--group-by fingerprint` puts";
    let labels = table("label");
    assert!(labels.contains("(70 other labels)"), "{labels}");
    assert!(labels.contains(hint), "{labels}");
    let fingerprints = table("fingerprint");
    let row = fingerprints.lines().find(|line| line.ends_with(" ?"));
    let row = row.unwrap_or_else(|| panic!("no row: {fingerprints}"));
    assert_eq!(row.split_whitespace().next(), Some("100"), "{row}");
    assert!(!fingerprints.contains(hint), "{fingerprints}");
    shop.close().unwrap();
}

#[test]
fn labels_of_a_profile_that_has_none_are_refused() {
    let shop = Shop::open().unwrap();
    let text = std::fs::read_to_string(shop::profile()).unwrap();
    let without: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("label"))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("shop.toml");
    std::fs::write(&profile, without.join("\n")).unwrap();
    let pid = shop.pid().to_string();
    let mut command = reqtrace::command(["--profile"]).unwrap();
    command.arg(&profile).args(["-p", &pid, "1", "--labels"]);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(
        outcome
            .stderr
            .contains("does not say where a label or a text is"),
        "{}",
        outcome.printed()
    );
    assert!(
        outcome.stderr.contains("next: give a request a label"),
        "{}",
        outcome.printed()
    );
}

#[test]
fn addresses_have_the_names_of_what_lies_there() {
    let mut fixture = Fixture::start("virtuals", &[]).unwrap();
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("symbols.toml");
    let symbol = |name: &str, deref: &str| {
        format!(
            "[[request.attribute]]\nname = \"{name}\"\ntype = \"symbol\"\narg = 0\nderef = {deref}\n"
        )
    };
    let attributes = [
        symbol("class", "[0]"),
        symbol("run", "[0, 0]"),
        symbol("then", "[8]"),
        // The object itself is on the stack.
        "[[request.attribute]]\nname = \"job\"\ntype = \"symbol\"\narg = 0\n".to_owned(),
    ];
    fixtures::write_profile(&profile, "job", "work", &attributes.concat()).unwrap();
    // Nothing of it is a text of a user: no --labels.
    let trace = Trace::start(&profile, fixture.pid(), &["--group-by", "class"]).unwrap();
    fixture.work().unwrap();
    let outcome = trace.finish().unwrap();
    let of = |attribute: &str| texts(&outcome, attribute);
    let each = |names: [&str; 3]| names.map(|name| (name.to_owned(), 10)).into();
    assert_eq!(
        of("class"),
        each([
            "vtable for shop::Order",
            "vtable for shop::Refund",
            "vtable for shop::Report"
        ])
    );
    assert_eq!(
        of("run"),
        each(["shop::Order::run", "shop::Refund::run", "shop::Report::run"])
    );
    assert_eq!(of("then"), each(["notify", "archive", ""]));
    assert_eq!(of("job"), [("[stack]".to_owned(), 30)].into());
    let report = outcome.printed();
    assert!(report.contains("vtable for shop::Refund"), "{report}");
    assert_eq!(unreadable(&outcome), 0);
}
