//! The library's roster: processes that are added to a trace that runs, and taken out of it while they live. Each request
//! between is counted as the process itself counts, and none after it.
//!
//! Needs root, a kernel with BPF and g++.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use reqtrace::analysed::{Analysed, Trace};
use reqtrace_capture::tracer::{EndedBy, Roster, Tracer};
use reqtrace_profile::builtin;
use reqtrace_recording::Event;
use reqtrace_tests::probed::Code;
use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::{fixtures, workspace};

const LIMIT: Duration = Duration::from_secs(60);

/// Requests that a trace has sent, by process: complete ones and open ones.
#[derive(Clone, Debug, Default)]
struct Sent(Arc<Mutex<BTreeMap<u32, [u64; 2]>>>);

impl Sent {
    fn event(&self, event: &Event<'_>) {
        let (pid, kind) = match event {
            Event::Request(request) => (request.space.tgid, 0),
            Event::Open(open) => (open.request.space.tgid, 1),
            _ => return,
        };
        self.0.lock().unwrap().entry(pid).or_default()[kind] += 1;
    }

    fn of(&self, pid: u32) -> [u64; 2] {
        self.0
            .lock()
            .unwrap()
            .get(&pid)
            .copied()
            .unwrap_or_default()
    }

    /// Waits until so many complete ones were sent.
    fn wait_for(&self, pid: u32, wanted: u64) {
        let what = format!("{wanted} requests of {pid}");
        let seen = until(LIMIT, &what, || {
            let seen = self.of(pid)[0];
            Ok((seen >= wanted).then_some(seen))
        });
        assert_eq!(seen.unwrap(), wanted, "{what}");
    }
}

/// A service that does what it is asked to.
struct Service {
    process: Child,
    calls: u64,
}

impl Service {
    fn start(program: &Path, name: &str) -> Self {
        let mut command = Command::new(program);
        command.arg("asked");
        let mut process = Child::start(command, program.parent().unwrap(), name).unwrap();
        process.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        Self { process, calls: 0 }
    }

    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn begin(&mut self, requests: u64) {
        self.process.tell(&requests.to_string()).unwrap();
        self.calls += requests;
    }

    fn serve(&mut self, requests: u64) {
        self.begin(requests);
        let done = format!("done {}", self.calls);
        self.process
            .wait_for_line(Stream::Out, &done, LIMIT)
            .unwrap();
    }

    fn is_probed(&self) -> bool {
        let work = Code::of_function(self.pid(), "work").unwrap();
        work.is_probed().unwrap()
    }
}

/// A trace of a service.
fn started(folder: &Path, pid: u32) -> Trace {
    let file = folder.join("service.toml");
    fixtures::write_profile(&file, "work", "work", "").unwrap();
    let tracer = Tracer::new(builtin::from_file(&file).unwrap())
        .pid(pid)
        .max_probe_rate(100.0)
        .max_overhead(100.0);
    Analysed::new(tracer).start().unwrap()
}

/// Runs a trace while `drive` changes who is traced; it ends when that has.
fn run(trace: Trace, drive: impl FnOnce(&Roster, &Sent) + Send) -> Sent {
    let sent = Sent::default();
    let (roster, stopper) = (trace.roster(), trace.stopper());
    thread::scope(|scope| {
        let driver = scope.spawn(|| {
            // Also when a check fails.
            struct Stop(reqtrace_capture::tracer::Stopper);
            impl Drop for Stop {
                fn drop(&mut self) {
                    self.0.stop();
                }
            }
            let _stop = Stop(stopper);
            drive(&roster, &sent);
        });
        let finished = trace.run(|event, _| {
            sent.event(event);
            ControlFlow::Continue(())
        });
        driver.join().unwrap();
        let finished = finished.unwrap();
        assert_eq!(finished.ended_by, EndedBy::Stop);
        // What the kernel has sent has come, to the nanosecond; it may hide switches from everybody.
        let mut losses = finished.report.losses;
        losses.retain(|loss| loss.count > 0 && loss.name != "switch_in_unseen");
        assert!(losses.is_empty(), "{losses:#?}");
    });
    sent
}

#[test]
fn who_is_added_and_taken_out_is_counted_in_between() {
    let folder = workspace::scratch().unwrap();
    let program = fixtures::compile("workers", folder.path()).unwrap();
    let other = folder.path().join("others");
    std::fs::copy(&program, &other).unwrap();
    let mut first = Service::start(&program, "first");
    let mut second = Service::start(&program, "second");
    let mut third = Service::start(&other, "third");
    let trace = started(folder.path(), first.pid());
    run(trace, |roster, sent| {
        first.serve(100);
        second.serve(100);
        sent.wait_for(first.pid(), 100);
        assert_eq!(sent.of(second.pid()), [0, 0]);
        // The probes of its program are there.
        roster.add(second.pid()).wait().unwrap();
        second.serve(100);
        sent.wait_for(second.pid(), 100);
        // Those of another are set beside the trace.
        assert!(!third.is_probed());
        roster.add(third.pid()).wait().unwrap();
        until(LIMIT, "probes", || Ok(third.is_probed().then_some(()))).unwrap();
        // The first hit may come before all of them are set.
        third.serve(1);
        thread::sleep(Duration::from_millis(500));
        let [seen, _] = sent.of(third.pid());
        third.serve(100);
        sent.wait_for(third.pid(), seen + 100);

        roster.remove(second.pid()).wait().unwrap();
        roster.remove(third.pid()).wait().unwrap();
        second.serve(100);
        third.serve(100);
        first.serve(100);
        sent.wait_for(first.pid(), 200);
        assert_eq!(sent.of(second.pid()), [100, 0]);
        assert_eq!(sent.of(third.pid()), [seen + 100, 0]);
        // Nobody else runs it.
        until(LIMIT, "its probes to go", || {
            Ok((!third.is_probed()).then_some(()))
        })
        .unwrap();
        assert!(second.is_probed());

        roster.add(second.pid()).wait().unwrap();
        second.serve(50);
        sent.wait_for(second.pid(), 150);

        let refused = |answer: reqtrace_capture::tracer::Answer, why: &str| {
            let error = answer.wait().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(roster.add(second.pid()), "is traced already");
        refused(roster.remove(third.pid()), "is not traced");
        refused(roster.add(u32::MAX >> 1), "is not there");

        // It does not end with its last process.
        let pids = [first.pid(), second.pid()];
        drop((first, second));
        thread::sleep(Duration::from_secs(1));
        for pid in pids {
            refused(roster.remove(pid), "is not traced");
        }
        roster.add(third.pid()).wait().unwrap();
        until(LIMIT, "probes", || Ok(third.is_probed().then_some(()))).unwrap();
        thread::sleep(Duration::from_millis(500));
        let [seen, _] = sent.of(third.pid());
        third.serve(20);
        sent.wait_for(third.pid(), seen + 20);
    });
}

/// Its thread sleeps in a request nearly always: that one is open, and what it does next is nobody's.
#[test]
fn who_is_taken_out_in_a_request_leaves_it_open() {
    const TIMES: u64 = 12;
    let folder = workspace::scratch().unwrap();
    let program = fixtures::compile("workers", folder.path()).unwrap();
    let (mut stays, mut goes) = (
        Service::start(&program, "stays"),
        Service::start(&program, "goes"),
    );
    let trace = started(folder.path(), stays.pid());
    let pid = goes.pid();
    let sent = run(trace, |roster, sent| {
        stays.begin(3_000);
        goes.begin(20_000);
        for _ in 0..TIMES {
            let [before, _] = sent.of(pid);
            roster.add(pid).wait().unwrap();
            until(LIMIT, "requests", || {
                Ok((sent.of(pid)[0] > before + 20).then_some(()))
            })
            .unwrap();
            roster.remove(pid).wait().unwrap();
            let after = sent.of(pid);
            thread::sleep(Duration::from_millis(100));
            assert_eq!(sent.of(pid), after);
        }
        sent.wait_for(stays.pid(), 3_000);
    });
    let [_, open] = sent.of(pid);
    assert!((TIMES / 2..=TIMES).contains(&open), "{open}");
    assert_eq!(sent.of(stays.pid()), [3_000, 0]);
    // It goes on as if nothing had been.
    let done = format!("done {}", goes.calls);
    goes.process
        .wait_for_line(Stream::Out, &done, LIMIT)
        .unwrap();
}
