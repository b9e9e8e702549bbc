//! What tasks of tokio wait for: an object in; the functions in which they look for it, and the code by which a stack names it
//! or who has ended it, out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use reqtrace_binary::demangle::{demangle, split_suffix};
use reqtrace_binary::elf::Object;
use reqtrace_common::keyed::BY_TASK;
use reqtrace_common::marker::{
    BESIDE, FOR_SERVERS, MAX_WAITS, PASSES, SERVES, WaitCode, place_number,
};
use reqtrace_profile::{
    BESIDE_REQUESTS, DRIVERS_OF_TOKIO, GIVEN_UP, TokioWait, WAITS_OF_TOKIO, WAKERS_OF_TOKIO,
    dropped_of_tokio, joins_of_tokio,
};

use super::named::{Named, calls_none, split_last};
use super::shapes::Shapes;
use super::{EdgeCode, bodies};
use crate::calls;
use crate::symbols::body;

/// Where a task gives what it waits for the means to wake it.
const WAKER: &str = "tokio::runtime::task::waker::clone_waker";

/// The functions in which it does.
pub(super) fn wakers(names: &[Named]) -> Vec<u64> {
    let of_tasks = names.iter().filter(|one| one.whole.contains(WAKER));
    of_tasks.map(|one| one.address).collect()
}

/// What is not known of parked time, with the functions that are the edge of waiting.
pub(crate) fn without_reasons(object: &Object, shapes: &Shapes, edge: &EdgeCode) -> Option<String> {
    let shown = object.shown();
    let Some(first) = edge.first() else {
        return Some(format!(
            "parked time of tasks has no stack and no reason: no function `{WAKER}` in {shown}"
        ));
    };
    let (code, left_out) = all_waits(object, shapes, first);
    if code.iter().all(|one| one.place >= PASSES) {
        return Some(format!(
            "parked time of tasks has its stack and no reason: no function of tokio that waits has a name in {shown}"
        ));
    }
    (left_out > 0).then(|| {
        format!(
            "{} functions of tokio in {shown} say what a task waits for, and {MAX_WAITS} fit: parked time in channels, sockets or \
             jobs may have no reason; a build with optimization has fewer such functions",
            left_out + MAX_WAITS
        )
    })
}

/// Functions that name what a task waits for, by addresses.
fn named(names: &[Named]) -> Vec<(&Named, TokioWait)> {
    let mut found: Vec<(&Named, TokioWait)> = names
        .iter()
        .filter_map(|one| {
            let path = one.whole.trim_start_matches(['<', '&']);
            let fits = |wait: &&TokioWait| path.starts_with(wait.path) && may_wait(path, &BEGINS);
            let wait = *WAITS_OF_TOKIO.iter().find(fits)?;
            Some((one, wait))
        })
        .collect();
    found.sort_by_key(|(one, _)| one.address);
    found.dedup_by_key(|(one, _)| one.address);
    found
}

/// Those of them that look whether it has come. Of two that call each other, the one that is called.
pub(super) fn waiting(object: &Object, names: &[Named]) -> Vec<Range<u64>> {
    let named = named(names);
    let polls = named
        .iter()
        .filter(|(one, _)| may_wait(&one.whole, &BEGINS[..2]));
    let all: Vec<u64> = polls.map(|(one, _)| one.address).collect();
    let innermost = all
        .iter()
        .copied()
        .filter(|address| calls_none(object, *address, &all));
    bodies(object, innermost.collect())
}

/// The code of those that name it, as seen from an address, by addresses.
pub(crate) fn waits(object: &Object, shapes: &Shapes, here: u64) -> Vec<WaitCode> {
    all_waits(object, shapes, here).0
}

/// The same, and how many there is no room for: those that are asked for least.
fn all_waits(object: &Object, shapes: &Shapes, here: u64) -> (Vec<WaitCode>, usize) {
    let names = shapes.names(object);
    let serving = names.iter().filter(|one| serves(one));
    let serving: BTreeSet<u64> = serving.map(|one| one.address).collect();
    let limits = names.iter().filter(|one| one.whole.starts_with(BUDGET));
    let passes = adaptors(object, &serving).into_iter();
    let passes = passes.chain(limits.map(|one| one.address));
    let beside = passes.map(|address| (address, PASSES));
    let watching = names.iter().filter(|one| watches(one));
    let beside = beside.chain(watching.map(|one| (one.address, BESIDE)));
    let beside = beside.chain(serving.iter().map(|address| (*address, SERVES)));
    let beside = beside.filter_map(|(address, is)| Some((0, code_of(object, address, here, is)?)));
    let named = named(names);
    let code = named.iter().filter_map(|(one, wait)| {
        let place = place_number(wait.place()) + 1;
        let code = code_of(object, one.address, here, place)?;
        let code = WaitCode {
            is_general: match wait.is_for_servers() {
                true => FOR_SERVERS,
                false => u32::from(wait.is_general),
            },
            ..code
        };
        let rank = WAITS_OF_TOKIO.iter().position(|one| one == wait);
        Some((rank.map_or(usize::MAX, |rank| rank + 1), code))
    });
    let mut all: Vec<(usize, WaitCode)> = beside.chain(code).collect();
    // Of equal code that linkers have put together the name.
    all.sort_by_key(|(_, code)| (code.from, code.place >= PASSES));
    all.dedup_by_key(|(_, code)| code.from);
    let left_out = all.len().saturating_sub(MAX_WAITS);
    all.sort();
    all.truncate(MAX_WAITS);
    let mut code: Vec<WaitCode> = all.into_iter().map(|(_, code)| code).collect();
    code.sort();
    (code, left_out)
}

/// How many adaptors of futures lie one inside the other, at most.
const MAX_ADAPTORS: usize = 6;

/// Futures that only poll another one, as `select!` and `fuse` make.
const ADAPTORS: [&str; 4] = [
    "<core::future::poll_fn::PollFn",
    "<futures_util::future::future::fuse::Fuse",
    "<core::pin::Pin",
    "<&mut ",
];

/// What lets a task of tokio poll a future only so often.
const BUDGET: &str = "<tokio::task::coop::Coop";

/// The functions by which these poll others through adaptors.
fn adaptors(object: &Object, by: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut next = by.clone();
    for _ in 0..MAX_ADAPTORS {
        let code = next.iter().map(|function| body(object, *function));
        let called = code.flat_map(|code| calls::callees(object, &code));
        let called: BTreeSet<u64> = called.collect();
        let symbols = object.symbols().iter();
        let symbols = symbols.filter(|symbol| called.contains(&symbol.address));
        let adapts = symbols.filter(|symbol| {
            let path = demangle(split_suffix(object.name(symbol)).0).path;
            let is_poll = path.contains("core::future::future::Future") && last(&path) == "poll";
            is_poll && ADAPTORS.iter().any(|begin| path.starts_with(begin))
        });
        next = adapts.map(|symbol| symbol.address).collect();
        next.retain(|address| found.insert(*address));
        if next.is_empty() {
            break;
        }
    }
    found
}

/// Whether a function looks whether the client has given a request up, as hyper does over HTTP/2 while a handler waits.
fn watches(one: &Named) -> bool {
    let path = one.whole.trim_start_matches(['<', '&']);
    path.starts_with("h2::") && last(path) == GIVEN_UP
}

/// Whether a function is the body of a task that serves a connection, and looks at something beside its requests: an asynchronous
/// block within the function that spawns it.
fn serves(one: &Named) -> bool {
    let path = one.whole.trim_start_matches(['<', '&']);
    let spawns = ["::handle_connection", "::into_future"];
    path.starts_with(BESIDE_REQUESTS)
        && spawns.iter().any(|spawns| path.contains(spawns))
        && blocks(path) > 1
}

/// How many closures and asynchronous blocks a path ends in.
fn blocks(path: &str) -> usize {
    let mut left = path;
    let mut count = 0;
    while let Some((of, name)) = split_last(left)
        && name.starts_with('{')
    {
        left = of;
        count += 1;
    }
    count
}

/// The code of a function that names a place, as seen from an address.
fn code_of(object: &Object, function: u64, here: u64, place: u32) -> Option<WaitCode> {
    let code = body(object, function);
    Some(WaitCode {
        from: i32::try_from(code.start.wrapping_sub(here).cast_signed()).ok()?,
        size: u32::try_from(code.end - code.start).ok()?,
        place,
        is_general: 0,
    })
}

/// The code of tokio that makes tasks ready, as seen from an address, by addresses, and the places of its drivers, a bit for each
/// number. If one of these has no function of its own, whose code may be in another one then, there are no drivers; and nothing is known
/// where there is more code than a plan has room for.
pub(crate) fn wakes(object: &Object, shapes: &Shapes, here: u64) -> (Vec<WaitCode>, u32) {
    let names = shapes.names(object);
    let (mut found, drivers) = drivers(object, names).unwrap_or_default();
    for waker in &WAKERS_OF_TOKIO {
        let places = bits(waker.places());
        let begins = waker.wakes.iter();
        let its = begins.flat_map(|begin| addresses(names, waker.path, begin));
        found.extend(its.map(|address| (address, places)));
    }
    // Of one function that is several, as linkers fold equal ones, each may be meant.
    let mut by_address: BTreeMap<u64, u32> = BTreeMap::new();
    for (address, is) in found {
        *by_address.entry(address).or_default() |= is;
    }
    let code = by_address.into_iter();
    let code = code.map(|(address, is)| code_of(object, address, here, is));
    let code: Option<Vec<_>> = code.collect();
    match code {
        Some(code) if code.len() <= MAX_WAITS => (code, drivers),
        _ => (Vec::new(), 0),
    }
}

/// The functions of drivers and of what runs tasks, each with what its code says of who wakes; and the places of all drivers.
fn drivers(object: &Object, names: &[Named]) -> Option<(Vec<(u64, u32)>, u32)> {
    let mut found: Vec<(u64, u32)> = Vec::new();
    let mut places = 0;
    for driver in &DRIVERS_OF_TOKIO {
        let runs: Vec<u64> = addresses(names, driver.path, driver.runs).collect();
        if runs.is_empty() || !are_called(object, names, &runs) {
            return None;
        }
        let place = bits([driver.place()]);
        let all = runs
            .into_iter()
            .chain(addresses(names, driver.path, driver.wakes));
        found.extend(all.map(|address| (address, place)));
        places |= place;
    }
    let tasks = names.iter().filter(|one| {
        one.short == "Context::run_task" && one.whole.contains("tokio::runtime::scheduler::")
    });
    found.extend(tasks.map(|one| (one.address, BY_TASK)));
    Some((found, places))
}

/// The place of tasks that wait until another one is done, and that of those that may go on as it is dropped then: a bit each.
pub(crate) fn joins() -> (u32, u32) {
    (bits([joins_of_tokio()]), bits([dropped_of_tokio()]))
}

/// A bit for the number of each place.
fn bits(places: impl IntoIterator<Item = usize>) -> u32 {
    let each = places.into_iter().map(|place| 1 << place_number(place));
    each.fold(0, |all, one| all | one)
}

/// The functions of this path whose names begin so.
fn addresses<'a>(names: &'a [Named], path: &'a str, begin: &'a str) -> impl Iterator<Item = u64> {
    let its = names.iter().filter(move |one| is_of(one, path, begin));
    its.map(|one| one.address)
}

/// Whether a function has this path, and a name that begins so.
fn is_of(one: &Named, path: &str, begin: &str) -> bool {
    let whole = one.whole.trim_start_matches('<');
    whole.starts_with(path) && last(whole).starts_with(begin)
}

/// Whether what drives the runtime calls one of these functions, so that it is not inlined there.
fn are_called(object: &Object, names: &[Named], functions: &[u64]) -> bool {
    let drives = |one: &&Named| {
        let whole = one.whole.trim_start_matches('<');
        whole.starts_with("tokio::runtime::") && last(whole).starts_with("park")
    };
    let mut all = names.iter().filter(drives);
    all.any(|one| !calls_none(object, one.address, functions))
}

/// How names of functions begin that poll, or are the body of one that is asynchronous.
const BEGINS: [&str; 5] = ["poll", "recv", "try_read_output", "{closure", "{{closure"];

/// Whether a function has such a name.
fn may_wait(path: &str, begins: &[&str]) -> bool {
    let name = last(path);
    begins.iter().any(|begin| name.starts_with(begin))
}

/// The last name of a path, without parameters.
fn last(path: &str) -> &str {
    let split = |path| split_last(path).unwrap_or((path, path));
    match split(path) {
        (of, generic) if generic.starts_with('<') => split(of).1,
        (_, name) => name,
    }
}

#[cfg(test)]
mod tests;
