//! TOML in, a checked [`Config`] out.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_base::error::{Error, Result};
use reqtrace_base::quantity;
use reqtrace_base::text::check_glob;
use reqtrace_capture::attach::Sizes;
use toml::Spanned;
use toml::de::DeTable;

use super::groups::Keys;
use super::otlp;
use super::profiles as section;
use super::rows;
use super::toml_at::{Source, Table, Value};
use super::{Agent, Config, MAX_RULES, Match, Profiles, Rule, Share, Traced};

/// Where metrics are read without a setting.
const LISTEN: &str = "127.0.0.1:9464";
/// How old a process has to be without a setting.
const MIN_AGE: Duration = Duration::from_secs(5);
const LONGEST_WINDOW: Duration = Duration::from_secs(300);
/// Characters of the name of a service.
const MAX_SERVICE: usize = 100;
/// A configuration is some pages of TOML.
const MAX_BYTES: u64 = 1 << 20;

/// The text of a configuration.
pub(crate) fn text(path: &Path) -> Result<String> {
    let name = path.display();
    let cannot = |error: std::io::Error| {
        Error::usage(format!("cannot read the configuration {name}"))
            .because(error)
            .next("give the path of a TOML file; docs/agent.md has one to begin with")
    };
    let file = File::open(path).map_err(cannot)?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(
            Error::usage(format!("{name} has more than {} KiB", MAX_BYTES >> 10))
                .next("is this the right file?"),
        );
    }
    Ok(text)
}

/// The tables of a text.
pub(crate) fn parsed<'a>(source: Source<'a>) -> Result<Spanned<DeTable<'a>>> {
    DeTable::parse(source.text).map_err(|error| {
        let what = error.message().trim_end().replace('\n', "; ");
        let at = error.span().unwrap_or(0..0);
        source
            .error(&at, what)
            .next("docs/agent.md has a configuration to begin with")
    })
}

pub(super) fn config(text: &str, name: &str, profiles: Profiles<'_>) -> Result<Config> {
    let source = Source { name, text };
    let parsed = parsed(source)?;
    let (span, keys) = (parsed.span(), parsed.get_ref());
    let mut file = Table::new(source, "the file", keys, span);
    let agent = match file.take("agent") {
        Some(value) => agent(value.table("[agent]", "{ window = \"10s\" }")?)?,
        None => Agent::default(),
    };
    let (listen, is_public) = metrics(file.take("metrics"), LISTEN)?;
    let rows = file.take("rows").map(|value| {
        let such_as = "{ dir = \"/var/lib/reqtrace/rows\" }";
        rows::read(value.table("[rows]", such_as)?)
    });
    let rows = rows.transpose()?;
    let otlp_at = file.take("otlp");
    let otlp = otlp_at.as_ref().map(|value| {
        let such_as = "{ endpoint = \"http://127.0.0.1:4318\" }";
        otlp::read(value.table("[otlp]", such_as)?)
    });
    let otlp = otlp.transpose()?;
    let off_cpu = file.take("profiles").map(|value| {
        let such_as = "{ dir = \"/var/lib/reqtrace/profiles\" }";
        section::read(value.table("[profiles]", such_as)?, agent.window)
    });
    let off_cpu = off_cpu.transpose()?;
    let rules = file.need(
        "rule",
        "…: a table [[rule]] with match, service and profile",
    )?;
    // What stands in the file is refused before rules are read, which read profiles.
    file.end()?;
    let tables = rules.tables("[[rule]]")?;
    if tables.len() > MAX_RULES {
        return Err(rules.refuse(
            format_args!("{} rules", tables.len()),
            format!("give up to {MAX_RULES}; a glob or a list matches several programs"),
        ));
    }
    let mut config = Config {
        agent,
        rules: Vec::new(),
        listen,
        is_public,
        rows,
        otlp,
        off_cpu,
    };
    for table in tables {
        let rule = rule(table, &config, profiles)?;
        config.rules.push(rule);
    }
    has_room(&config, source)?;
    let has_slo = config.traced().any(|(.., traced)| traced.slo.is_some());
    let keeps_slow = config.rows.as_ref().and_then(|rows| rows.keep_slow);
    if let Some(value) = otlp_at.filter(|_| !has_slo && keeps_slow.is_none()) {
        let what = "spans are of slow requests, and no rule says what is slow";
        return Err(value.error(what).next("add slo = \"20ms\" to a [[rule]]"));
    }
    Ok(config)
}

fn agent(mut table: Table<'_>) -> Result<Agent> {
    let mut agent = Agent::default();
    if let Some(value) = table.take("window") {
        agent.window = time(&value, "\"10s\"")?;
        let is_whole = agent.window.subsec_nanos() == 0;
        if !is_whole || agent.window > LONGEST_WINDOW {
            return Err(value.refuse(
                "a window is 1 s to 5 m in whole seconds",
                "write window = \"10s\"",
            ));
        }
    }
    if let Some(value) = table.take("memory") {
        agent.memory = value.parsed("\"256MB\"", quantity::bytes)?;
    }
    if let Some(value) = table.take("max-cost") {
        agent.max_cost = share(&value)?;
    }
    if let Some(value) = table.take("user") {
        agent.user = Some(value.parsed("\"reqtrace\"", user_name)?);
    }
    table.end()?;
    Ok(agent)
}

fn user_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-$".contains(c);
    match !text.is_empty() && text.len() <= 32 && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("this is no name of a user".to_owned()),
    }
}

/// `[metrics]`: where they are read, and whether other machines may; `usual` is the address without a setting.
pub(crate) fn metrics(value: Option<Value<'_>>, usual: &str) -> Result<(SocketAddr, bool)> {
    let such_as = format!("\"{usual}\"");
    let address = |text: &str| {
        let parsed = text.parse::<SocketAddr>();
        parsed.map_err(|_| "this is no address with a port".to_owned())
    };
    let Some(value) = value else {
        let listen = address(usual).map_err(Error::failed)?;
        return Ok((listen, false));
    };
    let mut table = value.table("[metrics]", &format!("{{ listen = {such_as} }}"))?;
    let listen = table.take("listen");
    let at = match &listen {
        Some(value) => value.parsed(&such_as, address)?,
        None => address(usual).map_err(Error::failed)?,
    };
    let is_public = table.take("public").map(|value| value.boolean());
    let is_public = is_public.transpose()?.unwrap_or(false);
    if let Some(value) = listen.filter(|_| !at.ip().is_loopback() && !is_public) {
        return Err(value.refuse(
            "other machines could read the metrics, and nothing asks who they are",
            format!("write listen = {such_as}, or add public = true if the network may read them"),
        ));
    }
    table.end()?;
    Ok((at, is_public))
}

fn rule(mut table: Table<'_>, config: &Config, profiles: Profiles<'_>) -> Result<Rule> {
    let line = table.line();
    let such_as = "{ exe = \"/usr/sbin/mariadbd\" }";
    let matches = matches(table.need("match", such_as)?.table("match", such_as)?)?;
    let trace = table.take("trace");
    let is_traced = trace.as_ref().map_or(Ok(true), Value::boolean)?;
    let keys = [
        "service", "profile", "slo", "max-cost", "blame", "texts", "group-by", "groups",
    ];
    if !is_traced {
        for key in keys {
            if let Some(value) = table.take(key) {
                return Err(value.refuse(
                    "it has no effect beside trace = false",
                    "leave one of the two out",
                ));
            }
        }
        table.end()?;
        return Ok(Rule {
            line,
            matches,
            traced: None,
        });
    }
    let value = table.need("service", "\"orders-db\"")?;
    let service = value.parsed("\"orders-db\"", service_name)?;
    let before = config.rules.iter().find(|before| {
        let traced = before.traced.as_ref();
        traced.is_some_and(|traced| traced.service == service)
    });
    if let Some(before) = before {
        return Err(value.refuse(
            format_args!("the rule at line {} is of this service, too", before.line),
            "give it another name, or give one rule a list: exe = [\"/a\", \"/b\"]",
        ));
    }
    let value = table.need("profile", "\"mysql\"")?;
    let profile_name = value.text("\"mysql\"")?.to_owned();
    let slo = table.take("slo").map(|value| time(&value, "\"20ms\""));
    let max_cost = table.take("max-cost").map(|value| share(&value));
    let blame = table.take("blame").map(|value| value.boolean());
    let texts_at = table.take("texts");
    let texts = texts_at.as_ref().map(Value::boolean).transpose()?;
    let texts = texts.unwrap_or(false);
    let grouped = Keys::take(&mut table);
    let (slo, max_cost, blame) = (slo.transpose()?, max_cost.transpose()?, blame.transpose()?);
    // A key that is none is the cause of what is missing, more often than not.
    table.end()?;
    let shows_texts = config.rows.is_some() || config.otlp.is_some() || grouped.has_by();
    if let Some(at) = texts_at.filter(|_| texts && !shows_texts) {
        return Err(at.refuse(
            "texts stand in rows, spans and groups, and there are none",
            "add [rows] with dir = \"/var/lib/reqtrace/rows\" or group-by = \"fingerprint\", or leave it out",
        ));
    }
    let profile = profiles(&profile_name).map_err(|error| {
        let advice = error
            .advice()
            .unwrap_or("`reqtrace profiles` lists all")
            .to_owned();
        value.refuse(error, advice)
    })?;
    let groups = grouped.read(&profile, texts)?;
    Ok(Rule {
        line,
        matches,
        traced: Some(Traced {
            service,
            profile: Box::new(profile),
            profile_name,
            slo,
            max_cost: max_cost.unwrap_or(config.agent.max_cost),
            blame: blame.unwrap_or(false),
            texts,
            groups,
        }),
    })
}

fn matches(mut table: Table<'_>) -> Result<Match> {
    let mut globs = |key, such_as| match table.take(key) {
        Some(value) => globs(&value, such_as),
        None => Ok(Vec::new()),
    };
    let exe = globs("exe", "\"/usr/sbin/mariadbd\"")?;
    let comm = globs("comm", "\"mariadbd\"")?;
    let cgroup = globs("cgroup", "\"/system.slice/*\"")?;
    let unit = globs("unit", "\"mariadb.service\"")?;
    if let Some(value) = table.take("exe") {
        let relative = exe.iter().find(|exe| !exe.starts_with(['/', '*']));
        if let Some(relative) = relative {
            return Err(value.refuse(
                format_args!("`{relative}` is no whole path"),
                format!(
                    "write exe = \"*/{relative}\", or the path that `readlink /proc/PID/exe` shows"
                ),
            ));
        }
    }
    if let Some(value) = table.take("comm") {
        let long = comm.iter().find(|comm| comm.len() > 15);
        if let Some(long) = long {
            return Err(value.refuse(
                "the kernel keeps 15 characters of a name",
                format!("write comm = \"{}\"", &long[..long.floor_char_boundary(15)]),
            ));
        }
    }
    let min_age = table.take("min-age").map(|value| {
        let age = |text: &str| match text {
            "0" | "0s" => Ok(Duration::ZERO),
            text => {
                quantity::long_time(text).ok_or_else(|| "this is no time with a unit".to_owned())
            }
        };
        value.parsed("\"5s\"", age)
    });
    let matches = Match {
        min_age: min_age.transpose()?.unwrap_or(MIN_AGE),
        exe,
        comm,
        cgroup,
        unit,
    };
    let names = [&matches.exe, &matches.comm, &matches.cgroup, &matches.unit];
    if names.iter().all(|globs| globs.is_empty()) {
        // A misspelt key comes first.
        let line = table.error("match names no process");
        table.end()?;
        return Err(line.next("give exe, comm, cgroup or unit; exe = \"*\" is every program"));
    }
    table.end()?;
    Ok(matches)
}

fn globs(value: &Value<'_>, such_as: &str) -> Result<Vec<String>> {
    let globs = value.texts(such_as)?;
    for glob in &globs {
        check_glob(glob)
            .map_err(|why| value.refuse(why, format!("write {} = {such_as}", value.key)))?;
    }
    Ok(globs)
}

pub(crate) fn time(value: &Value<'_>, such_as: &str) -> Result<Duration> {
    let time = |text: &str| {
        quantity::long_time(text).ok_or_else(|| "this is no time above 0 with a unit".to_owned())
    };
    value.parsed(such_as, time)
}

/// A path from the root on.
pub(crate) fn path(value: &Value<'_>, such_as: &str) -> Result<PathBuf> {
    let whole = |text: &str| match text.starts_with('/') && !text.contains('\0') {
        true => Ok(PathBuf::from(text)),
        false => Err("this is no whole path".to_owned()),
    };
    value.parsed(such_as, whole)
}

pub(super) fn share(value: &Value<'_>) -> Result<Share> {
    let share = |text: &str| {
        let percent = text.ends_with('%').then(|| quantity::percent(text).ok());
        percent
            .flatten()
            .map(Share::of_percent)
            .ok_or_else(|| "this is no share above 0% and up to 100%".to_owned())
    };
    value.parsed("\"5%\"", share)
}

fn service_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
    if text.len() > MAX_SERVICE || !text.chars().all(is_plain) {
        return Err(format!(
            "a service has up to {MAX_SERVICE} letters, digits and . _ : / -"
        ));
    }
    Ok(text.to_owned())
}

/// Each rule needs tables in the kernel.
fn has_room(config: &Config, source: Source<'_>) -> Result<()> {
    config.memory_of_a_rule().check().map_err(|_| {
        let rules = config.traced().count();
        let advice = format!(
            "a rule takes 4MB at least and {}MB with room for 4,096 threads: write memory = \"{}MB\", or fewer rules",
            (2 * Sizes::default().bytes()).div_ceil(1 << 20),
            16 * rules
        );
        let at = source.text.find("memory").unwrap_or(0);
        let what = format!(
            "memory = {} MB is too little for {rules} rules",
            config.agent.memory >> 20
        );
        source.error(&(at..at), what).next(advice)
    })
}
