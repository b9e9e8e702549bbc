//! What was counted of markers: counts per plan in, counts per marker out.

use std::collections::BTreeMap;

use reqtrace_common::marker::{MarkerCounts as Counts, count};
use reqtrace_recording::{MarkerCount, MarkerCounts, TypeTotals};

use super::plans::{MarkerName, PlanTables};
use reqtrace_profile::Role;

/// What is known of each marker, since the start.
pub(super) fn by_marker(
    table: &PlanTables,
    counts: &[Counts],
    totals: &[TypeTotals],
) -> Vec<MarkerCount> {
    let mut markers: BTreeMap<&MarkerName, MarkerCounts> = BTreeMap::new();
    let plans = table.marker_plans();
    for chain in table.marker_chains() {
        let none_held = counts[chain.start][count::NONE_HELD];
        for index in chain.clone() {
            let (_, name) = &plans[index];
            let behind = index + 1..chain.end;
            let is_last = !plans[behind.clone()].iter().any(|(_, other)| other == name);
            let later = counts[behind].iter();
            let later: u64 = later.map(|counts| counts[count::HITS]).sum();
            let marker = markers.entry(name).or_default();
            *marker = marker.with(of_plan(&counts[index]), u64::saturating_add);
            if is_last {
                marker.condition_false += none_held + later;
            }
        }
    }
    for name in table.plain_names() {
        if let Some(hits) = hits_of_plain(table, name, totals) {
            markers.entry(name).or_default().hits += hits;
        }
    }
    let named = markers.into_iter().map(|(name, counts)| MarkerCount {
        request: name.request,
        marker: name.marker.to_owned(),
        place: name.place.clone(),
        object: name.object.clone(),
        probes: name.probes,
        counts,
    });
    named.collect()
}

fn of_plan(counts: &Counts) -> MarkerCounts {
    MarkerCounts {
        hits: counts[count::HITS],
        condition_false: 0,
        unknown_keys: counts[count::UNKNOWN_KEYS]
            + counts[count::ENDS_WITHOUT_BEGIN]
            + counts[count::NO_UNIT],
        elsewhere: counts[count::ELSEWHERE],
        other_type: counts[count::OTHER_TYPE],
        parked_already: counts[count::PARKED_ALREADY],
        resumed: counts[count::RESUMED],
        not_ready: counts[count::NOT_READY],
    }
}

/// Hits of a begin or an end without a plan are counted by request type: they are its own if it is the only one.
fn hits_of_plain(table: &PlanTables, name: &MarkerName, totals: &[TypeTotals]) -> Option<u64> {
    let is_like = |other: &&MarkerName| {
        (other.request, other.marker) == (name.request, name.marker) && *other != name
    };
    let planned = table.marker_plans().iter().map(|(_, name)| name);
    let mut others = planned.chain(table.plain_names());
    if others.any(|other| is_like(&other)) {
        return None;
    }
    let totals = totals.get(name.request as usize)?;
    Some(if name.marker == Role::Begin.name() {
        totals.begins
    } else {
        totals.ends
    })
}

#[cfg(test)]
mod tests {
    use reqtrace_common::marker::MarkerPlan;

    use super::*;

    fn name(request: u32, marker: &'static str, place: &str) -> MarkerName {
        MarkerName {
            request,
            marker,
            place: place.to_owned(),
            ..MarkerName::default()
        }
    }

    fn found<'a>(markers: &'a [MarkerCount], place: &str) -> Option<&'a MarkerCounts> {
        let found = markers.iter().find(|marker| marker.place == place);
        found.map(|marker| &marker.counts)
    }

    #[test]
    fn conditions_fail_where_a_later_marker_or_none_of_the_place_was_hit() {
        let mut table = PlanTables::default();
        let plan = |place| MarkerPlan {
            place,
            ..MarkerPlan::default()
        };
        // Of two texts of one end, a park, and a resume that always holds.
        let chain = [
            (plan(1), name(0, "end", "a")),
            (plan(2), name(0, "end", "a")),
            (plan(3), name(0, "park", "b")),
        ];
        assert_eq!(table.markers(&chain).unwrap(), 1);
        // The same marker at another place.
        assert_eq!(
            table.markers(&[(plan(9), name(0, "park", "b"))]).unwrap(),
            4
        );
        let mut counts = vec![Counts::default(); 5];
        for (plan, hits) in [(1, 5), (2, 7), (3, 11), (4, 100)] {
            counts[plan][count::HITS] = hits;
        }
        counts[1][count::NONE_HELD] = 1000;
        counts[2][count::ENDS_WITHOUT_BEGIN] = 2;
        counts[3][count::PARKED_ALREADY] = 3;
        counts[4][count::ELSEWHERE] = 4;
        let markers = by_marker(&table, &counts, &[]);
        let end = found(&markers, "a").unwrap();
        assert_eq!((end.hits, end.condition_false), (12, 1011));
        assert_eq!((end.unknown_keys, end.parked_already), (2, 0));
        let park = found(&markers, "b").unwrap();
        assert_eq!((park.hits, park.condition_false), (111, 1000));
        assert_eq!((park.elsewhere, park.parked_already), (4, 3));
    }

    #[test]
    fn hits_of_a_plain_marker_are_those_of_its_type_unless_there_is_another() {
        let mut table = PlanTables::default();
        for plain in [
            name(0, "begin", "one"),
            name(0, "end", "other"),
            name(1, "begin", "this"),
            name(1, "begin", "that"),
        ] {
            table.plain(plain);
        }
        let totals = TypeTotals {
            begins: 8,
            ends: 6,
            ..TypeTotals::ZERO
        };
        let markers = by_marker(&table, &[Counts::default()], &[totals, totals]);
        assert_eq!(found(&markers, "one").unwrap().hits, 8);
        assert_eq!(found(&markers, "other").unwrap().hits, 6);
        assert_eq!(
            (found(&markers, "this"), found(&markers, "that")),
            (None, None)
        );
    }
}
