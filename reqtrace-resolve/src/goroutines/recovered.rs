//! Panics that are recovered: a program and the function of a request in; by which code on its stack a goroutine is still in
//! that, out.

use std::ops::Range;

use reqtrace_binary::elf::Object;
use reqtrace_common::marker::{MAX_WAITS, ParkPlan, WaitCode, park_kind};
use reqtrace_common::recovered::code;

use super::{function, gogo, park};
use crate::symbols::body;

/// What a goroutine begins with: its first function returns there.
const OUTERMOST: [&str; 2] = ["runtime.goexit.abi0", "runtime.goexit"];

/// What ends a goroutine from within any function. No panic that is recovered meanwhile keeps it from that, and the request has no end.
const ENDS: &str = "runtime.Goexit";

/// What is done where a goroutine goes on behind a panic, of a request that is a call of a function with this code.
///
/// # Errors
///
/// A sentence on what is not known.
pub(crate) fn plan(object: &Object, functions: &[Range<u64>]) -> Result<ParkPlan, String> {
    let unknown = |what: String| {
        format!(
            "a request whose function is left by a panic has no end: in {}, built by {}, {what}",
            object.shown(),
            object.go_version().unwrap_or("an unknown version of Go"),
        )
    };
    if functions.is_empty() {
        return Err(unknown("its code is that of another file".to_owned()));
    }
    let here = gogo::recovers(object).ok_or_else(|| {
        unknown(format!(
            "`{}` does not go on in a way that is known",
            gogo::RECOVERS
        ))
    })?;
    let (kept, _) = park::plan(object);
    if kept.pc == 0 {
        return Err(unknown("where a goroutine goes on is not known".to_owned()));
    }
    let outermost = OUTERMOST.iter().find_map(|name| function(object, name));
    let outermost = outermost.ok_or_else(|| unknown(format!("`{}` is not there", OUTERMOST[1])))?;
    let mut told_apart = vec![(body(object, outermost), code::OUTERMOST)];
    let of_the_request = function(object, ENDS).map(|ends| body(object, ends));
    let of_the_request = of_the_request.into_iter().chain(functions.iter().cloned());
    told_apart.extend(of_the_request.map(|range| (range, code::OF_THE_REQUEST)));
    told_apart.sort_unstable_by_key(|(range, _)| range.start);
    if told_apart.len() > MAX_WAITS {
        return Err(unknown(format!(
            "{} functions of the name are too many to be looked for",
            functions.len()
        )));
    }
    let mut plan = ParkPlan {
        kind: park_kind::RECOVERED,
        pc: kept.pc,
        bp: kept.bp,
        waits_used: told_apart.len() as u32,
        ..ParkPlan::default()
    };
    for (wait, (range, place)) in plan.waits.iter_mut().zip(told_apart) {
        let from = range.start.wrapping_sub(here).cast_signed();
        let size = range.end.saturating_sub(range.start);
        let (Ok(from), Ok(size)) = (i32::try_from(from), u32::try_from(size)) else {
            return Err(unknown("its code is too far apart".to_owned()));
        };
        *wait = WaitCode {
            from,
            size,
            place,
            is_general: 0,
        };
    }
    Ok(plan)
}
