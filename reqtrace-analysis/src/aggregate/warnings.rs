//! Warnings: a report in, sentences on why numbers of it are wrong out.

use crate::report::{Report, TypeReport};
use reqtrace_base::figures::number;

/// Share of the begins that come inside an open request, in percent, from which on it is said.
const INSIDE: u64 = 1;
/// Begins inside an open request from which on it is said.
const FEW: u64 = 10;

/// All warnings.
pub(super) fn of(report: &Report) -> Vec<String> {
    let mixed_up = report
        .requests
        .iter()
        .filter(|request| are_mixed_up(report, request))
        .map(mixed_up);
    let requests = report.requests.iter();
    mixed_up.chain(requests.flat_map(of_keys)).collect()
}

/// What does not fit the keys of a request type.
fn of_keys(request: &TypeReport) -> impl Iterator<Item = String> {
    let is_much = |count: u64| {
        let all = request.begins.max(1);
        count >= FEW && u128::from(count) * 100 >= u128::from(all) * u128::from(INSIDE)
    };
    let unknown = request.unknown_keys;
    let unknown = is_much(unknown).then(|| {
        format!(
            "{} hits of the markers of `{}` that go on with a request (resume, ready, adopt, end) have a key that no \
             request has: requests that began before the trace are some of these. If it is most of them, \
             their `key` is read at another place than that of `begin`: `reqtrace check` shows both. A \
             resume or a ready that is also hit outside of requests needs `touch = true`",
            number(unknown),
            request.name,
        )
    });
    let elsewhere = request.running_elsewhere;
    let elsewhere = is_much(elsewhere).then(|| {
        format!(
            "{} parks, ends and begins of `{}` came with the key of a request that another thread ran just then: \
             that one is incomplete (`no end`), or the marker was left out. A `resume` is missing where the \
             other thread takes the request, or the key is that of something that requests share",
            number(elsewhere),
            request.name,
        )
    });
    unknown.into_iter().chain(elsewhere)
}

/// Whether begins came while another request of the thread was open, and that is no recursion: a
/// function that calls itself begins and ends in one function, in order.
pub(super) fn are_mixed_up(report: &Report, request: &TypeReport) -> bool {
    let inside = request.nested;
    !request.is_keyed
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
