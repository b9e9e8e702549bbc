//! Names: what the trace and its events say in; request types, wait classes, threads and stacks in words out.

use reqtrace_base::plain::Plain;
use reqtrace_common::record::StackId;
use reqtrace_recording::AddressSpace;

use super::{Place, ThreadId};

/// The class of blocks without a known one.
const UNATTRIBUTED: &str = "unattributed";

/// Names by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Of request types.
    pub(crate) types: Vec<String>,
    /// Of wait classes, then in words of the places where requests are parked, then of those where they are
    /// queued.
    pub(crate) classes: Vec<String>,
    /// How many of these are wait classes.
    pub(crate) blocks: usize,
    /// How many of them are places where requests are parked.
    pub(crate) parked: usize,
    /// Which request types have a key.
    pub(crate) keyed: Vec<bool>,
}

/// Names that came with events.
pub(crate) trait Naming {
    /// Of a thread.
    fn comm(&self, thread: ThreadId) -> Plain;
    /// Of user and kernel frames, innermost first.
    fn frames(&mut self, place: &Place) -> [Vec<String>; 2];
    /// User frames of a stack, innermost first; of a lost one a frame that says so.
    fn user_frames(&mut self, space: AddressSpace, id: StackId) -> Vec<String>;
    /// The frames of a stack by number, outermost first; of a lost one a frame that says so.
    fn texts(&mut self, space: Option<AddressSpace>, id: StackId) -> Vec<u32>;
    /// The number of a text.
    fn number(&mut self, text: &str) -> u32;
    /// The text of a number.
    fn text(&self, number: u32) -> &str;
}

impl Names {
    pub(super) fn class(&self, class: Option<u16>) -> &str {
        let name = class.and_then(|class| self.classes.get(usize::from(class)));
        name.map_or(UNATTRIBUTED, String::as_str)
    }

    pub(super) fn request(&self, index: u32) -> String {
        let name = self.types.get(index as usize);
        name.cloned().unwrap_or_else(|| format!("type {index}"))
    }
}
