//! Requests by label: cells of groups in, one [`LabelGroups`] a request type out.

use std::cmp::Reverse;

use crate::cells::Groups;
use crate::report::{Grouping, LabelGroup, LabelGroups};

/// Groups that a report shows for each request type; the others are added up.
const MAX_SHOWN: usize = 30;

/// The groups of each request type, those with the most latency first.
pub(super) fn report(
    groups: &Groups,
    by: &Grouping,
    types: usize,
    classes: usize,
) -> Vec<LabelGroups> {
    let empty = LabelGroups {
        by: by.clone(),
        rest: LabelGroup::new("", classes),
        ..LabelGroups::default()
    };
    let mut all = vec![empty; types];
    for ((request, name), group) in groups.all() {
        let Some(of_type) = all.get_mut(request as usize) else {
            continue;
        };
        let cell = &group.cell;
        let add = |to: &mut LabelGroup| to.add(cell.sum.weight, cell.max_ns, &cell.sum.ledger);
        match name {
            None => {
                of_type.table_full = true;
                add(&mut of_type.rest);
            }
            Some(name) => {
                let mut group = LabelGroup::new(&name, classes);
                add(&mut group);
                of_type.shown.push(group);
            }
        }
    }
    for of_type in &mut all {
        let key = |group: &LabelGroup| (Reverse(group.ledger.latency_ns), group.label.clone());
        of_type.shown.sort_by_cached_key(key);
        let more = of_type.shown.split_off(of_type.shown.len().min(MAX_SHOWN));
        of_type.rest_labels = more.len() as u64;
        for group in more {
            of_type.rest.add(group.count, group.max_ns, &group.ledger);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{MAX_GROUPS, One};
    use crate::fingerprint::statement;
    use crate::report::{Ledger, OfText};

    fn add(groups: &mut Groups, label: &str, latency_ns: u64, by: OfText) {
        let ledger = Ledger {
            latency_ns,
            on_cpu_ns: latency_ns - 1,
            classes: vec![1],
            ..Ledger::default()
        };
        let one = One {
            id: 0,
            ledger: &ledger,
            weight: 1,
        };
        let group = statement(label.as_bytes(), Some(by));
        groups.add(latency_ns, 0, group.as_str(), &one);
    }

    #[test]
    fn the_label_with_the_most_time_comes_first() {
        let mut groups = Groups::new(0, false);
        for (label, latency) in [("often", 10), ("often", 15), ("slow", 20), ("", 1)] {
            add(&mut groups, label, latency, OfText::Whole);
        }
        let groups = report(&groups, &Grouping::Label, 1, 1).remove(0);
        let shown: Vec<_> = groups
            .shown
            .iter()
            .map(|group| {
                (
                    group.label.as_str(),
                    group.count,
                    group.ledger.latency_ns,
                    group.max_ns,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [("often", 2, 25, 15), ("slow", 1, 20, 20), ("", 1, 1, 1)]
        );
        assert_eq!(groups.shown[0].ledger.classes, [2]);
        assert_eq!((groups.rest_labels, groups.rest.count), (0, 0));
    }

    #[test]
    fn labels_of_one_fingerprint_are_one_group() {
        let mut groups = Groups::new(0, false);
        for number in 0..2 * MAX_GROUPS {
            add(
                &mut groups,
                &format!("id = {number}"),
                10,
                OfText::Fingerprint,
            );
        }
        let groups = report(&groups, &Grouping::Fingerprint, 1, 1).remove(0);
        let shown: Vec<_> = groups
            .shown
            .iter()
            .map(|group| (group.label.as_str(), group.count))
            .collect();
        assert_eq!(shown, [("id = ?", 2 * MAX_GROUPS as u64)]);
        assert_eq!((groups.rest.count, groups.table_full), (0, false));
    }

    #[test]
    fn of_too_many_labels_those_with_the_most_time_are_kept_and_no_request_is_lost() {
        const ALL: usize = MAX_GROUPS + 500;
        let mut groups = Groups::new(0, false);
        for number in 0..ALL {
            add(
                &mut groups,
                &number.to_string(),
                10 + number as u64,
                OfText::Whole,
            );
        }
        groups.advance(60_000_000_000);
        let groups = report(&groups, &Grouping::Label, 1, 1).remove(0);
        assert_eq!(groups.shown.len(), MAX_SHOWN);
        assert_eq!(groups.shown[0].label, (ALL - 1).to_string());
        assert!(groups.table_full);
        assert_eq!(groups.rest_labels, (MAX_GROUPS - MAX_SHOWN) as u64);
        let shown: u64 = groups.shown.iter().map(|group| group.count).sum();
        assert_eq!(shown + groups.rest.count, ALL as u64);
        assert_eq!(groups.rest.max_ns, 10 + (ALL - 1 - MAX_SHOWN) as u64);
    }
}
