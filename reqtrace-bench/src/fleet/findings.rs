//! What the engines have found: their answers and the plan in; whether both say the same, and find the outlier and the bad
//! build, and nothing where nothing is, out.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::plan::{OTHERS, Plan, SHOP};

/// The outlier's p99 is so many times that of the next machine; of services without one no machine's is, though rows are drawn.
const OUTLIER: f64 = 2.0;
/// The bad build's median is so many times that of any other.
const BAD: f64 = 1.5;
/// Numbers of two engines may differ by so much of them.
const ROUNDING: f64 = 1e-9;
/// The sum of the weights is within so many of its standard errors.
const SIGMAS: f64 = 4.0;

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The machine, and its p99 over the fleet's and over that of the next.
    pub(super) host: String,
    /// The same.
    pub(super) of_fleet: f64,
    /// The same.
    pub(super) of_next: f64,
    /// The highest p99 of a machine over the next one's, of services without an outlier.
    pub(super) of_others: f64,
    /// The median of the bad build over the highest of the others.
    pub(super) bad: f64,
    /// Σ weights of the shop's rows over the number of its requests.
    pub(super) weights: f64,
    /// Answers that were compared.
    pub(super) compared: usize,
}

/// What is known of the rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Rows in files.
    pub(super) rows: u64,
    /// Complete requests of the shop.
    pub(super) requests: u64,
    /// Of the requests that are not slow one in so many has a row.
    pub(super) one_in: u32,
}

/// Checks all of it.
///
/// # Errors
///
/// With the first thing that is not as it has to be.
pub(super) fn check(plan: &Plan, known: Known, answers: &Value) -> Result<Found> {
    let mut compared = alike(answers, ["clickhouse", "duckdb"])?;
    if answers.get("spark").is_some() {
        compared = alike(answers, ["duckdb", "spark"])?;
    }
    let of = &answers["clickhouse"];
    let count = of["count"].as_u64();
    ensure!(
        count == Some(known.rows),
        "ClickHouse has {count:?} rows of {} after each file came twice",
        known.rows
    );
    let with_duplicates = &of["with duplicates"];
    ensure!(
        with_duplicates.as_u64() > count
            && *with_duplicates == answers["duckdb"]["with duplicates"],
        "with duplicates ClickHouse has {with_duplicates} rows, and DuckDB {}",
        answers["duckdb"]["with duplicates"]
    );
    let (rolled_up, requests) = (&of["minutes"][0][0], &answers["duckdb"]["requests"]);
    ensure!(
        is_same(rolled_up, requests),
        "the roll-up has {rolled_up} requests, and the rows stand for {requests}"
    );
    let hosts = table(&of["hosts.sql"])?;
    let [host, next] = first_two(&hosts, "hosts.sql")?;
    let of_next = number(host, 2)? / number(next, 2)?;
    ensure!(
        host[0] == plan.host(plan.outlier).as_str() && of_next >= OUTLIER,
        "hosts.sql finds {} with {of_next:.2} times the p99 of the next, and the outlier is {}",
        host[0],
        plan.host(plan.outlier)
    );
    Ok(Found {
        host: plan.host(plan.outlier),
        of_fleet: number(host, 3)?,
        of_next,
        of_others: no_other(&of["others"])?,
        bad: bad_build(plan, &table(&of["deploy.sql"])?)?,
        weights: weights(&hosts, known)?,
        compared,
    })
}

/// The answers of two engines to all queries are the same; how many there are.
fn alike(answers: &Value, names: [&str; 2]) -> Result<usize> {
    let [one, other] = names.map(|name| &answers[name]);
    let [first, second] = names;
    let queries = one.as_object().context("no answers")?.keys();
    let queries: Vec<&String> = queries.filter(|name| name.ends_with(".sql")).collect();
    let mut pairs: Vec<(String, &Value, &Value)> = queries
        .iter()
        .map(|name| ((*name).clone(), &one[*name], &other[*name]))
        .collect();
    for service in OTHERS {
        for query in ["hosts.sql", "deploy.sql"] {
            let of = |engine: &'_ Value| engine["others"][service][query].clone();
            ensure!(
                is_same(&of(one), &of(other)),
                "{query} of {service}: {first} and {second} differ:\n{}\n{}",
                of(one),
                of(other)
            );
        }
    }
    ensure!(pairs.len() >= 9, "only {} queries were asked", pairs.len());
    pairs.retain(|(_, one, other)| !is_same(one, other));
    if let Some((name, one, other)) = pairs.first() {
        bail!("{name}: {first} and {second} differ:\n{one}\n{other}");
    }
    Ok(queries.len() + 2 * OTHERS.len())
}

fn is_same(one: &Value, other: &Value) -> bool {
    if let (Some(one), Some(other)) = (one.as_array(), other.as_array()) {
        let mut pairs = one.iter().zip(other);
        return one.len() == other.len() && pairs.all(|(one, other)| is_same(one, other));
    }
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= ROUNDING * one.abs().max(other.abs()),
        _ => one == other && !one.is_null(),
    }
}

/// Services without an outlier have none, and one build. The highest p99 of a machine over the next one's.
fn no_other(others: &Value) -> Result<f64> {
    let mut most: f64 = 1.0;
    for service in OTHERS {
        let hosts = table(&others[service]["hosts.sql"])?;
        if let [first, next, ..] = hosts.as_slice() {
            let ratio = number(first, 2)? / number(next, 2)?;
            ensure!(
                ratio < OUTLIER,
                "{service} has no outlier, and hosts.sql has {} with {ratio:.2} times the p99 of the next",
                first[0]
            );
            most = most.max(ratio);
        }
        let builds = table(&others[service]["deploy.sql"])?;
        let types = builds.iter().map(|build| build[1].to_string());
        let types = types.collect::<std::collections::BTreeSet<_>>().len();
        ensure!(
            builds.len() == types,
            "{service} has one build, and deploy.sql {} of {types} request types",
            builds.len()
        );
    }
    Ok(most)
}

/// The bad build is slower than the others, and the others are not. Its median over the highest of theirs.
fn bad_build(plan: &Plan, builds: &[&Vec<Value>]) -> Result<f64> {
    let found: Vec<&str> = builds
        .iter()
        .filter_map(|build| build[0].as_str())
        .collect();
    // They are in the order in which they were seen first, and on all machines.
    ensure!(
        found == plan.builds,
        "deploy.sql has the builds {found:?}, not {:?}",
        plan.builds
    );
    for build in builds {
        let hosts = number(build, 3)?;
        ensure!(
            hosts == plan.agents as f64,
            "deploy.sql has build {} on {hosts} machines of {}",
            build[0],
            plan.agents
        );
    }
    let medians: Vec<f64> = builds
        .iter()
        .map(|build| number(build, 5))
        .collect::<Result<_>>()?;
    let (mut bad, mut others) = (0.0, 0.0_f64);
    for (at, median) in medians.into_iter().enumerate() {
        match at == plan.bad {
            true => bad = median,
            false => others = others.max(median),
        }
    }
    ensure!(
        bad >= BAD * others,
        "deploy.sql: the bad build's median is {bad} ns, and that of the others up to {others} ns"
    );
    Ok(bad / others)
}

/// The sum of the weights is the number of requests, but for chance.
fn weights(hosts: &[&Vec<Value>], known: Known) -> Result<f64> {
    let sum: f64 = hosts
        .iter()
        .map(|host| number(host, 1))
        .sum::<Result<f64>>()?;
    let (requests, one_in) = (known.requests as f64, f64::from(known.one_in));
    let error = (requests * (one_in - 1.0)).sqrt();
    ensure!(
        (sum - requests).abs() <= SIGMAS * error,
        "the rows of {SHOP} stand for {sum} requests of {requests}, {:.1} standard errors off",
        (sum - requests).abs() / error
    );
    Ok(sum / requests)
}

fn table(answer: &Value) -> Result<Vec<&Vec<Value>>> {
    let rows = answer.as_array().context("no answer")?;
    let rows = rows.iter().map(|row| row.as_array().context("no row"));
    rows.collect()
}

fn first_two<'a>(rows: &[&'a Vec<Value>], query: &str) -> Result<[&'a Vec<Value>; 2]> {
    match rows {
        [first, next, ..] => Ok([first, next]),
        _ => bail!("{query} has {} rows", rows.len()),
    }
}

fn number(row: &[Value], at: usize) -> Result<f64> {
    let value = row.get(at).and_then(Value::as_f64);
    value.with_context(|| format!("column {at} of {row:?} is no number"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> Plan {
        Plan::draw(3, 8, 600)
    }

    /// Answers of a fleet in which `outlier` has a p99 of 40 ms, and others 10 ms; the build `bad` has twice the median.
    fn answers(outlier: usize, bad: usize) -> Value {
        let plan = plan();
        let mut hosts: Vec<Value> = (0..8)
            .filter(|at| *at != outlier)
            .map(|at| json!([plan.host(at), 1000, 10_000_000, 1.0, 0.0, 1.0, 1.0, 1.0]))
            .collect();
        hosts.insert(
            0,
            json!([
                plan.host(outlier),
                1000,
                40_000_000,
                4.0,
                0.0,
                1.0,
                1.0,
                1.0
            ]),
        );
        let builds = plan.builds.iter().enumerate().map(|(at, build)| {
            let median = if at == bad { 2_000_000 } else { 1_000_000 };
            json!([build, "order", at, 8, 1000, median, 1, 1.0, 1.0, 1.0, 0.0])
        });
        let builds: Vec<Value> = builds.collect();
        let well = json!({
            "hosts.sql": [["a", 1, 10, 1.0], ["b", 1, 9, 1.0]],
            "deploy.sql": [["x", "http"]],
        });
        let others: serde_json::Map<String, Value> = OTHERS
            .iter()
            .map(|name| ((*name).to_owned(), well.clone()))
            .collect();
        let mut one = json!({
            "hosts.sql": hosts, "deploy.sql": builds, "others": others,
            "count": 800, "with duplicates": 900, "minutes": [[8000]], "requests": 8000,
        });
        for query in [
            "who",
            "since",
            "share",
            "overlap",
            "culprits",
            "burn",
            "slow-tail",
        ] {
            one[format!("{query}.sql")] = json!([[query, 1.5]]);
        }
        json!({ "clickhouse": one, "duckdb": one })
    }

    fn checked(answers: &Value) -> String {
        let known = Known {
            rows: 800,
            requests: 8000,
            one_in: 10,
        };
        let found = check(&plan(), known, answers);
        found.map_or_else(|error| error.to_string(), |_| "found".to_owned())
    }

    #[test]
    fn only_the_outlier_and_the_bad_build_of_the_plan_are_right() {
        let plan = plan();
        assert_eq!(checked(&answers(plan.outlier, plan.bad)), "found");
        let other = checked(&answers((plan.outlier + 1) % 8, plan.bad));
        assert!(other.contains("and the outlier is web-"), "{other}");
        let other = checked(&answers(plan.outlier, 3 - plan.bad));
        assert!(other.contains("the bad build's median"), "{other}");
    }

    #[test]
    fn what_differs_is_missing_or_is_there_twice_is_an_error() {
        let plan = plan();
        let changed = |path: &str, value: Value| {
            let mut changed = answers(plan.outlier, plan.bad);
            *changed.pointer_mut(path).unwrap() = value;
            checked(&changed)
        };
        for (path, value, error) in [
            (
                "/duckdb/who.sql/0/1",
                json!(1.6),
                "who.sql: clickhouse and duckdb differ",
            ),
            (
                "/duckdb/others/rpc/hosts.sql/0/2",
                json!(11),
                "hosts.sql of rpc",
            ),
            ("/clickhouse/count", json!(801), "801"),
            ("/clickhouse/with duplicates", json!(901), "with duplicates"),
            (
                "/clickhouse/minutes/0/0",
                json!(8001),
                "the roll-up has 8001",
            ),
        ] {
            let printed = changed(path, value);
            assert!(printed.contains(error), "{path}: {printed}");
        }
        let mut cluster = answers(plan.outlier, plan.bad);
        cluster["spark"] = cluster["duckdb"].clone();
        assert_eq!(checked(&cluster), "found");
        cluster["spark"]["burn.sql"] = json!([["burn", 1.6]]);
        assert!(checked(&cluster).contains("burn.sql: duckdb and spark differ"));
        let mut outlier = answers(plan.outlier, plan.bad);
        for engine in ["clickhouse", "duckdb"] {
            outlier[engine]["others"]["rpc"]["hosts.sql"][0][2] = json!(18);
        }
        assert!(checked(&outlier).contains("rpc has no outlier"));
    }
}
