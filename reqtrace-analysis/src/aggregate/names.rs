//! Stacks and the names of what is on them: events in, frames by id out.

use reqtrace_common::record::StackId;
use reqtrace_common::unwind::Stop;
use reqtrace_recording::{Address, AddressSpace, Name, Stack};
use rustc_hash::FxHashMap;

use crate::symbolize::{Frame, UNKNOWN};

/// A stack: whose (`None` for the kernel's), and its id.
pub(super) type StackKey = (Option<AddressSpace>, StackId);

/// Everything that was said of stacks.
#[derive(Debug, Default)]
pub(super) struct Names {
    stacks: FxHashMap<StackKey, Known>,
    /// By address, and whether it is a return address.
    names: FxHashMap<(Address, bool), Box<[Frame]>>,
}

#[derive(Debug)]
struct Known {
    stop: Stop,
    /// Innermost first.
    addresses: Box<[Address]>,
}

impl Names {
    /// Takes a stack. Returns whether it was known as another one.
    pub(super) fn stack(&mut self, stack: &Stack) -> bool {
        let known = Known {
            stop: Stop::of(stack.stop),
            addresses: stack.addresses.as_slice().into(),
        };
        let differs = |before: &Known| before.addresses[..] != stack.addresses[..];
        let before = self.stacks.insert((stack.space, stack.id), known);
        before.as_ref().is_some_and(differs)
    }

    /// Takes the names of an address. Returns whether it had other names before.
    pub(super) fn name(&mut self, name: &Name) -> bool {
        let frames: Box<[Frame]> = name.frames.iter().map(Frame::new).collect();
        let key = (name.address, name.is_return);
        match self.names.get(&key) {
            Some(before) if *before == frames => false,
            before => {
                let differs = before.is_some();
                self.names.insert(key, frames);
                differs
            }
        }
    }

    /// The frames of a stack, innermost first, inlined calls included; `None` when it is not known.
    pub(super) fn frames(&self, key: StackKey) -> Option<Vec<Frame>> {
        let known = self.stacks.get(&key)?;
        let mut frames = Vec::with_capacity(known.addresses.len() + 1);
        for (depth, address) in known.addresses.iter().enumerate() {
            match self.names.get(&(*address, depth > 0)) {
                Some(names) => frames.extend_from_slice(names),
                None => frames.push(Frame::new(UNKNOWN)),
            }
        }
        if let Some(reason) = known.stop.reason() {
            frames.push(Frame::new(format!("[truncated: {reason}]")));
        }
        Some(frames)
    }

    /// Why the walk of a stack stopped, and how many addresses it has.
    pub(super) fn walk(&self, key: StackKey) -> Option<(Stop, usize)> {
        let known = self.stacks.get(&key)?;
        Some((known.stop, known.addresses.len()))
    }
}
