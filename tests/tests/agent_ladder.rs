//! The budget of `reqtrace agent`: what cannot be made cheap enough is traced in windows drawn at random, and given up at last.
//!
//! Needs root, a kernel with BPF and g++.

use std::thread;
use std::time::{Duration, Instant};

use reqtrace_tests::probed::{Code, is_as_in_its_files};
use reqtrace_tests::process::until;
use reqtrace_tests::scraped::{Agent, sums};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;

use crate::agent::rule_of_shop;

const LIMIT: Duration = Duration::from_secs(60);
const LADDER: &str = "reqtrace_ladder{service=\"shop\"}";
const COUNT: &str = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
const RECORDED: &str = "reqtrace_recorded_requests_total{service=\"shop\",type=\"order\"}";

/// A shop under load, and an agent that may take so much of it.
fn traced(max_cost: &str, seconds: u32) -> (Shop, shop::Load, Agent, tempfile::TempDir) {
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let shop = Shop::open_from(&program).unwrap();
    let rule = rule_of_shop(&program);
    let agent = Agent::start(folder.path(), &format!("{rule}max-cost = \"{max_cost}\"\n")).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"shop\"}", 1.0)
        .unwrap();
    let load = shop.start_load_for(4, seconds, 0).unwrap();
    (shop, load, agent, folder)
}

/// Windows that are traced stand for the others, and between them the program is as it is in its file. Its orders are all
/// answered.
#[test]
fn windows_that_are_traced_stand_for_the_others() {
    const SECONDS: u32 = 60;
    let (shop, load, agent, folder) = traced("1%", SECONDS);
    let at_ladder = until(LIMIT, "windows", || {
        let seen = agent.scrape()?;
        Ok(seen
            .get(LADDER)
            .is_some_and(|rung| (6.0..10.0).contains(rung))
            .then_some(seen))
    })
    .unwrap();
    let (mut is_off, mut is_on) = (0, 0);
    let code = Code::of_function(shop.pid(), "shop::service::handle_request").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(40) {
        match code.is_probed().unwrap() {
            true => is_on += 1,
            false => is_off += 1,
        }
        thread::sleep(Duration::from_millis(200));
    }
    assert!(is_on > 0 && is_off > is_on, "{is_on} on, {is_off} off");
    let orders = load.finish().unwrap();
    let seen = agent.scrape().unwrap();
    let (count, recorded) = (
        seen[COUNT] - at_ladder.get(COUNT).unwrap_or(&0.0),
        seen[RECORDED] - at_ladder.get(RECORDED).unwrap_or(&0.0),
    );
    assert!(
        count >= 2.0 * recorded && recorded > 0.0,
        "{count} {recorded}"
    );
    // Of some forty windows a few are drawn: the estimate is rough, but not by the factor of its weights.
    let share = seen[COUNT] / orders as f64;
    assert!((0.2..4.0).contains(&share), "{} of {orders}", seen[COUNT]);
    let [parts, durations] = sums(&seen, "shop", "order");
    assert!(
        (parts - durations).abs() <= 1e-6 * durations,
        "{parts} {durations}"
    );
    let (code, log) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("left out from now on: stacks, and "), "{log}");
    is_as_in_its_files(shop.pid()).unwrap();
    drop(folder);
}

/// A service of which even one window in 16 is too dear is left alone.
#[test]
fn what_is_too_dear_in_one_window_of_sixteen_is_given_up() {
    let (shop, load, agent, folder) = traced("0.01%", 240);
    let seen = until(Duration::from_secs(240), "the end", || {
        let seen = agent.scrape()?;
        let is_refused = seen["reqtrace_targets{state=\"refused\"}"] == 1.0;
        Ok((is_refused && seen.get(LADDER) == Some(&10.0)).then_some(seen))
    });
    let log = agent.printed();
    let seen = seen.unwrap_or_else(|error| panic!("{error}\n{log}"));
    assert_eq!(
        seen["reqtrace_session_failures_total{service=\"shop\"}"],
        0.0
    );
    assert!(log.contains("it is tried again in 1 h"), "{log}");
    is_as_in_its_files(shop.pid()).unwrap();
    drop((load, folder));
    assert_eq!(agent.end().unwrap().0, Some(0));
}
