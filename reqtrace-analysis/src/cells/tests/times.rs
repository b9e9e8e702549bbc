//! Windows: which one a request is in, and what it is called.

use std::collections::BTreeSet;

use super::*;

const HOUR_NS: i64 = 3_600_000_000_000;

#[test]
fn a_request_of_a_hundred_windows_is_in_that_of_its_end() {
    let mut cells = Cells::new(0, false);
    let request = Request::of(1, 0, 500, 100 * WINDOW_NS);
    assert_eq!(add(&mut cells, &request), 100 * WINDOW_NS);
    let windows: Vec<_> = cells.windows.all().collect();
    assert_eq!(windows.len(), 1);
    check_against_definition(&cells, &[request]);
}

#[test]
fn steps_of_the_clock_and_suspension_end_a_window_early_and_name_the_next() {
    let offset = 1_700_000_000 * 1_000_000_000_i64;
    let mut cells = Cells::new(offset, false);
    let at = |ns| Request::of(ns, 0, ns - 5, 5);
    let step = WINDOW_NS / 2;
    add(&mut cells, &at(step - 1));
    let mut wanted = vec![(0, step, offset as u64, true)];
    let mut now = offset;
    // An hour on, an hour back, and a night of sleep, for which `CLOCK_MONOTONIC` stands still.
    for (number, change) in [HOUR_NS, -HOUR_NS, 8 * HOUR_NS].into_iter().enumerate() {
        now += change;
        let at_ns = number as u64 * WINDOW_NS + step;
        cells.clock(at_ns, now);
        cells.clock(at_ns + 1, now);
        add(&mut cells, &at(at_ns));
        add(&mut cells, &at(at_ns + step));
        let unix_ns = |ns: u64| ns.saturating_add_signed(now);
        wanted.push((at_ns, at_ns + step, unix_ns(at_ns), false));
        let until_ns = at_ns + step + if number == 2 { WINDOW_NS } else { step };
        wanted.push((at_ns + step, until_ns, unix_ns(at_ns + step), number < 2));
        cells.advance(at_ns);
    }
    let windows = cells.windows.all();
    let named: Vec<_> = windows
        .map(|window| {
            (
                window.begin_ns,
                window.until_ns,
                window.unix_ns,
                window.is_stepped,
            )
        })
        .collect();
    assert_eq!(named, wanted);
    let begins: BTreeSet<u64> = named.iter().map(|window| window.0).collect();
    assert_eq!(begins.len(), named.len());
    assert_eq!(totals(&cells)[0].count, 7);
    assert_eq!(
        cells.windows.all().map(|window| window.late).sum::<u64>(),
        0
    );
}

#[test]
fn a_request_that_is_late_counts_in_the_first_open_window() {
    let mut cells = Cells::new(0, false);
    add(&mut cells, &Request::of(1, 0, 0, 10));
    cells.advance(3 * WINDOW_NS + 7);
    assert_eq!(add(&mut cells, &Request::of(2, 0, 0, 20)), 3 * WINDOW_NS);
    let late: Vec<u64> = cells.windows.all().map(|window| window.late).collect();
    assert_eq!(late, [0, 1]);
    let (last_ns, windows) = cells.windows.last(3 * WINDOW_NS);
    assert_eq!((last_ns, windows.count()), (3 * WINDOW_NS, 1));
}

#[test]
fn root_causes_are_booked_for_two_export_periods_and_never_revised() {
    let blocked = |id| Request {
        ledger: Ledger {
            latency_ns: 100,
            on_cpu_ns: 40,
            classes: vec![60, 0],
            ..Ledger::default()
        },
        ..Request::of(id, 0, 0, 0)
    };
    let mut cells = Cells::new(0, true);
    let window = cells.add(100, 0, None, &blocked(1).one());
    assert_eq!(cells.add(100, 0, None, &blocked(2).one()), window);
    let mut causes = Causes::default();
    causes.add(Cause::Disk, 60);
    cells.advance(2 * EXPORT_PERIOD * WINDOW_NS);
    cells.book(window, 0, 100, &causes, 1);
    cells.advance((2 * EXPORT_PERIOD + 1) * WINDOW_NS);
    cells.book(window, 0, 100, &causes, 1);
    let cell = &totals(&cells)[0];
    assert_eq!(cell.sum.causes.get(Cause::Disk), 60);
    assert_eq!(
        (cell.sum.causes.get(Cause::Unknown), cell.late_ns()),
        (60, 60)
    );
    assert_eq!(cells.booked_late(), 1);
}
