//! `cargo xtask fleet` in its small form: six machines, two minutes of rows, a real Prometheus, both engines and a cluster of a third.
//! What it must find it checks by itself: a machine that is short of CPU time, a slow build, and nothing in services that are well.
//!
//! Needs root, a kernel with BPF and prometheus.

use reqtrace_bench::fleet::{Args, run};
use reqtrace_tests::workspace;

#[test]
#[ignore = "needs ClickHouse, DuckDB and Spark in Python, 1.8 GB: `cargo xtask test --all`"]
fn a_fleet_of_six_shows_its_outlier_and_its_bad_build_by_any_seed() {
    let folder = workspace::scratch().unwrap();
    let mut args = Args {
        agents: 6,
        minutes: 2,
        // A p99 of few rows is one of chance.
        one_in: 10,
        scrape: 20,
        repeats: 1,
        seed: 1,
        seconds: 4,
        recordings: Some(folder.path().to_owned()),
        distributed: true,
    };
    let first = run(&args).unwrap();
    // The same recordings, and other faults. Prometheus and the cluster have seen what they have to.
    (args.seed, args.scrape, args.distributed) = (2, 0, false);
    let second = run(&args).unwrap();
    let [one, other] = [first, second].map(|measured| measured.page().unwrap());
    let faults = |page: &str| {
        let lines = page
            .lines()
            .skip_while(|line| !line.starts_with("| drawn by"));
        let cells = lines.filter_map(|line| line.split('|').nth(1));
        cells.take(5).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(faults(&one).len(), 5, "{one}");
    assert_ne!(faults(&one), faults(&other));
    assert!(one.contains("## Prometheus") && !other.contains("## Prometheus"));
}
