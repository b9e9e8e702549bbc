//! A wait named by its file, while the file is renamed and another one gets its descriptor.
//!
//! Needs root, a kernel with BPF and g++.

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::{ledger, workspace};

const CALLS: usize = 30;

#[test]
fn a_wait_follows_the_name_of_its_file() {
    // Beside the other results of tests: in memory no sync would wait.
    let folder = workspace::scratch().unwrap();
    let path = folder.path().display().to_string();
    let mut fixture = Fixture::start("rotating", &[&CALLS.to_string(), &path]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let text = std::fs::read_to_string(&profile).unwrap();
    let wait = "\n[[wait]]\nname = \"journal\"\nfiles = [\"*/journal.log\"]\n";
    std::fs::write(&profile, format!("{text}{wait}")).unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &[]).unwrap();
    fixture.work().unwrap();
    fixture.end().unwrap();
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let mut all = outcome.rows().unwrap();
    all.sort_by_key(|row| row.start_unix_ns);
    assert_eq!(all.len(), 3 * CALLS);

    let sums = |round: usize| {
        let of_round: &[Row] = &all[round * CALLS..(round + 1) * CALLS];
        (rows::sum(of_round, "journal"), rows::sum(of_round, "disk"))
    };
    let (first, renamed, reopened) = (sums(0), sums(1), sums(2));
    assert!(first.0 > 0 && first.1 == 0, "{first:?}");
    // The file has another name now, which the profile does not ask for.
    assert!(renamed.0 == 0 && renamed.1 > 0, "{renamed:?}");
    assert!(reopened.0 > 0 && reopened.1 == 0, "{reopened:?}");
    // Nothing was lost by that.
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.lost(), 0, "{:?}", summary.losses);
}
