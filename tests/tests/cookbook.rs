//! The profiles of docs/cookbook.md, as they stand there, against servers of Debian 12: requests
//! against the number that the load was told to make.
//!
//! Needs root, a kernel with BPF, and what `cargo xtask setup --for all` installs. Run by
//! `cargo xtask test --all`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::http::{ab, free_port, listens};
use reqtrace_tests::process::{Child, Stream, run, until};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows;
use reqtrace_tests::workspace::{self, UNPACKED};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const REQUESTS: u64 = 300;

/// Every request is recorded, whatever that costs.
pub(crate) const ALL: [&str; 2] = ["--max-overhead", "100"];

/// A server of the cookbook, its folder and its profile.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    profile: PathBuf,
}

impl Server {
    /// Starts it in a folder of its own; `name` is that of the profile.
    pub(crate) fn start(name: &str, folder: TempDir, command: Command) -> Self {
        let profile = folder.path().join(format!("{name}.toml"));
        fs::write(&profile, in_the_cookbook(name)).unwrap();
        let process = Child::start(command, folder.path(), name).unwrap();
        Self {
            process,
            folder,
            profile,
        }
    }

    /// The port that it prints as its first line.
    pub(crate) fn port(&mut self) -> u16 {
        let line = self.process.wait_for_line(Stream::Out, "port ", LIMIT);
        line.unwrap()["port ".len()..].parse().unwrap()
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        self.process.output(Stream::Out)
    }

    /// Traces it while it is loaded.
    pub(crate) fn trace(&self, load: impl FnOnce()) -> Outcome {
        let trace = Trace::start(&self.profile, self.process.pid(), &ALL).unwrap();
        load();
        // A client has its answer before the function that has sent it returns.
        std::thread::sleep(Duration::from_millis(200));
        let outcome = trace.finish().unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        outcome
    }
}

/// The profile of this name, as it is printed in the page.
pub(crate) fn in_the_cookbook(name: &str) -> String {
    let page = fs::read_to_string(workspace::root().join("docs/cookbook.md")).unwrap();
    let begin = format!("    [profile]\n    name = \"{name}\"\n");
    let (_, rest) = page.split_once(&begin).unwrap();
    let lines = rest
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "));
    let rest: Vec<&str> = lines.map(str::trim_start).collect();
    format!("[profile]\nname = \"{name}\"\n{}\n", rest.join("\n"))
}

#[track_caller]
fn counted(outcome: &Outcome, request: &str, expected: u64) {
    let summary = outcome.summary().unwrap();
    let count = summary.request(request).unwrap().count;
    assert_eq!(count, expected, "{}", outcome.printed());
    assert_eq!(summary.lost(), 0, "{}", outcome.printed());
}

/// A file or folder of a package, installed or unpacked.
pub(crate) fn of_debian(path: &str) -> PathBuf {
    let mut roots = ["/", UNPACKED]
        .map(|root| Path::new(root).join(path))
        .into_iter();
    let found = roots.find(|path| path.exists());
    found.unwrap_or_else(|| panic!("no /{path}; run: cargo xtask setup --for all"))
}

/// Libraries that come with a server that is only unpacked.
fn with_own_libraries(command: &mut Command) {
    let folders = ["usr/lib/x86_64-linux-gnu", "usr/lib/varnish"];
    let folders = folders.map(|folder| format!("{UNPACKED}/{folder}"));
    command.env("LD_LIBRARY_PATH", folders.join(":"));
}

/// In `/tmp`: the name of a socket must be short.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
#[ignore = "a further server: cargo xtask test --all"]
fn slapd_by_exported_functions() {
    let folder = scratch();
    let here = folder.path();
    fs::create_dir(here.join("data")).unwrap();
    let config = here.join("slapd.conf");
    let text = format!(
        "include {}\npidfile {here}/pid\nmodulepath {}\nmoduleload back_mdb\ndatabase mdb\n\
         suffix dc=x\nrootdn cn=a,dc=x\nrootpw s\ndirectory {here}/data\n",
        of_debian("etc/ldap/schema/core.schema").display(),
        of_debian("usr/lib/ldap").display(),
        here = here.display()
    );
    fs::write(&config, text).unwrap();
    let url = format!(
        "ldapi://{}",
        here.join("s").display().to_string().replace('/', "%2F")
    );
    let mut command = Command::new(workspace::program("slapd").unwrap());
    with_own_libraries(&mut command);
    command.args(["-h", &url, "-d", "0", "-f"]).arg(&config);
    let server = Server::start("slapd", folder, command);
    let search = || {
        let mut command = Command::new(workspace::program("ldapsearch").unwrap());
        run(command.args(["-x", "-H", &url, "-b", "", "-s", "base", "-LLL"]))
    };
    until(LIMIT, "slapd to answer", || Ok(search().ok())).unwrap();
    let outcome = server.trace(|| {
        for _ in 0..20 {
            search().unwrap();
        }
    });
    counted(&outcome, "search", 20);
    counted(&outcome, "bind", 20);
    counted(&outcome, "modify", 0);
}

#[test]
#[ignore = "a further server: cargo xtask test --all"]
fn varnish_by_the_function_that_drives_a_request() {
    let folder = scratch();
    let port = free_port().unwrap();
    let vcl = folder.path().join("own.vcl");
    let text = "vcl 4.1;\nbackend none none;\nsub vcl_recv { return (synth(200)); }\n";
    fs::write(&vcl, text).unwrap();
    let mut command = Command::new(workspace::program("varnishd").unwrap());
    with_own_libraries(&mut command);
    command.args(["-F", "-j", "none", "-a", &format!("127.0.0.1:{port}"), "-n"]);
    command.arg(folder.path().join("work")).arg("-f").arg(&vcl);
    let server = Server::start("varnish", folder, command);
    listens(port, LIMIT).unwrap();
    let outcome = server.trace(|| ab(port, "/", REQUESTS, 4, &[]).unwrap());
    counted(&outcome, "request", REQUESTS);
}

#[test]
#[ignore = "a further server: cargo xtask test --all"]
fn memcached_by_libc() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut command = Command::new(workspace::program("memcached").unwrap());
    command.args(["-u", "root", "-t", "2", "-s"]).arg(&socket);
    let server = Server::start("memcached", folder, command);
    until(LIMIT, "memcached", || Ok(UnixStream::connect(&socket).ok())).unwrap();
    let outcome = server.trace(|| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let mut answer = |command: &str, wanted: &str| {
            stream.write_all(command.as_bytes()).unwrap();
            let mut bytes = vec![0; wanted.len()];
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, wanted.as_bytes());
        };
        for key in 100..100 + REQUESTS {
            answer(&format!("set k{key} 0 0 5\r\nhello\r\n"), "STORED\r\n");
            let wanted = format!("VALUE k{key} 0 5\r\nhello\r\nEND\r\n");
            answer(&format!("get k{key}\r\n"), &wanted);
        }
    });
    counted(&outcome, "command", 2 * REQUESTS);
}

#[test]
#[ignore = "a further server: cargo xtask test --all"]
fn python_by_the_life_of_a_thread() {
    let folder = scratch();
    let code = "import http.server as h, time\n\
                class Handler(h.BaseHTTPRequestHandler):\n    \
                    def do_GET(self):\n        \
                        time.sleep(0.002); self.send_response(200); self.end_headers()\n    \
                    def log_message(self, *a): pass\n\
                class Server(h.ThreadingHTTPServer):\n    \
                    def process_request(self, *a):\n        \
                        print('accepted', flush=True); super().process_request(*a)\n\
                server = Server(('127.0.0.1', 0), Handler)\n\
                print('port', server.server_address[1], flush=True)\n\
                server.serve_forever()\n";
    let mut command = Command::new(of_debian("usr/bin/python3"));
    command.args(["-c", code]);
    let mut server = Server::start("python", folder, command);
    let port = server.port();
    let outcome = server.trace(|| ab(port, "/", REQUESTS, 4, &[]).unwrap());
    // ab opens one more now and then, and sends nothing on it.
    let output = server.output();
    let accepted = output.matches("accepted").count() as u64;
    assert!((REQUESTS..REQUESTS + 4).contains(&accepted), "{accepted}");
    counted(&outcome, "connection", accepted);
    let rows = outcome.rows().unwrap();
    let slept = rows::sum(&rows, "sleep");
    assert!(slept > REQUESTS * 1_900_000, "{slept} ns");
}

#[test]
#[ignore = "a further server: cargo xtask test --all"]
fn java_by_native_methods() {
    let folder = scratch();
    let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ask = backend.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in backend.incoming() {
            let mut byte = [0];
            let mut stream = stream.unwrap();
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        }
    });
    // The names are those of JDK 17, whatever other one is the machine's.
    let mut command = Command::new(of_debian("usr/lib/jvm/java-17-openjdk-amd64/bin/java"));
    command.arg(workspace::root().join("tests/fixtures/Served.java"));
    command.arg(ask.to_string()).arg(folder.path().join("file"));
    let mut server = Server::start("java", folder, command);
    let port = server.port();
    // What a library maps is there once it was used.
    ab(port, "/", 4, 1, &[]).unwrap();
    // On a connection each, and on connections that are kept.
    let outcome = server.trace(|| {
        ab(port, "/", REQUESTS, 4, &[]).unwrap();
        ab(port, "/", REQUESTS, 4, &["-k"]).unwrap();
    });
    counted(&outcome, "exchange", 2 * REQUESTS);
    let rows = outcome.rows().unwrap();
    let slept = rows::sum(&rows, "Thread.sleep");
    assert!(slept > 2 * REQUESTS * 1_000_000, "{slept} ns");
    // Four clients, one door.
    assert!(rows::sum(&rows, "Java_monitor") > 0);
}

#[test]
#[ignore = "a further server: cargo xtask test --all"]
fn node_by_the_function_that_calls_javascript() {
    let code = "require('http').createServer((q, r) => r.end('hello')).listen(0, '127.0.0.1', \
                function () { console.log('port ' + this.address().port); });";
    let mut command = Command::new(workspace::program("node").unwrap());
    command.args(["-e", code]);
    let mut server = Server::start("node", scratch(), command);
    let port = server.port();
    let outcome = server.trace(|| ab(port, "/", REQUESTS, 4, &[]).unwrap());
    counted(&outcome, "request", REQUESTS);
    assert!(server.folder.path().exists());
}

#[test]
fn every_profile_of_the_cookbook_is_valid() {
    for name in [
        "slapd",
        "varnish",
        "memcached",
        "python",
        "asyncio",
        "java",
        "node",
        "coroutines",
    ] {
        let folder = scratch();
        let path = folder.path().join("profile.toml");
        fs::write(&path, in_the_cookbook(name)).unwrap();
        let mut command = reqtrace_tests::reqtrace::command(["check", "--profile"]).unwrap();
        let outcome = reqtrace_tests::reqtrace::run({
            command.arg(&path);
            command
        });
        let outcome = outcome.unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    }
}
