//! `reqtrace ship`: files of rows in a folder, an engine that takes them, and a user who may nothing else.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::scraped::{Scrape, metrics_at};
use reqtrace_tests::workspace;

use crate::agent_prometheus::{deployed, names};
use crate::fleet_rows::{BEGIN_NS, Made, Of, write};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const ROWS_A_FILE: u64 = 20;

/// So many files of one machine, with their contents by name.
pub(crate) fn files(dir: &Path, count: u64) -> BTreeMap<String, Vec<u8>> {
    (1..=count)
        .map(|number| {
            let of = Of {
                host: "web-1",
                service: "shop",
                build_id: "aa",
                classes: &["redo log"],
                number,
            };
            let rows = (0..ROWS_A_FILE).map(|row| Made {
                start_unix_ns: BEGIN_NS + (number * ROWS_A_FILE + row) * 1_000_000,
                on_cpu_ns: 1_000 * (number + row),
                classes: vec![2_000_000],
                weight: 1,
                is_complete: true,
                ..Made::default()
            });
            let path = write(dir, &of, &rows.collect::<Vec<_>>());
            (of.name(), fs::read(path).unwrap())
        })
        .collect()
}

/// Names of the files that are left.
pub(crate) fn left(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path() {
            folder if folder.is_dir() => all.extend(left(&folder)),
            file => all.push(file.file_name().unwrap().to_string_lossy().into_owned()),
        }
    }
    all.sort();
    all
}

/// Folders of a shipper, and its configuration.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) rows: PathBuf,
    pub(crate) config: PathBuf,
}

impl Place {
    pub(crate) fn new(ship: &str, target: &str) -> Self {
        let folder = workspace::scratch().unwrap();
        let rows = folder.path().join("rows");
        fs::create_dir(&rows).unwrap();
        let config = folder.path().join("ship.toml");
        let text = format!(
            "[ship]\ndir = \"{}\"\nstate = \"{}\"\nevery = \"100ms\"\nretry = {{ first = \"20ms\", longest = \"200ms\" }}\n\
             {ship}\n[metrics]\nlisten = \"127.0.0.1:0\"\n{target}\n",
            rows.display(),
            folder.path().join("state").display()
        );
        fs::write(&config, text).unwrap();
        Self {
            folder,
            rows,
            config,
        }
    }

    pub(crate) fn to(ship: &str, engine: &Engine, more: &str) -> Self {
        Self::new(
            ship,
            &format!("[clickhouse]\nurl = \"{}\"\n{more}", engine.url()),
        )
    }

    fn command(&self, more: &[&str]) -> Command {
        let config = self.config.display().to_string();
        let args = ["ship", "-v", "--config", &config];
        reqtrace_tests::reqtrace::command(args.into_iter().chain(more.iter().copied())).unwrap()
    }

    /// Runs it to its end: its exit code, and what it has printed.
    pub(crate) fn run(&self, more: &[&str]) -> (Option<i32>, String) {
        let output = self.command(more).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    pub(crate) fn start(&self) -> Shipper {
        Shipper::start(self.command(&[]), self.folder.path())
    }

    pub(crate) fn refused(&self) -> PathBuf {
        self.folder.path().join("state/refused")
    }
}

/// One that runs.
pub(crate) struct Shipper {
    process: Child,
    address: String,
}

impl Shipper {
    fn start(command: Command, folder: &Path) -> Self {
        let mut process = Child::start(command, folder, "ship").unwrap();
        let line = process
            .wait_for_line(Stream::Err, "reqtrace ship: metrics", LIMIT)
            .unwrap();
        let (_, address) = line.split_once("http://").unwrap();
        let address = address.split_once('/').unwrap().0.to_owned();
        Self { process, address }
    }

    pub(crate) fn scrape(&self) -> Scrape {
        metrics_at(&self.address).unwrap()
    }

    pub(crate) fn wait_for(&self, metric: &str, value: f64) -> Scrape {
        until(LIMIT, &format!("{metric} = {value}"), || {
            let seen = metrics_at(&self.address)?;
            Ok((seen[metric] >= value).then_some(seen))
        })
        .unwrap_or_else(|error| {
            panic!(
                "{error:#}\n{:#?}\n{}",
                self.scrape(),
                self.process.output(Stream::Err)
            )
        })
    }

    pub(crate) fn kill(mut self) {
        self.process.signal(libc::SIGKILL).unwrap();
        self.process.wait(LIMIT).unwrap();
    }

    /// SIGTERM ends it cleanly.
    pub(crate) fn end(mut self) -> String {
        assert_eq!(self.process.stop().unwrap().code(), Some(0));
        self.process.output(Stream::Err)
    }
}

#[test]
fn each_file_is_sent_whole_by_its_name_and_leaves() {
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let place = Place::to(
        "",
        &engine,
        "user = \"writer\"\npassword-file = \"/proc/self/cwd/secret\"",
    );
    let secret = place.folder.path().join("secret");
    fs::write(&secret, "canary-password\n").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
    let files = files(&place.rows, 5);
    let shipper = Shipper::start(
        {
            let mut command = place.command(&[]);
            command.current_dir(place.folder.path());
            command
        },
        place.folder.path(),
    );
    let seen = shipper.wait_for("reqtrace_ship_files_total", 5.0);
    assert_eq!(engine.taken().unwrap(), files);
    assert_eq!(engine.sent().len(), 5);
    for sent in engine.sent() {
        assert_eq!(sent.credentials, ["writer", "canary-password"]);
        assert!(
            sent.query
                .starts_with("INSERT INTO `reqtrace`.`requests` (file, `host`,"),
            "{}",
            sent.query
        );
        assert!(
            sent.query
                .contains("map('redo_log', ifNull(`redo_log_ns`, 0))"),
            "{}",
            sent.query
        );
    }
    assert_eq!(seen["reqtrace_ship_rows_total"], 5.0 * ROWS_A_FILE as f64);
    let bytes: usize = files.values().map(Vec::len).sum();
    assert_eq!(seen["reqtrace_ship_bytes_total"], bytes as f64);
    // What alerts ask of the shipper is what it has.
    let rules = fs::read_to_string(deployed("prometheus/reqtrace-rules.yml")).unwrap();
    let mut asked: Vec<String> = names(&rules).into_iter().collect();
    asked.retain(|name| name.starts_with("reqtrace_ship_"));
    assert!(!asked.is_empty());
    for name in asked {
        let mut own = seen.keys().map(|metric| metric.split('{').next());
        assert!(own.any(|own| own == Some(&name)), "{name} {seen:#?}");
    }
    let output = shipper.end();
    assert!(!output.contains("canary-password"), "{output}");
    assert_eq!(left(&place.rows), Vec::<String>::new());
}

/// A user who is nobody but of the files' group: it reads them, and takes them away.
#[test]
fn it_needs_no_privileges_but_the_group_of_the_files() {
    const GROUP: u32 = 4711;
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let place = Place::to("", &engine, "");
    let files = files(&place.rows, 3);
    let program = place.folder.path().join("reqtrace");
    workspace::copy_program(&workspace::reqtrace().unwrap(), &program).unwrap();
    let state = place.folder.path().join("state");
    fs::create_dir(&state).unwrap();
    chown(&state, Some(65534), None).unwrap();
    let mode = |path: &Path, mode| {
        chown(path, None, Some(GROUP)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    fs::set_permissions(place.folder.path(), Permissions::from_mode(0o755)).unwrap();
    // As the agent makes them.
    let mut folder = place.rows.clone();
    for below in ["date=2026-11-24", "hour=15", "service=shop"] {
        mode(&folder, 0o750);
        folder.push(below);
    }
    mode(&folder, 0o770);
    for name in files.keys() {
        mode(&folder.join(name), 0o640);
    }
    let run = |group: u32, more: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            &format!("--regid={group}"),
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
        ]);
        command
            .arg(&program)
            .args(["ship", "--config"])
            .arg(&place.config)
            .args(more);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, output) = run(65534, &["--check"]);
    assert_eq!(code, Some(2), "{output}");
    assert!(
        output.contains("cannot be read") && output.contains("group"),
        "{output}"
    );
    let (code, output) = run(GROUP, &["--check"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("3 files wait"), "{output}");
    let (code, output) = run(GROUP, &["--once"]);
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(engine.taken().unwrap(), files);
    assert_eq!(left(&place.rows), Vec::<String>::new());
}

#[test]
fn what_cannot_work_is_an_error_at_the_start() {
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let place = Place::to("", &engine, "password-file = \"/proc/self/cwd/secret\"");
    let secret = place.folder.path().join("secret");
    fs::write(&secret, "canary\n").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
    let run = |more: &[&str]| {
        let output = place
            .command(more)
            .current_dir(place.folder.path())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, output) = run(&[]);
    assert_eq!(code, Some(2), "{output}");
    assert!(
        output.contains("has the mode 0644: everybody may read it") && output.contains("chmod o="),
        "{output}"
    );
    assert!(!output.contains("canary"), "{output}");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let mut first = place.command(&[]);
    first.current_dir(place.folder.path());
    let first = Shipper::start(first, place.folder.path());
    let (code, output) = run(&["--once"]);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("another shipper has the state"), "{output}");
    // Looking disturbs nobody.
    let (code, output) = run(&["--check"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("0 files wait"), "{output}");
    first.end();
    // The engine is away: what is left is an exit code.
    files(&place.rows, 1);
    let text = fs::read_to_string(&place.config)
        .unwrap()
        .replace(&engine.url(), "http://127.0.0.1:1/");
    fs::write(&place.config, text).unwrap();
    let (code, output) = run(&["--once"]);
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains("unreachable") && output.contains("1 files could not be sent, and stay"),
        "{output}"
    );
    assert_eq!(left(&place.rows).len(), 1);
}
