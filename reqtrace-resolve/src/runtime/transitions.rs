//! Places where tokio changes the state of a task, by what the code there computes: an object in, the instructions that
//! read the state before it is changed, with the register that has the task, out.
//!
//! The functions that change it are small, so that compilers inline them where they may, and then no name is left. But
//! each is a loop that reads the state, computes the next one and exchanges the two, and what it makes of a state is
//! fixed: in all releases since 1.24, at all levels of optimisation. So the code behind each read that may be one is
//! run on several states, and what it makes of them tells which transition it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as Code,
};

use reqtrace_binary::elf::Object;
use reqtrace_common::registers::Register;
use reqtrace_profile::Edge;

use crate::emulated::writes;
use crate::evaluate::{Machine, STACK, Stop};
use crate::instructions::{MAX_FUNCTION, decoder};

/// `lock cmpxchg` of a register of 8 bytes, and which bits of it are fixed.
const EXCHANGE: [u8; 4] = [0xf0, 0x48, 0x0f, 0xb1];
const FIXED: [u8; 4] = [0xff, 0xf8, 0xff, 0xff];

/// No frame of a function is larger.
const MAX_FRAME: u64 = 1 << 20;

/// States on which the code of a transition is run.
const MAX_STATES: usize = 4;

/// Instructions before a read among which the address of the task is looked for in other registers.
const MAX_BEFORE: usize = 16;

/// Where the task of a run is.
const TASK: u64 = 0x5000_0000_0000;

/// Bits of the state, and one reference.
const RUNNING: u64 = 1;
const COMPLETE: u64 = 2;
const NOTIFIED: u64 = 4;
const HAS_HANDLE: u64 = 8;
const HAS_WAKER: u64 = 16;
const CANCELLED: u64 = 32;
const REFERENCE: u64 = 64;

/// What is made of a state: that one, anything but that one.
#[derive(Clone, Copy)]
enum Next {
    Is(u64),
    IsNot(u64),
}

use Next::{Is, IsNot};

/// What the transitions make of states.
const TRANSITIONS: [(Edge, &[(u64, Next)]); 3] = [
    (
        Edge::Leave,
        &[
            (
                RUNNING | HAS_HANDLE | (2 * REFERENCE),
                Is(HAS_HANDLE | REFERENCE),
            ),
            (
                RUNNING | HAS_WAKER | (3 * REFERENCE),
                Is(HAS_WAKER | (2 * REFERENCE)),
            ),
            (
                RUNNING | NOTIFIED | (2 * REFERENCE),
                Is(NOTIFIED | (3 * REFERENCE)),
            ),
            (
                RUNNING | CANCELLED | (2 * REFERENCE),
                IsNot(CANCELLED | REFERENCE),
            ),
        ],
    ),
    (
        Edge::Resume,
        &[
            (
                NOTIFIED | HAS_HANDLE | (3 * REFERENCE),
                Is(RUNNING | HAS_HANDLE | (3 * REFERENCE)),
            ),
            (
                NOTIFIED | CANCELLED | (2 * REFERENCE),
                Is(RUNNING | CANCELLED | (2 * REFERENCE)),
            ),
            (
                NOTIFIED | RUNNING | (3 * REFERENCE),
                Is(NOTIFIED | RUNNING | (2 * REFERENCE)),
            ),
            (
                NOTIFIED | COMPLETE | (3 * REFERENCE),
                Is(NOTIFIED | COMPLETE | (2 * REFERENCE)),
            ),
        ],
    ),
    (
        Edge::Done,
        &[
            (
                RUNNING | HAS_HANDLE | (2 * REFERENCE),
                Is(COMPLETE | HAS_HANDLE | (2 * REFERENCE)),
            ),
            (
                RUNNING | NOTIFIED | HAS_WAKER | REFERENCE,
                Is(COMPLETE | NOTIFIED | HAS_WAKER | REFERENCE),
            ),
            (
                RUNNING | CANCELLED | REFERENCE,
                Is(COMPLETE | CANCELLED | REFERENCE),
            ),
        ],
    ),
];

/// A place where the state of a task is about to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    /// Which: resumed, left or done.
    pub(super) edge: Edge,
    /// The exchanges that the code there comes to, with one state or another.
    pub(super) exchanges: [Option<u64>; MAX_STATES],
    /// The instruction that reads the state.
    pub(super) address: u64,
    /// Where the address of the task is then.
    pub(super) task: Register,
    /// Where the state is behind it.
    pub(super) state: Register,
    /// Begin of the function that it is in.
    pub(super) function: u64,
}

/// How many exchanges of 8 bytes at a register a function has that no transition explains.
pub(super) fn unexplained(object: &Object, function: Range<u64>, all: &[Transition]) -> usize {
    let is_exchange = |code: &Instruction| {
        code.mnemonic() == Mnemonic::Cmpxchg
            && code.op1_register().is_gpr64()
            && code.memory_displacement64() == 0
            && code.memory_index() == Code::None
    };
    let has = decoder(object, function.clone())
        .filter(is_exchange)
        .count();
    let here = all.iter().filter(|one| function.contains(&one.address));
    let explained: BTreeSet<u64> = here.flat_map(|one| one.exchanges).flatten().collect();
    has - explained.len().min(has)
}

/// All of them, by address.
pub(super) fn transitions(object: &Object) -> Vec<Transition> {
    let exchanges = object.bytes_in_code(EXCHANGE, FIXED);
    let functions = exchanges.filter_map(|at| object.frames().range(at));
    let functions: BTreeSet<(u64, u64)> = functions
        .filter(|range| range.end - range.start <= MAX_FUNCTION)
        .map(|range| (range.start, range.end))
        .collect();
    let of_function = |(start, end)| of_function(object, start..end);
    functions.into_iter().flat_map(of_function).collect()
}

fn of_function(object: &Object, function: Range<u64>) -> Vec<Transition> {
    let code: Vec<Instruction> = decoder(object, function.clone()).collect();
    let mut found = Vec::new();
    let mut frame = Frame::new();
    for (at, one) in code.iter().enumerate() {
        if at > 0 {
            frame.follow(&code[at - 1]);
        }
        let Some(base) = load(one) else { continue };
        let same = copies(&code[..at], base);
        let found_here = TRANSITIONS.iter().find_map(|(edge, states)| {
            let exchanges = exchanges(object, one.ip(), &frame, &same, states)?;
            Some((*edge, exchanges))
        });
        if let (Some((edge, exchanges)), Some(task), Some(state)) =
            (found_here, known(base), known(one.op0_register()))
        {
            found.push(Transition {
                edge,
                exchanges,
                address: one.ip(),
                task,
                state,
                function: function.start,
            });
        }
    }
    found
}

/// Registers that hold an address of the function's frame, by the instruction above that has set them last. Where the code
/// does not come from there, nothing fits that is computed.
struct Frame {
    factory: InstructionInfoFactory,
    addresses: BTreeMap<Code, u64>,
}

impl Frame {
    fn new() -> Self {
        Self {
            factory: InstructionInfoFactory::new(),
            addresses: BTreeMap::new(),
        }
    }

    fn follow(&mut self, code: &Instruction) {
        let to = code.op0_register();
        let is_whole = code.op0_kind() == OpKind::Register && to.is_gpr64();
        let of = |base| match base {
            Code::RSP => Some(STACK),
            base => self.addresses.get(&base).copied(),
        };
        let address = match code.mnemonic() {
            Mnemonic::Lea if is_whole && code.memory_index() == Code::None => {
                let base = of(code.memory_base());
                base.map(|base| base.wrapping_add(code.memory_displacement64()))
            }
            // Where the frame pointer is set, the stack pointer is far above where it is later.
            Mnemonic::Mov if to == Code::RBP && code.op1_register() == Code::RSP => {
                Some(STACK + MAX_FRAME)
            }
            Mnemonic::Mov if is_whole && code.op1_kind() == OpKind::Register => {
                of(code.op1_register())
            }
            _ => None,
        };
        let info = self.factory.info(code);
        for used in info.used_registers() {
            let is_read = matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            );
            if !is_read {
                self.addresses.remove(&used.register().full_register());
            }
        }
        if let Some(address) = address {
            self.addresses.insert(to, address);
        }
    }
}

/// The registers that hold what this one holds behind these instructions, itself among them, as far as the last ones
/// that nothing leaves tell it.
fn copies(before: &[Instruction], register: Code) -> Vec<Code> {
    let mut same = vec![register];
    let mut changed = Vec::new();
    for code in before.iter().rev().take(MAX_BEFORE) {
        if code.flow_control() != FlowControl::Next {
            break;
        }
        let is_copy = code.mnemonic() == Mnemonic::Mov
            && code.op0_kind() == OpKind::Register
            && code.op1_kind() == OpKind::Register
            && code.op0_register().is_gpr64();
        let (to, from) = (code.op0_register(), code.op1_register());
        if is_copy && same.contains(&to) && !changed.contains(&from) {
            same.push(from);
        } else if is_copy && same.contains(&from) && !changed.contains(&to) {
            same.push(to);
        }
        changed.extend(all().filter(|one| writes(code, *one)));
    }
    same
}

/// All registers of 8 bytes but the stack's.
fn all() -> impl Iterator<Item = Code> {
    let all = Code::values().filter(|register| register.is_gpr64());
    all.filter(|register| *register != Code::RSP)
}

/// A register by the name that the tracer knows it by.
pub(super) fn known(register: Code) -> Option<Register> {
    let named = Register::named(&format!("{register:?}").to_lowercase());
    named.map(|(register, _)| register)
}

/// The reverse of [`known`].
pub(super) fn code_of(register: Register) -> Option<Code> {
    all().find(|code| known(*code) == Some(register))
}

/// The register that an instruction loads 8 bytes from, if it does nothing else.
fn load(code: &Instruction) -> Option<Code> {
    let is_load = code.mnemonic() == Mnemonic::Mov
        && code.op0_kind() == OpKind::Register
        && code.op0_register().is_gpr64()
        && code.op1_kind() == OpKind::Memory
        && code.memory_index() == Code::None
        && code.memory_displacement64() == 0
        && code.segment_prefix() == Code::None;
    let base = code.memory_base();
    (is_load && base.is_gpr64() && base != Code::RSP).then_some(base)
}

/// The exchanges that the code comes to that begins with a load of a state, if it makes of each of these what it has to.
fn exchanges(
    object: &Object,
    address: u64,
    frame: &Frame,
    same: &[Code],
    states: &[(u64, Next)],
) -> Option<[Option<u64>; MAX_STATES]> {
    let mut all = [None; MAX_STATES];
    for (exchange, (state, next)) in all.iter_mut().zip(states) {
        let mut machine = Machine::new(object);
        for (register, address) in &frame.addresses {
            machine.set(*register, *address);
        }
        for register in same {
            machine.set(*register, TASK);
        }
        machine.store(TASK, *state);
        machine.count(TASK);
        let made = match machine.run(address) {
            Stop::Exchange {
                at,
                address: TASK,
                new,
            } => Some((at, new)),
            _ => None,
        };
        // What another load has read is that one's.
        let is_own = machine.loads() == 1;
        let fits = match next {
            Is(next) => is_own && made.is_some_and(|(_, new)| new == *next),
            IsNot(next) => made.is_none_or(|(_, new)| new != *next),
        };
        if !fits {
            return None;
        }
        *exchange = made.filter(|_| is_own).map(|(at, _)| at);
    }
    Some(all)
}
