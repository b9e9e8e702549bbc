//! `reqtrace ship` to S3: objects have the places of their files; a real implementation keeps them, and Amazon's own library
//! gives the requests the same signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::process::{Child, Stream, run};
use reqtrace_tests::workspace;

use crate::fleet_rollups;
use crate::ship::{LIMIT, Place, files, left};

const KEY: [&str; 2] = ["AKIAEXAMPLE", "canary/secret+key"];
const FOLDER: &str = "date=2026-11-24/hour=15/service=shop";

/// A shipper to this endpoint, with its key beside its configuration.
fn place(endpoint: &str) -> Place {
    let place = Place::new("", "");
    let secret = place.folder.path().join("key");
    fs::write(&secret, KEY.join("\n")).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let target = format!(
        "[s3]\nendpoint = \"{endpoint}\"\nbucket = \"fleet\"\nregion = \"eu-central-1\"\npath-style = true\n\
         prefix = \"a b/\"\nkey-file = \"{}\"\n",
        secret.display()
    );
    let text = fs::read_to_string(&place.config).unwrap();
    fs::write(&place.config, format!("{text}{target}")).unwrap();
    place
}

#[test]
fn an_object_has_the_place_of_its_file() {
    let engine = Engine::start(|number, _| match number {
        0 => Reply::Refuse(503, "<Error><Code>SlowDown</Code></Error>"),
        1 => Reply::Refuse(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>"),
        _ => Reply::Accept,
    })
    .unwrap();
    let place = place(&engine.url());
    let files = files(&place.rows, 3);
    let (code, printed) = place.run(&["--once"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("busy: 503") && printed.contains("failed: 2"),
        "{printed}"
    );
    assert_eq!(left(&place.rows).len(), 2);
    let (code, printed) = place.run(&["--once"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(!printed.contains(KEY[1]), "{printed}");
    let taken: BTreeMap<String, Vec<u8>> = engine
        .sent()
        .into_iter()
        .filter(|sent| sent.reply == Reply::Accept)
        .map(|sent| {
            let [method, target] = sent.asked;
            assert_eq!(method, "PUT");
            assert!(!target.contains("canary"), "{target}");
            let (path, query) = target.split_once('?').unwrap();
            assert!(
                query.contains("X-Amz-Signature=") && query.contains("AKIAEXAMPLE"),
                "{query}"
            );
            let start = "/fleet/a%20b/date%3D2026-11-24/hour%3D15/service%3Dshop/";
            (
                path.strip_prefix(start)
                    .unwrap_or_else(|| panic!("{path}"))
                    .to_owned(),
                sent.body,
            )
        })
        .collect();
    assert_eq!(taken, files);
    assert_eq!(left(&place.rows), Vec::<String>::new());
}

#[test]
fn roll_ups_have_a_prefix_of_their_own() {
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let place = place(&engine.url());
    let rollups = place.folder.path().join("rollups");
    fleet_rollups::write(&rollups, 0, "shop", 7);
    let rows = files(&place.rows, 1);
    let text = fs::read_to_string(&place.config).unwrap();
    let text = text
        .replace(
            "[ship]\n",
            &format!("[ship]\nrollups = \"{}\"\n", rollups.display()),
        )
        .replace("[s3]\n", "[s3]\nrollups-prefix = \"minutes/\"\n");
    fs::write(&place.config, text).unwrap();
    let (code, output) = place.run(&["--once"]);
    assert_eq!(code, Some(0), "{output}");
    let taken = engine.sent().into_iter().map(|sent| {
        let [_, target] = sent.asked;
        target.split_once('?').unwrap().0.to_owned()
    });
    let folder = "date%3D2026-11-24/hour%3D15/service%3Dshop";
    let wanted = [
        format!("/fleet/a%20b/{folder}/{}", rows.keys().next().unwrap()),
        format!("/fleet/minutes/{folder}/rollups-web-1-0123456789ab-00000007.parquet"),
    ];
    assert_eq!(taken.collect::<BTreeSet<_>>(), wanted.into());
    assert_eq!(left(&place.rows), Vec::<String>::new());
    assert_eq!(left(&rollups), Vec::<String>::new());
}

#[test]
#[ignore = "needs an S3 in Python, 1.3 GB with the engines: `cargo xtask test --all`"]
fn a_real_implementation_keeps_all_objects() {
    let folder = workspace::scratch().unwrap();
    let mut python = Command::new(workspace::engines().join("bin/python"));
    python.arg(workspace::root().join("tests/fixtures/engines/s3.py"));
    python.arg("fleet").arg(folder.path().join("objects"));
    let mut server = Child::start(python, folder.path(), "s3").unwrap();
    let port = server.wait_for_line(Stream::Out, "port ", LIMIT).unwrap();
    let place = place(&format!(
        "http://127.0.0.1:{}",
        port.trim_start_matches("port ").trim()
    ));
    let files = files(&place.rows, 20);
    let (code, printed) = place.run(&["--once"]);
    assert_eq!(code, Some(0), "{printed}");
    server.tell("list").unwrap();
    server.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
    let objects = folder.path().join("objects/a b").join(FOLDER);
    let kept = fs::read_dir(objects).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (
            entry.file_name().into_string().unwrap(),
            fs::read(entry.path()).unwrap(),
        )
    });
    assert_eq!(kept.collect::<BTreeMap<_, _>>(), files);
    assert_eq!(left(&place.rows), Vec::<String>::new());
    server.stop().unwrap();
}

#[test]
#[ignore = "needs an S3 in Python, 1.3 GB with the engines: `cargo xtask test --all`"]
fn signatures_are_those_of_amazons_own_library() {
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let place = place(&engine.url());
    files(&place.rows, 3);
    assert_eq!(place.run(&["--once"]).0, Some(0));
    assert_eq!(engine.sent().len(), 3);
    for sent in engine.sent() {
        let [method, target] = sent.asked;
        let mut python = Command::new(workspace::engines().join("bin/python"));
        python.arg(workspace::root().join("tests/fixtures/engines/signature.py"));
        python
            .arg(format!("{}{}", engine.url().trim_end_matches('/'), target))
            .arg(method)
            .args(KEY);
        assert_eq!(run(&mut python).unwrap().trim(), "True host", "{target}");
    }
}
