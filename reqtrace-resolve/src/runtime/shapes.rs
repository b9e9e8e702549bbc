//! What is found of tokio by the shape of its tables and by what its code computes: an object in; places and functions
//! that no name is needed for, out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use iced_x86::Instruction;

use reqtrace_binary::elf::Object;
use reqtrace_profile::Edge;

use super::named::{self, Named};
use super::tables::{self, Queue, Table};
use super::transitions::{Transition, transitions, unexplained};
use super::types::{self, Poll};
use crate::instructions::{branch_target, decoder};
use crate::symbols::body;

/// How many calls lie between what polls a task and what changes its state, at most.
const MAX_CALLS: u32 = 5;

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    /// One for each type of task, those of the blocking pool among them.
    pub(super) tables: Vec<Table>,
    /// The queue of each scheduler, by the function that puts a woken task there.
    pub(super) queues: BTreeMap<u64, Queue>,
    /// Where the state of a task changes.
    pub(super) transitions: Vec<Transition>,
    /// Functions that clone the waker of a task.
    pub(super) clones: Vec<u64>,
    /// The functions of tokio that have names, when they were asked for.
    names: OnceLock<Vec<Named>>,
    /// What polls tasks, when it was asked for.
    polls: OnceLock<Vec<Poll>>,
}

impl Shapes {
    /// Looks for all of it.
    pub(crate) fn of(object: &Object) -> Self {
        let pointers = object.pointers_to_code();
        let tables = tables::tasks(object, &pointers);
        if tables.is_empty() {
            return Self::default();
        }
        let transitions = transitions(object);
        let polls = tables.iter().map(Table::poll);
        let runs = polls.chain(transitions.iter().map(|one| one.function));
        Self {
            queues: tables::queues(object, &tables, &runs.collect()),
            transitions,
            clones: tables::clones(object, &pointers),
            tables,
            ..Self::default()
        }
    }

    /// The functions of tokio that have names, in the object that these shapes are of.
    pub(super) fn names(&self, object: &Object) -> &[Named] {
        self.names.get_or_init(|| named::functions(object))
    }

    /// What polls tasks there, of all types but those of the blocking pool.
    pub(super) fn polls(&self, object: &Object) -> &[Poll] {
        self.polls
            .get_or_init(|| types::polls(object, self.of_tasks()))
    }

    /// Tables of tasks that a runtime runs.
    pub(super) fn of_tasks(&self) -> impl Iterator<Item = &Table> {
        let is_run = |table: &&Table| {
            let queue = self.queues.get(&table.schedule());
            !queue.is_some_and(Queue::is_none)
        };
        self.tables.iter().filter(is_run)
    }

    /// The addresses of the tables of tasks that these functions poll; `None`: they are not known of all, or are more.
    pub(crate) fn tables_of(&self, polls: &[u64]) -> Option<Vec<u64>> {
        let mut tables = Vec::new();
        for poll in polls {
            let mut of_poll = self.tables.iter().filter(|table| table.poll() == *poll);
            let (Some(table), None) = (of_poll.next(), of_poll.next()) else {
                return None;
            };
            tables.push(table.address());
        }
        Some(tables)
    }

    /// What schedules the jobs of the blocking pool, which are run once and never woken.
    pub(crate) fn of_jobs(&self) -> BTreeSet<u64> {
        let of_tasks: BTreeSet<u64> = self.of_tasks().map(Table::schedule).collect();
        let all = self.tables.iter().map(Table::schedule);
        all.filter(|schedule| !of_tasks.contains(schedule))
            .collect()
    }

    /// A function that polls tasks, and does not come to any of these addresses, which are those of an edge; `None`: they
    /// all do. A task that never waits is never left.
    pub(super) fn misses(
        &self,
        object: &Object,
        edge: Edge,
        addresses: &BTreeSet<u64>,
    ) -> Option<u64> {
        let mut callees = BTreeMap::new();
        let polls: BTreeSet<u64> = self.of_tasks().map(Table::poll).collect();
        let mut all = polls.into_iter();
        all.find(|poll| {
            !reaches(object, *poll, addresses, &mut callees)
                && (edge != Edge::Leave || self.may_leave(object, *poll, &callees))
        })
    }

    /// Whether a function that polls tasks, or one that resumes them for it, may change their state otherwise.
    fn may_leave(
        &self,
        object: &Object,
        poll: u64,
        callees: &BTreeMap<u64, BTreeSet<u64>>,
    ) -> bool {
        let resumes = |function: &u64| {
            let code = body(object, *function);
            let mut all = self.transitions.iter();
            all.any(|one| one.edge == Edge::Resume && code.contains(&one.address))
        };
        let called = callees.get(&poll).into_iter().flatten().copied();
        let mut all = called.filter(resumes).chain([poll]);
        all.any(|function| unexplained(object, body(object, function), &self.transitions) > 0)
    }
}

/// What an instruction calls or jumps to, or has the address of in the global offset table.
fn referred(object: &Object, instruction: &Instruction) -> Option<u64> {
    branch_target(object, instruction).or_else(|| {
        let slot = instruction
            .is_ip_rel_memory_operand()
            .then(|| instruction.ip_rel_memory_address());
        object.in_offset_table(slot?)
    })
}

/// Whether a function, or one that it calls, has or is one of these addresses.
fn reaches(
    object: &Object,
    from: u64,
    wanted: &BTreeSet<u64>,
    callees: &mut BTreeMap<u64, BTreeSet<u64>>,
) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut here = vec![from];
    for _ in 0..=MAX_CALLS {
        let mut next = Vec::new();
        for function in here {
            let code = body(object, function);
            if wanted.range(code.clone()).next().is_some() {
                return true;
            }
            let called = callees.entry(function).or_insert_with(|| {
                let all = decoder(object, code.clone());
                let targets = all.filter_map(|instruction| referred(object, &instruction));
                targets.filter(|target| !code.contains(target)).collect()
            });
            next.extend(called.iter().copied().filter(|one| seen.insert(*one)));
        }
        here = next;
    }
    false
}

#[cfg(test)]
mod tests;
