//! `[otlp]` of `reqtrace agent`: a collector gets the slow orders of the shop and no others, as the published definition reads
//! them; one that is away, busy or hangs costs spans that are counted, and nothing else.
//!
//! Needs root, a kernel with BPF and the definition that `cargo xtask setup --for test` installs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use reqtrace_tests::collector::{Collector, Does, Span};
use reqtrace_tests::http::free_port;
use reqtrace_tests::process::until;
use reqtrace_tests::scraped::{Agent, Scrape, files_in};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::workspace;

use crate::agent::rule_of_shop;
use crate::agent_rows::all_of;

const LIMIT: Duration = Duration::from_secs(90);
const COUNT: &str = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
const TRACED: &str = "reqtrace_traced{service=\"shop\"}";
/// Some orders take longer, however quiet the machine is. It is an edge between two buckets of latencies: those of a bucket
/// across it would all be slow in the metrics, and not all have a span.
const SLO: &str = "1024us";
const SLO_NS: i64 = 1_024_000;
const SENT: &str = "reqtrace_otlp_spans_sent_total";

/// The shop, and an agent that sends spans to this port.
fn begin(folder: &Path, port: u16, more: &str) -> (Shop, Agent) {
    let program = folder.join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let config = format!(
        "[otlp]\nendpoint = \"http://127.0.0.1:{port}\"\nmax-rate = 10000\n\
         {}one-in = 1\n{}{more}",
        files_in("rows", &folder.join("rows")),
        rule_of_shop(&program).replace("7ms", SLO)
    );
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start(folder, &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    (shop, agent)
}

fn of_cause(seen: &Scrape, cause: &str) -> f64 {
    seen[&format!("reqtrace_otlp_spans_dropped_total{{cause=\"{cause}\"}}")]
}

/// What has become of spans so far.
fn decided(seen: &Scrape) -> f64 {
    let dropped = seen
        .iter()
        .filter(|(name, _)| name.starts_with("reqtrace_otlp_spans_dropped_total"));
    seen[SENT] + dropped.map(|(_, count)| count).sum::<f64>()
}

#[test]
fn a_collector_gets_each_slow_order_and_no_other() {
    const ORDERS: u64 = 1_500;
    let folder = workspace::scratch().unwrap();
    let collector = Collector::start(0).unwrap();
    let (shop, agent) = begin(folder.path(), collector.port(), "");
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let shown = agent.exposition().unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert!(!printed.contains("spans are dropped"), "{printed}");

    let spans = collector.spans(folder.path()).unwrap();
    let rows = all_of(&folder.path().join("rows"));
    let slow = rows.iter().filter(|row| row.is_slow);
    let slow: BTreeMap<(i64, i64), i64> = slow
        .map(|row| ((row.id, row.begin.0), row.latency_ns))
        .collect();
    assert!(slow.len() > 10, "{}", slow.len());
    let sent: BTreeMap<(i64, i64), i64> = spans
        .iter()
        .map(|span| {
            let id = span.number("reqtrace.request_id").unwrap();
            ((id, span.start_ns), span.end_ns - span.start_ns)
        })
        .collect();
    assert_eq!(sent, slow);
    assert_eq!(spans.len(), slow.len(), "each once");
    for span in &spans {
        is_of_the_shop(span);
        assert!(!span.attributes.contains_key("reqtrace.label"), "{span:#?}");
    }
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace_id.as_str()).collect();
    assert_eq!(traces.len(), spans.len());

    // From a bucket of slow ones to the trace.
    let exemplars = shown.lines().filter_map(|line| line.split_once(" # "));
    let with_trace = exemplars.filter_map(|(_, of)| of.split_once("trace_id=\""));
    let with_trace: Vec<&str> = with_trace.map(|(_, of)| &of[..32]).collect();
    assert!(!with_trace.is_empty(), "{shown}");
    for trace in with_trace {
        assert!(traces.contains(trace), "{trace} {traces:#?}");
    }
}

/// Its time closes, and it says who served it.
fn is_of_the_shop(span: &Span) {
    assert_eq!(span.resource["service.name"], "shop");
    assert!(span.resource.contains_key("host.name"), "{span:#?}");
    assert_eq!(
        (span.name.as_str(), span.scope.as_str()),
        ("order", "reqtrace")
    );
    assert_eq!(span.kind, "SPAN_KIND_SERVER");
    assert_eq!((span.trace_id.len(), span.span_id.len()), (32, 16));
    let ns = span.end_ns - span.start_ns;
    assert!(ns > SLO_NS, "{span:#?}");
    assert_eq!(span.sum("reqtrace.part."), ns, "{span:#?}");
    assert_eq!(span.number("reqtrace.slow_above_ns").unwrap(), SLO_NS);
    assert_eq!(span.number("reqtrace.weight").unwrap(), 1);
    let main = span.attributes["reqtrace.main_part"].as_str().unwrap();
    let main = span.number(&format!("reqtrace.part.{main}")).unwrap();
    assert!(main * 20 >= ns, "{span:#?}");
}

/// With blame a span says because of whom; with texts, what it was about.
#[test]
fn spans_say_because_of_whom_and_texts_only_where_they_are_asked_for() {
    const ORDERS: u64 = 400;
    let folder = workspace::scratch().unwrap();
    let collector = Collector::start(0).unwrap();
    let more = "blame = true\ntexts = true\n";
    let (shop, agent) = begin(folder.path(), collector.port(), more);
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    agent.wait_for(COUNT, ORDERS as f64).unwrap();
    assert_eq!(agent.end().unwrap().0, Some(0));
    let spans = collector.spans(folder.path()).unwrap();
    assert!(spans.len() > 10, "{}", spans.len());
    let mut with_waker = 0;
    for span in &spans {
        is_of_the_shop(span);
        let label = span.attributes["reqtrace.label"].as_str().unwrap();
        assert!(!label.is_empty(), "{span:#?}");
        let longest = span.number("reqtrace.longest_wait.ns").unwrap();
        assert!(longest > 0 && longest <= span.end_ns - span.start_ns);
        let has = |key: &str| {
            span.attributes
                .contains_key(&format!("reqtrace.longest_wait.{key}"))
        };
        // A thread, or the timer that a customer's card takes.
        with_waker += usize::from(has("waker.pid") || has("waker.interrupt"));
        let ran: i64 = ["on_cpu", "run_queue", "preempted"]
            .iter()
            .filter_map(|part| span.number(&format!("reqtrace.part.{part}")).ok())
            .sum();
        let waited = span.sum("reqtrace.part.") - ran;
        assert_eq!(span.sum("reqtrace.cause."), waited, "{span:#?}");
    }
    assert!(
        with_waker * 2 > spans.len(),
        "{with_waker} of {}",
        spans.len()
    );
}

/// Whatever becomes of the collector: all orders are counted, each slow one is a span that was sent or is counted, and the
/// agent ends in time.
#[test]
fn a_collector_that_is_away_or_hangs_costs_spans_that_are_counted() {
    const ORDERS: u64 = 200;
    let folder = workspace::scratch().unwrap();
    let port = free_port().unwrap();
    let (shop, agent) = begin(folder.path(), port, "");
    let (mut orders, mut slow) = (0.0, 0.0);
    let mut serve = |orders: &mut f64| {
        *orders += shop.load(4, ORDERS).unwrap() as f64;
        agent.wait_for(COUNT, *orders).unwrap();
        let seen = until(LIMIT, "what becomes of the spans", || {
            let seen = agent.scrape()?;
            let slow = seen["reqtrace_slow_requests_total{service=\"shop\",type=\"order\"}"];
            Ok((decided(&seen) >= slow).then_some(seen))
        });
        let seen = seen.unwrap_or_else(|error| panic!("{error} {:#?}", agent.scrape()));
        let all = decided(&seen);
        assert!(all > slow, "there are slow ones: {seen:#?}");
        let new = all - slow;
        slow = all;
        (seen, new)
    };
    let (seen, away) = serve(&mut orders);
    assert_eq!((of_cause(&seen, "unreachable"), seen[SENT]), (away, 0.0));

    let collector = Collector::start(port).unwrap();
    collector.set(Does::Answers(500));
    let (seen, refused) = serve(&mut orders);
    assert_eq!(of_cause(&seen, "refused"), refused);
    let once = collector.seen();

    // Busy is asked again, as the protocol says.
    collector.set(Does::Answers(503));
    let (seen, busy) = serve(&mut orders);
    assert_eq!(of_cause(&seen, "unreachable"), away + busy);
    assert!(
        (collector.seen() - once).is_multiple_of(3),
        "{} {once}",
        collector.seen()
    );

    collector.set(Does::Hangs);
    let (seen, hung) = serve(&mut orders);
    assert_eq!(of_cause(&seen, "unreachable"), away + busy + hung);

    collector.set(Does::Takes);
    let (seen, sent) = serve(&mut orders);
    assert_eq!(seen[SENT], sent);
    assert_eq!(collector.spans(folder.path()).unwrap().len() as f64, sent);

    // It hangs at the end, too.
    collector.set(Does::Hangs);
    orders += shop.load(4, ORDERS).unwrap() as f64;
    agent.wait_for(COUNT, orders).unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(printed.matches("spans are dropped").count(), 2, "{printed}");
    assert_eq!(
        printed.matches("spans are sent again").count(),
        1,
        "{printed}"
    );
}
