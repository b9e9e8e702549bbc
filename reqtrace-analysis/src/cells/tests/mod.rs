//! The rules of cells: exact and free of order, bounded by another step that loses no nanosecond.

mod bounds;
mod times;

use std::cmp::Reverse;

use hdrhistogram::Histogram as Hdr;
use proptest::prelude::*;

use super::*;
use crate::report::Ledger;
use crate::report::blame::Cause;

#[derive(Clone, Debug)]
struct Request {
    id: u64,
    request: u32,
    group: u8,
    begin_ns: u64,
    incomplete: Option<Incomplete>,
    weight: u32,
    ledger: Ledger,
    causes: Causes,
}

impl Request {
    fn of(id: u64, request: u32, begin_ns: u64, latency_ns: u64) -> Self {
        Self {
            id,
            request,
            group: (id % 7) as u8,
            begin_ns,
            incomplete: None,
            weight: 1,
            ledger: Ledger {
                latency_ns,
                on_cpu_ns: latency_ns,
                ..Ledger::of(2, &crate::report::Places::default())
            },
            causes: Causes::default(),
        }
    }

    fn end_ns(&self) -> u64 {
        self.begin_ns + self.ledger.latency_ns
    }

    fn one(&self) -> One<'_> {
        One {
            id: self.id,
            ledger: &self.ledger,
            weight: self.weight,
        }
    }

    fn group(&self) -> String {
        format!("g{}", self.group)
    }
}

fn add(cells: &mut Cells, request: &Request) -> u64 {
    let (end_ns, of_type) = (request.end_ns(), request.request);
    let window = cells.add(end_ns, of_type, request.incomplete, &request.one());
    if request.incomplete.is_none() {
        let latency_ns = request.ledger.latency_ns;
        cells.book(window, of_type, latency_ns, &request.causes, request.weight);
    }
    window
}

fn add_group(groups: &mut Groups, request: &Request) {
    let (end_ns, of_type) = (request.end_ns(), request.request);
    let home = groups.add(end_ns, of_type, &request.group(), &request.one());
    groups.book(&home, &request.causes, request.weight);
}

fn arbitrary() -> impl Strategy<Value = Request> {
    let parts = [
        0_u64..1 << 33,
        0..1 << 20,
        0..1 << 30,
        0..1 << 35,
        0..1 << 10,
    ];
    let times = (0_u64..20 * WINDOW_NS, parts);
    let is_incomplete = prop::option::weighted(0.1, Just(Incomplete::NoEnd));
    (0_u64..50, 0_u32..3, 0_u8..9, times, is_incomplete, 1_u32..5).prop_map(
        |(id, request, group, (begin_ns, parts), incomplete, weight)| {
            let [on_cpu_ns, run_queue_ns, disk_ns, lock_ns, parked_ns] = parts;
            let mut causes = Causes::default();
            causes.add(Cause::Disk, disk_ns);
            causes.add(Cause::OnCpu, lock_ns + parked_ns);
            Request {
                id,
                request,
                group,
                begin_ns,
                incomplete,
                weight,
                ledger: Ledger {
                    latency_ns: parts.iter().sum(),
                    on_cpu_ns,
                    run_queue_ns,
                    classes: vec![disk_ns, lock_ns],
                    parked: vec![parked_ns],
                    ..Ledger::default()
                },
                causes,
            }
        },
    )
}

/// Requests that are split over so many tables, and which of these are merged next.
fn split() -> impl Strategy<Value = (Vec<Request>, Vec<usize>, Vec<usize>)> {
    prop::collection::vec(arbitrary(), 1..60).prop_flat_map(|requests| {
        let all = requests.len();
        let parts = prop::collection::vec(0_usize..6, all);
        let tree = prop::collection::vec(0_usize..6, 5);
        (Just(requests).prop_shuffle(), parts, tree)
    })
}

/// Merges tables two by two until one is left.
fn merged<T>(mut tables: Vec<T>, tree: &[usize], merge: impl Fn(&mut T, &T)) -> T {
    for pick in tree {
        let other = tables.remove(pick % tables.len());
        let into = (pick * 7) % tables.len();
        merge(&mut tables[into], &other);
    }
    tables.remove(0)
}

/// Sums from their definition.
fn check_against_definition(cells: &Cells, requests: &[Request]) {
    let mut seen = 0;
    for window in cells.windows.all() {
        for (key, cell) in window.cells() {
            let of: Vec<&Request> = requests
                .iter()
                .filter(|one| {
                    let bits = cells.bits;
                    let which = match one.incomplete {
                        None => Which::Latency(bucket_of(bits, one.ledger.latency_ns)),
                        Some(reason) => Which::Incomplete(reason),
                    };
                    (window.begin_ns..window.until_ns).contains(&one.end_ns())
                        && (key.request, key.which) == (one.request, which)
                })
                .collect();
            seen += of.len();
            assert_eq!(cell.count, of.len() as u64);
            let weights = of.iter().map(|one| u64::from(one.weight));
            assert_eq!(cell.sum.weight, weights.sum::<u64>());
            let parts = |one: &Request| -> Vec<u64> { one.ledger.parts().collect() };
            for (at, sum) in cell.sum.ledger.parts().enumerate() {
                let times = of.iter().map(|one| (parts(one)[at], one.weight));
                let own: u64 = times
                    .clone()
                    .map(|(ns, weight)| ns * u64::from(weight))
                    .sum();
                assert_eq!(sum, own);
                let squares =
                    times.map(|(ns, weight)| u128::from(ns) * u128::from(ns) * u128::from(weight));
                assert_eq!(cell.squares()[at], squares.sum::<u128>());
            }
            for cause in Cause::ALL {
                let complete = of.iter().filter(|one| one.incomplete.is_none());
                let own = complete.map(|one| one.causes.get(cause) * u64::from(one.weight));
                assert_eq!(cell.sum.causes.get(cause), own.sum::<u64>());
            }
            let latencies = of.iter().map(|one| one.ledger.latency_ns);
            assert_eq!(Some(cell.min_ns), latencies.clone().min());
            assert_eq!(Some(cell.max_ns), latencies.max());
            let mut slowest: Vec<_> = of
                .iter()
                .map(|one| (Reverse(one.ledger.latency_ns), one.id))
                .collect();
            slowest.sort_unstable();
            slowest.truncate(3);
            let own = cell.slowest().map(|(ns, id)| (Reverse(ns), id));
            assert_eq!(own.collect::<Vec<_>>(), slowest);
        }
    }
    assert_eq!(seen, requests.len());
}

/// Percentiles of each type, by the crate that reports had before.
fn check_percentiles(cells: &Cells, requests: &[Request]) {
    for request in 0..3 {
        let mut oracle = Hdr::<u64>::new_with_bounds(1, 86_400_000_000_000, 3).unwrap();
        let of = requests
            .iter()
            .filter(|one| one.request == request && one.incomplete.is_none());
        of.for_each(|one| oracle.saturating_record_n(one.ledger.latency_ns, one.weight.into()));
        let mut latencies = Histogram::default();
        for (which, cell) in cells.of_type(request) {
            if matches!(which, Which::Latency(_)) {
                latencies.merge(&cell.latencies);
            }
        }
        assert_eq!(latencies.count(), oracle.len());
        for share in [0.5, 0.9, 0.99, 0.999] {
            let wanted = (!oracle.is_empty()).then(|| oracle.value_at_quantile(share));
            assert_eq!(latencies.quantile(share), wanted);
        }
    }
}

fn windows_of<K: Clone + Eq + std::hash::Hash, V: Clone + Default + Merge>(
    windows: &Windows<K, V>,
) -> Vec<Window<K, V>> {
    windows.all().cloned().collect()
}

/// Count, weight and all sums of each type.
fn totals(cells: &Cells) -> Vec<Cell> {
    let of = |request| {
        let mut all = Cell::default();
        cells
            .of_type(request)
            .values()
            .for_each(|cell| all.merge(cell));
        all
    };
    (0..3).map(of).collect()
}

proptest! {
    #[test]
    fn any_split_any_order_and_any_tree_have_the_same_sums((requests, parts, tree) in split()) {
        let mut all = Cells::new(0, true);
        let mut all_groups = Groups::new(0, true);
        for request in &requests {
            add(&mut all, request);
            add_group(&mut all_groups, request);
        }
        let mut tables = vec![Cells::new(0, true); 6];
        let mut groups = vec![Groups::new(0, true); 6];
        for (request, part) in requests.iter().zip(&parts).rev() {
            add(&mut tables[*part], request);
            add_group(&mut groups[*part], request);
        }
        let one = merged(tables, &tree, |into, other| into.windows.merge(&other.windows));
        prop_assert!(windows_of(&one.windows) == windows_of(&all.windows));
        let one = merged(groups, &tree, |into, other| into.windows.merge(&other.windows));
        prop_assert!(windows_of(&one.windows) == windows_of(&all_groups.windows));
        check_against_definition(&all, &requests);
        check_percentiles(&all, &requests);
    }

    #[test]
    fn room_is_made_without_losing_a_nanosecond((requests, ..) in split(), max_bytes in 0_usize..60_000) {
        let mut all = Cells::new(0, true);
        let mut small = Cells { max_bytes, ..Cells::new(0, true) };
        for request in &requests {
            add(&mut all, request);
            add(&mut small, request);
            small.advance(request.begin_ns);
        }
        let (mut all, mut small) = (totals(&all), totals(&small));
        for cell in all.iter_mut().chain(&mut small) {
            // What is late is in the causes, not known.
            cell.sum.causes = Causes::default();
        }
        let late: u64 = small.iter().map(Cell::late_ns).sum();
        prop_assert!(late <= small.iter().map(|cell| cell.sum.ledger.held_up_ns()).sum());
        for (small, all) in small.iter().zip(&all) {
            prop_assert_eq!(small.count, all.count);
            prop_assert_eq!(&small.sum, &all.sum);
            prop_assert_eq!(small.squares(), all.squares());
            prop_assert_eq!(&small.latencies, &all.latencies);
            prop_assert!(small.slowest().eq(all.slowest()));
        }
    }

    #[test]
    fn a_group_with_much_time_keeps_its_cell((requests, parts, tree) in split(), most in 2_usize..6) {
        let requests: Vec<Request> = requests.into_iter().filter(|one| one.incomplete.is_none()).collect();
        let mut tables = vec![Groups { max_groups: most, ..Groups::new(0, true) }; 6];
        for (request, part) in requests.iter().zip(&parts) {
            add_group(&mut tables[*part], request);
            tables[*part].advance(request.begin_ns);
        }
        let all = merged(tables, &tree, |into, other| {
            into.windows.merge(&other.windows);
            into.fold(None, most);
        });
        let mut all = Groups { seen_ns: u64::MAX >> 1, ..all };
        all.advance(u64::MAX >> 1);
        while all.windows.pair_up(0) {
            all.fold(None, most);
        }
        all.fold(None, most);
        let groups = all.all();
        for of_type in 0..3 {
            let of_type = |one: &&Request| one.request == of_type;
            let ns = |one: &Request| one.ledger.latency_ns * u64::from(one.weight);
            let all_ns: u64 = requests.iter().filter(of_type).map(ns).sum();
            let kept_ns = groups.iter().filter(|(key, _)| requests.iter().find(of_type).is_some_and(|one| one.request == key.0));
            prop_assert_eq!(kept_ns.map(|(_, group)| group.cell.sum.ledger.latency_ns).sum::<u64>(), all_ns);
            for number in 0..9 {
                let of_group = requests.iter().filter(of_type).filter(|one| one.group == number);
                let own_ns: u64 = of_group.clone().map(ns).sum();
                if let Some(one) = of_group.clone().next() && own_ns * most as u64 > 2 * all_ns {
                    prop_assert!(groups.contains_key(&(one.request, Some(one.group().into()))));
                }
            }
        }
    }

    /// What is taken by the second is all that was added, in the windows of the cells, and nothing stays behind.
    #[test]
    fn groups_by_second_add_up_to_the_cells((requests, ..) in split(), max_bytes in 20_000_usize..400_000) {
        let requests: Vec<Request> = requests.into_iter().filter(|one| one.incomplete.is_none()).collect();
        let mut cells = Cells::new(0, true);
        cells.keep_sealed();
        let mut groups = Groups { max_bytes, max_groups: 3, ..GroupsBySecond::by_second(0, true) };
        let mut taken: BTreeMap<u32, Cell> = BTreeMap::new();
        let mut take = |groups: &mut GroupsBySecond| {
            let sealed = groups.take_sealed();
            for ((request, _), group) in sealed.iter().flat_map(Window::cells) {
                taken.entry(*request).or_default().merge(&group.cell);
            }
        };
        for request in &requests {
            add(&mut cells, request);
            groups.add(request.end_ns(), request.request, &request.group(), &request.one());
            cells.advance(request.begin_ns);
            groups.advance(request.begin_ns);
            take(&mut groups);
        }
        groups.advance(u64::MAX / 2);
        take(&mut groups);
        prop_assert!(groups.windows.bytes() == 0 && groups.names.len() <= 9);
        for (request, wanted) in (0..3).zip(totals(&cells)) {
            let own = taken.remove(&request).unwrap_or_default();
            prop_assert_eq!(own.count, wanted.count);
            prop_assert_eq!(&own.sum.ledger, &wanted.sum.ledger);
            prop_assert_eq!(own.sum.weight, wanted.sum.weight);
            prop_assert_eq!(&own.latencies, &wanted.latencies);
        }
    }
}
