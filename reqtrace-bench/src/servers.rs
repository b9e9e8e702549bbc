//! `cargo xtask bench servers`: requests against the number that each server's load generator says,
//! every built-in profile in one table.
//!
//! In: nothing. Out: the table, printed and, with `--write`, put into docs/measured/servers.md; an error when
//! a difference has no explanation.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use reqtrace_tests::apache::Apache;
use reqtrace_tests::go;
use reqtrace_tests::goroutines;
use reqtrace_tests::http::ab;
use reqtrace_tests::http::upstream::Upstream;
use reqtrace_tests::hyper;
use reqtrace_tests::jobs::Running;
use reqtrace_tests::ledger;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::php_fpm::PhpFpm;
use reqtrace_tests::process;
use reqtrace_tests::redis::Client;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::servers::Server;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::sysbench::Sysbench;

use super::Common;

/// Statements of one of pgbench's transactions (TPC-B).
const STATEMENTS: u64 = 7;
/// Connections of pgbench.
const CLIENTS: u64 = 4;
/// Queries that pgbench makes before its load: for the number and the partitions of its tables.
const PREPARATION: u64 = 2;

/// Arguments of `bench servers`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

/// One load under one profile.
struct Count {
    server: &'static str,
    profile: String,
    load: String,
    /// What the generator says that it has done.
    generator: u64,
    /// Complete requests of the trace.
    requests: u64,
    /// What the requests have besides: how many, and why.
    besides: Vec<(i64, String)>,
}

impl Count {
    fn is_explained(&self) -> bool {
        let besides: i64 = self.besides.iter().map(|(number, _)| number).sum();
        self.generator.checked_add_signed(besides) == Some(self.requests)
    }

    fn row(&self) -> String {
        let reasons = self.besides.iter().filter(|(number, _)| *number != 0);
        let reasons: Vec<String> = reasons
            .map(|(number, why)| format!("{number:+} {why}"))
            .collect();
        let explanation = match reasons.as_slice() {
            [] => "equal".to_owned(),
            reasons => reasons.join("; "),
        };
        format!(
            "| {} | `{}` | `{}` | {} | {} | {explanation} |",
            self.server, self.profile, self.load, self.generator, self.requests
        )
    }
}

/// Loads every server under each of its profiles.
///
/// # Errors
///
/// When a server or its generator fails, something is lost, or a number is not explained.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common.prepare_with_servers(&[])?;
    let mut counts = mariadb(&[], &["mysql", "mysql-do-command"])?;
    counts.extend(mariadb(&["--thread-handling=pool-of-threads"], &["mysql"])?);
    counts.extend(postgresql()?);
    counts.extend(redis()?);
    counts.extend(nginx()?);
    counts.extend(apache()?);
    counts.push(php_fpm()?);
    counts.extend(on_hyper()?);
    counts.extend(go_http()?);
    counts.push(go_grpc()?);
    counts.push(example()?);
    let mut table = String::from(
        "| server | profile | load | generator's number | requests | difference |\n\
         | --- | --- | --- | ---: | ---: | --- |\n",
    );
    for count in &counts {
        writeln!(table, "{}", count.row())?;
    }
    let unexplained = counts.iter().find(|count| !count.is_explained());
    ensure!(
        unexplained.is_none(),
        "a difference is not explained:\n{table}\n{}",
        unexplained.map(Count::row).unwrap_or_default()
    );
    args.common.tables("servers.md", "servers", &table)
}

/// Complete requests of a type while a load runs; nothing may be lost and every ledger must close.
fn requests(
    profile: &Path,
    request: &str,
    pid: u32,
    load: impl FnOnce() -> Result<()>,
) -> Result<u64> {
    let trace = Trace::start(profile, pid, &[])?;
    load()?;
    let outcome = trace.finish()?;
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    let summary = outcome.summary()?;
    ensure!(summary.lost() == 0, "{:?}", summary.losses);
    ledger::check(&outcome.csv()?)?;
    Ok(summary.request(request)?.count)
}

fn mariadb(options: &[&str], profiles: &[&str]) -> Result<Vec<Count>> {
    let (test, threads, events) = ("oltp_read_write", 16, 2000);
    let server = MariaDb::open_with(options)?;
    let sysbench = Sysbench::prepare(&server, 4, 10_000)?;
    let mut counts = Vec::new();
    for profile in profiles {
        let before = server.counters()?;
        let mut queries = 0;
        let requests = requests(Path::new(profile), "command", server.pid(), || {
            queries = sysbench.run_test(test, threads, events)?.queries;
            server.wait_until_alone()
        })?;
        let after = server.counters()?;
        let prepares = after.prepares - before.prepares;
        let closes = after.closes - before.closes;
        let executes = after.executes - before.executes;
        let rest = after.commands_since(&before) - prepares - closes - executes;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        counts.push(Count {
            server: match options {
                [] => "MariaDB 10.11",
                _ => "MariaDB 10.11 (thread pool)",
            },
            profile: (*profile).to_owned(),
            load: format!("sysbench {test} --threads={threads} --events={events}"),
            generator: queries,
            requests,
            besides: vec![
                (number(prepares), "statements prepared".to_owned()),
                (number(closes), "statements closed".to_owned()),
                (
                    number(executes) - number(queries),
                    "statements of transactions that were begun again".to_owned(),
                ),
                (number(rest), "good-byes of connections".to_owned()),
            ],
        });
    }
    server.close()?;
    Ok(counts)
}

fn postgresql() -> Result<Vec<Count>> {
    let transactions = 100;
    let server = Server::postgresql()?;
    server.run("pgbench", &["-i", "-q"])?;
    let mut counts = Vec::new();
    let runs = [
        ("postgresql", "query", "simple"),
        ("postgresql", "query", "extended"),
        ("postgresql", "query", "prepared"),
        ("postgresql-usdt", "statement", "simple"),
        ("postgresql-usdt", "statement", "extended"),
    ];
    for (profile, request, mode) in runs {
        let (clients, each) = (CLIENTS.to_string(), transactions.to_string());
        let args = ["-n", "-M", mode, "-c", &clients, "-t", &each];
        let mut generator = 0;
        let requests = requests(Path::new(profile), request, server.pid(), || {
            let printed = server.run("pgbench", &args)?;
            generator = processed(&printed)? * STATEMENTS;
            Ok(())
        })?;
        let mut besides = vec![(
            PREPARATION as i64,
            "queries of pgbench before the load".to_owned(),
        )];
        if mode == "prepared" {
            let prepares = (CLIENTS * STATEMENTS) as i64;
            besides.push((
                prepares,
                "statements prepared, once a connection".to_owned(),
            ));
        }
        if profile == "postgresql-usdt" && mode == "extended" {
            let why = "statements of the extended protocol, for which the probe never fires";
            besides.push((-(generator as i64), why.to_owned()));
        }
        counts.push(Count {
            server: "PostgreSQL 15",
            profile: profile.to_owned(),
            load: format!("pgbench {}", args.join(" ")),
            generator,
            requests,
            besides,
        });
    }
    Ok(counts)
}

/// Transactions that pgbench says it has made.
fn processed(printed: &str) -> Result<u64> {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("number of transactions actually processed: "))
        .with_context(|| format!("pgbench printed {printed}"))?;
    let number = line.split('/').next().unwrap_or_default();
    number.trim().parse().with_context(|| line.to_owned())
}

fn redis() -> Result<Vec<Count>> {
    let server = Server::redis()?;
    let mut counts = Vec::new();
    for (tests, number) in [("set", 1), ("get,incr,lpush", 3)] {
        let args = ["-t", tests, "-n", "5000", "-c", "8", "-q"];
        let requests = requests(Path::new("redis"), "command", server.pid(), || {
            server.redis_benchmark(&args).map(drop)
        })?;
        counts.push(Count {
            server: "Redis 7.0",
            profile: "redis".to_owned(),
            load: format!("redis-benchmark {}", args.join(" ")),
            generator: 5000 * number,
            requests,
            besides: vec![(2, "settings that it asks for".to_owned())],
        });
    }
    counts.push(blocked(&server)?);
    Ok(counts)
}

/// Clients that wait for elements of a list, and one that pushes them.
fn blocked(server: &Server) -> Result<Count> {
    let (clients, each) = (8, 250);
    let socket = server.socket();
    let requests = requests(Path::new("redis"), "command", server.pid(), || {
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..clients)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        let mut client = Client::connect(&socket)?;
                        for _ in 0..each {
                            client.ask("BLPOP list 0")?;
                        }
                        Ok(())
                    })
                })
                .collect();
            let mut client = Client::connect(&socket)?;
            for number in 0..clients * each {
                client.ask(&format!("RPUSH list {number}"))?;
            }
            for client in waiting {
                client.join().map_err(|_| anyhow!("a client panicked"))??;
            }
            Ok(())
        })
    })?;
    Ok(Count {
        server: "Redis 7.0",
        profile: "redis".to_owned(),
        load: format!("{clients} clients with BLPOP {each} times, and as many RPUSH"),
        generator: clients * each * 2,
        requests,
        besides: Vec::new(),
    })
}

fn nginx() -> Result<Vec<Count>> {
    let upstream = Upstream::start(|_| Duration::from_millis(1))?;
    let proxy = format!(
        "location /slow {{ proxy_pass http://127.0.0.1:{}; }}",
        upstream.port()
    );
    let server = Nginx::start_with(2, "", &proxy)?;
    fs::write(server.documents().join("page"), [b'x'; 4096])?;
    let mut counts = Vec::new();
    for (path, what) in [
        ("/page", ""),
        ("/slow", ", proxy_pass to a service that takes 1 ms"),
    ] {
        let of = OfAb {
            server: "nginx 1.22",
            profile: "nginx",
            request: "request",
            pid: server.pid(),
            what,
        };
        counts.extend(of.counts(|keep| server.ab(path, REQUESTS_OF_AB, 8, keep))?);
    }
    Ok(counts)
}

/// What `ab` is to send to each server.
const REQUESTS_OF_AB: u64 = 5000;

/// A server under `ab`, eight connections at a time.
struct OfAb {
    server: &'static str,
    profile: &'static str,
    request: &'static str,
    pid: u32,
    /// More about the load.
    what: &'static str,
}

impl OfAb {
    /// Counts with connections that are kept, and with one for each request.
    fn counts(&self, ab: impl Fn(&[&str]) -> Result<()>) -> Result<Vec<Count>> {
        let mut counts = Vec::new();
        for keep in [&["-k"][..], &[]] {
            let requests = requests(Path::new(self.profile), self.request, self.pid, || ab(keep))?;
            let load = [&["ab -n 5000 -c 8"], keep].concat().join(" ");
            counts.push(Count {
                server: self.server,
                profile: self.profile.to_owned(),
                load: format!("{load}{}", self.what),
                generator: REQUESTS_OF_AB,
                requests,
                besides: Vec::new(),
            });
        }
        Ok(counts)
    }
}

fn apache() -> Result<Vec<Count>> {
    let mut counts = Vec::new();
    for (mpm, server) in [
        ("event", "Apache 2.4 (event)"),
        ("prefork", "Apache 2.4 (prefork)"),
    ] {
        let apache = Apache::start(mpm)?;
        fs::write(apache.documents().join("page"), [b'x'; 4096])?;
        let of = OfAb {
            server,
            profile: "apache",
            request: "request",
            pid: apache.pid(),
            what: "",
        };
        counts.extend(of.counts(|keep| ab(apache.port(), "/page", REQUESTS_OF_AB, 8, keep))?);
    }
    Ok(counts)
}

/// The client is ours: ab does not speak FastCGI.
fn php_fpm() -> Result<Count> {
    let number = 2000;
    let server = PhpFpm::start(2)?;
    let script = server.script("hello.php", "echo 'hello';")?;
    let script = script.display().to_string();
    let requests = requests(Path::new("php-fpm"), "script", server.pid(), || {
        for _ in 0..number {
            let answer = server.get(&script)?;
            ensure!(answer.ends_with("hello"), "PHP-FPM answered {answer}");
        }
        server.idle()
    })?;
    Ok(Count {
        server: "PHP-FPM 8.2",
        profile: "php-fpm".to_owned(),
        load: format!("{number} scripts over FastCGI, a connection each"),
        generator: number,
        requests,
        besides: Vec::new(),
    })
}

/// Services on hyper. The client is ours, which speaks HTTP/2 and gRPC too.
fn on_hyper() -> Result<Vec<Count>> {
    let of = |protocol, streams, more| hyper::Load {
        protocol,
        connections: 8,
        streams,
        requests: 2000,
        more,
    };
    let services = [
        ("axum", "axum", "http", "axum 0.8", of("http1", 1, &[][..])),
        (
            "axum",
            "axum",
            "http",
            "axum 0.8",
            of("http1", 1, &["--close"]),
        ),
        ("axum", "tonic", "http2", "axum 0.8", of("http2", 4, &[])),
        ("tonic", "tonic", "http2", "tonic 0.14", of("grpc", 4, &[])),
    ];
    let mut counts = Vec::new();
    for (service, profile, request, server, load) in services {
        let (process, address) = hyper::serve(service, "multi")?;
        let mut generator = 0;
        let requests = requests(Path::new(profile), request, process.pid(), || {
            generator = hyper::load(&address, load)?.answers.len() as u64;
            // Tasks end a moment after their connections.
            thread::sleep(Duration::from_millis(200));
            Ok(())
        })?;
        let mut words = format!(
            "web load {} --connections {} --streams {} --requests {}",
            load.protocol, load.connections, load.streams, load.requests
        );
        for word in load.more {
            words += &format!(" {word}");
        }
        counts.push(Count {
            server,
            profile: profile.to_owned(),
            load: words,
            generator,
            requests,
            besides: Vec::new(),
        });
    }
    Ok(counts)
}

fn go_http() -> Result<Vec<Count>> {
    let (server, port) = goroutines::server(&goroutines::program()?)?;
    let mut counts = Vec::new();
    for profile in ["go-http", "go-http:cheap"] {
        let of = OfAb {
            server: "Go 1.19 net/http",
            profile,
            request: "http",
            pid: server.pid(),
            what: "",
        };
        counts.extend(of.counts(|keep| ab(port, "/0", REQUESTS_OF_AB, 8, keep))?);
    }
    Ok(counts)
}

/// A tenth of the calls panic, a twentieth fails: all of them are requests.
fn go_grpc() -> Result<Count> {
    let (connections, calls) = (8, 200);
    let program = go::program("grpc", false)?;
    let mut command = Command::new(&program);
    command.args(["serve", "0"]);
    let (server, address) = Running::server(command, "127.0.0.1:")?;
    let mut generator = 0;
    let requests = requests(Path::new("go-grpc"), "call", server.pid(), || {
        let mut client = Command::new(&program);
        client.args(["call", address.trim()]);
        client.args([connections, calls].map(|number: u64| number.to_string()));
        // Those that succeed, fail and panic.
        let printed = process::run(&mut client)?;
        let numbers = printed.split_whitespace().map(str::parse::<u64>);
        generator = numbers.sum::<Result<u64, _>>()?;
        Ok(())
    })?;
    Ok(Count {
        server: "Go 1.19 gRPC",
        profile: "go-grpc".to_owned(),
        load: format!("{calls} calls on each of {connections} connections"),
        generator,
        requests,
        besides: Vec::new(),
    })
}

fn example() -> Result<Count> {
    let (connections, number) = (8, 5000);
    let shop = Shop::open()?;
    let profile: PathBuf = shop::profile();
    let mut generator = 0;
    let requests = requests(&profile, "order", shop.pid(), || {
        generator = shop.load(connections, number)?;
        Ok(())
    })?;
    shop.close()?;
    Ok(Count {
        server: "the example shop",
        profile: "examples/shop/shop.toml".to_owned(),
        load: format!("shop load --connections {connections} --requests {number}"),
        generator,
        requests,
        besides: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(requests: u64, besides: &[(i64, &str)]) -> Count {
        Count {
            server: "s",
            profile: "p".to_owned(),
            load: "l".to_owned(),
            generator: 10,
            requests,
            besides: besides
                .iter()
                .map(|(number, why)| (*number, (*why).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn every_difference_needs_its_explanation() {
        assert!(count(10, &[]).is_explained());
        assert!(!count(11, &[]).is_explained());
        assert!(count(12, &[(5, "more"), (-3, "less")]).is_explained());
        assert!(!count(0, &[(-11, "less than none")]).is_explained());
    }

    #[test]
    fn a_row_says_why() {
        assert_eq!(
            count(10, &[(0, "none")]).row(),
            "| s | `p` | `l` | 10 | 10 | equal |"
        );
        let row = count(12, &[(5, "more"), (-3, "less")]).row();
        assert!(row.ends_with("| 12 | +5 more; -3 less |"), "{row}");
    }

    #[test]
    fn pgbench_says_what_it_has_done() {
        let printed = "scaling factor: 1\nnumber of transactions actually processed: 398/400\n";
        assert_eq!(processed(printed).unwrap(), 398);
        assert!(processed("nothing").is_err());
    }
}
