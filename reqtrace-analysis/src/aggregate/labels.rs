//! Requests by label: complete requests in, one [`LabelGroup`] a label out.
//!
//! Memory is bounded whatever the labels are: the first labels of a request type are kept, and
//! those that come after the table is full are added up as one.

use std::collections::HashMap;

use reqtrace_recording::Request;

use crate::fingerprint::fingerprint;
use crate::label::label_text;
use crate::report::{Grouping, LabelGroup, LabelGroups, Ledger, OfText};

/// Labels kept for each request type: some 3 MiB with their ledgers.
const MAX_LABELS: usize = 10_000;

/// Groups that a report shows for each request type; the others are added up.
const MAX_SHOWN: usize = 30;

/// Requests by request type and label.
#[derive(Debug)]
pub(super) struct Labels {
    by: Grouping,
    classes: usize,
    types: Vec<OfType>,
}

#[derive(Debug, Default)]
struct OfType {
    groups: HashMap<String, LabelGroup>,
    /// Requests whose label found no room.
    no_room: Option<LabelGroup>,
}

impl Labels {
    pub(super) fn new(by: Grouping, types: usize, classes: usize) -> Self {
        Self {
            by,
            classes,
            types: (0..types).map(|_| OfType::default()).collect(),
        }
    }

    /// Takes a request; incomplete ones do not count, as their latency is not known.
    pub(super) fn add(&mut self, request: &Request<'_>, ledger: &Ledger) {
        let classes = self.classes;
        let Some(of_type) = self.types.get_mut(request.request_type as usize) else {
            return;
        };
        if request.incomplete.is_some() {
            return;
        }
        let label = match self.by.of_text() {
            OfText::Whole => label_text(request.label).into(),
            OfText::Fingerprint => fingerprint(request.label),
        };
        let mut weighted = Ledger::default();
        weighted.add_times(ledger, u64::from(request.weight));
        let add = |group: &mut LabelGroup| {
            group.add(u64::from(request.weight), ledger.latency_ns, &weighted);
        };
        if let Some(group) = of_type.groups.get_mut(label.as_str()) {
            add(group);
            return;
        }
        let group = if of_type.groups.len() < MAX_LABELS {
            of_type
                .groups
                .entry(label.as_str().to_owned())
                .or_insert_with(|| LabelGroup::new(&label, classes))
        } else {
            of_type
                .no_room
                .get_or_insert_with(|| LabelGroup::new("", classes))
        };
        add(group);
    }

    /// The groups of each request type, those with the most latency first.
    pub(super) fn report(&self) -> Vec<LabelGroups> {
        let (by, classes) = (&self.by, self.classes);
        self.types
            .iter()
            .map(|of_type| of_type.report(by, classes))
            .collect()
    }
}

impl OfType {
    fn report(&self, by: &Grouping, classes: usize) -> LabelGroups {
        let mut shown: Vec<&LabelGroup> = self.groups.values().collect();
        shown.sort_by(|a, b| (b.ledger.latency_ns, &a.label).cmp(&(a.ledger.latency_ns, &b.label)));
        let more = shown.split_off(shown.len().min(MAX_SHOWN));
        let mut rest = LabelGroup::new("", classes);
        for group in more.iter().copied().chain(&self.no_room) {
            rest.add(group.count, group.max_ns, &group.ledger);
        }
        LabelGroups {
            by: by.clone(),
            shown: shown.into_iter().cloned().collect(),
            rest_labels: more.len() as u64,
            table_full: self.no_room.is_some(),
            rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_recording::Incomplete;

    fn request(label: &str, latency_ns: u64) -> Request<'_> {
        Request {
            label: label.as_bytes(),
            weight: 1,
            end_ns: latency_ns,
            ..Request::default()
        }
    }

    fn add(labels: &mut Labels, request: &Request<'_>) {
        let ledger = Ledger {
            latency_ns: request.end_ns,
            on_cpu_ns: request.end_ns - 1,
            classes: vec![1],
            ..Ledger::default()
        };
        labels.add(request, &ledger);
    }

    #[test]
    fn the_label_with_the_most_time_comes_first() {
        let mut labels = Labels::new(Grouping::Label, 1, 1);
        for (label, latency) in [("often", 10), ("often", 15), ("slow", 20), ("", 1)] {
            add(&mut labels, &request(label, latency));
        }
        let unfinished = Request {
            incomplete: Some(Incomplete::NoEnd),
            ..request("slow", 99)
        };
        add(&mut labels, &unfinished);
        let groups = labels.report().remove(0);
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
        let mut labels = Labels::new(Grouping::Fingerprint, 1, 1);
        for number in 0..2 * MAX_LABELS {
            add(&mut labels, &request(&format!("id = {number}"), 10));
        }
        let groups = labels.report().remove(0);
        let shown: Vec<_> = groups
            .shown
            .iter()
            .map(|group| (group.label.as_str(), group.count))
            .collect();
        assert_eq!(shown, [("id = ?", 2 * MAX_LABELS as u64)]);
        assert_eq!((groups.rest.count, groups.table_full), (0, false));
    }

    #[test]
    fn labels_without_end_take_no_memory_without_end_and_none_is_lost() {
        const ALL: usize = MAX_LABELS + 500;
        let mut labels = Labels::new(Grouping::Label, 1, 1);
        for number in 0..ALL {
            // The last one twice: there is no room for it, so nobody knows that it is one label.
            add(
                &mut labels,
                &request(&number.to_string(), 10 + number as u64),
            );
        }
        add(&mut labels, &request(&(ALL - 1).to_string(), 10));
        assert_eq!(labels.types[0].groups.len(), MAX_LABELS);
        let groups = labels.report().remove(0);
        assert_eq!(groups.shown.len(), MAX_SHOWN);
        assert!(groups.table_full);
        assert_eq!(groups.rest_labels, (MAX_LABELS - MAX_SHOWN) as u64);
        let shown: u64 = groups.shown.iter().map(|group| group.count).sum();
        assert_eq!(shown + groups.rest.count, ALL as u64 + 1);
        assert_eq!(groups.rest.max_ns, 10 + ALL as u64 - 1);
    }
}
