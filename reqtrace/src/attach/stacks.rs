//! The kernel's table of stacks, read by id while tracing and as a whole at its end.

use std::collections::HashMap as StdHashMap;

use aya::maps::{HashMap, Map, MapData};
use reqtrace_common::record::StackId;
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::Stop;

use super::loader::map_error;
use crate::decode::{RawStack, StackSource};
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

    /// All stacks.
    pub(super) fn all(&self) -> StdHashMap<StackId, RawStack> {
        self.stacks
            .iter()
            .filter_map(|entry| entry.ok().map(|(id, stack)| (id, frames(&stack))))
            .collect()
    }
}

impl StackSource for StackTable {
    fn stack(&mut self, id: StackId) -> Option<RawStack> {
        self.stacks.get(&id, 0).ok().map(|stack| frames(&stack))
    }
}

fn frames(stack: &StoredStack) -> RawStack {
    let len = (stack.len as usize).min(stack.frames.len());
    RawStack {
        addresses: stack.frames[..len].to_vec(),
        stop: Stop::of(stack.stop),
    }
}
