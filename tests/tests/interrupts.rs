//! What takes the CPU from requests without a switch, against what a service sees of it by the clock.
//!
//! Needs root, a kernel with BPF, two CPUs and g++.

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::rows::Row;

const REQUESTS: usize = 200;
const COMPUTE_US: &str = "20000";
/// Two readings of the clock are 0.1 µs apart; an interrupt takes longer.
const GAP_NS: &str = "700";
const SENDS: &str = "200";

/// One request as the service has it: what went elsewhere while it computed, and how long its sends took, ns.
struct Seen {
    gaps_ns: u64,
    sends_ns: u64,
}

fn seen(results: &str) -> Vec<Seen> {
    let numbers = results.split(' ').skip(1).map(|text| text.parse().unwrap());
    let numbers: Vec<u64> = numbers.collect();
    let each = numbers.chunks(3).map(|one| Seen {
        gaps_ns: one[1],
        sends_ns: one[2],
    });
    each.collect()
}

#[test]
fn what_interrupts_take_is_what_a_service_misses() {
    let args = ["1", &REQUESTS.to_string(), COMPUTE_US, GAP_NS, SENDS];
    let service = Fixture::start("gaps", &args).unwrap();
    let profile = service.profile("handle", "ignore").unwrap();
    let (outcome, results) = service
        .traced(&profile, &["--interrupts", "--cpu-rate", "0"])
        .unwrap();
    let mut rows = outcome.rows().unwrap();
    rows.sort_by_key(|row| row.start_unix_ns);
    let seen = seen(&results);
    assert_eq!((rows.len(), seen.len()), (REQUESTS, REQUESTS));
    let sum = |of: &dyn Fn(&Row, &Seen) -> u64| -> u64 {
        rows.iter()
            .zip(&seen)
            .map(|(row, seen)| of(row, seen))
            .sum()
    };
    assert!(rows.iter().all(|row| row.lost_ns.is_some()));
    let lost = |row: &Row| row.lost_ns.unwrap_or_default();
    let interrupts_ns = sum(&|row, _| lost(row)[0]);
    let softirqs_ns = sum(&|row, _| lost(row)[1]);
    let steal_ns = sum(&|row, _| row.steal_ns.unwrap_or(0));
    let off_ns = sum(&|row, _| row.latency_ns - row.on_cpu_ns);
    let (gaps_ns, sends_ns) = (sum(&|_, seen| seen.gaps_ns), sum(&|_, seen| seen.sends_ns));
    println!(
        "interrupts {interrupts_ns}, softirqs {softirqs_ns}, steal {steal_ns}, off {off_ns} of gaps {gaps_ns} and sends {sends_ns} ns"
    );
    for (row, seen) in rows.iter().zip(&seen) {
        let [interrupts_ns, softirqs_ns] = lost(row);
        let taken_ns = interrupts_ns + softirqs_ns + row.steal_ns.unwrap_or(0);
        assert!(taken_ns <= row.on_cpu_ns, "{row:?}");
        // Neither is longer than what the service misses.
        let missed_ns = seen.gaps_ns + seen.sends_ns;
        assert!(
            taken_ns + row.latency_ns - row.on_cpu_ns <= missed_ns + missed_ns / 10 + 50_000,
            "{taken_ns} of {missed_ns}: {row:?}"
        );
    }
    // The timer comes at least a hundred times a second.
    assert!(interrupts_ns > 400 * 200, "{interrupts_ns}");
    // Each datagram is delivered within its send.
    assert!(
        softirqs_ns > sends_ns / 10 && softirqs_ns < sends_ns + gaps_ns,
        "{softirqs_ns} of {sends_ns}"
    );
    let summary: serde_json::Value =
        serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let of_type = &summary["requests"][0]["lost_cpu"];
    assert_eq!(of_type["requests"], REQUESTS as u64, "{of_type}");
    assert_eq!(of_type["interrupts_ns"], interrupts_ns);
    assert_eq!(of_type["softirqs_ns"], softirqs_ns);
    for name in ["interrupts", "softirqs"] {
        assert!(outcome.stdout.contains(name), "{}", outcome.printed());
    }
}

#[test]
fn steal_is_unknown_where_the_hypervisor_does_not_say_and_without_tracepoints_it_is_refused() {
    let args = ["1", "10", "500", GAP_NS, "2"];
    let mut service = Fixture::start("gaps", &args).unwrap();
    let profile = service.profile("handle", "ignore").unwrap();
    let pid = service.pid();
    let mut command = reqtrace::command(["--profile"]).unwrap();
    command.arg(&profile);
    command.args(["-p", &pid.to_string(), "--interrupts", "1"]);
    command.env("REQTRACE_HIDE", "interrupts");
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(3), "{}", outcome.printed());
    let words = "--interrupts: this kernel has no tracepoints of interrupts and softirqs";
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);

    let trace = Trace::start_without("steal", &profile, pid, &["--interrupts"]).unwrap();
    service.work().unwrap();
    let outcome = trace.finish().unwrap();
    let words = "so with --interrupts that is not known, and counts as on CPU";
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len(), 10);
    for row in &rows {
        assert_eq!(
            (row.lost_ns.is_some(), row.steal_ns),
            (true, None),
            "{row:?}"
        );
    }
    let summary: serde_json::Value =
        serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let of_type = &summary["requests"][0]["lost_cpu"];
    assert!(of_type["steal_ns"].is_null(), "{of_type}");
    service.end().unwrap();
}
