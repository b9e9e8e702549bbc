//! Waits named by files that are closed and removed as soon as they were waited for.
//!
//! Needs root, a kernel with BPF and g++.

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::rows::Row;
use reqtrace_tests::summary::Loss;
use reqtrace_tests::{ledger, rows, workspace};
use serde_json::Value;

const CALLS: usize = 40;
/// As in the fixture.
const FIFOS: u64 = 40_000;
/// Of 100 ms some pass before the thread leaves its CPU.
const FIRST_NS: u64 = 95_000_000;

#[test]
fn a_file_has_its_name_when_it_is_gone() {
    // Beside the other results of tests: in memory no sync would wait.
    let folder = workspace::scratch().unwrap();
    let path = folder.path().display().to_string();
    let fixture = Fixture::start("shortlived", &[&CALLS.to_string(), &path]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let text = std::fs::read_to_string(&profile).unwrap();
    let more = format!(
        "\n[[request]]\nname = \"many\"\nbegin = {{ function = \"many\" }}\n\
         \n[[wait]]\nname = \"journal\"\nfiles = [\"{path}/db-journal\"]\n\
         \n[[wait]]\nname = \"scratch\"\nfiles = [\"{path}/scratch\"]\nsyscalls = [\"fdatasync\"]\n\
         match = \"all\"\n\
         \n[[wait]]\nname = \"fifo\"\nfiles = [\"*/fifo*\"]\n"
    );
    std::fs::write(&profile, format!("{text}{more}")).unwrap();
    let (outcome, printed) = fixture.traced(&profile, &[]).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let (handled, many): (Vec<_>, Vec<_>) = outcome
        .rows()
        .unwrap()
        .into_iter()
        .partition(|row| row.request == "work");
    assert_eq!((handled.len(), many.len()), (CALLS, 1));

    // The thread renames itself in the middle of the second half's first call.
    let names: Vec<_> = handled.iter().map(|row| row.comm.as_str()).collect();
    let (before, after) = names.split_at(CALLS / 2);
    assert!(before.iter().all(|name| *name == "shortlived"), "{names:?}");
    assert!(after.iter().all(|name| *name == "renamed"), "{names:?}");

    // The calls wait for both files, one after the other on one descriptor. Some disks are done before a
    // thread has left its CPU; the fixture says which syncs waited. The kernel of some machines hides a switch.
    let summary = outcome.summary().unwrap();
    let syncs = printed.split(' ').skip(1).map(|call| {
        let (journal, scratch) = call.split_once(':').unwrap();
        [journal, scratch].map(|waits| waits.parse::<u64>().unwrap())
    });
    let mut waited = [0; 2];
    let mut wrong = Vec::new();
    for (row, [journal, scratch]) in handled.iter().zip(syncs) {
        let is_named = |name: &str| row.classes[name] > 0;
        waited[0] += journal;
        waited[1] += scratch;
        let fits = is_named("scratch") == (scratch > 0) && (journal == 0 || is_named("journal"));
        if !fits {
            wrong.push((journal, scratch, row));
        }
    }
    assert!(waited[0] > 0 && waited[1] > 0, "{printed}");
    let few = summary.unseen() + CALLS as u64 / 10;
    assert!(wrong.len() as u64 <= few, "{wrong:#?}");

    // More files than the kernel remembers: all have their names, but for the few that share their
    // id of 32 bits with another one of the table: one in every five runs or so.
    let losses = &summary.losses;
    let unnamed = |loss: &&Loss| loss.name.starts_with("file_");
    for loss in losses.iter().filter(unnamed) {
        assert!(
            loss.name == "file_collision" && loss.count <= 3,
            "{losses:?}"
        );
    }
    // Some bytes are there before they are read.
    assert!(many[0].blocks > FIFOS * 9 / 10, "{} blocks", many[0].blocks);
    // The longest wait was for the first, whose name was sent long before the request ended.
    let first = rows::sum(&many, "fifo");
    assert!(first >= FIRST_NS, "{many:?} {losses:?}");
}

/// A page that is mapped is waited for without a descriptor; a call that reads says how much.
#[test]
fn files_that_are_mapped_are_named_and_bytes_are_counted() {
    const CALLS: u64 = 20;
    const BYTES: u64 = 4096;
    let folder = workspace::scratch().unwrap();
    let path = folder.path().display().to_string();
    let fixture = Fixture::start("reads", &[&CALLS.to_string(), &path]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let (outcome, printed) = fixture.traced(&profile, &["--blame"]).unwrap();
    let waited: Vec<u64> = printed
        .split(' ')
        .skip(1)
        .map(|word| word.parse().unwrap())
        .collect();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());

    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let files = summary["requests"][0]["files"].as_array().unwrap();
    let of = |name: &str, field: &str| -> u64 {
        let path = format!("{path}/{name}");
        let file = files.iter().find(|file| file["path"] == *path);
        file.map_or(0, |file| file[field].as_u64().unwrap())
    };
    let [reads, touches] = waited[..] else {
        panic!("{waited:?}");
    };
    assert!(reads > 50 && touches > 50, "{waited:?}");
    // Of blocks whose end the kernel hides the time is on CPU: some machines hide more of them when they are busy.
    let hidden = outcome.summary().unwrap().unseen();
    let most = |waited: u64| waited * 95 / 100 - hidden.min(waited / 2);
    // A call may be blocked more than once.
    let bytes = of("read", "bytes");
    let calls = bytes / BYTES;
    assert!(
        bytes % BYTES == 0 && calls <= reads && calls > most(reads),
        "{waited:?} {files:#?} {}",
        outcome.printed()
    );
    assert!(of("read", "blocks") >= calls);
    let faults = of("mapped", "blocks");
    assert!(faults > most(touches), "{waited:?} {files:#?}");
    assert_eq!(of("mapped", "bytes"), 0);
    let page_faults = outcome.rows().unwrap();
    let page_faults: u64 = page_faults
        .iter()
        .map(|row| row.classes["page-fault"])
        .sum();
    assert!(
        of("mapped", "blocked_ns") <= page_faults,
        "{page_faults} {files:#?}"
    );
}

/// Who waits for a CPU has not waited for the file: the two are distinguished wherever the longest block is.
#[test]
fn the_run_queue_is_not_the_wait_for_a_file() {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().display().to_string();
    let fixture = Fixture::start("starved", &[&CALLS.to_string(), &path]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let (outcome, _) = fixture.traced(&profile, &[]).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len(), CALLS);
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let request = &summary["requests"][0];
    let file = &request["files"][0];
    let of = |field: &str| file[field].as_u64().unwrap_or_else(|| panic!("{file:#}"));
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let most = |of: fn(&Row) -> u64| rows.iter().map(of).max().unwrap();
    assert!(
        file["path"].as_str().unwrap().ends_with("/fifo"),
        "{file:#}"
    );
    // All that these requests wait for is the FIFO, and one wait is no longer than all of a request.
    assert!(of("blocked_ns") <= sum(|row| row.blocked_ns));
    assert!(of("run_queue_ns") <= sum(|row| row.run_queue_ns));
    assert!(of("run_queue_ns") > sum(|row| row.run_queue_ns) / 2);
    assert!(of("longest_ns") <= most(|row| row.blocked_ns), "{file:#}");
    assert!(of("longest_run_queue_ns") <= most(|row| row.run_queue_ns));
    // The writer sleeps for 0.5 ms and computes for 20 ms.
    assert!(of("run_queue_ns") > 2 * of("blocked_ns"), "{file:#}");
    assert!(of("longest_run_queue_ns") * (CALLS as u64) >= of("run_queue_ns"));
    assert!(
        outcome.printed().contains("run queue"),
        "{}",
        outcome.printed()
    );
}
