//! `group-by` of `reqtrace agent`: requests are counted by group, and the groups add up to all of their type.
//!
//! Needs root and a kernel with BPF.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::process::{Child, Stream, run, until};
use reqtrace_tests::scraped::{Agent, Scrape, configuration};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::workspace;

use crate::agent::rule_of_shop;

const LIMIT: Duration = Duration::from_secs(20);
/// What groups have of a figure, and what it is of all.
const FIGURES: [(&str, &str); 3] = [
    ("requests_total", "request_duration_seconds_count"),
    ("duration_seconds_total", "request_duration_seconds_sum"),
    ("slow_requests_total", "slow_requests_total"),
];

/// A figure by group.
fn groups(seen: &Scrape, service: &str, figure: &str) -> BTreeMap<String, f64> {
    let start = format!("reqtrace_group_{figure}{{service=\"{service}\",type=\"order\",group=\"");
    let groups = seen.iter().filter_map(|(metric, value)| {
        let group = metric.strip_prefix(&start)?.strip_suffix("\"}")?;
        Some((group.to_owned(), *value))
    });
    groups.collect()
}

fn add_up(seen: &Scrape, service: &str) {
    for (figure, whole) in FIGURES {
        let sum: f64 = groups(seen, service, figure).values().sum();
        let whole = seen[&format!("reqtrace_{whole}{{service=\"{service}\",type=\"order\"}}")];
        assert!(
            (sum - whole).abs() <= 1e-9 * whole,
            "{figure}: {sum} {whole}"
        );
    }
}

/// The label of an order is its number: each is a group of its own, until there are enough. Of the service's next process
/// they go on.
#[test]
fn groups_are_bounded_and_add_up_to_all_orders() {
    const ORDERS: u64 = 400;
    const MOST: usize = 20;
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let rule = |by: &str| format!("{}{by}\n", rule_of_shop(&program));
    let config = rule("texts = true\ngroup-by = \"label\"\ngroups = 20");
    let mut agent = Agent::start(folder.path(), &config).unwrap();
    let count = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
    let traced = "reqtrace_traced{service=\"shop\"}";
    let shop = Shop::open_from(&program).unwrap();
    let seen = agent.wait_for(traced, 1.0).unwrap();
    assert_eq!(
        groups(&seen, "shop", "requests_total"),
        BTreeMap::from([("~other".to_owned(), 0.0)]),
        "the others are there from the first scrape"
    );
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(count, ORDERS as f64).unwrap();
    add_up(&seen, "shop");
    let first = groups(&seen, "shop", "requests_total");
    assert_eq!(first.len(), MOST + 1, "{first:#?}");
    let numbers: Vec<u64> = first.keys().filter_map(|key| key.parse().ok()).collect();
    assert_eq!(numbers.len(), MOST, "{first:#?}");
    assert_eq!(first["~other"], (ORDERS - MOST as u64) as f64);

    // The numbers of the next shop begin again: groups that were admitted count them, nobody else comes in.
    shop.close().unwrap();
    let shop = Shop::open_from(&program).unwrap();
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(count, 2.0 * ORDERS as f64).unwrap();
    add_up(&seen, "shop");
    let second = groups(&seen, "shop", "requests_total");
    assert!(second.keys().eq(first.keys()), "{second:#?}");
    assert!(first.iter().all(|(group, before)| second[group] >= *before));

    // Text leaves only with permission: a configuration without it changes nothing.
    let refused = "reqtrace_config_last_reload_successful";
    agent
        .reload(&configuration(&rule("group-by = \"fingerprint\"")))
        .unwrap();
    agent.wait_for(refused, 0.0).unwrap();
    let printed = agent.printed();
    assert!(
        printed.contains("this is text of the program") && printed.contains("add texts = true"),
        "{printed}"
    );
    // All numbers of orders have one fingerprint. What is counted already stays, and all adds up.
    agent
        .reload(&configuration(&rule(
            "texts = true\ngroup-by = \"fingerprint\"",
        )))
        .unwrap();
    agent.wait_for(refused, 1.0).unwrap();
    until(LIMIT, "the next session", || {
        let sessions = agent.printed().matches("probes attached").count();
        Ok((sessions == 2).then_some(()))
    })
    .unwrap();
    agent.wait_for(traced, 1.0).unwrap();
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(count, 3.0 * ORDERS as f64).unwrap();
    add_up(&seen, "shop");
    let third = groups(&seen, "shop", "requests_total");
    assert_eq!(third["?"], ORDERS as f64, "{third:#?}");
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
}

/// An attribute that is a number needs no permission: each order of the bakery is in the group of its flour, of
/// which it takes three weights in turn.
#[test]
fn an_attribute_that_is_a_number_is_a_group() {
    const ORDERS: u64 = 300;
    let folder = workspace::scratch().unwrap();
    let program = workspace::bakery().unwrap();
    let mut command = Command::new(&program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--bakers", "3"]);
    let mut bakery = Child::start(command, folder.path(), "bakery").unwrap();
    let line = bakery
        .wait_for_line(Stream::Out, "listening on ", LIMIT)
        .unwrap();
    let address = line.strip_prefix("listening on ").unwrap();
    let profile = workspace::root().join("examples/bakery/bakery.toml");
    let rule = format!(
        "[[rule]]\nmatch = {{ exe = \"{}\", min-age = \"0s\" }}\nservice = \"bakery\"\nprofile = \"{}\"\n\
         slo = \"1ms\"\ngroup-by = \"flour\"\n",
        program.display(),
        profile.display()
    );
    let agent = Agent::start(folder.path(), &rule).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"bakery\"}", 1.0)
        .unwrap();
    let mut load = Command::new(&program);
    load.args(["load", "--connect", address, "--customers", "4"]);
    run(load.args(["--orders", &ORDERS.to_string()])).unwrap();
    let count = "reqtrace_request_duration_seconds_count{service=\"bakery\",type=\"order\"}";
    let seen = agent.wait_for(count, ORDERS as f64).unwrap();
    add_up(&seen, "bakery");
    let of_flour = groups(&seen, "bakery", "requests_total");
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(of_flour["~other"], 0.0, "{of_flour:#?}");
    for weight in ["500", "750", "1000"] {
        assert_eq!(of_flour[weight], (ORDERS / 3) as f64, "{of_flour:#?}");
    }
}

/// Names of what lies at an address come from files that only another process of the agent may open.
#[test]
fn a_name_of_the_program_is_a_group() {
    let folder = workspace::scratch().unwrap();
    let mut fixture = Fixture::start("virtuals", &[]).unwrap();
    let profile = folder.path().join("symbols.toml");
    let class =
        "[[request.attribute]]\nname = \"class\"\ntype = \"symbol\"\narg = 0\nderef = [0]\n";
    fixtures::write_profile(&profile, "order", "work", class).unwrap();
    let rule = format!(
        "[[rule]]\nmatch = {{ comm = \"virtuals\", exe = \"*/virtuals\", min-age = \"0s\" }}\nservice = \"jobs\"\n\
         profile = \"{}\"\ngroup-by = \"class\"\n",
        profile.display()
    );
    let agent = Agent::start(folder.path(), &rule).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"jobs\"}", 1.0)
        .unwrap();
    fixture.work().unwrap();
    let count = "reqtrace_request_duration_seconds_count{service=\"jobs\",type=\"order\"}";
    let seen = agent.wait_for(count, 30.0).unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    let of_class = groups(&seen, "jobs", "requests_total");
    for class in ["Order", "Refund", "Report"] {
        let name = format!("vtable for shop::{class}");
        assert_eq!(of_class.get(&name), Some(&10.0), "{of_class:#?}");
    }
}
