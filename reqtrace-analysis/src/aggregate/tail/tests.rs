use reqtrace_common::record::{BlockSite, FILE_NONE};

use super::*;
use crate::cells::{Cells, One};
use crate::report::Ledger;

fn block(place: u64, blocked_ns: u64) -> LongBlock {
    LongBlock {
        site: BlockSite {
            kernel_stack: place,
            user_stack: place,
            syscall: 0,
            file: FILE_NONE,
        },
        blocked_ns,
        ..LongBlock::default()
    }
}

/// Requests of one type.
struct Tail {
    cells: Cells,
    longest: Longest,
}

impl Tail {
    fn new() -> Self {
        Self {
            cells: Cells::new(0, false),
            longest: Longest::default(),
        }
    }

    fn bands(&self) -> Option<(Band, Band)> {
        let cells = self.cells.of_type(0);
        bands(&cells.values().collect::<Vec<_>>())
    }
}

fn add(tail: &mut Tail, latency_ns: u64, longest: &[LongBlock]) {
    let off: u64 = longest.iter().map(length).sum();
    let request = Request {
        tid: 2,
        comm: Comm::from("worker"),
        end_ns: latency_ns,
        blocked_ns: off,
        weight: 1,
        longest,
        ..Request::default()
    };
    let ledger = Ledger {
        latency_ns,
        on_cpu_ns: latency_ns - off,
        classes: vec![off],
        ..Ledger::default()
    };
    let one = One {
        id: 0,
        ledger: &ledger,
        weight: 1,
    };
    tail.cells.add(latency_ns, 0, None, &one);
    tail.longest.add(&request);
}

#[test]
fn bands_hold_whole_buckets_and_all_of_their_ledgers() {
    let mut tail = Tail::new();
    let latencies: Vec<u64> = (1..=1000).map(|n| n * 1_000).collect();
    for &latency in &latencies {
        add(&mut tail, latency, &[block(7, latency / 4)]);
    }
    let (typical, slowest) = tail.bands().unwrap();
    for band in [&typical, &slowest] {
        let inside = latencies
            .iter()
            .filter(|ns| (band.from_ns..=band.to_ns).contains(ns));
        assert_eq!(inside.clone().count() as u64, band.count);
        assert_eq!(inside.clone().sum::<u64>(), band.ledger.latency_ns);
        assert_eq!(inside.map(|ns| ns / 4).sum::<u64>(), band.ledger.classes[0]);
    }
    // A bucket is at most 1/64 wide.
    assert!((10..=10 + 16).contains(&slowest.count), "{slowest:?}");
    assert_eq!(slowest.to_ns, 1_000_000);
    assert!(typical.from_ns <= 401_000 && typical.from_ns >= 394_000);
    assert!(typical.to_ns >= 600_000 && typical.to_ns <= 610_000);
}

#[test]
fn requests_that_are_alike_have_no_slow_ones() {
    let mut tail = Tail::new();
    for _ in 0..1000 {
        add(&mut tail, 1_000_000, &[]);
    }
    assert!(tail.bands().is_none());
    add(&mut tail, 2_000_000, &[]);
    // One of 1001 is not 1 %: the others of the bucket come along, and are the typical ones too.
    assert!(tail.bands().is_none());
    for _ in 0..20 {
        add(&mut tail, 2_000_000, &[]);
    }
    assert_eq!(tail.bands().unwrap().1.count, 21);
}

#[test]
fn few_requests_have_no_bands() {
    let mut tail = Tail::new();
    for latency in 1..FEWEST {
        add(&mut tail, latency * 1_000_000, &[]);
    }
    assert!(tail.bands().is_none());
    add(&mut tail, 1_000_000_000, &[]);
    assert_eq!(tail.bands().unwrap().1.count, 1);
}

#[test]
fn the_longest_block_of_each_place_is_kept() {
    let mut tail = Tail::new();
    // Places in an order that makes each come, go and come again.
    for round in 0..5_u64 {
        for place in 2..2 + 3 * KEPT as u64 {
            let ns = 1_000 + place * 10 + (round * 7 + place * 13) % 5;
            add(&mut tail, 1_000_000, &[block(place, ns)]);
        }
    }
    let kept: Vec<_> = tail
        .longest
        .0
        .iter()
        .map(|kept| (kept.block.site.kernel_stack, kept.length_ns()))
        .collect();
    let last = 2 + 3 * KEPT as u64 - 1;
    let wanted: Vec<_> = (0..KEPT as u64)
        .map(|back| (last - back, 1_000 + (last - back) * 10 + 4))
        .collect();
    assert_eq!(kept, wanted);
}
