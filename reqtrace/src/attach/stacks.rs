//! The kernel's table of stacks, read by id.

use aya::maps::{HashMap, Map, MapData};
use reqtrace_common::record::StackId;
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::Stop;

use super::loader::map_error;
use crate::error::Result;

/// Stored stacks by id. Entries are never changed or removed while tracing.
pub struct StackTable {
    stacks: HashMap<MapData, u64, StoredStack>,
}

impl StackTable {
    pub(super) fn new(map: Map) -> Result<Self> {
        Ok(Self {
            stacks: HashMap::try_from(map).map_err(map_error)?,
        })
    }

    /// The addresses of a stack; `None` when it is not in the table.
    pub(crate) fn stack(&self, id: StackId) -> Option<RawStack> {
        self.stacks.get(&id, 0).ok().map(|stack| frames(&stack))
    }
}

/// A stack as the kernel stored it.
#[derive(Clone, Debug)]
pub(crate) struct RawStack {
    /// Addresses, innermost first.
    pub(crate) addresses: Vec<u64>,
    /// Why the walk stopped.
    pub(crate) stop: Stop,
}

fn frames(stack: &StoredStack) -> RawStack {
    let len = (stack.len as usize).min(stack.frames.len());
    RawStack {
        addresses: stack.frames[..len].to_vec(),
        stop: Stop::of(stack.stop),
    }
}
