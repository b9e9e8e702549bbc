//! Edges of the units of tokio: an object in; the functions in which a task is queued, run, left and done, and those
//! that poll tasks of a type, out.
//!
//! All but the functions that poll are compiled once, in the crate tokio itself. Those that put a task into a queue are
//! of one of its schedulers each; a program has only those that it uses.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction};

use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::glob_matches;
use reqtrace_binary::demangle::{Copy, demangle, split_suffix};
use reqtrace_binary::elf::Object;
use reqtrace_common::marker::{MAX_MARKER_ALTERNATIVES, MAX_NUMBERS};
use reqtrace_profile::Edge;

use super::instructions::{decoder, direct_target};
use super::missing::symbols_from;
use super::symbols::body;

mod types;
mod waits;

use waits::{waiting, wakers};
pub(super) use waits::{waits, without_reasons};

/// The path of all of tokio's tasks.
const TASK: &str = "tokio::runtime::task::";

/// One of tokio's schedulers.
struct Scheduler {
    /// For messages.
    name: &'static str,
    /// What its functions have in their names.
    path: &'static str,
    /// A program that has one of these functions uses the scheduler. Any of them may be inlined.
    signs: &'static [&'static str],
    /// Its functions that queue a task, as far as they were not inlined. Some call others.
    queues: &'static [&'static str],
    /// Without all of one of these lists there are tasks that are queued unseen.
    needs: &'static [&'static [&'static str]],
}

const SCHEDULERS: [Scheduler; 3] = [
    Scheduler {
        name: "multi-thread",
        path: "tokio::runtime::scheduler::multi_thread::",
        signs: &[
            "Context::run_task",
            "Schedule::schedule",
            "Schedule::release",
        ],
        queues: &[
            "Handle::schedule_task",
            "Schedule::schedule",
            "Schedule::yield_now",
            "Handle::schedule_option_task_without_yield",
        ],
        needs: &[
            &["Handle::schedule_task"],
            &[
                "Schedule::schedule",
                "Handle::schedule_option_task_without_yield",
            ],
        ],
    },
    Scheduler {
        name: "current-thread",
        path: "tokio::runtime::scheduler::current_thread::",
        signs: &[
            "Context::run_task",
            "Schedule::schedule",
            "Schedule::release",
            "Handle::spawn",
        ],
        queues: &["Schedule::schedule"],
        needs: &[&["Schedule::schedule"]],
    },
    Scheduler {
        name: "LocalSet's",
        path: "tokio::task::local::",
        signs: &["LocalSet::tick", "Shared::schedule", "Schedule::schedule"],
        queues: &["Shared::schedule", "Schedule::schedule"],
        needs: &[&["Shared::schedule"]],
    },
];

/// A function of tokio.
struct Named {
    /// Its type or trait and its own name, without parameters: `State::transition_to_idle`.
    short: String,
    /// Demangled.
    whole: String,
    address: u64,
}

/// The functions that are an edge: their code.
///
/// # Errors
///
/// When one is not there, with what was looked for and what to do.
pub(super) fn edge(object: &Object, edge: Edge) -> Result<Vec<Range<u64>>> {
    let transition = match edge {
        Edge::Queue => return queues(object),
        Edge::Wait => return Ok(waiting(object)),
        Edge::Waker => return Ok(wakers(object)),
        Edge::Resume => "State::transition_to_running",
        Edge::Leave => "State::transition_to_idle",
        Edge::Done => "State::transition_to_complete",
        Edge::Goroutine(_) => return Err(Error::failed("a goroutine is no task of tokio")),
    };
    let functions = functions(object, "transition_to_");
    let of_tasks = |one: &&Named| one.short == transition && one.whole.contains(TASK);
    let found: Vec<u64> = functions
        .iter()
        .filter(of_tasks)
        .map(|one| one.address)
        .collect();
    if found.is_empty() {
        return Err(not_there(object, &format!("{TASK}state::{transition}"), ""));
    }
    Ok(bodies(object, found))
}

/// Whether a function goes to no other one of these.
fn calls_none(object: &Object, address: u64, all: &[u64]) -> bool {
    let code = body(object, address);
    !decoder(object, code).any(|instruction| {
        let target = branch_target(object, &instruction);
        target != address && all.contains(&target)
    })
}

fn queues(object: &Object) -> Result<Vec<Range<u64>>> {
    let functions = functions(object, "tokio");
    let mut found = Vec::new();
    for scheduler in &SCHEDULERS {
        let with = |short: &str| -> Vec<u64> {
            let is_it = |one: &&Named| one.short == short && one.whole.contains(scheduler.path);
            let all = functions.iter().filter(is_it);
            all.map(|one| one.address).collect()
        };
        let has = |short: &&str| !with(short).is_empty();
        if !scheduler.signs.iter().any(has) {
            continue;
        }
        if !scheduler.needs.iter().any(|list| list.iter().all(has)) {
            let wanted: Vec<String> = scheduler
                .needs
                .iter()
                .map(|list| list.join(" with "))
                .collect();
            let wanted = format!("{}{}", scheduler.path, wanted.join(", or "));
            let what = format!(" of the {} scheduler", scheduler.name);
            return Err(not_there(object, &wanted, &what));
        }
        let all: Vec<u64> = scheduler
            .queues
            .iter()
            .flat_map(|short| with(short))
            .collect();
        // A task that goes through two of them is queued once.
        let first = all.iter().copied();
        found.extend(first.filter(|address| calls_none(object, *address, &all)));
    }
    if found.is_empty() {
        let wanted = "tokio::runtime::scheduler::current_thread::Context::run_task";
        return Err(not_there(object, wanted, ", nor one of another scheduler"));
    }
    Ok(bodies(object, found))
}

/// Where a call or a jump goes, also one through the global offset table; 0 if that is not known, or the instruction is
/// another one.
fn branch_target(object: &Object, instruction: &Instruction) -> u64 {
    let target = match instruction.flow_control() {
        FlowControl::Call => Some(instruction.near_branch_target()),
        FlowControl::IndirectCall | FlowControl::IndirectBranch => instruction
            .is_ip_rel_memory_operand()
            .then(|| object.in_offset_table(instruction.ip_rel_memory_address()))
            .flatten(),
        _ => direct_target(instruction),
    };
    target.unwrap_or_default()
}

/// The addresses of the functions that poll units whose type fits a glob.
///
/// # Errors
///
/// When there is none, or their types are not known.
pub(super) fn polls(object: &Object, pattern: &str) -> Result<Vec<u64>> {
    let all = types::polls(object);
    if all.is_empty() {
        return Err(not_there(object, &format!("{TASK}raw::poll"), ""));
    }
    let fits = |name: &String| glob_matches(pattern, name);
    let fitting: Vec<u64> = all
        .iter()
        .filter(|poll| poll.names.iter().any(fits))
        .map(|poll| poll.address)
        .collect();
    let at_most = MAX_NUMBERS * (MAX_MARKER_ALTERNATIVES - 1);
    if fitting.len() > at_most {
        return Err(Error::usage(format!(
            "unit = \"{pattern}\": {} types of tasks of {} fit, and at most {at_most} can be told from others",
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
    Err(match known.as_slice() {
        [] => error.next(
            "the names of these functions do not tell the type: build with -C symbol-mangling-version=v0, as Rust does by \
             itself from 1.97 on, or use unit = \"*\"",
        ),
        known => error.next(format!("it has {}", shortened(known))),
    })
}

/// Whether each type of unit fits one request at most, of these with their globs.
///
/// # Errors
///
/// With a type that fits two.
pub(super) fn told_apart(object: &Object, units: &[(&str, &str)]) -> Result<()> {
    for name in types::polls(object).iter().flat_map(|poll| &poll.names) {
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

/// Functions with this word in their symbols.
fn functions(object: &Object, word: &str) -> Vec<Named> {
    let symbols = object.symbols().iter();
    let worth = symbols.filter(|symbol| object.name(symbol).contains(word));
    worth
        .filter_map(|symbol| {
            let (base, copy) = split_suffix(object.name(symbol));
            let whole = demangle(base).path;
            (copy != Copy::Part).then(|| Named {
                short: short(&whole),
                whole,
                address: symbol.address,
            })
        })
        .collect()
}

/// The type or trait and the name of a function, in both manglings: `Schedule::schedule` of
/// `<alloc::sync::Arc<…> as tokio::runtime::task::Schedule>::schedule` and of
/// `tokio::…::<impl tokio::runtime::task::Schedule for …>::schedule`.
fn short(path: &str) -> String {
    let Some((of, name)) = split_last(path) else {
        return path.to_owned();
    };
    let inner = of.rsplit_once("<impl ").map_or(of, |(_, inner)| inner);
    let inner = inner.strip_prefix('<').unwrap_or(inner);
    let left = match (inner.split_once(" for "), inner.rsplit_once(" as ")) {
        (Some((of_trait, _)), _) | (None, Some((_, of_trait))) => of_trait,
        (None, None) => inner,
    };
    let left = left.trim_end_matches('>');
    let left = left
        .split('<')
        .next()
        .unwrap_or(left)
        .trim_end_matches("::");
    format!("{}::{name}", left.rsplit("::").next().unwrap_or(left))
}

/// A path and its last component, which no `<` is open before.
fn split_last(path: &str) -> Option<(&str, &str)> {
    let mut depth = 0_i32;
    let bytes = path.as_bytes();
    for at in (1..bytes.len()).rev() {
        match bytes[at] {
            b'>' if bytes[at - 1] != b'-' => depth += 1,
            b'<' => depth -= 1,
            b':' if depth == 0 && bytes[at - 1] == b':' => {
                return Some((&path[..at - 1], &path[at + 1..]));
            }
            _ => {}
        }
    }
    None
}

fn bodies(object: &Object, mut addresses: Vec<u64>) -> Vec<Range<u64>> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses
        .into_iter()
        .map(|address| body(object, address))
        .collect()
}

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
            "the compiler has inlined it into others, as link-time optimisation does (lto = \"thin\" or \"fat\"), or the \
             program has a version of tokio before 1.24: build it without LTO, with a tokio of today",
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
