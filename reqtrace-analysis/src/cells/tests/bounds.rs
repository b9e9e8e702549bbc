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
