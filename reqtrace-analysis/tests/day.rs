//! A day of MariaDB in a few seconds: the requests of a recorded trace again and again, with other times, ids and
//! statements. Memory stays flat, and no request and no nanosecond is lost, also not from the profiles of each minute.

#![allow(clippy::unwrap_used, reason = "a failure of a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::io::Cursor;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqtrace_analysis::aggregate::{Aggregator, Options};
use reqtrace_analysis::report::{Exporter, Grouping, Report, StacksRow};
use reqtrace_base::error::Result;
use reqtrace_profile::Profiles;
use reqtrace_recording::TypeTotals;
use reqtrace_recording::{Ending, Event, Header, Reader, Request, Window};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
/// Requests of each second.
const REQUESTS: u64 = 8;
/// Seconds between two looks at what the kernel has added up.
const LOOK: u64 = 5;

/// Counts what is allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Adds the profiles up.
#[derive(Clone, Default)]
struct Added(Rc<RefCell<[u64; 4]>>);

impl Exporter for Added {
    fn stacks(&mut self, row: &Arc<StacksRow>) -> Result<()> {
        let off_ns: u64 = row.stacks.iter().map(|line| line.ns).sum();
        assert_eq!(off_ns + row.on_cpu_ns, row.latency_ns);
        assert!(off_ns > 0 && !row.modules.is_empty());
        let mut sums = self.0.borrow_mut();
        let more = [1, row.recorded, row.latency_ns, off_ns];
        *sums = std::array::from_fn(|at| sums[at] + more[at]);
        Ok(())
    }

    fn wants_windows(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

/// What a recording has.
struct Recorded {
    header: Header,
    /// Complete ones.
    requests: Vec<Request<'static>>,
    windows: Vec<Window>,
}

/// Reads a recording, and gives what its requests refer to to the model.
fn read(bytes: &[u8], start: impl FnOnce(&Header) -> Aggregator) -> (Recorded, Aggregator) {
    let mut reader = Reader::open(Cursor::new(bytes)).unwrap();
    let header = reader.header().clone();
    let mut model = start(&header);
    let mut recorded = Recorded {
        header,
        requests: Vec::new(),
        windows: Vec::new(),
    };
    let read = |event: Event<'_>| {
        match event {
            Event::Request(request) if request.incomplete.is_none() => {
                recorded.requests.push(Request {
                    slots: request.slots.to_vec().leak(),
                    longest: request.longest.to_vec().leak(),
                    label: request.label.to_vec().leak(),
                    away: &[],
                    parks: &[],
                    attributes: &[],
                    ..request
                });
            }
            Event::Window(window) => recorded.windows.push(window.clone()),
            Event::Request(_) | Event::Open(_) | Event::End(_) | Event::Tick(_) => {}
            other => model.event(&other, &mut []).unwrap(),
        }
        Ok::<(), ()>(())
    };
    reader.read(read).unwrap().unwrap();
    (recorded, model)
}

#[test]
fn a_day_of_mariadb_takes_no_more_memory_than_half_of_it() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../reqtrace/tests/data/mariadb.rec"
    );
    let bytes = std::fs::read(path).unwrap();
    let before = ALLOCATED.load(Ordering::Relaxed);
    let (recorded, mut model) = read(&bytes, |header| {
        let profiles = Profiles::parse(header.profile_texts(), "day").unwrap();
        let options = Options {
            group_by: Some(Grouping::Fingerprint),
            stacks_every_ns: Some(MINUTE * SECOND_NS),
            ..Options::default()
        };
        Aggregator::new(&profiles, header, options).unwrap()
    });
    let start_ns = recorded.header.start_ns;
    let mut requests = recorded.requests.iter().cycle();
    let mut windows = recorded.windows.iter().cycle();
    let mut totals = TypeTotals::ZERO;
    let (mut id, mut all_ns) = (0, 0);
    let mut peaks = Vec::new();
    let added = Added::default();
    let mut exporters: [Box<dyn Exporter>; 1] = [Box::new(added.clone())];
    for second in 0..DAY {
        let begin_ns = start_ns + second * SECOND_NS;
        for number in 0..REQUESTS {
            let request = requests.next().unwrap();
            id += 1;
            let latency_ns = request.latency_ns();
            let end_ns = begin_ns + (number + 1) * SECOND_NS / (REQUESTS + 1);
            // One statement of each second comes never again.
            let label = match number {
                0 => format!("select name from table_{}", letters(second)).into_bytes(),
                _ => request.label.to_vec(),
            };
            let request = Request {
                id,
                begin_ns: end_ns - latency_ns,
                end_ns,
                label: &label,
                ..*request
            };
            totals.count += u64::from(request.weight);
            totals.latency_ns += latency_ns * u64::from(request.weight);
            totals.beyond += u64::from(request.weight) - 1;
            all_ns += latency_ns * u64::from(request.weight);
            model
                .event(&Event::Request(request), &mut exporters)
                .unwrap();
        }
        let now_ns = begin_ns + SECOND_NS;
        model.event(&Event::Tick(now_ns), &mut exporters).unwrap();
        let sealed_ns = model.cells().sealed_ns().saturating_sub(SECOND_NS);
        let until_ns = sealed_ns.saturating_add_signed(recorded.header.monotonic_to_unix_ns);
        model.close_stacks(until_ns, &mut exporters).unwrap();
        if second % LOOK == LOOK - 1 {
            let window = Window {
                until_ns: now_ns,
                totals: vec![std::mem::replace(&mut totals, TypeTotals::ZERO)],
                ..windows.next().unwrap().clone()
            };
            model
                .event(&Event::Window(&window), &mut exporters)
                .unwrap();
        }
        let hour = (second / HOUR) as usize;
        peaks.resize(hour + 1, 0);
        let now = ALLOCATED.load(Ordering::Relaxed) - before;
        peaks[hour] = now.max(peaks[hour]);
    }
    // After the tables have filled, half a day holds no more than the one before, to 0.5 %.
    let peak = |hours: &[usize]| hours.iter().copied().max().unwrap() as f64;
    assert!(
        peak(&peaks[13..]) <= peak(&peaks[3..13]) * 1.005,
        "{peaks:?}"
    );
    let tables = model.cells().bytes() + model.groups().unwrap().bytes();
    let now = ALLOCATED.load(Ordering::Relaxed) - before;
    println!(
        "peaks of each hour: {peaks:?}; now {now}, of which tables by their own account {tables}"
    );
    // They know their own size: to 15 %, and what else is there takes a few MiB.
    assert!(tables <= 32 << 20, "{tables}");
    assert!(
        tables <= now && now <= tables / 100 * 115 + (8 << 20),
        "{tables} of {now}"
    );
    let whole = Ending {
        ended: true,
        ..Ending::default()
    };
    let report = model.view(&whole);
    let request = &report.requests[0];
    assert_eq!(request.rows, DAY * REQUESTS);
    assert_eq!(request.ledger.latency_ns, all_ns);
    let groups = &report.labels[0];
    let shown = groups.shown.iter().map(|group| group.ledger.latency_ns);
    assert_eq!(shown.sum::<u64>() + groups.rest.ledger.latency_ns, all_ns);
    let unaccounted = |name: &str| name.contains("unaccounted");
    assert!(
        !report.losses.iter().any(|loss| unaccounted(&loss.name)),
        "{:?}",
        report.losses
    );
    model.finish(&whole, &mut exporters).unwrap();
    let [profiles, recorded, latency_ns, off_ns] = *added.0.borrow();
    assert_eq!((recorded, latency_ns), (DAY * REQUESTS, all_ns));
    println!("profiles: {profiles}, with {off_ns} of {all_ns} ns");
    assert!(profiles >= 24 * 60, "{profiles}");
}

/// A number in letters: digits are left out of fingerprints.
fn letters(number: u64) -> String {
    let digits = number.to_string();
    digits
        .bytes()
        .map(|digit| char::from(digit - b'0' + b'a'))
        .collect()
}
