//! Keys that requests may have: what was noted of first arguments in, proposals out. Numbers only.
//!
//! A key is an object that stands for a request: the functions that work on the request have its address
//! as their first argument. It shows by coming back otherwise than one object after the other on one
//! thread: on another thread, or after its thread has had another one. Memory that is used again comes back
//! too, but only from the function that ends one request to the one that begins the next.

use std::collections::BTreeMap;

use reqtrace_common::argument::Steps;

use crate::attach::arguments::Arguments;

/// What is clear: so many of a hundred.
const CLEAR: u64 = 80;

/// What is rare: so many of a hundred.
const RARE: u64 = 20;

/// Values that come back are no accident: so many of a hundred calls.
const AGAIN: u64 = 10;

/// So many values that were new late in the count tell where requests begin. Those that were new before may be of
/// requests that ran already when it began, which are first seen anywhere.
const ENOUGH_LATE: u64 = 10;

/// What was noted.
pub(super) struct Noted<'a> {
    /// Of arguments that may be pointers.
    pub(super) arguments: &'a Arguments,
    /// Calls of each function, with whatever argument.
    pub(super) calls: &'a [u64],
    /// Arguments that were new by moments of the count, in their order; by function.
    pub(super) early: &'a [Vec<u64>],
}

/// Functions that may work on one kind of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    /// The functions.
    pub(super) parts: Vec<Part>,
    /// The one that begins a request: an index of `parts`; `None`: it is not clear.
    pub(super) begin: Option<usize>,
    /// The one that ends it.
    pub(super) end: Option<usize>,
    /// Functions that have other arguments too, most of which none of the parts has.
    pub(super) strangers: Vec<usize>,
    /// Different arguments.
    pub(super) values: u64,
    /// Calls with them.
    pub(super) calls: u64,
    /// Calls with an argument that came back after its thread had another one.
    pub(super) turns: u64,
    /// Calls with one that came back on another thread.
    pub(super) moves: u64,
}

/// One function of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its number.
    pub(super) function: usize,
    /// Calls with a pointer that were noted.
    pub(super) calls: u64,
    /// Arguments that it had before any other.
    pub(super) first: u64,
    /// Arguments that it had as the last one.
    pub(super) last: u64,
    /// Whether it is called by another of the functions.
    pub(super) inside: Inside,
}

/// Whether a function is called while another one of the same argument runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Hardly ever.
    Never,
    /// Now and then.
    Sometimes,
    /// Nearly always.
    Mostly,
}

impl Proposal {
    /// Begin and end, if both are clear.
    pub(super) fn ends(&self) -> Option<(usize, usize)> {
        Some((self.begin?, self.end?))
    }
}

/// What is proposed; that with most calls comes first.
pub(super) fn proposals(noted: &Noted<'_>) -> Vec<Proposal> {
    let mut proposals: Vec<Proposal> = groups(noted)
        .into_iter()
        .filter_map(|group| proposal(noted, &group))
        .collect();
    proposals.sort_by_key(|proposal| std::cmp::Reverse(proposal.calls));
    proposals
}

/// Functions that have the same arguments, at least two each: of one that is alone nothing tells whether its
/// arguments are requests, or memory that is used again.
fn groups(noted: &Noted<'_>) -> Vec<Vec<usize>> {
    let arguments = noted.arguments;
    let count = arguments.functions.len();
    let mut shared = vec![0_u64; count * count];
    for value in &arguments.values {
        for one in bits(value.functions, count) {
            for other in bits(value.functions, count) {
                shared[one * count + other] += 1;
            }
        }
    }
    let has_pointers = |function: usize| {
        let pointers = arguments.functions[function].pointers;
        pointers * 2 > noted.calls.get(function).copied().unwrap_or(0)
    };
    // Each function has the number of its group, which is that of the group's first one.
    let mut group: Vec<usize> = (0..count).collect();
    for one in 0..count {
        for other in one + 1..count {
            let fewer = shared[one * count + one].min(shared[other * count + other]);
            let both = shared[one * count + other];
            if both > 0 && both * 2 >= fewer && has_pointers(one) && has_pointers(other) {
                let (from, to) = (group[other].max(group[one]), group[other].min(group[one]));
                for number in &mut group {
                    if *number == from {
                        *number = to;
                    }
                }
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (function, &number) in group.iter().enumerate() {
        groups.entry(number).or_default().push(function);
    }
    groups
        .into_values()
        .filter(|group| group.len() > 1)
        .collect()
}

fn proposal(noted: &Noted<'_>, group: &[usize]) -> Option<Proposal> {
    let arguments = noted.arguments;
    let (functions, strangers): (Vec<usize>, Vec<usize>) = group
        .iter()
        .partition(|&&function| !is_stranger(arguments, group, function));
    let mask = mask(&functions);
    let parts: Vec<Part> = functions
        .iter()
        .map(|&function| part(arguments, &functions, function))
        .collect();
    let begin = begin(noted, &parts);
    let end = begin.and_then(|begin| end(arguments, &parts, begin));
    let mut proposal = Proposal {
        begin,
        end,
        strangers,
        values: values(arguments, mask),
        calls: parts.iter().map(|part| part.calls).sum(),
        turns: 0,
        moves: 0,
        parts,
    };
    for (to, of) in proposal.parts.iter().enumerate() {
        for (from, by) in proposal.parts.iter().enumerate() {
            // Memory that is used again is no request that comes back.
            let begins_anew = begin == Some(to) && end.is_none_or(|end| end == from);
            if !begins_anew {
                let steps = arguments.step(by.function, of.function);
                proposal.turns += steps.turns;
                proposal.moves += steps.moves;
            }
        }
    }
    let back = proposal.turns + proposal.moves;
    let is_one = proposal.values > 1 && back > 0 && back * 100 >= proposal.calls * AGAIN;
    is_one.then_some(proposal)
}

/// Whether most arguments of a function are at no other one of its group.
fn is_stranger(arguments: &Arguments, group: &[usize], function: usize) -> bool {
    let (mask, own) = (mask(group), 1_u64 << function);
    let of_function = arguments.values.iter().map(|value| value.functions & mask);
    let (mut all, mut alone) = (0_u64, 0_u64);
    for functions in of_function.filter(|functions| functions & own != 0) {
        all += 1;
        alone += u64::from(functions == own);
    }
    alone * 2 > all
}

fn part(arguments: &Arguments, group: &[usize], function: usize) -> Part {
    let first = arguments.functions[function].first;
    let all = (0..arguments.functions.len()).map(|from| arguments.step(from, function).all());
    // Those that found no room in a table are in no sum.
    let calls = first + all.sum::<u64>();
    let steps = group.iter().map(|&from| arguments.step(from, function));
    let inside = steps.map(|steps| steps.inside).sum::<u64>() * 100;
    let last = arguments
        .values
        .iter()
        .filter(|value| value.last == function);
    Part {
        function,
        calls,
        first,
        last: last.count() as u64,
        inside: if inside >= calls * CLEAR {
            Inside::Mostly
        } else if inside >= calls * RARE {
            Inside::Sometimes
        } else {
            Inside::Never
        },
    }
}

/// The function that has most arguments before the others.
fn begin(noted: &Noted<'_>, parts: &[Part]) -> Option<usize> {
    let first: Vec<u64> = parts.iter().map(|part| part.first).collect();
    let late = |early: &Vec<u64>| -> Vec<u64> {
        let early = |part: &Part| early.get(part.function).copied().unwrap_or(0);
        let late = parts
            .iter()
            .map(|part| part.first.saturating_sub(early(part)));
        late.collect()
    };
    let mut moments = noted.early.iter().rev().map(late);
    let enough = moments.find(|late| late.iter().sum::<u64>() >= ENOUGH_LATE);
    clear(&enough.unwrap_or(first))
}

/// The function behind which the argument is not seen again, or begins anew.
fn end(arguments: &Arguments, parts: &[Part], begin: usize) -> Option<usize> {
    let begins_anew = |part: &Part| -> Steps {
        let of_begin = parts[begin].function;
        arguments.step(part.function, of_begin)
    };
    let ended = |part: &Part| part.last + begins_anew(part).all();
    let end = clear(&parts.iter().map(ended).collect::<Vec<_>>())?;
    let part = &parts[end];
    // Otherwise the request goes on behind it.
    let is_last = ended(part) * 100 >= part.calls * CLEAR;
    (end != begin && is_last).then_some(end)
}

/// The index of the number that is nearly all of their sum.
fn clear(numbers: &[u64]) -> Option<usize> {
    let all: u64 = numbers.iter().sum();
    let most = numbers
        .iter()
        .enumerate()
        .max_by_key(|(_, number)| **number);
    most.filter(|(_, number)| all > 0 && **number * 100 >= all * CLEAR)
        .map(|(index, _)| index)
}

/// Different arguments of these functions, in the process that has most: one object for each process is not many.
fn values(arguments: &Arguments, mask: u64) -> u64 {
    let mut of_process: BTreeMap<u32, u64> = BTreeMap::new();
    let of_group = arguments.values.iter();
    for value in of_group.filter(|value| value.functions & mask != 0) {
        *of_process.entry(value.tgid).or_default() += 1;
    }
    of_process.into_values().max().unwrap_or(0)
}

fn mask(functions: &[usize]) -> u64 {
    functions
        .iter()
        .fold(0, |mask, function| mask | 1 << function)
}

/// Numbers of the functions in a mask, below `count`.
fn bits(mask: u64, count: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |function| mask >> function & 1 != 0)
}

#[cfg(test)]
mod tests;
