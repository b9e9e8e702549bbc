//! The header of a trace: what was traced, where and how; the first that a recording says.

use reqtrace_common::filter::{ANY_STATE, StackFilter};
use reqtrace_recording::{Header, Marker, SYSCALLS};

use super::Options;
use crate::kernel::Host;
use reqtrace_profile::Profiles;
use reqtrace_resolve::{ResolvedMarker, ResolvedProfile};

impl Options {
    /// What a recording needs to know of the options.
    pub(super) fn recorded(&self, profiles: &Profiles) -> reqtrace_recording::Options {
        reqtrace_recording::Options {
            labels: self.labels,
            histogram: self.histogram,
            no_user_stacks: !self.needs_user_stacks(profiles),
            no_kernel_stacks: false,
            stack_filter: describe(&self.stack_filter),
            preempted_stacks: self.preempted_stacks,
            keep_slow_ns: self.keep_slow.slow_ns,
            one_in: self.keep_slow.one_in,
        }
    }

    /// Waits that are named by functions are found in user stacks.
    pub(super) fn needs_user_stacks(&self, profiles: &Profiles) -> bool {
        let mut waits = profiles.all().iter().flat_map(|profile| &profile.waits);
        self.user_stacks || waits.any(|wait| !wait.functions.is_empty())
    }
}

/// What a filter keeps, for people; empty when it keeps all.
fn describe(filter: &StackFilter) -> String {
    let mut parts = Vec::new();
    if filter.min_ns > 0 {
        parts.push(format!("of at least {} µs", filter.min_ns / 1_000));
    }
    if filter.max_ns < u64::MAX {
        parts.push(format!("of at most {} µs", filter.max_ns / 1_000));
    }
    match filter.state {
        ANY_STATE => {}
        0 => parts.push("of runnable threads (--state 0)".to_owned()),
        mask => parts.push(format!("in state 0x{mask:x}")),
    }
    parts.join(", ")
}

/// The header, but for what is known only when the trace has begun.
pub(super) fn header(
    host: &Host,
    profiles: &Profiles,
    resolved: &[ResolvedProfile],
    monotonic_to_unix_ns: i64,
) -> Header {
    let marker = |request: &str, name: &str, marker: &ResolvedMarker| Marker {
        request: request.to_owned(),
        marker: name.to_owned(),
        place: marker.place(),
        object: marker.object_shown.clone(),
        probes: marker.sites.len() as u64,
    };
    let names = profiles.request_names();
    // Of each service the first process: the others run the same program.
    let firsts = (0..profiles.all().len())
        .filter_map(|service| resolved.iter().find(|one| one.service == service));
    let requests = firsts.flat_map(ResolvedProfile::numbered);
    let markers = requests.flat_map(|(number, request)| {
        let name = names.get(number).unwrap_or(&request.name);
        let all = request.markers();
        all.map(|(role, of_role)| marker(name, role.name(), of_role))
            .collect::<Vec<_>>()
    });
    let markers = markers.collect();
    let mut texts = profiles.all().iter().map(|profile| profile.text.clone());
    Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host.name.clone(),
        kernel: host.release.clone(),
        cpus: host.cpus,
        cpu_model: host.cpu_model.clone(),
        monotonic_to_unix_ns,
        profile: profiles.names(),
        profile_text: texts.next().unwrap_or_default(),
        more_profile_texts: texts.collect(),
        markers,
        architecture: std::env::consts::ARCH.to_owned(),
        syscalls: SYSCALLS.to_owned(),
        ..Header::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_in_words() {
        let filter = StackFilter {
            min_ns: 100_000,
            max_ns: 200_999,
            state: 2,
        };
        assert_eq!(
            describe(&filter),
            "of at least 100 µs, of at most 200 µs, in state 0x2"
        );
        assert_eq!(describe(&StackFilter::ALL), "");
    }
}
