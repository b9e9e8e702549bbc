//! Configurations: what is right gets its defaults, what is wrong its line, its value and what to write instead.

use reqtrace_profile::builtin;

use super::*;
use reqtrace_base::error::Error;

fn profiles(name: &str) -> Result<Profile> {
    let known = builtin::BUILT_IN.iter().find(|known| known.name == name);
    known
        .ok_or_else(|| Error::usage(format!("there is no profile named `{name}`")))?
        .parse()
}

/// A configuration that is right.
pub(crate) fn parsed(text: &str) -> Config {
    Config::parse(text, "agent.toml", &profiles).unwrap()
}

const RULE: &str =
    "[[rule]]\nmatch = { exe = \"/usr/sbin/mariadbd\" }\nservice = \"db\"\nprofile = \"mysql\"\n";

#[test]
fn the_smallest_configuration_gets_its_defaults() {
    let config = parsed(RULE);
    assert_eq!(config.agent.window, Duration::from_secs(10));
    assert_eq!(config.listen.to_string(), "127.0.0.1:9464");
    let (_, rule, traced) = config.traced().next().unwrap();
    assert_eq!(rule.matches.min_age, Duration::from_secs(5));
    assert_eq!(
        rule.matches.program(),
        Some(Path::new("/usr/sbin/mariadbd"))
    );
    assert!(traced.slo.is_none() && !traced.blame);
    assert_eq!(traced.max_cost.percent(), 5.0);
    // One rule has what a trace has that is not limited.
    assert_eq!(config.memory_of_a_rule().tables, None);
}

#[test]
fn the_effective_configuration_is_the_same_one() {
    let all = format!(
        "[agent]\nwindow = \"1s\"\nmemory = \"64MB\"\nmax-cost = \"50%\"\nuser = \"www-data\"\n\
         [metrics]\nlisten = \"0.0.0.0:80\"\npublic = true\n{RULE}slo = \"20ms\"\nmax-cost = \"2.5%\"\nblame = true\ntexts = true\n\
         group-by = \"fingerprint\"\ngroups = 7\n\
         [rows]\ndir = \"/rows\"\nspool = \"/spool\"\nkeep-slow = \"20ms\"\none-in = 7\n\
         roll = {{ every = \"60s\", bytes = \"8MB\" }}\nmax = \"1GB\"\nkeep-free = \"2.5%\"\n\
         rollups = {{ dir = \"/minutes\", spool = \"/made\", max = \"8MB\" }}\n\
         [otlp]\nendpoint = \"http://localhost:4318/otel/v1/traces/\"\nmax-rate = 20\n\
         [profiles]\nevery = \"3s\"\ndir = \"/p\"\nspool = \"/s\"\nmax = \"64MB\"\nkeep-free = \"1%\"\n\
         pyroscope = \"http://localhost:4040/pyro/\"\n\
         [[rule]]\nmatch = {{ comm = [\"a\", \"b\\\"\"], cgroup = \"*\", unit = \"c.service\", min-age = \"0s\" }}\n\
         trace = false\n"
    );
    for text in [RULE, &all] {
        let config = parsed(text);
        let effective = config.effective();
        let again = parsed(&effective);
        let without_lines = |config: Config| Config {
            rules: config
                .rules
                .into_iter()
                .map(|rule| Rule { line: 0, ..rule })
                .collect(),
            ..config
        };
        assert_eq!(without_lines(again.clone()), without_lines(config));
        assert_eq!(again.effective(), effective);
    }
    let config = parsed(&all);
    assert_eq!(config.rules[1].matches.program(), None);
    let groups = config.rules[0].traced.as_ref().unwrap().groups.as_ref();
    let wanted = GroupBy {
        by: Grouping::Fingerprint,
        most: 7,
    };
    assert_eq!(groups, Some(&wanted));
    let rows = config.rows.as_ref().unwrap();
    assert_eq!(rows.one_in, 7);
    let rollups = rows.of_rollups().unwrap();
    assert_eq!(
        [&rollups.dir, &rollups.spool],
        [Path::new("/minutes"), Path::new("/made")]
    );
    let usual = |line: &str| {
        let text = format!("[rows]\ndir = \"/var/rows\"\n{line}\n{RULE}");
        let rows = parsed(&text).rows.unwrap();
        rows.rollups
            .map(|rollups| rollups.dir.display().to_string())
    };
    assert_eq!(
        usual(""),
        None,
        "nobody takes them away unless somebody wants them"
    );
    assert_eq!(usual("rollups = false"), None);
    assert_eq!(usual("rollups = true").as_deref(), Some("/var/rollups"));
    let otlp = config.otlp.as_ref().unwrap();
    assert_eq!(otlp.endpoint, "http://localhost:4318/otel");
    assert_eq!(otlp.max_rate, 20);
    let off_cpu = config.off_cpu.as_ref().unwrap();
    assert_eq!(
        off_cpu.pyroscope.as_deref(),
        Some("http://localhost:4040/pyro")
    );
    let of_window = |window: &str| {
        let text = format!("[agent]\nwindow = \"{window}\"\n[profiles]\ndir = \"/p\"\n{RULE}");
        parsed(&text).off_cpu.unwrap().every.as_secs()
    };
    assert_eq!(["1s", "7s", "5m"].map(of_window), [60, 63, 300]);
    let none = parsed(RULE);
    assert!(
        none.rows.is_none() && none.otlp.is_none() && none.off_cpu.is_none(),
        "no section, none"
    );
    assert!(config.is_public && config.rules[1].traced.is_none());
}

#[test]
fn what_is_wrong_has_its_line_its_value_and_what_to_write() {
    let rule = |line: &str| format!("{RULE}{line}\n");
    let matches = |keys: &str| RULE.replace("exe = \"/usr/sbin/mariadbd\"", keys);
    let agent = |line: &str| format!("[agent]\n{line}\n{RULE}");
    let rows = |line: &str| format!("[rows]\ndir = \"/rows\"\n{line}\n{RULE}");
    let otlp = |lines: &str| format!("[otlp]\n{lines}\n{RULE}slo = \"20ms\"\n");
    let off_cpu = |lines: &str| format!("[profiles]\n{lines}\n{RULE}");
    let metrics = |line: &str| format!("[metrics]\n{line}\n{RULE}");
    let cases: &[(String, usize, &str, &str)] = &[
        (
            agent("windw = \"10s\""),
            2,
            "`windw` (= \"10s\") is no key of [agent]",
            "did you mean `window`?",
        ),
        (
            rule("servise = \"x\""),
            5,
            "`servise` (= \"x\") is no key of [[rule]]",
            "did you mean `service`?",
        ),
        (
            format!("[agnet]\n{RULE}"),
            1,
            "`agnet` is no key of the file",
            "did you mean `agent`?",
        ),
        (
            matches("exee = \"/a\""),
            2,
            "`exee` (= \"/a\") is no key of match",
            "did you mean `exe`?",
        ),
        (
            matches("min-age = \"1s\""),
            2,
            "match names no process",
            "give exe, comm, cgroup or unit",
        ),
        (
            matches("exe = \"/a\", comn = \"b\""),
            2,
            "`comn` (= \"b\") is no key of match",
            "did you mean `comm`?",
        ),
        (
            metrics("listne = \"x\""),
            2,
            "`listne`",
            "did you mean `listen`?",
        ),
        (
            agent("window = 10"),
            2,
            "window = 10: this is no text, but a value of type integer",
            "window = \"10s\"",
        ),
        (
            agent("window = \"10\""),
            2,
            "window = \"10\": this is no time",
            "window = \"10s\"",
        ),
        (
            agent("window = \"1500ms\""),
            2,
            "window = \"1500ms\": a window is 1 s to 5 m in whole seconds",
            "\"10s\"",
        ),
        (agent("window = \"1h\""), 2, "whole seconds", "\"10s\""),
        (
            agent("memory = \"256\""),
            2,
            "memory = \"256\"",
            "memory = \"256MB\"",
        ),
        (
            agent("memory = \"1MB\""),
            2,
            "memory = 1 MB is too little for 1 rules",
            "memory = \"16MB\"",
        ),
        (
            agent("max-cost = \"0%\""),
            2,
            "max-cost = \"0%\": this is no share",
            "max-cost = \"5%\"",
        ),
        (
            agent("max-cost = \"5\""),
            2,
            "max-cost = \"5\"",
            "max-cost = \"5%\"",
        ),
        (
            agent("user = \"a/b\""),
            2,
            "user = \"a/b\": this is no name of a user",
            "user = \"reqtrace\"",
        ),
        (
            metrics("listen = \"localhost\""),
            2,
            "listen = \"localhost\": this is no address with a port",
            "127.0.0.1:9464",
        ),
        (
            metrics("listen = \"0.0.0.0:9464\""),
            2,
            "other machines could read the metrics",
            "public = true",
        ),
        (
            metrics("listen = \"[::]:9464\"\npublic = \"yes\""),
            3,
            "public = \"yes\": this is no boolean",
            "public = true",
        ),
        (
            rule("slo = \"fast\""),
            5,
            "slo = \"fast\"",
            "slo = \"20ms\"",
        ),
        (rule("slo = \"0ms\""), 5, "slo = \"0ms\"", "slo = \"20ms\""),
        (
            rule("blame = 1"),
            5,
            "blame = 1: this is no boolean",
            "blame = true",
        ),
        (
            rule("texts = true"),
            5,
            "texts = true: texts stand in rows, spans and groups, and there are none",
            "add [rows]",
        ),
        (
            rule("group-by = \"fingerprint\""),
            5,
            "group-by = \"fingerprint\": this is text of the program, and the metrics would show it",
            "add texts = true",
        ),
        (
            rule("group-by = \"user\""),
            5,
            "group-by = \"user\": this is text of the program",
            "add texts = true",
        ),
        (
            rule("texts = true\ngroup-by = \"usr\""),
            6,
            "group-by = \"usr\": no request type of the profile has an attribute of that name; it has ",
            "write group-by = \"fingerprint\"",
        ),
        (
            rule("group-by = \"\""),
            5,
            "group-by = \"\": it is empty",
            "group-by = \"fingerprint\"",
        ),
        (
            rule("groups = 10"),
            5,
            "groups = 10: nothing says what a group is",
            "add group-by = \"fingerprint\"",
        ),
        (
            rule("texts = true\ngroup-by = \"fingerprint\"\ngroups = 501"),
            7,
            "groups = 501: it is not between 1 and 500",
            "write groups = 50",
        ),
        (
            rows("one_in = 10"),
            3,
            "`one_in` (= 10) is no key of [rows]",
            "did you mean `one-in`?",
        ),
        (
            format!("[rows]\none-in = 10\n{RULE}"),
            1,
            "[rows] has no `dir`",
            "add dir = \"/var/lib/reqtrace/rows\"",
        ),
        (
            format!("[rows]\ndir = \"rows\"\n{RULE}"),
            2,
            "dir = \"rows\": this is no whole path",
            "/var/lib/reqtrace/rows",
        ),
        (
            rows("one-in = 0"),
            3,
            "one-in = 0: it is not between 1 and 1000000",
            "one-in = 100",
        ),
        (
            rows("one-in = \"100\""),
            3,
            "one-in = \"100\": this is no number",
            "one-in = 100",
        ),
        (
            rows("roll = { every = \"2h\" }"),
            3,
            "every = \"2h\": a file has 1 s to 1 h",
            "every = \"5m\"",
        ),
        (
            rows("roll = { bytes = \"1KB\" }"),
            3,
            "bytes = \"1KB\": a file has 1 MB to 1 GB",
            "bytes = \"64MB\"",
        ),
        (
            rows("roll = { size = \"1MB\" }"),
            3,
            "`size` (= \"1MB\") is no key of roll",
            "keys of roll: bytes, every",
        ),
        (
            rows("max = \"32MB\""),
            3,
            "max = \"32MB\": a file may have 64MB",
            "write max = \"128MB\"",
        ),
        (
            rows("rollups = \"yes\""),
            3,
            "rollups = \"yes\": this is neither true nor false, nor a table",
            "write rollups = true, or rollups = { dir = \"/var/lib/reqtrace/rollups\" }",
        ),
        (
            rows("rollups = { dir = \"/rows/of/minutes\" }"),
            3,
            "/rows/of/minutes and dir = /rows are one inside the other",
            "write rollups = { dir = \"/var/lib/reqtrace/rollups\" }",
        ),
        (
            rows("rollups = { max = \"7MB\" }"),
            3,
            "max = \"7MB\": two files of 4MB have to fit",
            "write max = \"100MB\"",
        ),
        (
            rows("rollups = { every = \"1m\" }"),
            3,
            "`every` (= \"1m\") is no key of rollups",
            "keys of rollups: dir, max, spool",
        ),
        (
            rows("keep-free = \"5\""),
            3,
            "keep-free = \"5\": this is no share",
            "keep-free = \"5%\"",
        ),
        (
            off_cpu("every = \"60s\""),
            1,
            "profiles go nowhere",
            "add dir = \"/var/lib/reqtrace/profiles\", or pyroscope = \"http://127.0.0.1:4040\", or both",
        ),
        (
            off_cpu("dir = \"/p\"\nevery = \"15s\""),
            3,
            "every = \"15s\": a profile has a whole number of windows, which are 10s",
            "write every = \"10s\"",
        ),
        (
            off_cpu("dir = \"/p\"\nevery = \"2h\""),
            3,
            "up to 1 h",
            "write every = \"10s\"",
        ),
        (
            off_cpu("dir = \"p\""),
            2,
            "dir = \"p\": this is no whole path",
            "write dir = \"/var/lib/reqtrace/profiles\"",
        ),
        (
            off_cpu("dir = \"/p\"\nmax = \"1MB\""),
            3,
            "max = \"1MB\": two profiles have to fit, 8MB",
            "write max = \"500MB\"",
        ),
        (
            off_cpu("dir = \"/p\"\nkeep-free = \"5\""),
            3,
            "this is no share",
            "write keep-free = \"5%\"",
        ),
        (
            off_cpu("pyroscope = \"http://[::1]\"\nmax = \"50MB\""),
            3,
            "max = \"50MB\": there is no folder that it is about",
            "add dir = ",
        ),
        (
            off_cpu("pyroscope = \"https://a\""),
            2,
            "the agent speaks no TLS",
            "write pyroscope = \"http://127.0.0.1:4040\"",
        ),
        (
            off_cpu("pyroscop = \"http://a\""),
            2,
            "`pyroscop` (= \"http://a\") is no key of [profiles]",
            "did you mean `pyroscope`?",
        ),
        (
            format!("[profile]\ndir = \"/p\"\n{RULE}"),
            1,
            "`profile` is no key of the file",
            "did you mean `profiles`?",
        ),
        (
            otlp("endpoint = \"127.0.0.1:4318\""),
            2,
            "endpoint = \"127.0.0.1:4318\": this is no address",
            "write endpoint = \"http://127.0.0.1:4318\"",
        ),
        (
            otlp("endpoint = \"https://collector.example\""),
            2,
            "the agent speaks no TLS",
            "write endpoint = \"http://127.0.0.1:4318\"",
        ),
        (
            otlp("endpoint = \"http://me:secret@collector\""),
            2,
            "it has a user or a query",
            "http://127.0.0.1:4318",
        ),
        (
            otlp("endpoint = \"http://collector.example:4318\""),
            2,
            "this is another machine, to which the agent would send in clear",
            "write endpoint = \"http://127.0.0.1:4318\"",
        ),
        (
            otlp("endpoint = \"http://[fd00::1]:4318\""),
            2,
            "this is another machine",
            "write endpoint = \"http://127.0.0.1:4318\"",
        ),
        (
            off_cpu("pyroscope = \"http://10.0.0.7:4040\""),
            2,
            "this is another machine",
            "write pyroscope = \"http://127.0.0.1:4040\"",
        ),
        (
            off_cpu("pyroscope = \"http://localhost.example:4040\""),
            2,
            "this is another machine",
            "write pyroscope = \"http://127.0.0.1:4040\"",
        ),
        (
            otlp("max-rate = 100"),
            1,
            "[otlp] has no `endpoint`",
            "add endpoint = \"http://127.0.0.1:4318\"",
        ),
        (
            otlp("endpoint = \"http://127.0.0.2\"\nmax-rate = 0"),
            3,
            "max-rate = 0: it is not between 1 and 10000",
            "max-rate = 100",
        ),
        (
            otlp("endpoint = \"http://127.0.0.2\"\nmax_rate = 5"),
            3,
            "`max_rate` (= 5) is no key of [otlp]",
            "did you mean `max-rate`?",
        ),
        (
            format!("[otlp]\nendpoint = \"http://LOCALHOST:4318\"\n{RULE}"),
            1,
            "no rule says what is slow",
            "add slo = \"20ms\"",
        ),
        (
            rule("trace = false"),
            3,
            "service = \"db\": it has no effect beside trace = false",
            "leave one",
        ),
        (
            RULE.replace("service = \"db\"\n", ""),
            1,
            "[[rule]] has no `service`",
            "add service = ",
        ),
        (
            RULE.replace("profile = \"mysql\"\n", ""),
            1,
            "[[rule]] has no `profile`",
            "add profile = ",
        ),
        (
            RULE.replace("match = { exe = \"/usr/sbin/mariadbd\" }\n", ""),
            1,
            "[[rule]] has no `match`",
            "add match = ",
        ),
        (
            RULE.replace("\"mysql\"", "\"mysqll\""),
            4,
            "there is no profile named `mysqll`",
            "reqtrace profiles",
        ),
        (
            RULE.replace("\"db\"", "\"my db\""),
            3,
            "service = \"my db\": a service has up to 100 letters",
            "\"orders-db\"",
        ),
        (
            RULE.replace("\"db\"", "\"\""),
            3,
            "it is empty",
            "\"orders-db\"",
        ),
        (
            format!("{RULE}{RULE}"),
            7,
            "service = \"db\": the rule at line 1 is of this service, too",
            "another name",
        ),
        (
            matches("exe = \"mariadbd\""),
            2,
            "`mariadbd` is no whole path",
            "exe = \"*/mariadbd\"",
        ),
        (
            matches("comm = \"a-very-long-name-of-16\""),
            2,
            "the kernel keeps 15 characters",
            "comm = \"a-very-long-nam\"",
        ),
        (
            matches("comm = []"),
            2,
            "the list is empty",
            "comm = \"mariadbd\"",
        ),
        (
            matches("unit = [\"a\", 1]"),
            2,
            "unit = 1: this is no text",
            "unit = ",
        ),
        (
            matches(&format!("exe = \"*{}\"", "{a,".repeat(9))),
            2,
            "braces inside each other",
            "exe = ",
        ),
        (
            matches("exe = \"/a\", min-age = \"soon\""),
            2,
            "min-age = \"soon\"",
            "min-age = \"5s\"",
        ),
        (
            RULE.replace("{ exe = \"/usr/sbin/mariadbd\" }", "\"mariadbd\""),
            2,
            "match = \"mariadbd\": this is no table",
            "write match = {",
        ),
        (String::new(), 1, "the file has no `rule`", "[[rule]]"),
        (
            "[rule]\nx = 1\n".to_owned(),
            1,
            "`rule` is no list of tables",
            "[[rule]]",
        ),
        ("[agent\n".to_owned(), 1, "", "docs/agent.md"),
        (
            format!("{RULE}profile = \"mysql\"\n"),
            5,
            "duplicate key",
            "docs/agent.md",
        ),
    ];
    for (text, line, what, advice) in cases {
        let error = Config::parse(text, "agent.toml", &profiles).unwrap_err();
        let text_of_error = error.to_string();
        assert!(
            text_of_error.starts_with(&format!("agent.toml:{line}: ")),
            "{text}\n{text_of_error}"
        );
        assert!(text_of_error.contains(what), "{text}\n{text_of_error}");
        let next = error.advice().unwrap_or_default();
        assert!(next.contains(advice), "{text}\n{text_of_error}\n{next}");
        assert_eq!(error.exit_code(), 2);
    }
}

/// What is no text of the program needs no permission.
#[test]
fn numbers_and_types_of_units_are_groups_without_texts() {
    let profile = |kind: &str| {
        let text = format!(
            "[profile]\nname = \"p\"\n[runtime]\nkind = \"tokio\"\n[[request]]\nname = \"job\"\nunit = \"*\"\n\
             [[request.attribute]]\nname = \"what\"\n{kind}\n"
        );
        Profile::parse(&text, "p.toml", reqtrace_profile::Origin::BuiltIn).unwrap()
    };
    let kind = "type = \"unit\"";
    let by = |name: &str| {
        let text = format!("{RULE}group-by = \"{name}\"\n");
        let config = Config::parse(&text, "agent.toml", &|_| Ok(profile(kind)));
        config.map(|config| config.rules[0].traced.clone().unwrap().groups)
    };
    let usual = GroupBy {
        by: Grouping::Attribute("what".to_owned()),
        most: 50,
    };
    assert_eq!(by("what").unwrap(), Some(usual));
    let error = by("fingerprint").unwrap_err().to_string();
    assert!(error.contains("this is text of the program"), "{error}");
}

#[test]
fn more_rules_than_make_sense_are_refused() {
    let text: String = (0..101)
        .map(|rule| RULE.replace("\"db\"", &format!("\"db{rule}\"")))
        .collect();
    let error = Config::parse(&text, "agent.toml", &profiles).unwrap_err();
    assert!(error.to_string().contains("101 rules"), "{error}");
}

#[test]
fn a_file_that_is_none_is_an_error_that_names_it() {
    let error = Config::read(Path::new("/nowhere/agent.toml"), &profiles).unwrap_err();
    assert!(error.to_string().contains("/nowhere/agent.toml"), "{error}");
    let error = Config::read(Path::new("/dev/zero"), &profiles).unwrap_err();
    assert!(error.to_string().contains("more than 1024 KiB"), "{error}");
}
