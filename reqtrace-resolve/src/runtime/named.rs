//! Edges of tasks by names: an object in; the functions of tokio in which a task is queued, run, left and done, out.
//!
//! All of them are compiled once, in the crate tokio itself. Those that put a task into a queue are of one of its
//! schedulers each; a program has only those that it uses.

use reqtrace_base::error::Result;
use reqtrace_binary::demangle::{Copy, demangle, split_suffix};
use reqtrace_binary::elf::Object;

use reqtrace_profile::{BESIDE_REQUESTS_MANGLED, GIVEN_UP};

use super::not_there;
use crate::instructions::{branch_target, decoder};
use crate::symbols::body;

/// The path of all of tokio's tasks.
pub(super) const TASK: &str = "tokio::runtime::task::";

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
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// Its type or trait and its own name, without parameters: `State::transition_to_idle`.
    pub(super) short: String,
    /// Demangled.
    pub(super) whole: String,
    pub(super) address: u64,
}

/// The functions that make a transition of a task's state, such as `State::transition_to_idle`.
pub(super) fn transitions(names: &[Named], transition: &str) -> Vec<u64> {
    let of_tasks = |one: &&Named| one.short == transition && one.whole.contains(TASK);
    let found = names.iter().filter(of_tasks);
    found.map(|one| one.address).collect()
}

/// Whether a function goes to no other one of these.
pub(super) fn calls_none(object: &Object, address: u64, all: &[u64]) -> bool {
    let code = body(object, address);
    !decoder(object, code).any(|instruction| {
        let target = branch_target(object, &instruction);
        target.is_some_and(|target| target != address && all.contains(&target))
    })
}

/// The functions that put tasks into queues.
///
/// # Errors
///
/// When a scheduler that the program uses has one that is not there, with its name.
pub(super) fn queues(object: &Object, names: &[Named]) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for scheduler in &SCHEDULERS {
        let with = |short: &str| -> Vec<u64> {
            let is_it = |one: &&Named| one.short == short && one.whole.contains(scheduler.path);
            let all = names.iter().filter(is_it);
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
    Ok(found)
}

/// Where the schedulers of versions before 1.22 are.
const OLDER: [&str; 2] = [
    "tokio::runtime::thread_pool::",
    "tokio::runtime::basic_scheduler::",
];

/// That an older tokio is in the program beside the one whose tasks are seen, with one of its functions.
pub(super) fn older(object: &Object, names: &[Named]) -> Option<String> {
    let mut all = names.iter();
    let one = all.find(|one| OLDER.iter().any(|path| one.whole.contains(path)))?;
    Some(format!(
        "an older tokio is in {}, too, whose tasks are not seen, nor what they wait for: {}",
        object.shown(),
        one.whole
    ))
}

/// Functions that have tokio in their symbols, or what looks beside requests.
pub(super) fn functions(object: &Object) -> Vec<Named> {
    let symbols = object.symbols().iter();
    let worth = symbols.filter(|symbol| {
        let name = object.name(symbol);
        let of_a_server = || name.contains(BESIDE_REQUESTS_MANGLED) || name.contains(GIVEN_UP);
        name.contains("tokio") || of_a_server()
    });
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
pub(super) fn short(path: &str) -> String {
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
pub(super) fn split_last(path: &str) -> Option<(&str, &str)> {
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
