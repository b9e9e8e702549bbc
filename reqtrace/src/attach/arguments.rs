//! What the kernel program has noted of first arguments: its maps in, [`Arguments`] out.

use aya::Ebpf;
use aya::maps::{Array, HashMap};
use reqtrace_common::argument::{ArgumentId, ArgumentState, Caller, FunctionCalls, Steps, pair};
use reqtrace_common::limits::{MAX_ARGUMENTS, MAX_CALLERS, MAX_WATCHED};

use super::loader::{map, map_error};
use crate::error::Result;

/// Maps of the object, with the room that they need when arguments are noted.
pub(super) const MAPS: [(&str, u32); 4] = [
    ("ARGUMENTS", MAX_ARGUMENTS),
    ("LAST_ARGUMENTS", MAX_CALLERS),
    ("FUNCTION_CALLS", MAX_WATCHED),
    ("STEPS", MAX_WATCHED * MAX_WATCHED),
];

/// First arguments of watched functions, as far as they may be pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// By function.
    pub functions: Vec<FunctionCalls>,
    /// By pair of functions, the second one counting first.
    steps: Vec<Steps>,
    /// Each argument, in no order.
    pub values: Vec<Value>,
    /// Calls that were not noted, because a table was full.
    pub unnoted: u64,
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The process.
    pub tgid: u32,
    /// One bit for each function that had it.
    pub functions: u64,
    /// The function that had it last.
    pub last: usize,
}

impl Arguments {
    /// Nothing noted, of so many functions.
    #[must_use]
    pub fn none(functions: usize) -> Self {
        Self {
            functions: vec![FunctionCalls::default(); functions],
            steps: vec![Steps::default(); functions * functions],
            ..Self::default()
        }
    }

    pub(super) fn read(ebpf: &Ebpf, functions: usize) -> Result<Self> {
        let mut read = Self::none(functions);
        read.functions = calls(ebpf, functions)?;
        let steps: Array<_, Steps> = Array::try_from(map(ebpf, "STEPS")?).map_err(map_error)?;
        for from in 0..functions {
            for to in 0..functions {
                let index = pair(from as u32, to as u32);
                *read.step_mut(from, to) = steps.get(&index, 0).map_err(map_error)?;
            }
        }
        let values: HashMap<_, ArgumentId, ArgumentState> =
            HashMap::try_from(map(ebpf, "ARGUMENTS")?).map_err(map_error)?;
        for value in &values {
            let (id, state) = value.map_err(map_error)?;
            read.values.push(Value {
                tgid: id.tgid,
                functions: state.functions,
                last: Caller::decode(state.last).function as usize,
            });
        }
        let unnoted: Array<_, u64> = Array::try_from(map(ebpf, "UNNOTED")?).map_err(map_error)?;
        read.unnoted = unnoted.get(&0, 0).map_err(map_error)?;
        Ok(read)
    }

    /// How arguments got from one function to another.
    #[must_use]
    pub fn step(&self, from: usize, to: usize) -> Steps {
        let index = from * self.functions.len() + to;
        self.steps.get(index).copied().unwrap_or_default()
    }

    /// The same, to be changed. Both numbers are below that of the functions.
    ///
    /// # Panics
    ///
    /// When they are not.
    pub fn step_mut(&mut self, from: usize, to: usize) -> &mut Steps {
        &mut self.steps[from * self.functions.len() + to]
    }
}

/// Calls of these many functions.
pub(super) fn calls(ebpf: &Ebpf, functions: usize) -> Result<Vec<FunctionCalls>> {
    let calls: Array<_, FunctionCalls> =
        Array::try_from(map(ebpf, "FUNCTION_CALLS")?).map_err(map_error)?;
    (0..functions as u32)
        .map(|function| calls.get(&function, 0).map_err(map_error))
        .collect()
}
