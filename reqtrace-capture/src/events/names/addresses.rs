//! Addresses: those of the kernel and of processes in, how events call them out. What lies there is sent before.

use std::time::Instant;

use reqtrace_base::error::Result;
use reqtrace_base::frame::{Frame, UNKNOWN};
use reqtrace_binary::symbolize::user::{ANONYMOUS, Place};
use reqtrace_recording::losses::{
    FILES_LEFT_OUT, NAMES_LATE, PERF_MAPS_CUT, SYMBOLS_GIVEN_UP, SYMBOLS_LEFT_OUT,
};
use reqtrace_recording::{Address, AddressSpace, Event, KERNEL, NOWHERE, Name};
use rustc_hash::FxHashMap;

use super::MAX_KNOWN;
use super::objects::Objects;
use crate::events::Stream;
use crate::symbolize::LiveSymbolizer;

/// Bytes of a function's name that are sent: a program may have any, and whoever reads a recording refuses much longer ones.
const MAX_NAME: usize = 16 << 10;

/// Names of addresses.
pub(super) struct Addresses {
    pub(super) symbols: LiveSymbolizer,
    objects: Objects,
    /// What was sent of each, and of return addresses apart; `None` for names that stay.
    names: FxHashMap<(Address, bool), Option<Vec<Frame>>>,
    /// Addresses of processes whose names stay.
    settled: FxHashMap<(AddressSpace, u64, bool), Address>,
    /// Kernel addresses by the number that stands for them.
    kernel: FxHashMap<u64, u64>,
    /// From then on nothing is looked up any more.
    deadline: Option<Instant>,
    /// Addresses that were not looked up.
    late: u64,
}

impl Addresses {
    pub(super) fn new(symbols: LiveSymbolizer) -> Self {
        Self {
            symbols,
            objects: Objects::default(),
            names: FxHashMap::default(),
            settled: FxHashMap::default(),
            kernel: FxHashMap::default(),
            deadline: None,
            late: 0,
        }
    }

    /// Looks nothing up from `deadline` on, or from an earlier one.
    pub(super) fn until(&mut self, deadline: Instant) {
        let sooner = self.deadline.is_none_or(|before| deadline < before);
        if sooner {
            self.deadline = Some(deadline);
        }
    }

    pub(super) fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// What could not be named.
    pub(super) fn losses(&self) -> [(&'static str, u64); 5] {
        let left_out = self.symbols.left_out();
        [
            (NAMES_LATE, self.late),
            (PERF_MAPS_CUT, left_out.perf_maps),
            (FILES_LEFT_OUT, left_out.files),
            (SYMBOLS_LEFT_OUT, left_out.symbols),
            (SYMBOLS_GIVEN_UP, left_out.given_up),
        ]
    }

    /// Processes have other mappings now.
    pub(super) fn changed(&mut self) {
        self.settled.clear();
    }

    pub(super) fn is_full(&self) -> bool {
        self.names.len().max(self.objects.mappings()) >= MAX_KNOWN
    }

    /// Sends all again when they are needed.
    pub(super) fn send_again(&mut self) {
        self.objects.send_again();
        self.names.clear();
        self.settled.clear();
    }

    /// Forgets the addresses of processes.
    pub(super) fn keep(&mut self, stays: impl Fn(&AddressSpace) -> bool) {
        self.settled.retain(|(space, ..), _| stays(space));
        self.objects.keep(stays);
    }

    /// The addresses of a kernel stack, innermost first, without those of tracing itself.
    pub(super) fn of_kernel(
        &mut self,
        stack: &[u64],
        stream: &mut Stream<'_>,
    ) -> Result<Vec<Address>> {
        let frames = self.symbols.kernel(stack);
        let cut = stack.len().saturating_sub(frames.len());
        let mut addresses = Vec::with_capacity(frames.len());
        for (address, frame) in stack[cut..].iter().zip(frames) {
            let next = self.kernel.len() as u64;
            let offset = *self.kernel.entry(*address).or_insert(next);
            let address = Address {
                object: KERNEL,
                offset,
            };
            let is_return = !addresses.is_empty();
            self.name(address, is_return, &[frame], stream)?;
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// How an address of a process is called, and whether that stays.
    pub(super) fn of_process(
        &mut self,
        space: AddressSpace,
        address: u64,
        is_return: bool,
        stream: &mut Stream<'_>,
    ) -> Result<(Address, bool)> {
        if let Some(known) = self.settled.get(&(space, address, is_return)) {
            return Ok((*known, true));
        }
        let symbols = self.symbols.user();
        let mut frames = None;
        let mut place = symbols.place(space, address, is_return);
        if place.is_none() && !self.is_late() {
            // Naming looks at the mappings again.
            let symbols = self.symbols.user();
            frames = Some(symbols.frame(space, address, is_return));
            place = symbols.place(space, address, is_return);
        }
        let Some(place) = place else {
            let nowhere = Address {
                object: NOWHERE,
                offset: address,
            };
            return Ok((nowhere, false));
        };
        let object = self
            .objects
            .number(space, &place, self.symbols.user(), stream)?;
        let called = Address {
            object,
            offset: place.offset,
        };
        let stays = match self.names.get(&(called, is_return)) {
            Some(None) => true,
            known if self.is_late() => {
                if known.is_none() {
                    self.name_late(called, is_return, &place, stream)?;
                }
                true
            }
            _ => {
                let look_up = || self.symbols.user().frame(space, address, is_return);
                let frames = frames.unwrap_or_else(look_up);
                self.name(called, is_return, &frames, stream)?
            }
        };
        if stays {
            if self.settled.len() >= MAX_KNOWN {
                self.settled.clear();
            }
            self.settled.insert((space, address, is_return), called);
        }
        Ok((called, stays))
    }

    /// Sends an address without a name: nothing better will come.
    fn name_late(
        &mut self,
        address: Address,
        is_return: bool,
        place: &Place,
        stream: &mut Stream<'_>,
    ) -> Result<()> {
        self.late += 1;
        let frame = Frame::new(place.without_name());
        self.name(address, is_return, &[frame], stream).map(drop)
    }

    /// Sends the names of an address, unless that was done; true when they stay.
    fn name(
        &mut self,
        address: Address,
        is_return: bool,
        frames: &[Frame],
        stream: &mut Stream<'_>,
    ) -> Result<bool> {
        let key = (address, is_return);
        match self.names.get(&key) {
            Some(None) => return Ok(true),
            Some(Some(sent)) if sent == frames => return Ok(false),
            _ => {}
        }
        let may_change = |frame: &Frame| [UNKNOWN, ANONYMOUS].contains(&&*frame.name);
        let stays = !frames.iter().any(may_change);
        self.names.insert(key, (!stays).then(|| frames.to_vec()));
        stream.send(&Event::Name(&Name {
            address,
            is_return,
            frames: frames.iter().map(|frame| cut(&frame.name)).collect(),
        }))?;
        Ok(stays)
    }
}

/// As much of a name as is sent.
fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_cut_between_two_characters() {
        assert_eq!(cut("main"), "main");
        let longest = "f".repeat(MAX_NAME);
        assert_eq!(cut(&longest), longest);
        let long = format!("f{}", "\u{e9}".repeat(MAX_NAME));
        assert_eq!(cut(&long), long[..MAX_NAME - 1]);
    }
}
