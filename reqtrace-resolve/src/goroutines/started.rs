//! Functions that goroutines start with: an object and a glob in, their addresses out.
//!
//! `go f(x)` starts with a closure that loads `x` and calls `f`, which has a name of its own (`main.g.gowrap1`, before
//! 1.22 `main.g.func1`): a closure that does nothing but call a function goes by the name of that one, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::FlowControl;

use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::glob_matches;
use reqtrace_binary::elf::{Object, Symbol};
use reqtrace_common::marker::{MAX_MARKER_ALTERNATIVES, MAX_NUMBERS};

use super::goes_on;
use crate::instructions::decoder;
use crate::missing::missing;
use crate::symbols::body;

/// What the names of closures have in them.
const CLOSURES: [&str; 3] = [".func", WRAPS, "·dwrap·"];

/// The name of those that stand for the arguments of a `go` statement.
const WRAPS: &str = ".gowrap";

/// What names of the runtime of Go begin with.
const RUNTIME: &str = "runtime.";

/// What lets a stack grow, which any function may call first.
const GROWS: &str = "runtime.morestack";

/// Bytes of a closure that does nothing but call a function, at most.
const SMALL: u64 = 512;

/// How many functions can be distinguished from others.
const AT_MOST: usize = MAX_NUMBERS * (MAX_MARKER_ALTERNATIVES - 1);

/// The functions that fit a glob, and the closures that do nothing but call one of them.
///
/// # Errors
///
/// When there is none, or too many to distinguish, or where a goroutine begins is not where it is read.
pub(crate) fn functions(object: &Object, pattern: &str) -> Result<Vec<u64>> {
    goes_on(object)?;
    let all = fitting(object, pattern);
    if all.is_empty() {
        return Err(
            missing(object, &[pattern.to_owned()], None, &[]).because(format!(
                "unit = \"{pattern}\" is the function that a goroutine starts with"
            )),
        );
    }
    if all.len() > AT_MOST {
        return Err(Error::usage(format!(
            "unit = \"{pattern}\": {} functions of {} fit, and at most {AT_MOST} can be distinguished",
            all.len(),
            object.shown()
        ))
        .next("choose a narrower pattern, or unit = \"*\", which is all goroutines"));
    }
    Ok(all.into_iter().collect())
}

/// Whether each goroutine is one request at most, of these with their globs.
///
/// # Errors
///
/// With a function that fits two.
pub(crate) fn told_apart(object: &Object, units: &[(&str, &str)]) -> Result<()> {
    if let Some((name, _)) = units.iter().find(|(_, pattern)| *pattern == "*") {
        return Err(Error::usage(format!(
            "all goroutines are requests of `{name}` with unit = \"*\", and the profile has {} types of requests",
            units.len()
        ))
        .next("choose patterns of `unit` that no function fits both of"));
    }
    let all: Vec<(&str, BTreeSet<u64>)> = units
        .iter()
        .map(|(name, pattern)| (*name, fitting(object, pattern)))
        .collect();
    for (at, (second, functions)) in all.iter().enumerate() {
        let both = all[..at]
            .iter()
            .find_map(|(first, others)| Some((first, functions.intersection(others).next()?)));
        if let Some((first, address)) = both {
            return Err(Error::usage(format!(
                "goroutines that start with `{}` would be requests of `{first}` and of `{second}`, and a goroutine is one \
                 request",
                named(object, *address).unwrap_or_default()
            ))
            .next("choose patterns of `unit` that no function fits both of"));
        }
    }
    Ok(())
}

fn fitting(object: &Object, pattern: &str) -> BTreeSet<u64> {
    let symbols = object.symbols().iter();
    let fitting = symbols.filter(|symbol| glob_matches(pattern, object.name(symbol)));
    let mut all: BTreeSet<u64> = fitting.map(|symbol| symbol.address).collect();
    if all.is_empty() {
        return all;
    }
    let calls = closures(object).filter(|(_, called)| all.contains(called));
    let calls: Vec<u64> = calls.map(|(closure, _)| closure.address).collect();
    all.extend(calls);
    all
}

/// The names of functions that closures call, by the addresses of these closures, which do nothing else. What compilers
/// have put into one, such as the growth of a slice, is no such name.
pub(crate) fn called(object: &Object) -> BTreeMap<u64, String> {
    let is_runtime = |name: &str| name.starts_with(RUNTIME);
    let all = closures(object).filter_map(|(closure, called)| {
        let (own, called) = (object.name(closure), named(object, called)?);
        let is_theirs = own.contains(WRAPS) || is_runtime(own) || !is_runtime(called);
        is_theirs.then(|| (closure.address, called.to_owned()))
    });
    all.collect()
}

/// Closures that do nothing but call a function, and its address.
fn closures(object: &Object) -> impl Iterator<Item = (&Symbol, u64)> {
    let all = object.symbols().iter().filter(|symbol| {
        let name = object.name(symbol);
        CLOSURES.iter().any(|part| name.contains(part))
    });
    all.filter_map(|closure| Some((closure, only_call(object, &body(object, closure.address))?)))
}

/// The function that code calls, if it does nothing else.
fn only_call(object: &Object, code: &Range<u64>) -> Option<u64> {
    if code.end.checked_sub(code.start)? > SMALL {
        return None;
    }
    let mut only = None;
    for instruction in decoder(object, code.clone()) {
        match instruction.flow_control() {
            FlowControl::Call => {
                let target = instruction.near_branch_target();
                let grows = || named(object, target).is_some_and(|name| name.starts_with(GROWS));
                if only == Some(target) || only.is_some() && !grows() {
                    return None;
                }
                if only.is_none() && !grows() {
                    only = Some(target);
                }
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => return None,
            _ => {}
        }
    }
    only
}

fn named(object: &Object, address: u64) -> Option<&str> {
    let symbols = object.symbols();
    let at = symbols.partition_point(|symbol| symbol.address < address);
    let symbol = symbols.get(at).filter(|symbol| symbol.address == address);
    symbol.map(|symbol| object.name(symbol))
}
