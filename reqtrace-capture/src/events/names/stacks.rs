//! Stacks: their ids in, their addresses out, each once, or again when an address has got a name.

use std::time::{Duration, Instant};

use reqtrace_base::error::Result;
use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_recording::{Address, AddressSpace, Event, Stack};
use rustc_hash::{FxHashMap, FxHashSet};

use super::addresses::Addresses;
use crate::attach::StackTable;
use crate::events::Stream;

/// How often at most a stack is looked at again that has addresses without a name.
const PAUSE: Duration = Duration::from_millis(200);
/// Stacks that are known as sent; beyond it all are sent again.
const MAX_STACKS: usize = 1 << 16;

/// Stacks that were sent.
pub(super) struct Stacks {
    pub(super) table: StackTable,
    /// Those with names that stay.
    sent: FxHashSet<(Option<AddressSpace>, StackId)>,
    unsettled: FxHashMap<(AddressSpace, StackId), Unsettled>,
    /// Those that were forgotten because their process has left, since all were sent again: who reads the stream has them still.
    forgotten: usize,
}

/// A stack with addresses that may get a name later: a library that is being loaded, generated code.
struct Unsettled {
    tried: Instant,
    sent: Vec<Address>,
}

impl Stacks {
    pub(super) fn new(table: StackTable) -> Self {
        Self {
            table,
            sent: FxHashSet::default(),
            unsettled: FxHashMap::default(),
            forgotten: 0,
        }
    }

    fn kept(&self) -> usize {
        self.sent.len() + self.unsettled.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.kept() + self.forgotten >= MAX_STACKS
    }

    /// Sends all again when they are needed.
    pub(super) fn send_again(&mut self) {
        self.sent.clear();
        self.unsettled.clear();
        self.forgotten = 0;
    }

    /// Forgets the stacks of processes.
    pub(super) fn keep(&mut self, stays: impl Fn(&AddressSpace) -> bool) {
        let before = self.kept();
        self.sent
            .retain(|(space, _)| space.as_ref().is_none_or(&stays));
        self.unsettled.retain(|(space, _), _| stays(space));
        self.forgotten += before - self.kept();
    }

    /// Sends a kernel stack; true when it is known.
    pub(super) fn kernel(
        &mut self,
        id: StackId,
        addresses: &mut Addresses,
        stream: &mut Stream<'_>,
    ) -> Result<bool> {
        if id == STACK_LOST || id == STACK_NONE || self.sent.contains(&(None, id)) {
            return Ok(true);
        }
        let Some(stack) = self.table.stack(id) else {
            return Ok(false);
        };
        let addresses = addresses.of_kernel(&stack.addresses, stream)?;
        self.sent.insert((None, id));
        stream.send(&Event::Stack(&Stack {
            space: None,
            id,
            stop: 0,
            addresses,
        }))?;
        Ok(true)
    }

    /// Sends a user stack; true when it is known, and no name may come later. At the end it is looked at once more.
    pub(super) fn user(
        &mut self,
        space: AddressSpace,
        id: StackId,
        at_end: bool,
        addresses: &mut Addresses,
        stream: &mut Stream<'_>,
    ) -> Result<bool> {
        let key = (Some(space), id);
        if id == STACK_LOST || id == STACK_NONE || self.sent.contains(&key) {
            return Ok(true);
        }
        let before = self.unsettled.get(&(space, id));
        if !at_end && before.is_some_and(|before| before.tried.elapsed() < PAUSE) {
            return Ok(false);
        }
        let Some(stack) = self.table.stack(id) else {
            return Ok(false);
        };
        let mut sent = Vec::with_capacity(stack.addresses.len());
        let mut settled = true;
        for (depth, &address) in stack.addresses.iter().enumerate() {
            let (address, stays) = addresses.of_process(space, address, depth > 0, stream)?;
            sent.push(address);
            settled &= stays;
        }
        let before = self.unsettled.remove(&(space, id));
        if before.is_none_or(|before| before.sent != sent) {
            stream.send(&Event::Stack(&Stack {
                space: Some(space),
                id,
                stop: stack.stop as u32,
                addresses: sent.clone(),
            }))?;
        }
        if settled {
            self.sent.insert(key);
        } else {
            let tried = Instant::now();
            self.unsettled
                .insert((space, id), Unsettled { tried, sent });
        }
        Ok(settled)
    }
}
