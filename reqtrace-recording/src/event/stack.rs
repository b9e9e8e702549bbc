//! Stacks, and the names of what is on them.

use reqtrace_common::record::StackId;
use serde::{Deserialize, Serialize};

use super::AddressSpace;

/// The object of an address that lies in no mapping; its offset is the address.
pub const NOWHERE: u32 = 0;
/// The object of kernel addresses. Its offsets are numbers that stand for addresses, so that a
/// recording does not show where the kernel is.
pub const KERNEL: u32 = 1;

/// A place in an object.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Address {
    /// An [`crate::Object`], [`NOWHERE`] or [`KERNEL`].
    pub object: u32,
    /// Offset in it, bytes.
    pub offset: u64,
}

/// The functions at an address. One that comes again replaces the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The address.
    pub address: Address,
    /// Whether it is a return address, so that the name is that of the call before it.
    pub is_return: bool,
    /// Functions, the innermost first: more than one where calls were inlined.
    pub frames: Vec<String>,
}

/// The addresses of a stack. One that comes again replaces the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Whose stack; `None` for the kernel's.
    pub space: Option<AddressSpace>,
    /// Its id: with the space, what requests and sums refer to.
    pub id: StackId,
    /// Why the walk stopped: the number of a [`reqtrace_common::unwind::Stop`].
    pub stop: u32,
    /// Innermost first. All but the first are return addresses.
    pub addresses: Vec<Address>,
}
