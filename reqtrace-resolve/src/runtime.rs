//! Edges of the units of tokio: an object in; the code in which a task is queued, run, left and done, and the functions
//! that poll tasks of a type, out.
//!
//! Both names and shapes are asked. Names are sure where a function stands for itself; where a compiler has put it into
//! others, or names are gone, the code is known by what it does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::Register as Code;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::glob_matches;
use reqtrace_binary::elf::Object;
use reqtrace_common::marker::{MAX_MARKER_ALTERNATIVES, MAX_NUMBERS};
use reqtrace_profile::Edge;

use super::evaluate::Given;
use super::hazards::has_tasks;
use super::missing::symbols_from;
use super::readings::UnitAt;
use super::returns::{self, Reads, Site};
use super::symbols::body;

mod named;
mod shapes;
mod tables;
mod transitions;
mod types;
mod waits;

use named::TASK;
pub(super) use shapes::Shapes;
use transitions::Transition;
pub(super) use waits::{joins, waits, wakes, without_reasons};
use waits::{waiting, wakers};

/// Where functions of tokio take a task.
const ARGUMENTS: [Code; 2] = [Code::RDI, Code::RSI];

/// The code of an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EdgeCode {
    /// Functions that take the task, at whose entry it is.
    pub(super) functions: Vec<Range<u64>>,
    /// Other instructions, each with where the task is.
    pub(super) others: Vec<(u64, UnitAt)>,
    /// Instructions in all of that which read the state of a task that matters.
    reads: Vec<Transition>,
}

impl EdgeCode {
    /// Where it begins, for what is told by distances in code.
    fn first(&self) -> Option<u64> {
        self.functions.first().map(|function| function.start)
    }

    /// All of it: of an instruction its first byte.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let others = self
            .others
            .iter()
            .map(|(address, _)| *address..*address + 1);
        self.functions.iter().cloned().chain(others).collect()
    }

    /// The instructions to probe: where they can be behind what reads the state, the kernel programs need not read it again.
    pub(super) fn sites(&self, object: &Object) -> Vec<(Site, Option<UnitAt>)> {
        let entries = self.functions.iter().map(|code| {
            let mut reads = self.reads.iter().filter(|one| code.contains(&one.address));
            if let (Some(read), None) = (reads.next(), reads.next())
                && returns::comes_to(object, code, read.address)
                && let Some(site) = behind(object, read)
            {
                return site;
            }
            match returns::entry(object, code, Reads::Arguments) {
                moved if moved.distance > 0 => (moved, None),
                entry => (returns::beside(object, entry.address, &ARGUMENTS), None),
            }
        });
        let others = self.others.iter().map(|(address, task)| {
            let mut reads = self.reads.iter().filter(|one| one.address == *address);
            if let Some(site) = reads.next().and_then(|read| behind(object, read)) {
                return site;
            }
            let site = match transitions::code_of(task.register) {
                Some(register) => returns::beside(object, *address, &[register]),
                None => Site::itself(*address, None),
            };
            (site, Some(*task))
        });
        entries.chain(others).collect()
    }
}

/// Where to probe behind what reads the state of a task, while both it and the task are in registers.
fn behind(object: &Object, read: &Transition) -> Option<(Site, Option<UnitAt>)> {
    let task = transitions::code_of(read.task)?;
    let state = transitions::code_of(read.state)?;
    let site = returns::behind_load(object, read.address, state, &[task])?;
    let unit = UnitAt {
        register: read.task,
        behind: None,
        state: Some(read.state),
    };
    Some((site, Some(unit)))
}

/// Where tasks come to an edge.
///
/// # Errors
///
/// When it is not there, or not for all tasks, with what was looked for and what to do.
pub(super) fn edge(object: &Object, shapes: &Shapes, edge: Edge) -> Result<EdgeCode> {
    let of_functions = |functions| EdgeCode {
        functions,
        ..EdgeCode::default()
    };
    let names = shapes.names(object);
    let transition = match edge {
        Edge::Queue => return queues(object, shapes),
        Edge::Wait => return Ok(of_functions(waiting(object, names))),
        Edge::Waker => {
            let named = wakers(names);
            let found = if named.is_empty() {
                shapes.clones.clone()
            } else {
                named
            };
            return Ok(of_functions(bodies(object, found)));
        }
        Edge::Resume => "State::transition_to_running",
        Edge::Leave => "State::transition_to_idle",
        Edge::Done => "State::transition_to_complete",
        Edge::Goroutine(_) => return Err(Error::failed("a goroutine is no task of tokio")),
    };
    // A function that has a name may be inlined into some of those that use it all the same.
    let functions = bodies(object, named::transitions(names, transition));
    let is_elsewhere = |address: &u64| !functions.iter().any(|code| code.contains(address));
    let reads = shapes.transitions.iter().filter(|one| one.edge == edge);
    let reads: Vec<Transition> = reads.copied().collect();
    let others: Vec<(u64, UnitAt)> = reads
        .iter()
        .filter(|one| is_elsewhere(&one.address))
        .map(|one| {
            (
                one.address,
                UnitAt {
                    register: one.task,
                    behind: None,
                    state: None,
                },
            )
        })
        .collect();
    if functions.is_empty() && others.is_empty() {
        return Err(not_there(object, &format!("{TASK}state::{transition}"), ""));
    }
    let starts = functions.iter().map(|code| code.start);
    let all = starts.chain(others.iter().map(|(address, _)| *address));
    if let Some(poll) = shapes.misses(object, edge, &all.collect()) {
        return Err(not_for_all(object, edge, poll));
    }
    let reads = match edge {
        Edge::Done => Vec::new(),
        _ => reads,
    };
    Ok(EdgeCode {
        functions,
        others,
        reads,
    })
}

/// Where tasks are queued: by names, or where woken tasks go past what these name, by shape.
fn queues(object: &Object, shapes: &Shapes) -> Result<EdgeCode> {
    let named = named::queues(object, shapes.names(object));
    let misses_some = |functions: &[u64]| {
        let mut all = shapes.queues.values();
        all.any(|queue| queue.goes_past(functions))
    };
    match named {
        Ok(functions) if !misses_some(&functions) => {
            return Ok(EdgeCode {
                functions: bodies(object, functions),
                ..EdgeCode::default()
            });
        }
        Err(error) if shapes.queues.is_empty() => return Err(error),
        _ => {}
    }
    let mut code = EdgeCode::default();
    let (mut functions, mut closures) = (Vec::new(), Vec::new());
    for (schedule, queue) in &shapes.queues {
        match queue.common() {
            Some((function, Given::Second)) => functions.push(function),
            Some((function, Given::Behind(argument, bytes))) => {
                closures.push((function, argument, bytes));
            }
            None if queue.is_none() => {}
            None => return Err(no_queue(object, *schedule)),
        }
    }
    code.functions = bodies(object, functions);
    closures.sort_unstable();
    closures.dedup();
    code.others = closures
        .into_iter()
        .filter_map(|(function, argument, bytes)| {
            let task = UnitAt {
                register: transitions::known(argument)?,
                behind: Some(bytes),
                state: None,
            };
            Some((function, task))
        })
        .collect();
    Ok(code)
}

/// The addresses of the functions that poll units whose type fits a glob.
///
/// # Errors
///
/// When there is none, or their types are not known.
pub(super) fn polls(object: &Object, shapes: &Shapes, pattern: &str) -> Result<Vec<u64>> {
    let all = shapes.polls(object);
    if all.is_empty() {
        return Err(not_there(object, &format!("{TASK}raw::poll"), ""));
    }
    let fits = |name: &String| glob_matches(pattern, name);
    let fitting: Vec<u64> = all
        .iter()
        .filter(|poll| poll.names.iter().any(fits))
        .map(|poll| poll.address)
        .collect();
    // Where a task is spawned there may be a child, and a task becomes ready.
    let at_most = MAX_NUMBERS * (MAX_MARKER_ALTERNATIVES - 2);
    if fitting.len() > at_most {
        return Err(Error::usage(format!(
            "unit = \"{pattern}\": {} functions of {} poll tasks that fit, one for each type and scheduler, and at most {at_most} can \
             be distinguished",
            fitting.len(),
            object.shown()
        ))
        .next("choose a narrower pattern, or unit = \"*\", which is all tasks"));
    }
    if let Some(folded) = all
        .iter()
        .find(|poll| poll.names.iter().any(fits) && !poll.names.iter().all(fits))
    {
        return Err(Error::usage(format!(
            "unit = \"{pattern}\": one function of {} polls {}, as the linker has put what is equal together, and not all \
             of these fit",
            object.shown(),
            folded.names.iter().cloned().collect::<Vec<_>>().join(" and ")
        ))
        .next("choose a pattern that fits all of them, or build without identical code folding"));
    }
    if !fitting.is_empty() {
        return Ok(fitting);
    }
    let mut known: Vec<&str> = all
        .iter()
        .flat_map(|poll| &poll.names)
        .map(String::as_str)
        .collect();
    known.sort_unstable();
    known.dedup();
    let error = Error::usage(format!(
        "unit = \"{pattern}\": no type of task of {} fits, of {} functions that poll one",
        object.shown(),
        all.len()
    ));
    let are_addresses = known.iter().all(|name| name.starts_with("0x"));
    Err(match known.as_slice() {
        known if are_addresses => error.next(format!(
            "no name tells the types of its tasks: build with symbols and -C symbol-mangling-version=v0, as Rust does by \
             itself from 1.97 on, or use unit = \"*\", or the address of a function that polls tasks of one type: {}",
            shortened(known)
        )),
        known => error.next(format!("it has {}", shortened(known))),
    })
}

/// Types of tasks, by the address of the function that polls them: those of one that the linker has made of several are
/// all named.
pub(super) fn types(object: &Object, shapes: &Shapes) -> BTreeMap<u64, String> {
    let polls = shapes.polls(object).iter();
    let named = polls.map(|poll| {
        let names: Vec<&str> = poll.names.iter().map(String::as_str).collect();
        (poll.address, names.join(" or "))
    });
    named.collect()
}

/// That an older tokio is in the program beside the one whose tasks are seen, with one of its functions.
pub(super) fn older(object: &Object, shapes: &Shapes) -> Option<String> {
    named::older(object, shapes.names(object))
}

/// Whether a program runs tasks of tokio, whatever names it has.
pub(super) fn runs_tasks(object: &Object) -> bool {
    Shapes::of(object).of_tasks().next().is_some()
}

/// Types of tasks that have a name, by the function that polls them.
pub(super) fn task_types(object: &Object) -> Vec<BTreeSet<String>> {
    if !has_tasks(object) {
        return Vec::new();
    }
    let shapes = Shapes::of(object);
    let named = shapes.polls(object).iter().map(|poll| {
        let names = poll.names.iter().filter(|name| !name.starts_with("0x"));
        names.cloned().collect::<BTreeSet<String>>()
    });
    named.filter(|names| !names.is_empty()).collect()
}

/// Whether each type of unit fits one request at most, of these with their globs.
///
/// # Errors
///
/// With a type that fits two.
pub(super) fn told_apart(object: &Object, shapes: &Shapes, units: &[(&str, &str)]) -> Result<()> {
    for name in shapes.polls(object).iter().flat_map(|poll| &poll.names) {
        let mut fitting = units
            .iter()
            .filter(|(_, pattern)| glob_matches(pattern, name));
        if let (Some((first, _)), Some((second, _))) = (fitting.next(), fitting.next()) {
            return Err(Error::usage(format!(
                "tasks of the type `{name}` would be requests of `{first}` and of `{second}`, and a task is one request"
            ))
            .next("choose patterns of `unit` that no type fits both of"));
        }
    }
    let mut all = units.iter().filter(|(_, pattern)| *pattern == "*");
    match all.next() {
        Some((name, _)) => Err(Error::usage(format!(
            "all tasks are requests of `{name}` with unit = \"*\", and the profile has {} types of requests",
            units.len()
        ))
        .next("choose patterns of `unit` that no type fits both of")),
        None => Ok(()),
    }
}

/// The first of many names.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 12;
    let mut text = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(", and {} more", names.len() - SHOWN));
    }
    text
}

fn bodies(object: &Object, mut addresses: Vec<u64>) -> Vec<Range<u64>> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses
        .into_iter()
        .map(|address| body(object, address))
        .collect()
}

/// Some tasks come to an edge at a place that was not found.
fn not_for_all(object: &Object, edge: Edge, poll: u64) -> Error {
    Error::usage(format!(
        "[runtime] kind = \"tokio\": where {} was not found for all tasks of {}: not in the code that is called from 0x{poll:x}, \
         which polls some",
        edge.words(),
        object.shown()
    ))
    .next(OTHER_BUILD)
}

/// What puts woken tasks of a scheduler into its queue is not a function.
fn no_queue(object: &Object, schedule: u64) -> Error {
    Error::usage(format!(
        "[runtime] kind = \"tokio\": no function puts tasks into a queue in {}: it is inlined into 0x{schedule:x}, which \
         wakes tasks, and into what spawns them",
        object.shown()
    ))
    .next(OTHER_BUILD)
}

/// What helps where the compiler has left no trace of a function.
const OTHER_BUILD: &str = "build it with symbols and without link-time optimisation: lto = false and strip = false in its profile";

fn not_there(object: &Object, function: &str, what: &str) -> Error {
    let shown = object.shown();
    let error = Error::usage(format!(
        "[runtime] kind = \"tokio\": no function `{function}`{what} in {shown}"
    ));
    let has_tokio = object
        .symbols()
        .iter()
        .any(|symbol| object.name(symbol).contains("tokio"));
    if has_tokio {
        return error.next(
            "the compiler has inlined it into others, as link-time optimisation does (lto = \"thin\" or \"fat\"), and code that \
             does the same was not found, or the program has a version of tokio before 1.24: build it without LTO, with a \
             tokio of today",
        );
    }
    if object.symbols().is_empty() {
        return error.next(format!(
            "The file has no function symbols at all. {}",
            symbols_from(object)
        ));
    }
    error.next("no function of tokio is in it: leave [runtime] out, or name the process whose program has it")
}

#[cfg(test)]
mod tests;
