//! A service without load: an empty report, well-formed, that says why it is empty.
//!
//! Needs root and a kernel with BPF.

use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{ledger, rows, xml};

#[test]
fn an_idle_service_gives_an_empty_report_that_says_so() {
    let shop = Shop::open().unwrap();
    let trace = Trace::start(&shop::profile(), shop.pid(), &["1"]).unwrap();
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(
        outcome.printed().contains("never hit"),
        "{}",
        outcome.printed()
    );

    let summary = outcome.summary().unwrap();
    let order = summary.request("order").unwrap();
    assert_eq!((order.count, order.begins, order.ends), (0, 0, 0));
    assert_eq!(summary.lost(), 0, "{:?}", summary.losses);

    // The files are there and whole, with nothing in them: the janitor woke up some two
    // hundred times, and that is nobody's request.
    let csv = outcome.csv().unwrap();
    assert_eq!(ledger::check(&csv).unwrap(), 0);
    let classes = rows::classes(&csv).unwrap();
    for class in ["journal", "stock_lock", "payment", "disk", "lock", "other"] {
        assert!(classes.iter().any(|name| name == class), "{class}");
    }
    assert_eq!(outcome.folded().unwrap(), "");
    xml::check(&outcome.flamegraph().unwrap()).unwrap();

    assert_eq!(shop.close().unwrap(), "");
}
