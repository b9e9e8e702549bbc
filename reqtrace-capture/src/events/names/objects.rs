//! Objects: where an address lies in, the number of its file out. A file and each of its mappings is sent once.

use reqtrace_base::error::Result;
use reqtrace_binary::symbolize::user::{ObjectKey, Place, UserSymbols};
use reqtrace_recording::{AddressSpace, Event, KERNEL, Mapping, Object};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::events::Stream;

/// Files of mapped code.
#[derive(Default)]
pub(super) struct Objects {
    numbers: FxHashMap<ObjectKey, u32>,
    sent: FxHashSet<u32>,
    mappings: FxHashSet<(AddressSpace, u64, u64, u32)>,
}

impl Objects {
    /// The number of the file that a place lies in, once the file and the mapping are sent.
    pub(super) fn number(
        &mut self,
        space: AddressSpace,
        place: &Place,
        symbols: &mut UserSymbols,
        stream: &mut Stream<'_>,
    ) -> Result<u32> {
        let next = KERNEL + 1 + self.numbers.len() as u32;
        let id = match self.numbers.get(&place.object) {
            Some(id) => *id,
            None => {
                self.numbers.insert(place.object.clone(), next);
                next
            }
        };
        if self.sent.insert(id) {
            stream.send(&Event::Object(&Object {
                id,
                path: place.object.path(),
                build_id: symbols.build_id(&place.object),
            }))?;
        }
        if self.mappings.insert((space, place.start, place.end, id)) {
            stream.send(&Event::Mapping(&Mapping {
                space,
                start: place.start,
                end: place.end,
                offset: place.start_offset,
                object: id,
            }))?;
        }
        Ok(id)
    }

    /// Mappings that were sent.
    pub(super) fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// Sends all again when they are needed. Numbers stay.
    pub(super) fn send_again(&mut self) {
        self.sent.clear();
        self.mappings.clear();
    }

    /// Forgets the mappings of processes.
    pub(super) fn keep(&mut self, stays: impl Fn(&AddressSpace) -> bool) {
        self.mappings.retain(|(space, ..)| stays(space));
    }
}
