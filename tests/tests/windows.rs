//! Windows: a second each, as `windows.csv` has them and as the kernel has counted them.
//!
//! Needs root and a kernel with BPF.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;

/// More seconds than the kernel has counters for.
const STOPPED: Duration = Duration::from_secs(18);

/// The columns of each row, by name.
fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn every_second_has_the_requests_that_the_kernel_has_sent_though_the_tracer_was_stopped() {
    let folder = workspace::scratch().unwrap();
    let shop = Shop::open().unwrap();
    let [windows, record] = ["windows.csv", "trace.rec"].map(|name| folder.path().join(name));
    let options = [
        format!("--windows={}", windows.display()),
        format!("--record={}", record.display()),
    ];
    let options = options.each_ref().map(String::as_str);
    let mut trace = Trace::start(&shop::profile(), shop.pid(), &options).unwrap();
    let mut placed = 0;
    for _ in 0..3 {
        placed += shop.load(4, 100).unwrap();
        sleep(Duration::from_millis(700));
    }
    let load = shop.start_load(2, 4_000).unwrap();
    trace.pause(STOPPED).unwrap();
    placed += load.finish().unwrap();
    sleep(Duration::from_secs(3));
    placed += shop.load(4, 100).unwrap();
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let order = summary.request("order").unwrap();
    assert_eq!(order.count, placed);
    // All that it was not stopped in, and of the others those whose counters were read.
    let seconds = summary.trace.duration_ns.div_ceil(1_000_000_000);
    let checked = summary.trace.seconds_checked;
    assert!(
        checked >= seconds - STOPPED.as_secs() && checked <= seconds + 1,
        "{checked} of {seconds}"
    );

    let text = std::fs::read_to_string(&windows).unwrap();
    let rows = rows(&text);
    let number = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<u64>().unwrap();
    let sum = |name: &str| rows.iter().map(|row| number(row, name)).sum::<u64>();
    assert_eq!(sum("requests"), placed);
    let in_rows = outcome.rows().unwrap();
    let latency_ns: u64 = in_rows.iter().map(|row| row.latency_ns).sum();
    assert_eq!(sum("latency_ns"), latency_ns);
    for pair in rows.windows(2) {
        let until_ns = number(&pair[0], "start_unix_ns") + number(&pair[0], "length_ns");
        assert!(until_ns <= number(&pair[1], "start_unix_ns"));
    }
    for row in &rows {
        let begin_ns = number(row, "start_unix_ns");
        let of_window = begin_ns..begin_ns + number(row, "length_ns");
        let own = in_rows.iter().filter(|row| {
            let end_ns = row.start_unix_ns + row.latency_ns;
            of_window.contains(&end_ns)
        });
        assert_eq!(own.count() as u64, number(row, "requests"), "{row:?}");
    }

    let again = folder.path().join("again.csv");
    let mut report = reqtrace::command(["report", "-q"]).unwrap();
    report.arg(&record).arg("--windows").arg(&again);
    let reported = reqtrace::run(report).unwrap();
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert_eq!(std::fs::read_to_string(&again).unwrap(), text);
}
