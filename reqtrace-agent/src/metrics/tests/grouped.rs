//! Groups: they add up to their type, are bounded, and stay.

use super::*;

/// Requests of a service by group: each of a name and a latency, ns.
fn add_grouped(metrics: &Metrics, most: usize, requests: &[(&str, u64)]) {
    let mut all = Closed::new(true);
    for (id, (group, ns)) in (1..).zip(requests) {
        let mut cell = Cell::default();
        cell.add(&One {
            id,
            ledger: &ledger([*ns, 0, 0, 0, 0, 0]),
            weight: 1,
        });
        all.add(&cell, 0, false);
        all.add_group(Some(*group).filter(|group| *group != OTHER), &cell);
    }
    all.name_parts(&classes(), &places());
    metrics.closed("db", 1, most, [(&"query".to_owned(), &all)]);
}

/// A figure by group, and what it is of all.
fn by_group(metrics: &Metrics, name: &str) -> BTreeMap<String, f64> {
    let start = format!("reqtrace_group_{name}_total{{service=\"db\",type=\"query\",group=\"");
    let seen = read(metrics);
    let groups = seen.iter().filter_map(|(metric, value)| {
        let group = metric.strip_prefix(&start)?.strip_suffix("\"}")?;
        Some((group.to_owned(), *value))
    });
    groups.collect()
}

/// Σ groups = the type's, of each of the three.
fn groups_add_up(metrics: &Metrics) {
    let seen = read(metrics);
    let of_type = "{service=\"db\",type=\"query\"}";
    for (name, whole) in [
        ("requests", "request_duration_seconds_count"),
        ("duration_seconds", "request_duration_seconds_sum"),
        ("slow_requests", "slow_requests_total"),
    ] {
        let sum: f64 = by_group(metrics, name).values().sum();
        let whole = seen[&format!("reqtrace_{whole}{of_type}")];
        assert!((sum - whole).abs() <= 1e-9 * whole, "{name}: {sum} {whole}");
    }
}

#[test]
fn a_group_that_is_admitted_stays_and_later_ones_are_other() {
    let metrics = of_service(Some(Duration::from_millis(7)));
    assert_eq!(by_group(&metrics, "requests"), BTreeMap::new());
    // What came before anybody asked for groups is other.
    add(&metrics, "query", &[ledger([8 * MS, 0, 0, 0, 0, 0])]);
    let is = |all: &[(&str, f64)]| -> BTreeMap<String, f64> {
        let all = all
            .iter()
            .map(|(group, value)| ((*group).to_owned(), *value));
        all.collect()
    };
    // Those with the most time come first; the text is escaped.
    let first = [
        ("b \"x\"\n", 9 * MS),
        ("a", MS),
        ("c", 3 * MS),
        ("c", 3 * MS),
        (OTHER, MS),
    ];
    add_grouped(&metrics, 2, &first);
    let quoted = "b \\\"x\\\"\\n";
    assert_eq!(
        by_group(&metrics, "requests"),
        is(&[(quoted, 1.0), ("c", 2.0), ("~other", 3.0)])
    );
    assert_eq!(
        by_group(&metrics, "slow_requests"),
        is(&[(quoted, 1.0), ("c", 0.0), ("~other", 1.0)])
    );
    groups_add_up(&metrics);
    let before = read(&metrics);
    // More time does not put another one out; a session without groups adds to the others.
    add_grouped(&metrics, 2, &[("d", 900 * MS), ("", MS)]);
    add(&metrics, "query", &[ledger([8 * MS, 0, 0, 0, 0, 0])]);
    // A larger cap admits more.
    add_grouped(&metrics, 3, &[("", MS), ("e", 2)]);
    assert_eq!(
        by_group(&metrics, "requests"),
        is(&[(quoted, 1.0), ("c", 2.0), ("~none", 1.0), ("~other", 7.0)])
    );
    groups_add_up(&metrics);
    never_decreases(&before, &read(&metrics));
}

#[test]
fn groups_of_all_services_are_bounded() {
    let metrics = Metrics::default();
    let services: Vec<String> = (0..9).map(|number| format!("db{number}")).collect();
    metrics.want(&services.iter().map(|name| (name.clone(), None)).collect());
    let traced = services.iter().map(|name| (name.as_str(), 1)).collect();
    metrics.targets(&traced, BTreeMap::new());
    for service in &services {
        let mut closed = Closed::new(true);
        for number in 0..300 {
            let mut cell = Cell::default();
            cell.add(&One {
                id: 1,
                ledger: &ledger([MS; 6]),
                weight: 1,
            });
            closed.add(&cell, 0, false);
            closed.add_group(Some(&number.to_string()), &cell);
        }
        metrics.closed(service, 1, 250, [(&"query".to_owned(), &closed)]);
    }
    let seen = read(&metrics);
    let groups = seen
        .iter()
        .filter(|(name, _)| name.starts_with("reqtrace_group_requests_total"));
    let (mut all, mut apart) = (0.0, BTreeMap::<&str, usize>::new());
    for (name, value) in groups {
        all += value;
        let (service, _) = name.split_once(",type").unwrap();
        *apart.entry(service).or_default() += usize::from(!name.contains("~other"));
    }
    assert_eq!(all, 9.0 * 300.0);
    assert_eq!(apart.values().sum::<usize>(), MAX_GROUPS);
    assert_eq!(apart.values().max(), Some(&250));
}

proptest! {
    /// Groups add up to their type, whatever the cap, and however near to the SLO the durations are.
    #[test]
    fn groups_add_up_to_their_type(
        windows in prop::collection::vec(
            prop::collection::vec((0_usize..9, 6_990_000_u64..7_010_000), 0..30), 1..5,
        ),
        most in 0_usize..9,
    ) {
        let metrics = of_service(Some(Duration::from_millis(7)));
        let names = ["a", "b", "c", "d", "e", "f", "", "~other", "h"];
        let mut before = read(&metrics);
        for window in &windows {
            let requests: Vec<(&str, u64)> = window.iter().map(|(name, ns)| (names[*name], *ns)).collect();
            add_grouped(&metrics, most, &requests);
            let seen = read(&metrics);
            never_decreases(&before, &seen);
            groups_add_up(&metrics);
            before = seen;
        }
        prop_assert!(by_group(&metrics, "requests").len() <= most + 1);
    }
}
