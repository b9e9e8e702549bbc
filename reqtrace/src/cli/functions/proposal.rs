//! Keys that requests may have: noted calls of functions in, proposals out. Numbers only.
//!
//! A key is an object that stands for a request: the functions that work on the request have its address
//! as an argument, or return it. It shows by coming back otherwise than one object after the other on one
//! thread: on another thread, or after its thread has had another one. Memory that is used again comes back
//! too, but only from the function that ends one request to the one that begins the next.

mod groups;
mod lives;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_common::call::CallRecord;

use groups::{Group, clear, groups};
use lives::{Life, Step, lives};
pub(super) use sources::{Slot, Source};

/// What is clear: so many of a hundred.
const CLEAR: u64 = 80;

/// What is rare: so many of a hundred.
const RARE: u64 = 20;

/// Values that come back are no accident: so many of a hundred calls, or requests.
const AGAIN: u64 = 10;

/// So many values are enough to tell something by them.
const MANY: usize = 10;

/// One result of so many calls of a hundred at most tells calls that end a request from others.
const SPECIAL: u64 = 60;

/// Functions that may work on one kind of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    /// The functions.
    pub(super) parts: Vec<Part>,
    /// The one that begins a request: an index of `parts`; `None`: it is not clear.
    pub(super) begin: Option<usize>,
    /// The one that ends it.
    pub(super) end: Option<usize>,
    /// All is done by one function, which is called several times for a request: what it returns.
    pub(super) alone: Option<Alone>,
    /// Functions that have other values too, most of which none of the parts has.
    pub(super) strangers: Vec<usize>,
    /// Different values.
    pub(super) values: u64,
    /// Calls with them.
    pub(super) calls: u64,
    /// Calls with a value that came back after its thread had another one.
    pub(super) turns: u64,
    /// Calls with one that came back on another thread.
    pub(super) moves: u64,
}

/// One function of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Where it has the value.
    pub(super) source: Source,
    /// Bytes by which its pointer is behind the object.
    pub(super) offset: u64,
    /// Calls with a pointer that were noted.
    pub(super) calls: u64,
    /// Values that it had before any other.
    pub(super) first: u64,
    /// Values that it had as the last one.
    pub(super) last: u64,
    /// Calls with a value that came back after its thread had another one.
    pub(super) turns: u64,
    /// Calls with one that came back on another thread.
    pub(super) moves: u64,
    /// Whether it is called by another of the functions.
    pub(super) inside: Inside,
}

/// What a function returned that is the only one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Alone {
    /// Each result, with its calls and the values of which it was the last; that of most calls first.
    pub(super) results: Vec<(i32, u64, u64)>,
    /// The one that ends a request; `None`: none is clear.
    pub(super) end: Option<i32>,
}

/// Whether a function is called while another one of the same value runs.
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

    /// Whether the request type has no gap.
    pub(super) fn is_clear(&self) -> bool {
        let ended = self.alone.as_ref().is_some_and(|alone| alone.end.is_some());
        self.ends().is_some() || ended
    }
}

/// What was found.
pub(super) struct Proposals {
    /// What is proposed: what is clear first, and that with most calls.
    pub(super) proposals: Vec<Proposal>,
    /// Each place of a pointer that none of the proposals has, by itself.
    pub(super) others: Vec<(Part, u64)>,
}

/// Looks at the calls.
pub(super) fn proposals(calls: &[CallRecord]) -> Proposals {
    let sources = sources::sources(calls);
    let mut proposals: Vec<Proposal> = Vec::new();
    let mut others = Vec::new();
    for group in groups(&sources, calls) {
        match proposal(&group, calls) {
            (proposal, true) => proposals.push(proposal),
            (proposal, false) => {
                let parts = proposal.parts.into_iter();
                others.extend(parts.map(|part| (part, proposal.values)));
            }
        }
    }
    proposals.sort_by_key(|proposal| {
        std::cmp::Reverse((
            proposal.is_clear(),
            proposal.alone.is_none(),
            proposal.calls,
        ))
    });
    // What a function has elsewhere, and no other one has, is there by chance; and where there is something better, what
    // is neither clear nor another's is not worth a look.
    let mut known = BTreeSet::new();
    let mut kept: Vec<Proposal> = Vec::new();
    for proposal in proposals {
        let functions = proposal.parts.iter().map(|part| part.source.function);
        let is_new = functions.filter(|&function| known.insert(function)).count() > 0;
        let is_better = proposal.is_clear() || proposal.alone.is_none() || kept.is_empty();
        if is_new && is_better {
            kept.push(proposal);
        } else {
            let parts = proposal.parts.into_iter();
            others.extend(parts.map(|part| (part, proposal.values)));
        }
    }
    Proposals {
        proposals: kept,
        others,
    }
}

/// What a group would be as a proposal, and whether it is one.
fn proposal(group: &Group, calls: &[CallRecord]) -> (Proposal, bool) {
    let lives = lives(&group.members, calls);
    let steps = Steps::of(&lives, group.members.len());
    let mut parts: Vec<Part> = (0..group.members.len())
        .map(|index| part(group, &lives, index))
        .collect();
    let outer: Vec<usize> = (0..parts.len())
        .filter(|&index| parts[index].inside != Inside::Mostly)
        .collect();
    let (mut begin, mut end, mut alone) = (None, None, None);
    if let &[only] = outer.as_slice() {
        begin = Some(only);
        alone = Some(results(&lives, only));
    } else {
        begin = begin.or_else(|| self::begin(&lives, parts.len()));
        end = begin.and_then(|begin| self::end(&steps, &parts, begin));
    }
    let ended = alone.as_ref().and_then(|alone| alone.end);
    for part in &mut parts {
        (part.turns, part.moves) = (0, 0);
    }
    let (mut requests, mut returned) = (0_u64, 0_u64);
    for life in &lives {
        let mut before: Option<&lives::Event> = None;
        let mut comes_back = false;
        for event in life.outer() {
            // Memory that is used again is no request that comes back.
            let begins_again = match (&alone, before) {
                (_, None) => true,
                (Some(_), Some(before)) => ended.is_some() && before.result == ended,
                (None, Some(before)) => {
                    begin == Some(event.part)
                        && before.part != event.part
                        && end.is_none_or(|end| end == before.part)
                }
            };
            if begins_again {
                requests += 1;
                returned += u64::from(std::mem::take(&mut comes_back));
            } else {
                comes_back |= event.step.is_back();
                let part = &mut parts[event.part];
                part.turns += u64::from(event.step == Step::Turn);
                part.moves += u64::from(event.step == Step::Move);
            }
            before = Some(event);
        }
        returned += u64::from(comes_back);
    }
    let proposal = Proposal {
        begin,
        end,
        alone,
        strangers: group.strangers.clone(),
        values: values(&lives),
        calls: parts.iter().map(|part| part.calls).sum(),
        turns: parts.iter().map(|part| part.turns).sum(),
        moves: parts.iter().map(|part| part.moves).sum(),
        parts,
    };
    let back = proposal.turns + proposal.moves;
    let often = back * 100 >= proposal.calls * AGAIN || returned * 100 >= requests * AGAIN;
    // At a return alone nothing is begun and gone on with.
    let is_alone = |part: &Part| part.calls >= MANY as u64 && part.source.slot != Slot::Result;
    let enough =
        proposal.alone.is_none() || begin.is_some_and(|only| is_alone(&proposal.parts[only]));
    let is_one = proposal.values > 1 && back > 0 && often && enough;
    (proposal, is_one)
}

/// How often objects got from one function to another without a call inside: by both.
struct Steps {
    parts: usize,
    counts: Vec<u64>,
}

impl Steps {
    fn of(lives: &[Life], parts: usize) -> Self {
        let mut counts = vec![0; parts * parts];
        for life in lives {
            let from = life.outer();
            for (from, to) in from.zip(life.outer().skip(1)) {
                counts[from.part * parts + to.part] += 1;
            }
        }
        Self { parts, counts }
    }

    fn between(&self, from: usize, to: usize) -> u64 {
        self.counts[from * self.parts + to]
    }
}

fn part(group: &Group, lives: &[Life], index: usize) -> Part {
    let member = group.members[index];
    let events = lives.iter().flat_map(|life| &life.events);
    let own: Vec<Step> = events
        .filter(|event| event.part == index)
        .map(|event| event.step)
        .collect();
    let count = |wanted: Step| own.iter().filter(|step| **step == wanted).count() as u64;
    let calls = own.len() as u64;
    let inside = count(Step::Inside) * 100;
    let last = lives
        .iter()
        .filter_map(|life| life.outer().next_back())
        .filter(|event| event.part == index);
    Part {
        source: member.source,
        offset: member.offset,
        calls,
        first: count(Step::First),
        last: last.count() as u64,
        turns: count(Step::Turn),
        moves: count(Step::Move),
        inside: if calls > 0 && inside >= calls * CLEAR {
            Inside::Mostly
        } else if inside >= calls * RARE {
            Inside::Sometimes
        } else {
            Inside::Never
        },
    }
}

/// The function that has most values before the others. Of many, those that were new late tell: earlier ones may be of
/// requests that ran already when the count began, which are first seen anywhere.
fn begin(lives: &[Life], parts: usize) -> Option<usize> {
    let late = match lives.len() {
        many if many >= MANY => MANY.max(many / 4),
        few => few,
    };
    let mut first = vec![0; parts];
    for life in &lives[lives.len() - late..] {
        first[life.events[0].part] += 1;
    }
    clear(&first)
}

/// The function behind which the value is not seen again, or begins again.
fn end(steps: &Steps, parts: &[Part], begin: usize) -> Option<usize> {
    let ended = |(index, part): (usize, &Part)| part.last + steps.between(index, begin);
    let all: Vec<u64> = parts.iter().enumerate().map(ended).collect();
    let end = clear(&all)?;
    // Otherwise the request goes on behind it.
    let is_last = all[end] * 100 >= parts[end].calls * CLEAR;
    (end != begin && is_last).then_some(end)
}

/// What the only function of a group returned, and whether that tells when a request ends.
fn results(lives: &[Life], only: usize) -> Alone {
    let mut results: BTreeMap<i32, (u64, u64)> = BTreeMap::new();
    let (mut calls, mut ended) = (0, 0);
    for life in lives {
        let own = life.outer().filter(|event| event.part == only);
        let own: Vec<Option<i32>> = own.map(|event| event.result).collect();
        for result in own.iter().flatten() {
            results.entry(*result).or_default().0 += 1;
            calls += 1;
        }
        if let Some(Some(last)) = own.last() {
            results.entry(*last).or_default().1 += 1;
            ended += 1;
        }
    }
    let mut results: Vec<(i32, u64, u64)> = results
        .into_iter()
        .map(|(result, (calls, last))| (result, calls, last))
        .collect();
    results.sort_by_key(|(_, calls, _)| std::cmp::Reverse(*calls));
    let is_end = |(_, of_it, last): &&(i32, u64, u64)| {
        *last * 100 >= ended * CLEAR && *of_it * 100 <= calls * SPECIAL
    };
    let end = results.iter().find(is_end).map(|(result, ..)| *result);
    Alone {
        end: end.filter(|_| ended >= MANY as u64),
        results,
    }
}

/// Different values, in the process that has most: one object for each process is not many.
fn values(lives: &[Life]) -> u64 {
    let mut of_process: BTreeMap<u32, u64> = BTreeMap::new();
    for life in lives {
        *of_process.entry(life.tgid).or_default() += 1;
    }
    of_process.into_values().max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
