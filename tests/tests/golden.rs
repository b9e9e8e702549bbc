//! Records the golden recordings of `reqtrace/tests/replay` again: real traces, without the name of this
//! machine and its folders.
//!
//!     cargo test --release -p reqtrace-tests --test e2e golden -- --ignored
//!     REQTRACE_BLESS=1 cargo test -p reqtrace --test replay
//!
//! The second line writes the outputs that are expected of them. Needs root and a kernel with BPF.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use reqtrace_recording::{Event, Header, Reader, Writer};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;

/// What stands for the folder of this workspace.
const ROOT: &str = "/srv/reqtrace";

#[test]
#[ignore = "writes into the workspace"]
fn record_the_shop() {
    let shop = Shop::open().unwrap();
    record("shop", &shop::profile(), shop.pid(), || {
        assert_eq!(shop.load(4, 250).unwrap(), 250);
    });
}

#[test]
#[ignore = "writes into the workspace"]
fn record_mariadb() {
    let server = MariaDb::open().unwrap();
    let load = Sysbench::prepare(&server, 1, 1000).unwrap();
    record("mariadb", Path::new("mysql"), server.pid(), || {
        load.run(4, 12).unwrap();
    });
}

fn record(name: &str, profile: &Path, pid: u32, load: impl FnOnce()) {
    let folder = workspace::scratch().unwrap();
    let raw = folder.path().join("raw.rec");
    let option = format!("--record={}", raw.display());
    let trace = Trace::start(profile, pid, &["--labels", &option]).unwrap();
    load();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert_eq!(outcome.summary().unwrap().lost(), 0);
    let data = workspace::root().join("reqtrace/tests/data");
    clean(&raw, &data.join(format!("{name}.rec")));
}

/// Writes a recording again, without what only this machine has.
fn clean(from: &Path, to: &Path) {
    let mut reader = Reader::open(BufReader::new(File::open(from).unwrap())).unwrap();
    let root = workspace::root().display().to_string();
    let elsewhere = |path: &str| path.replace(&root, ROOT);
    let mut header = Header {
        host: "example".to_owned(),
        ..reader.header().clone()
    };
    for marker in &mut header.markers {
        marker.object = elsewhere(&marker.object);
    }
    let mut writer = Writer::new(File::create(to).unwrap(), &header).unwrap();
    let ending = reader
        .read(|event| match event {
            Event::Object(object) => {
                let mut object = object.clone();
                object.path = elsewhere(&object.path);
                writer.event(&Event::Object(&object))
            }
            Event::File(file) => {
                let mut file = file.clone();
                file.path = elsewhere(&file.path);
                writer.event(&Event::File(&file))
            }
            other => writer.event(&other),
        })
        .unwrap();
    ending.unwrap();
    writer.flush().unwrap();
}
