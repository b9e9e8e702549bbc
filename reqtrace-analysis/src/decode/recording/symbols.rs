//! Recorded names: stacks of a recording in, their frames out, with no kernel and no process.

use std::collections::HashMap;

use crate::symbolize::{AddressSpace, Frame, Symbolizer};

/// A [`Symbolizer`] over recorded names. What was not recorded is `[unknown]`.
#[derive(Clone, Debug, Default)]
pub struct RecordedSymbols {
    user: HashMap<(AddressSpace, Vec<u64>), Vec<Frame>>,
    kernel: HashMap<Vec<u64>, Vec<Frame>>,
}

impl RecordedSymbols {
    /// Adds the names of a user stack.
    pub fn add_user(&mut self, space: AddressSpace, addresses: Vec<u64>, frames: Vec<Frame>) {
        self.user.insert((space, addresses), frames);
    }

    /// Adds the names of a kernel stack.
    pub fn add_kernel(&mut self, addresses: Vec<u64>, frames: Vec<Frame>) {
        self.kernel.insert(addresses, frames);
    }
}

impl Symbolizer for RecordedSymbols {
    fn user(&mut self, space: AddressSpace, addresses: &[u64]) -> Vec<Frame> {
        let found = self.user.get(&(space, addresses.to_vec()));
        found.cloned().unwrap_or_else(|| unknown(addresses))
    }

    fn kernel(&mut self, addresses: &[u64]) -> Vec<Frame> {
        let found = self.kernel.get(addresses);
        found.cloned().unwrap_or_else(|| unknown(addresses))
    }
}

fn unknown(addresses: &[u64]) -> Vec<Frame> {
    addresses.iter().map(|_| Frame::new("[unknown]")).collect()
}
