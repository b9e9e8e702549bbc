//! The limits in bytes are reached, and hold.

use super::*;

#[test]
fn a_million_fingerprints_take_no_more_than_their_bytes_and_lose_no_time() {
    const ALL: u64 = 1_000_000;
    let mut groups = Groups::new(0, true);
    let (mut all_ns, mut most_bytes, mut heavy_ns) = (0, 0, 0);
    for id in 0..ALL {
        let is_heavy = id % 1_000 == 0;
        let latency_ns = if is_heavy { 50_000 } else { 1_000 + id % 977 };
        let request = Request::of(id, 0, id * 3_000, latency_ns);
        let name = match is_heavy {
            true => "select heavy".to_owned(),
            false => format!("select {id} from a table of this name"),
        };
        groups.add(request.end_ns(), 0, &name, &request.one());
        all_ns += latency_ns;
        heavy_ns += if is_heavy { latency_ns } else { 0 };
        most_bytes = most_bytes.max(groups.bytes());
        if id % 10_000 == 0 {
            groups.advance((id * 3_000).saturating_sub(200_000_000));
        }
    }
    assert!(most_bytes <= MAX_BYTES + (1 << 10), "{most_bytes}");
    assert!(
        most_bytes > MAX_BYTES / 10 * 9,
        "the limit was not reached: {most_bytes}"
    );
    let all = groups.all();
    let ns = |group: &Group| group.cell.sum.ledger.latency_ns;
    assert_eq!(all.values().map(ns).sum::<u64>(), all_ns);
    assert_eq!(all.values().map(|group| group.cell.count).sum::<u64>(), ALL);
    assert_eq!(ns(&all[&(0, Some("select heavy".into()))]), heavy_ns);
    assert!(groups.names.len() <= all.len() + 1);
}

#[test]
fn cells_of_many_types_and_latencies_take_no_more_than_their_bytes() {
    let mut cells = Cells::new(0, true);
    let (mut most_bytes, mut all_ns) = (0, 0_u64);
    for id in 0..400_000_u64 {
        // From 1 µs to 100 s.
        let latency_ns = 1_000 + id.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1_000 << (id % 27));
        let request = Request::of(id, (id % 16) as u32, id * 1_000_000, latency_ns);
        add(&mut cells, &request);
        all_ns += latency_ns;
        most_bytes = most_bytes.max(cells.windows.bytes());
        cells.advance((id * 1_000_000).saturating_sub(200_000_000));
    }
    assert!(most_bytes <= MAX_BYTES + (1 << 10), "{most_bytes}");
    assert!(
        most_bytes > MAX_BYTES / 10 * 9,
        "the limit was not reached: {most_bytes}"
    );
    let of = |request| cells.of_type(request).into_values();
    let sum = (0..16).flat_map(of).map(|cell| cell.sum.ledger.latency_ns);
    assert_eq!(sum.sum::<u64>(), all_ns);
}

/// A screen shows rates of the last seconds, and room is made meanwhile.
#[test]
fn the_rate_of_the_last_seconds_is_right_while_windows_pair_up() {
    const A_SECOND: u64 = 40;
    let mut cells = Cells::new(0, false);
    let mut shortest_ns = u64::MAX;
    for id in 0..100 * A_SECOND {
        let (second, number) = (id / A_SECOND, id % A_SECOND);
        let begin_ns = second * WINDOW_NS + number * WINDOW_NS / (2 * A_SECOND);
        cells.advance(second * WINDOW_NS);
        // Each of a second in a cell of its own.
        let request = Request::of(id, 0, begin_ns, 1_000 + 100 * number);
        add(&mut cells, &request);
        if id + 1 == A_SECOND {
            // For fewer seconds than it takes to leave the last ten as they are.
            cells.max_bytes = 12 * cells.bytes();
        }
        let (last_ns, last) = cells.of_type_last(0, 10 * WINDOW_NS);
        let count: u64 = last.values().map(|cell| cell.count).sum();
        assert_eq!(count, last_ns / WINDOW_NS * A_SECOND, "{second} s");
        if second >= 10 {
            shortest_ns = shortest_ns.min(last_ns);
        }
    }
    assert!(
        (1..10 * WINDOW_NS).contains(&shortest_ns),
        "no window has paired up: {shortest_ns}"
    );
}

#[test]
fn groups_of_the_last_minute_have_no_older_ones_when_windows_have_paired_up() {
    let mut groups = Groups::new(0, false);
    for second in 0..600 {
        let request = Request::of(second, 0, second * WINDOW_NS, 5);
        add_group(&mut groups, &request);
    }
    groups.advance(600 * WINDOW_NS);
    for _ in 0..4 {
        let last = groups.last(60 * WINDOW_NS).into_values();
        let requests: u64 = last.map(|(sum, _)| sum.weight).sum();
        assert!((1..=60).contains(&requests), "{requests}");
        groups.windows.pair_up(0);
    }
}
