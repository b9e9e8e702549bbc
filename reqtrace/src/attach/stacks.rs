//! The kernel's table of stacks, read by id while tracing and as a whole at its end.

use std::collections::HashMap as StdHashMap;

use aya::maps::{HashMap, Map, MapData};
use reqtrace_common::record::StackId;
use reqtrace_common::sums::StoredStack;

use super::loader::map_error;
use crate::decode::StackSource;
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
    pub(super) fn all(&self) -> StdHashMap<StackId, Vec<u64>> {
        self.stacks
            .iter()
            .filter_map(|entry| entry.ok().map(|(id, stack)| (id, frames(&stack))))
            .collect()
    }
}

impl StackSource for StackTable {
    fn stack(&mut self, id: StackId) -> Option<Vec<u64>> {
        self.stacks.get(&id, 0).ok().map(|stack| frames(&stack))
    }
}

fn frames(stack: &StoredStack) -> Vec<u64> {
    let len = (stack.len as usize).min(stack.frames.len());
    stack.frames[..len].to_vec()
}
