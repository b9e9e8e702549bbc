//! `reqtrace check`: everything that a profile names is reported as there or not, against a program
//! and against a process, and nothing is attached.
//!
//! Needs root.

use std::path::Path;

use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::probed::Code;
use reqtrace_tests::programs;
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;

fn check(profile: &Path, target: &[&str]) -> Outcome {
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    command.arg(profile).args(target);
    reqtrace::run(command).unwrap()
}

#[track_caller]
fn accepted(profile: &Path, target: &[&str]) -> String {
    let outcome = check(profile, target);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    outcome.stdout
}

/// The line that begins with these words, spaces aside.
#[track_caller]
fn line<'a>(text: &'a str, words: &str) -> &'a str {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = text.lines().find(|line| plain(line).starts_with(words));
    found.unwrap_or_else(|| panic!("no {words:?} in {text}"))
}

#[test]
fn sites_alone_are_those_of_the_full_text() {
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    let full = accepted(&shop::profile(), &["-p", &pid]);
    let sites = accepted(&shop::profile(), &["-p", &pid, "--sites"]);
    let places = ["begin", "end"].map(|marker| {
        let lines = sites
            .lines()
            .map(|line| line.split('\t').collect::<Vec<_>>());
        let of_marker = lines.filter(|fields| fields[0] == marker && fields[3] == "order");
        of_marker
            .map(|fields| fields[1].to_owned())
            .collect::<Vec<_>>()
    });
    assert!(places.iter().all(|places| !places.is_empty()), "{sites}");
    for place in places.iter().flatten() {
        let named = full.split_whitespace().any(|word| word == place);
        assert!(named, "{place} is not in {full}");
    }
    let program = sites.lines().next().unwrap().split('\t').nth(2).unwrap();
    assert_eq!(Path::new(program), workspace::shop().unwrap(), "{sites}");
    assert_eq!(accepted(&shop::profile(), &["--sites", program]), sites);
}

#[test]
fn a_process_of_the_shop_in_full() {
    let shop = Shop::open().unwrap();
    // The journal is opened with the first order.
    shop.load(1, 1).unwrap();
    let code = Code::of_function(shop.pid(), "shop::service::handle_request").unwrap();
    let pid = shop.pid().to_string();
    let text = accepted(&shop::profile(), &["-p", &pid]);
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("profile shop") && first.contains(&pid),
        "{text}"
    );
    line(&text, "request order");
    line(&text, "begin shop::service::handle_request (entry)");
    line(&text, "end shop::service::handle_request (return)");
    assert!(text.contains("1 probe: 0x"), "{text}");
    assert!(
        line(&text, "file */journal").contains("open now: /"),
        "{text}"
    );
    let stock = line(&text, "function shop::service::take_stock");
    assert!(stock.ends_with(" shop::service::take_stock"), "{text}");
    assert!(
        !text.contains("note:") && !text.contains("warning:"),
        "{text}"
    );
    assert!(!code.is_probed().unwrap(), "check has set a probe");
}

#[test]
fn matchers_that_match_nothing_are_named_and_debug_symbols_advised() {
    let mariadbd = workspace::program("mariadbd").unwrap();
    let binary = accepted(Path::new("mysql"), &[mariadbd.to_str().unwrap()]);
    assert!(line(&binary, "function log_write_up_to*").ends_with("matches nothing"));
    assert!(line(&binary, "function ha_commit_trans => syscall").contains("ha_commit_trans(THD*"));
    assert!(binary.contains("debug symbols"), "{binary}");

    let server = MariaDb::open().unwrap();
    let process = accepted(Path::new("mysql"), &["-p", &server.pid().to_string()]);
    let log = line(&process, "file */ib_logfile*");
    assert!(
        log.contains("open now: /") && log.contains("ib_logfile0"),
        "{log}"
    );
    // In a process the library's end of a chain is looked up too.
    let chain = line(&process, "function ha_commit_trans => syscall");
    assert!(chain.ends_with("=> syscall"), "{chain}");
    let silent = |text: &str| text.matches("matches nothing").count();
    assert_eq!(silent(&binary), silent(&process), "{binary}{process}");
}

#[test]
fn alternatives_that_were_skipped_are_named() {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("alternatives.toml");
    std::fs::write(
        &path,
        "[profile]\nname = \"x\"\n[[request]]\nname = \"order\"\n\
         begin = { function = [\"handle_v9\", \"handle_v8\", \"handle_request\"] }\n\
         [[wait]]\nname = \"k\"\nkernel-functions = [\"futex_wait*\", \"no_such_function\"]\n",
    )
    .unwrap();
    let shop = workspace::shop().unwrap();
    let text = accepted(&path, &[shop.to_str().unwrap()]);
    line(&text, "tried first and not found: handle_v9, handle_v8");
    assert!(line(&text, "kernel futex_wait*").contains("futex_wait"));
    assert!(line(&text, "kernel no_such_function").contains("matches nothing in this kernel"));
}

#[test]
fn one_matcher_matches_and_a_place_inside_a_function_is_no_entry() {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("p.toml");
    let program = workspace::shop().unwrap();
    let program = program.to_str().unwrap();
    let end = place_of_end(program);
    std::fs::write(
        &path,
        format!(
            "[profile]\nname = \"x\"\n[[request]]\nname = \"r\"\n\
             begin = {{ function = \"shop::service::handle_request\" }}\nend = {{ offset = {end} }}\n\
             [[wait]]\nname = \"w\"\nfunctions = [\"no_such_function\"]\n"
        ),
    )
    .unwrap();
    let text = accepted(&path, &[program]);
    assert!(
        text.contains("1 matcher of functions matches nothing"),
        "{text}"
    );
    line(&text, "begin shop::service::handle_request (entry)");
    line(&text, &format!("end {end} (instruction)"));
}

/// Offset of the probe at the end of a request of the shop, as `check` prints it.
fn place_of_end(program: &str) -> String {
    let text = accepted(&shop::profile(), &[program, "--sites"]);
    let end = text.lines().find(|line| line.starts_with("end\t"));
    let offset = end.and_then(|line| line.split('\t').nth(1));
    offset.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn what_could_not_be_traced_is_exit_code_2() {
    // A profile for another program.
    let redis = workspace::program("redis-server").unwrap();
    let outcome = check(Path::new("mysql"), &[redis.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(
        outcome.stderr.contains("made for mysqld, mariadbd"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("dispatch_command"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("next: "), "{}", outcome.stderr);

    // What the gate of a trace refuses; what was resolved is printed all the same.
    let go = Fixture::start("golike", &[]).unwrap();
    let profile = go.profile("work", "nest").unwrap();
    let outcome = check(&profile, &["-p", &go.pid().to_string()]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(
        outcome.stdout.contains("begin work(int) (entry)"),
        "{}",
        outcome.stdout
    );
    assert!(outcome.stderr.contains("Go program"), "{}", outcome.stderr);
    go.end().unwrap();
}

#[test]
fn probes_and_objects_that_are_nowhere() {
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("p.toml");
    let refused = |begin: &str, words: &[&str]| {
        std::fs::write(
            &path,
            format!(
                "[profile]\nname = \"x\"\n[[request]]\nname = \"r\"\nbegin = {{ {begin} }}\n\
                     end = {{ {begin} }}\n"
            ),
        )
        .unwrap();
        let outcome = check(&path, &["-p", &pid]);
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        assert!(outcome.stderr.contains("next: "), "{}", outcome.stderr);
        for word in words {
            assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
        }
    };
    refused("usdt = \"shop:none\"", &["shop:none", "request `r`, begin"]);
    refused(
        "usdt = \"shop:none\", object = \"libc.so.6\"",
        &["shop:none", "libc.so.6"],
    );
    refused("function = \"x\", object = \"libnone.so\"", &["libnone.so"]);
    refused("offset = 0x7fffffff", &["0x7fffffff"]);
    refused("function = \"*\"", &["functions match", "more"]);
}

#[test]
fn a_profile_alone_is_valid_or_not() {
    let text = accepted(&shop::profile(), &[]);
    assert!(text.contains("profile shop: valid"), "{text}");
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("bad.toml");
    fixtures::write_profile(&path, "work", "work", "reentri = 1\n").unwrap();
    assert_eq!(check(&path, &[]).code, Some(2));
}

const KEYED: &str = r#"
    [profile]
    name = "pool"
    [[request]]
    name = "job"
    key = { arg = 0 }
    begin = { function = "create", at = "return", key = { arg = "result" } }
    ready = { function = "push", key = { arg = 1 }, as = "pool queue" }
    resume = { function = "run", touch = true, as = "client" }
    park = { function = "run", at = "return", when = { arg = "result", equals = [2, 3] } }
    end = { function = "done", when = { global = "current", deref = [0, 8], size = 8, from = 1 } }
    [[request.attribute]]
    name = "sql"
    function = "run"
    arg = 0
    deref = [0]
    when = { arg = 0, deref = [0], not-equals = "none" }
    [[request.attribute]]
    name = "sql"
    function = "run_prepared"
    arg = 0
    [[request.attribute]]
    name = "kind"
    type = "integer"
    size = 8
    arg = 1
    deref = [8]
    function = "push"
    names = { 1 = "query" }
"#;

#[test]
fn what_markers_of_keyed_requests_do_is_explained() {
    let folder = workspace::scratch().unwrap();
    programs::compile(folder.path(), "pool.c", "pool", &[]);
    let program = folder.path().join("pool");
    let program = program.to_str().unwrap();
    let path = folder.path().join("pool.toml");
    std::fs::write(&path, KEYED).unwrap();
    let text = accepted(&path, &[program]);
    // What stands below a marker, up to the next one.
    let below = |words: &str| -> String {
        let first = line(&text, words);
        let lines = text.lines().skip_while(|line| *line != first).skip(1);
        lines
            .take_while(|line| line.starts_with("        "))
            .map(str::trim)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let has = |words: &str, wanted: &str| {
        let below = below(words);
        assert!(below.contains(wanted), "{words}: {wanted}: {text}");
    };
    line(&text, "any thread may go on with a request");
    has("begin create (return)", "key: what the function returns");
    has(
        "resume run (entry)",
        "key: argument 0\nit was parked until here: client",
    );
    has("resume run (entry)", "keys of no request are expected here");
    has(
        "ready push (entry)",
        "key: argument 1\nqueued from here on: pool queue",
    );
    has(
        "park run (return)",
        "request: the one that the thread runs\nparked from here on",
    );
    has(
        "park run (return)",
        "only if what the function returns is 2 or 3",
    );
    has(
        "end done (entry)",
        "only if *(*(&current) + 0x8) of 8 bytes is at least 1",
    );
    let sql = "attribute sql (text of up to 128 bytes, read with --labels only)";
    has(
        sql,
        "at run (entry): *(argument 0), if *(argument 0) does not point to \"none\"",
    );
    has(
        sql,
        "at run_prepared (entry): argument 0\nnot read there: no function `run_prepared`",
    );
    has(
        "attribute kind (a number, 1 with a name, always read)",
        "at push (entry): *(argument 1 + 0x8) of 8 bytes",
    );
    let sites = accepted(&path, &["--sites", program]);
    for marker in ["begin", "ready", "resume", "park", "end", "attribute"] {
        let mut lines = sites.lines();
        assert!(
            lines.any(|line| line.starts_with(&format!("{marker}\t0x"))),
            "{sites}"
        );
    }
}

#[test]
fn markers_that_nothing_tells_apart_end_in_exit_code_2() {
    let folder = workspace::scratch().unwrap();
    programs::compile(folder.path(), "pool.c", "pool", &[]);
    let program = folder.path().join("pool");
    let path = folder.path().join("pool.toml");
    let both = KEYED.replace(
        "function = \"push\", key = { arg = 1 }",
        "function = \"run\"",
    );
    std::fs::write(&path, both).unwrap();
    let outcome = check(&path, &[program.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(
        outcome
            .stderr
            .contains("request `job`: `ready` and `resume` are at one place"),
        "{}",
        outcome.stderr
    );
}
