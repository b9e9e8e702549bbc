//! How far user stacks were unwound: sums per stack pair in, nanoseconds per reason out.

use std::collections::BTreeMap;

use reqtrace_common::sums::{StackSum, StackSumKey};
use reqtrace_common::unwind::Stop;

use super::sites::{Sites, space_of};
use crate::report::Unwinding;

/// Looks at the user stacks of all sums.
pub(super) fn of(sites: &Sites, sums: &[(StackSumKey, StackSum)]) -> Unwinding {
    let mut unwinding = Unwinding::default();
    let mut truncated: BTreeMap<Stop, u64> = BTreeMap::new();
    for (key, sum) in sums {
        let Some((stop, frames)) = sites.user_walk(space_of(key), key.user_stack) else {
            continue;
        };
        match stop {
            Stop::Complete => unwinding.whole_ns += sum.off_ns,
            Stop::FramePointers => {
                unwinding.frame_pointers_ns += sum.off_ns;
                unwinding.shallow_ns += if frames <= 1 { sum.off_ns } else { 0 };
            }
            other => *truncated.entry(other).or_default() += sum.off_ns,
        }
    }
    unwinding.truncated = truncated
        .into_iter()
        .filter_map(|(stop, ns)| Some((stop.reason()?.to_owned(), ns)))
        .collect();
    unwinding
}
