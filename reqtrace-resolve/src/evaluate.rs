//! What a piece of x86 code computes: an object, an address and what registers and memory hold there in, what the code does
//! at its first call, atomic exchange or unknown turn out.
//!
//! Code is known by what it does where no name is left of it, however a compiler has arranged it. Values are concrete, and
//! what is not known stays so: nothing is guessed, and a turn that depends on it ends the run.

use std::collections::BTreeMap;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use reqtrace_binary::elf::Object;

use super::instructions::{branch_target, decoder};

mod arithmetic;

use arithmetic::Flags;

/// Instructions after which a run is given up.
const MAX_STEPS: usize = 400;

/// Calls that a run goes into, one within another.
const MAX_DEPTH: usize = 6;

/// Bytes of what a closure has taken.
const MAX_CLOSURE: i32 = 64;

/// Where the stack of a run begins: far from any object.
pub(super) const STACK: u64 = 0x7ffd_0000_0000;

/// Why a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is about to exchange these 8 bytes of memory if they are what the accumulator holds.
    Exchange {
        /// The instruction that does it.
        at: u64,
        /// Which.
        address: u64,
        /// For what.
        new: u64,
    },
    /// It goes on where that is not known, or does what is not known here, or has run for long.
    Unknown,
}

/// How a function is given a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Given {
    /// As its second argument.
    Second,
    /// So many bytes behind where this argument points.
    Behind(Register, i32),
}

/// A number of which some bits are known.
#[derive(Clone, Copy, Debug, Default)]
struct Partly {
    value: u64,
    known: u64,
}

/// A processor that runs a piece of an object's code.
pub(super) struct Machine<'a> {
    object: &'a Object,
    registers: [Partly; 16],
    flags: Flags,
    memory: BTreeMap<u64, u8>,
    calls: usize,
    /// What functions are given.
    watched: Option<u64>,
    /// Those that were given it, in turn, and how.
    given: Vec<(u64, Given)>,
    /// How often these 8 bytes were read.
    counted: Option<u64>,
    loads: usize,
}

impl<'a> Machine<'a> {
    /// Nothing is known but where the stack is.
    pub(super) fn new(object: &'a Object) -> Self {
        let mut machine = Self {
            object,
            registers: [Partly::default(); 16],
            flags: Flags::default(),
            memory: BTreeMap::new(),
            calls: 0,
            watched: None,
            given: Vec::new(),
            counted: None,
            loads: 0,
        };
        machine.set(Register::RSP, STACK);
        machine
    }

    /// Sets a register of 8 bytes.
    pub(super) fn set(&mut self, register: Register, value: u64) {
        self.registers[register.number()] = Partly {
            value,
            known: u64::MAX,
        };
    }

    /// Sets 8 bytes of memory.
    pub(super) fn store(&mut self, address: u64, value: u64) {
        self.write_memory(address, 8, Some(value));
    }

    /// Notes each function that is given this value.
    pub(super) fn watch(&mut self, value: u64) {
        self.watched = Some(value);
    }

    /// The functions that were given it, in turn, and how.
    pub(super) fn given(&self) -> &[(u64, Given)] {
        &self.given
    }

    /// Counts how often 8 bytes of memory are read from this address.
    pub(super) fn count(&mut self, address: u64) {
        self.counted = Some(address);
    }

    /// How often they were.
    pub(super) fn loads(&self) -> usize {
        self.loads
    }

    /// Runs the code at an address.
    pub(super) fn run(&mut self, from: u64) -> Stop {
        let mut at = from;
        for _ in 0..MAX_STEPS {
            let code = decoder(self.object, at..at.saturating_add(15)).next();
            let Some(code) = code.filter(|code| !code.is_invalid()) else {
                return Stop::Unknown;
            };
            if code.mnemonic() == Mnemonic::Cmpxchg {
                return self.exchange(&code).unwrap_or(Stop::Unknown);
            }
            let is_load = code.op_count() == 2 && code.op1_kind() == OpKind::Memory;
            if is_load && self.counted.is_some() && self.address(&code) == self.counted {
                self.loads += 1;
            }
            match self.step(&code) {
                Some(next) => at = next,
                None => return Stop::Unknown,
            }
        }
        Stop::Unknown
    }

    fn exchange(&self, code: &Instruction) -> Option<Stop> {
        let address = self.address(code)?;
        let is_whole = code.op1_kind() == OpKind::Register && code.op1_register().is_gpr64();
        let new = self.register(code.op1_register())?;
        let old = self.register(Register::RAX)?;
        let is_expected = self.read_memory(address, 8) == Some(old);
        let at = code.ip();
        (is_whole && is_expected).then_some(Stop::Exchange { at, address, new })
    }

    /// Does one instruction. Where the next one is; `None`: that is not known.
    fn step(&mut self, code: &Instruction) -> Option<u64> {
        let next = code.next_ip();
        match code.mnemonic() {
            Mnemonic::Jmp => {
                let target = branch_target(self.object, code)?;
                self.enter(target);
                return Some(target);
            }
            Mnemonic::Call => {
                let target = branch_target(self.object, code)?;
                self.calls += 1;
                if self.calls > MAX_DEPTH {
                    return None;
                }
                self.push(Some(next))?;
                self.enter(target);
                return Some(target);
            }
            Mnemonic::Ret => {
                self.calls = self.calls.checked_sub(1)?;
                return self.pop();
            }
            Mnemonic::Push => {
                let value = self.read(code, 0);
                self.push(value)?;
            }
            Mnemonic::Pop => {
                let value = self.pop();
                self.write(code, 0, value)?;
            }
            _ if code.is_jcc_short_or_near() => {
                let is_taken = self.flags.hold(code.condition_code())?;
                return Some(if is_taken {
                    code.near_branch_target()
                } else {
                    next
                });
            }
            _ => self.compute(code)?,
        }
        Some(next)
    }

    fn enter(&mut self, target: u64) {
        let Some(watched) = self.watched else { return };
        if !self.object.frames().begins(target) {
            return;
        }
        if self.register(Register::RSI) == Some(watched) {
            self.given.push((target, Given::Second));
            return;
        }
        // What a closure has taken is on the stack of who calls it.
        for argument in [Register::RDI, Register::RSI] {
            let Some(closure) = self.register(argument) else {
                continue;
            };
            let has_it =
                |at: &i32| self.read_memory(closure.wrapping_add(*at as u64), 8) == Some(watched);
            if let Some(at) = (0..MAX_CLOSURE).step_by(8).find(has_it) {
                self.given.push((target, Given::Behind(argument, at)));
                return;
            }
        }
    }

    fn push(&mut self, value: Option<u64>) -> Option<()> {
        let stack = self.register(Register::RSP)?.wrapping_sub(8);
        self.set(Register::RSP, stack);
        self.write_memory(stack, 8, value);
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        let stack = self.register(Register::RSP)?;
        self.set(Register::RSP, stack.wrapping_add(8));
        self.read_memory(stack, 8)
    }

    /// What a register holds, or a part of one.
    fn register(&self, register: Register) -> Option<u64> {
        if !register.is_gpr() {
            return None;
        }
        let whole = self.registers[register.full_register().number()];
        let (shift, mask) = part(register);
        let is_known = whole.known >> shift & mask == mask;
        is_known.then_some(whole.value >> shift & mask)
    }

    fn set_part(&mut self, register: Register, value: Option<u64>) {
        let (shift, mask) = part(register);
        let whole = &mut self.registers[register.full_register().number()];
        // What writes four bytes clears the others.
        let (mask, cleared) = match register.size() {
            4 => (mask, u64::MAX),
            _ => (mask, mask << shift),
        };
        whole.value &= !cleared;
        whole.known |= cleared;
        match value {
            Some(value) => whole.value |= (value & mask) << shift,
            None => whole.known &= !(mask << shift),
        }
    }

    /// The address of an instruction's memory; of thread-local memory it is not known.
    fn address(&self, code: &Instruction) -> Option<u64> {
        if code.segment_prefix() != Register::None {
            return None;
        }
        if code.is_ip_rel_memory_operand() {
            return Some(code.ip_rel_memory_address());
        }
        let base = match code.memory_base() {
            Register::None => 0,
            base => self.register(base)?,
        };
        let index = match code.memory_index() {
            Register::None => 0,
            index => self.register(index)?,
        };
        let scaled = index.wrapping_mul(u64::from(code.memory_index_scale()));
        Some(
            base.wrapping_add(scaled)
                .wrapping_add(code.memory_displacement64()),
        )
    }

    fn read_memory(&self, address: u64, size: usize) -> Option<u64> {
        let mut value = 0;
        for at in (0..size as u64).rev() {
            let byte = self.memory.get(&address.wrapping_add(at))?;
            value = value << 8 | u64::from(*byte);
        }
        Some(value)
    }

    fn write_memory(&mut self, address: u64, size: usize, value: Option<u64>) {
        for at in 0..size as u64 {
            let address = address.wrapping_add(at);
            match value {
                Some(value) => _ = self.memory.insert(address, (value >> (8 * at)) as u8),
                None => _ = self.memory.remove(&address),
            }
        }
    }

    /// Bytes of an operand.
    fn size(code: &Instruction, operand: u32) -> usize {
        match code.op_kind(operand) {
            OpKind::Register => code.op_register(operand).size(),
            OpKind::Memory => code.memory_size().size(),
            _ => 8,
        }
    }

    fn read(&self, code: &Instruction, operand: u32) -> Option<u64> {
        match code.op_kind(operand) {
            OpKind::Register => self.register(code.op_register(operand)),
            OpKind::Memory => self.read_memory(self.address(code)?, Self::size(code, operand)),
            _ => code.try_immediate(operand).ok(),
        }
    }

    /// `None`: it writes to memory whose address is not known.
    fn write(&mut self, code: &Instruction, operand: u32, value: Option<u64>) -> Option<()> {
        match code.op_kind(operand) {
            OpKind::Register => self.set_part(code.op_register(operand), value),
            OpKind::Memory => {
                self.write_memory(self.address(code)?, Self::size(code, operand), value);
            }
            _ => return None,
        }
        Some(())
    }

    /// What is not understood leaves unknown what it writes; memory that it writes ends the run.
    fn forget(&mut self, code: &Instruction) -> Option<()> {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(code);
        let writes = |access| {
            !matches!(
                access,
                OpAccess::None | OpAccess::Read | OpAccess::NoMemAccess
            )
        };
        if info
            .used_memory()
            .iter()
            .any(|memory| writes(memory.access()))
        {
            return None;
        }
        let written = info.used_registers().iter();
        let written = written.filter(|used| used.register().is_gpr() && writes(used.access()));
        for used in written {
            self.set_part(used.register(), None);
        }
        if code.rflags_modified() != 0 {
            self.flags = Flags::default();
        }
        Some(())
    }
}

/// By how many bits a part of a register is shifted in it, and which it has.
fn part(register: Register) -> (u32, u64) {
    let is_high = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    (if is_high { 8 } else { 0 }, mask(register.size()))
}

/// All bits of so many bytes.
fn mask(size: usize) -> u64 {
    match size {
        8.. => u64::MAX,
        size => (1 << (8 * size)) - 1,
    }
}

#[cfg(test)]
mod tests;
