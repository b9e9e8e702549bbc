//! What a type is judged by: what was collected of it, and what else is known.

use reqtrace_base::plain::Plain;

use super::collect::Collector;
use super::of_type::OfType;
use crate::blame::ThreadId;
use crate::report::verdict::Meanwhile;

/// What else is known of a type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfName<'a> {
    pub(crate) name: &'a str,
    /// Complete requests whose record was sent, and those of which it came.
    pub(crate) sent: u64,
    pub(crate) rows: u64,
}

/// What a verdict asks for.
pub(crate) trait Facts {
    /// A request type.
    fn of_type(&self, index: usize) -> OfName<'_>;
    /// A wait class, or a place where requests are parked.
    fn class(&self, class: Option<u16>) -> &str;
    /// The name of a thread.
    fn comm(&self, thread: ThreadId) -> Plain;
    /// Names of attributes.
    fn attributes(&self) -> &[String];
    /// What `CLOCK_MONOTONIC` lacks to the wall clock.
    fn unix_ns(&self, at_ns: u64) -> u64;
    /// Who had most of the bytes of disks in these times, which do not overlap and are in order.
    fn meanwhile(&self, times: &[(u64, u64)]) -> Option<Meanwhile>;
}

/// Judges a type.
pub(super) struct Judge<'a, F> {
    pub(super) collector: &'a Collector,
    /// The type's number.
    pub(super) index: u32,
    pub(super) of_type: &'a OfType,
    pub(super) facts: &'a F,
    pub(super) of: OfName<'a>,
}
