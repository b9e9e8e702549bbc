//! Warnings: a report in, sentences on why numbers of it are wrong out.

use crate::report::{MarkerInfo, Report, TypeReport};
use reqtrace_base::figures::number;
use reqtrace_recording::MarkerCounts;

/// Share of the begins that come inside an open request, in percent, from which on there is a warning.
const INSIDE: u64 = 1;
/// Begins inside an open request from which on there is a warning.
const FEW: u64 = 10;

/// Markers that a warning names.
const NAMED: usize = 3;

/// All warnings.
pub(super) fn of(report: &Report) -> Vec<String> {
    let mixed_up = report
        .requests
        .iter()
        .filter(|request| are_mixed_up(report, request))
        .map(mixed_up);
    let requests = report.requests.iter();
    let of_keys = requests.flat_map(|request| of_keys(report, request));
    mixed_up.chain(of_keys).collect()
}

/// What does not fit the keys of a request type.
fn of_keys(report: &Report, request: &TypeReport) -> impl Iterator<Item = String> {
    let is_much = |count: u64| is_much(count, request.begins);
    let unknown = request.unknown_keys;
    let unknown = is_much(unknown).then(|| {
        format!(
            "{} hits of the markers of `{}` that go on with a request (resume, ready, adopt, end) have a key that no \
             request has{}: requests that began before the trace are some of these. If it is most of them, \
             their `key` is read at another place than that of `begin`: `reqtrace check` shows both. A \
             resume or a ready that is also hit outside of requests needs `touch = true`",
            number(unknown),
            request.name,
            missing_most(report, request, |counts| counts.unknown_keys),
        )
    });
    let elsewhere = request.running_elsewhere;
    let elsewhere = is_much(elsewhere).then(|| {
        format!(
            "{} parks, ends and begins of `{}` came with the key of a request that another thread ran just then{}: \
             that one is incomplete (`no end`), or the marker was left out. A `resume` is missing where the \
             other thread takes the request, or the key is that of something that requests share",
            number(elsewhere),
            request.name,
            missing_most(report, request, |counts| counts.elsewhere),
        )
    });
    unknown.into_iter().chain(elsewhere)
}

/// Whether so many of the begins, or of the hits, do not fit that there is a warning.
pub(super) fn is_much(count: u64, of: u64) -> bool {
    count >= FEW && u128::from(count) * 100 >= u128::from(of.max(1)) * u128::from(INSIDE)
}

/// The markers that have most of a count: ` (most at …)`, empty where it is not known of markers.
pub(super) fn missing_most(
    report: &Report,
    request: &TypeReport,
    of: impl Fn(&MarkerCounts) -> u64,
) -> String {
    let of_type = report.trace.markers.iter();
    let of_type = of_type.filter(|info| info.request == request.name);
    let mut missing: Vec<(u64, u64, &MarkerInfo)> = of_type
        .filter_map(|info| Some((info, info.counts?)))
        .map(|(info, counts)| (of(&counts), counts.hits, info))
        .filter(|(count, _, _)| *count > 0)
        .collect();
    missing.sort_by_key(|(count, _, _)| std::cmp::Reverse(*count));
    let named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|(count, hits, info)| {
            let (count, hits) = (number(*count), number(*hits));
            format!(
                "{count} of {hits} hits of `{}` ({})",
                info.marker, info.place
            )
        })
        .collect();
    match (named.is_empty(), missing.len().saturating_sub(NAMED)) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({})", named.join(", ")),
        (false, more) => format!(" ({}, and {more} more markers)", named.join(", ")),
    }
}

/// Whether begins came while another request of the thread was open, and that is no recursion: a
/// function that calls itself begins and ends in one function, in order.
pub(super) fn are_mixed_up(report: &Report, request: &TypeReport) -> bool {
    let inside = request.nested;
    !request.is_keyed
        && !request.ignores_inner
        && inside >= FEW
        && u128::from(inside) * 100 >= u128::from(request.begins) * u128::from(INSIDE)
        && !is_one_function(report, request)
}

fn is_one_function(report: &Report, request: &TypeReport) -> bool {
    let place = |marker: &str, at: &str| {
        let mut markers = report.trace.markers.iter();
        let found = markers.find(|info| info.request == request.name && info.marker == marker)?;
        Some((found.place.strip_suffix(at)?, &found.object))
    };
    let begin = place("begin", " at entry");
    begin.is_some() && begin == place("end", " at return")
}

fn mixed_up(request: &TypeReport) -> String {
    format!(
        "the numbers of `{}` are wrong: {} of its {} begins came while the thread had another one \
         open. They were counted as a part of that, so that few requests are seen, and they are too \
         long. One thread takes turns on several requests here, and reqtrace needs a thread to finish \
         one before it begins the next. Take as begin and end the entry and the return of one \
         function that does a request's work without waiting for its client, such as what an event \
         loop calls for each event; docs/limits.md says what such a server can be \
         asked",
        request.name,
        number(request.nested),
        number(request.begins),
    )
}
