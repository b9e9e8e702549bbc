//! Recordings: what a live trace saw in, a file out, and back again with no kernel.
//!
//! A recording holds the ring's bytes, the maps' entries and the names that were found, so that
//! everything from decode to report can be run again, in a test or for a bug report. It holds
//! labels if the trace recorded them.

mod encode;
mod snapshot;
mod symbols;

use std::collections::{BTreeMap, HashMap, HashSet};

use reqtrace_common::ABI_VERSION;
use reqtrace_common::record::{BlockSite, STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::unwind::Stop;
use serde::{Deserialize, Serialize};

use super::records::decode;
use super::{Event, RawRequest, RawStack, Snapshot, StackSource, site_of, space_of};
use crate::error::{Error, Result};
use crate::report::TraceInfo;
use crate::symbolize::{AddressSpace, Frame, Symbolizer};

pub use encode::{encode_request, to_record};
use encode::{from_hex, to_hex};
use snapshot::RecordedSnapshot;
pub use symbols::RecordedSymbols;

/// Version of the file format.
pub const RECORDING_VERSION: u32 = 1;

/// A recorded trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// [`RECORDING_VERSION`].
    pub version: u32,
    /// [`ABI_VERSION`] of the kernel programs.
    pub abi: u32,
    /// Text of the profile.
    pub profile: String,
    /// What was traced.
    pub trace: TraceInfo,
    /// What came while tracing, in order.
    pub events: Vec<RecordedEvent>,
    /// What the maps held at the end.
    snapshot: RecordedSnapshot,
    /// Addresses of every stack.
    stacks: BTreeMap<StackId, Vec<u64>>,
    /// Why the walk stopped, by number, for stacks that are not whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    stops: BTreeMap<StackId, u32>,
    /// Frames of every user stack.
    user: Vec<UserFrames>,
    /// Frames of every kernel stack.
    kernel: BTreeMap<StackId, Vec<Frame>>,
}

/// One event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordedEvent {
    /// A ring record, in hexadecimal.
    Ring(String),
    /// A descriptor whose file was found.
    File {
        /// Process and exec generation.
        space: AddressSpace,
        /// The descriptor.
        fd: i32,
        /// Its path, or what the kernel calls it (`socket:[123]`).
        path: String,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct UserFrames {
    space: AddressSpace,
    stack: StackId,
    frames: Vec<Frame>,
}

/// Collects a recording while tracing.
#[derive(Debug, Default)]
pub struct Recorder {
    events: Vec<RecordedEvent>,
}

impl Recorder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the bytes of one ring record.
    pub fn ring(&mut self, bytes: &[u8]) {
        self.events.push(RecordedEvent::Ring(to_hex(bytes)));
    }

    /// Takes the name of a descriptor's file.
    pub fn file(&mut self, space: AddressSpace, fd: i32, path: &str) {
        let path = path.to_owned();
        self.events.push(RecordedEvent::File { space, fd, path });
    }

    /// Completes the recording: looks up and names every stack that occurs in it.
    pub fn finish(
        self,
        profile: String,
        trace: TraceInfo,
        snapshot: &Snapshot,
        stacks: &mut dyn StackSource,
        symbols: &mut dyn Symbolizer,
    ) -> Recording {
        let mut users = HashSet::new();
        let mut kernels = HashSet::new();
        let mut note = |space: AddressSpace, site: &BlockSite| {
            users.insert((space, site.user_stack));
            kernels.insert(site.kernel_stack);
        };
        let finished = self.events.iter().filter_map(RecordedEvent::request);
        for request in finished.chain(snapshot.open.iter().cloned()) {
            let space = request.space();
            request
                .slots
                .iter()
                .for_each(|slot| note(space, &slot.site));
            request
                .longest
                .iter()
                .for_each(|block| note(space, &block.site));
            if let Some((site, _)) = &request.blocked_in {
                note(space, site);
            }
        }
        for (key, _) in &snapshot.sums {
            note(space_of(key), &site_of(key));
        }
        let mut table = BTreeMap::new();
        let mut stops = BTreeMap::new();
        let mut look_up = |id: StackId| -> Option<Vec<u64>> {
            if id == STACK_LOST || id == STACK_NONE {
                return None;
            }
            let found = snapshot.stacks.get(&id).cloned();
            let stack = found.or_else(|| stacks.stack(id))?;
            if stack.stop != Stop::Complete {
                stops.insert(id, stack.stop as u32);
            }
            table.insert(id, stack.addresses.clone());
            Some(stack.addresses)
        };
        let mut user: Vec<_> = users
            .into_iter()
            .filter_map(|(space, stack)| {
                let frames = symbols.user(space, &look_up(stack)?);
                Some(UserFrames {
                    space,
                    stack,
                    frames,
                })
            })
            .collect();
        user.sort_by_key(|entry| (entry.space, entry.stack));
        let kernel = kernels
            .into_iter()
            .filter_map(|stack| Some((stack, symbols.kernel(&look_up(stack)?))))
            .collect();
        Recording {
            version: RECORDING_VERSION,
            abi: ABI_VERSION,
            profile,
            trace,
            events: self.events,
            snapshot: RecordedSnapshot::of(snapshot),
            stacks: table,
            stops,
            user,
            kernel,
        }
    }
}

impl RecordedEvent {
    /// The bytes of a ring record; `None` for another event, or when they are damaged.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Ring(hex) => from_hex(hex),
            Self::File { .. } => None,
        }
    }

    fn request(&self) -> Option<RawRequest> {
        match decode(&self.bytes()?) {
            Ok(Event::Request(request)) => Some(*request),
            _ => None,
        }
    }
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] when the text is no recording of this version.
    pub fn from_json(text: &str) -> Result<Self> {
        let recording: Self = serde_json::from_str(text)
            .map_err(|error| Error::usage("this is no recording of reqtrace").because(error))?;
        if recording.version != RECORDING_VERSION || recording.abi != ABI_VERSION {
            return Err(Error::usage(format!(
                "the recording has version {} with records of version {}; this reqtrace reads \
                 {RECORDING_VERSION} with {ABI_VERSION}",
                recording.version, recording.abi
            )));
        }
        Ok(recording)
    }

    /// The recording as text.
    ///
    /// # Errors
    ///
    /// Never in practice: all of it can be written as JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::failed("the recording could not be written").because(error))
    }

    /// What the maps held at the end.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] when it holds an impossible record.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot.restore(self.stack_source())
    }

    /// The stacks by id.
    #[must_use]
    pub fn stack_source(&self) -> HashMap<StackId, RawStack> {
        let stop = |id| {
            self.stops
                .get(id)
                .map_or(Stop::Complete, |&number| Stop::of(number))
        };
        self.stacks
            .iter()
            .map(|(id, stack)| {
                (
                    *id,
                    RawStack {
                        addresses: stack.clone(),
                        stop: stop(id),
                    },
                )
            })
            .collect()
    }

    /// The names that were found.
    #[must_use]
    pub fn symbolizer(&self) -> RecordedSymbols {
        let addresses = |id| self.stacks.get(id).cloned().unwrap_or_default();
        let mut names = RecordedSymbols::default();
        for entry in &self.user {
            names.add_user(entry.space, addresses(&entry.stack), entry.frames.clone());
        }
        for (id, frames) in &self.kernel {
            names.add_kernel(addresses(id), frames.clone());
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("0g"), None);
    }

    #[test]
    fn another_version_is_refused() {
        let recording = Recorder::new().finish(
            String::new(),
            TraceInfo::default(),
            &Snapshot::default(),
            &mut HashMap::new(),
            &mut RecordedSymbols::default(),
        );
        let text = recording.to_json().unwrap();
        assert!(Recording::from_json(&text).is_ok());
        let other = text.replace("\"version\": 1", "\"version\": 9");
        assert!(
            Recording::from_json(&other)
                .unwrap_err()
                .to_string()
                .contains("version 9")
        );
    }
}
