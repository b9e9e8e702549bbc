//! Tokio's tables of functions: an object in; the table of each type of task, and of the means to wake one, out.
//!
//! They are constants, whose layout is fixed in C's way and the same in all releases since 1.24: seven functions and three
//! offsets that grow. A table cannot be inlined, so that its functions are there whatever else has been.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use reqtrace_binary::elf::Object;

use crate::evaluate::{Given, Machine};
use crate::instructions::{branch_target, decoder, ends_flow};
use crate::symbols::body;

/// Functions of a task's table: poll, schedule, dealloc, try_read_output, drop_join_handle_slow, drop_abort_handle, shutdown.
const FUNCTIONS: usize = 7;

/// Bytes of a task's header without tracing: its state, the next one in a queue, its table, its owner.
const HEADER: u64 = 32;

/// No header, scheduler or alignment of a future is larger.
const MAX_HEADER: u64 = 0x1_0000;

/// No task is larger.
const MAX_TASK: u64 = 1 << 40;

/// Where the task of a run is.
const TASK: u64 = 0x5000_0000_0000;

/// A reference to a task in its state.
const REFERENCE: u64 = 64;

/// How often an argument is handed on before it is read.
const MAX_PASSED: u32 = 3;

/// Instructions among which a task's waker is cloned.
const MAX_CLONE: usize = 24;

/// The table of one type of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Where it is.
    address: u64,
    functions: [u64; FUNCTIONS],
}

impl Table {
    /// Where it is.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// What polls such a task.
    pub(super) fn poll(&self) -> u64 {
        self.functions[0]
    }

    /// What puts a woken one into the queue of its scheduler.
    pub(super) fn schedule(&self) -> u64 {
        self.functions[1]
    }

    /// All but that: each is of one type of future.
    pub(super) fn of_future(&self) -> impl Iterator<Item = u64> {
        let [poll, _, others @ ..] = self.functions;
        [poll].into_iter().chain(others)
    }
}

/// All tables of tasks.
pub(super) fn tasks(object: &Object, pointers: &[(u64, u64)]) -> Vec<Table> {
    let by_slot = |slot: u64| {
        let at = pointers.binary_search_by_key(&slot, |(slot, _)| *slot);
        at.ok().map(|at| pointers[at].1)
    };
    let windows = pointers.windows(FUNCTIONS);
    let found = windows.filter_map(|window| {
        let start = window[0].0;
        let is_row = window
            .iter()
            .zip((start..).step_by(8))
            .all(|((slot, _), at)| *slot == at);
        let offset = |index: u64| {
            let slot = start + 8 * (FUNCTIONS as u64 + index);
            let word = object.word(slot)?;
            (by_slot(slot).is_none() && word % 8 == 0).then_some(word)
        };
        let (trailer, scheduler, id) = (offset(0)?, offset(1)?, offset(2)?);
        let grow = (HEADER..=MAX_HEADER).contains(&scheduler)
            && (scheduler + 1..=scheduler + MAX_HEADER).contains(&id)
            && (id + 1..=MAX_TASK).contains(&trailer);
        let mut functions = [0; FUNCTIONS];
        for (function, (_, target)) in functions.iter_mut().zip(window) {
            *function = *target;
        }
        let begin = functions
            .iter()
            .all(|function| object.frames().begins(*function));
        (is_row && grow && begin).then_some(Table {
            address: start,
            functions,
        })
    });
    found.collect()
}

/// What clones a task's waker: the first function of a table of four that has the table's address and adds a
/// reference to the state of its argument.
pub(super) fn clones(object: &Object, pointers: &[(u64, u64)]) -> Vec<u64> {
    let rows = pointers.windows(4).filter(|row| {
        let mut places = row.iter().zip((row[0].0..).step_by(8));
        places.all(|((slot, _), at)| *slot == at)
    });
    let mut found: Vec<u64> = rows
        .filter(|row| clones_into(object, row[0].1, row[0].0))
        .map(|row| row[0].1)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn clones_into(object: &Object, function: u64, table: u64) -> bool {
    if !object.frames().begins(function) {
        return false;
    }
    let code = || decoder(object, body(object, function)).take(MAX_CLONE);
    let has_table = code().any(|code| {
        let memory = code
            .is_ip_rel_memory_operand()
            .then(|| code.ip_rel_memory_address());
        memory.is_some_and(|at| at == table || object.in_offset_table(at) == Some(table))
    });
    let called = code().filter(|code| code.flow_control() == FlowControl::Call);
    let callees = called.map(|code| code.near_branch_target());
    has_table
        && [function]
            .into_iter()
            .chain(callees)
            .any(|one| adds_reference(object, one))
}

/// Whether a function adds a reference to the state of its first argument.
fn adds_reference(object: &Object, function: u64) -> bool {
    let (mut adds, mut has_reference) = (false, false);
    for code in decoder(object, body(object, function)).take(MAX_CLONE) {
        let numbers = (0..code.op_count()).filter_map(|at| code.try_immediate(at).ok());
        has_reference |= numbers.into_iter().any(|number| number == REFERENCE);
        adds |= code.has_lock_prefix()
            && matches!(code.mnemonic(), Mnemonic::Add | Mnemonic::Xadd)
            && code.op0_kind() == OpKind::Memory
            && code.memory_displacement64() == 0
            && code.memory_base() == Register::RDI
            && code.memory_index() == Register::None;
    }
    adds && has_reference
}

/// Into which queue the tasks of a scheduler go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// One that is known by what a woken task goes through.
    Through {
        /// Functions that are given the task, in turn.
        functions: Vec<u64>,
        /// The last of them that spawned tasks go through, too, and how it is given the task; `None`: it is inlined.
        common: Option<(u64, Given)>,
    },
    /// None: it is that of the blocking pool, whose jobs are never woken.
    None,
}

impl Queue {
    /// Whether tasks go into none.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The function that all tasks go through.
    pub(super) fn common(&self) -> Option<(u64, Given)> {
        match self {
            Self::Through { common, .. } => *common,
            Self::None => None,
        }
    }

    /// Whether its woken tasks go past these functions, all of which are known to queue tasks.
    pub(super) fn goes_past(&self, known: &[u64]) -> bool {
        match self {
            Self::Through {
                functions,
                common: Some(_),
            } => !functions.iter().any(|function| known.contains(function)),
            _ => false,
        }
    }
}

/// The queue of each function that puts a woken task there. `runs` are functions that run tasks, which are queued again
/// there if they have yielded.
pub(super) fn queues(
    object: &Object,
    tables: &[Table],
    runs: &BTreeSet<u64>,
) -> BTreeMap<u64, Queue> {
    let schedules = tables.iter().map(Table::schedule);
    let mut all: BTreeMap<u64, Queue> = schedules.map(|one| (one, Queue::None)).collect();
    for (schedule, queue) in &mut all {
        let mut machine = Machine::new(object);
        machine.set(Register::RDI, TASK);
        machine.watch(TASK);
        machine.run(*schedule);
        let functions = machine.given().iter().map(|(function, _)| *function);
        let mut functions = functions.chain([*schedule]);
        if functions.any(|function| never_returns(object, function)) {
            continue;
        }
        let functions: Vec<u64> = machine
            .given()
            .iter()
            .map(|(function, _)| *function)
            .collect();
        let own = functions.iter().chain([schedule]).chain(runs);
        let own: Vec<Range<u64>> = own.map(|function| body(object, *function)).collect();
        // One that only woken tasks go through is not what spawns do. In a register that a function does not read the task
        // stands by chance.
        let is_common = |(function, given): &&(u64, Given)| {
            let argument = match given {
                Given::Second => Register::RSI,
                Given::Behind(argument, _) => *argument,
            };
            let mut callers = object.callers(*function).into_iter();
            takes(object, *function, argument, MAX_PASSED)
                && callers.any(|from| !own.iter().any(|code| code.contains(&from)))
        };
        let common = machine.given().iter().rev().find(is_common).copied();
        *queue = Queue::Through { functions, common };
    }
    all
}

/// Whether a function reads an argument, or hands it on to one that does.
fn takes(object: &Object, function: u64, argument: Register, calls: u32) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let range = body(object, function);
    for code in decoder(object, range.clone()) {
        let flow = code.flow_control();
        let target = branch_target(object, &code);
        let leaves = target.is_some_and(|target| ends_flow(&code) && !range.contains(&target));
        if flow == FlowControl::Call || leaves {
            return calls > 0
                && target.is_some_and(|target| takes(object, target, argument, calls - 1));
        }
        let used = factory.info(&code).used_registers().iter();
        let mut used = used.filter(|used| used.register().full_register() == argument);
        if let Some(first) = used.next() {
            return first.access() != OpAccess::Write;
        }
        if matches!(flow, FlowControl::Return | FlowControl::Exception) {
            return false;
        }
    }
    false
}

/// Whether a function neither returns nor goes on in another one.
fn never_returns(object: &Object, function: u64) -> bool {
    let range = body(object, function);
    let leaves = |code: &Instruction| match code.flow_control() {
        FlowControl::Return | FlowControl::IndirectBranch => true,
        FlowControl::UnconditionalBranch => !range.contains(&code.near_branch_target()),
        _ => false,
    };
    !decoder(object, range.clone()).any(|code| leaves(&code))
}
