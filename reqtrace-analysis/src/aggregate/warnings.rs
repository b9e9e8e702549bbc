//! Warnings: a report in, sentences on why numbers of it are wrong out.

use crate::report::text::number;
use crate::report::{Report, TypeReport};

/// Share of the begins that come inside an open request, in percent, from which on it is said.
const INSIDE: u64 = 1;
/// Begins inside an open request from which on it is said.
const FEW: u64 = 10;

/// All warnings.
pub(super) fn of(report: &Report) -> Vec<String> {
    let requests = report.requests.iter();
    requests
        .filter(|request| are_mixed_up(report, request))
        .map(mixed_up)
        .collect()
}

/// Whether begins came while another request of the thread was open, and that is no recursion: a
/// function that calls itself begins and ends in one function, in order.
pub(super) fn are_mixed_up(report: &Report, request: &TypeReport) -> bool {
    let inside = request.nested;
    inside >= FEW
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
