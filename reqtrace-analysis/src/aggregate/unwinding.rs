//! How far user stacks were unwound: sums per stack pair in, nanoseconds per reason out.

use std::collections::BTreeMap;

use reqtrace_common::unwind::Stop;
use reqtrace_recording::{StackSum, StackSumKey};

use super::sites::{Sites, space_of};
use crate::report::Unwinding;

/// Times so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Walked {
    sums: Unwinding,
    truncated: BTreeMap<Stop, u64>,
}

impl Walked {
    /// Looks at the user stacks of sums.
    pub(super) fn add(&mut self, sites: &Sites, sums: &[(StackSumKey, StackSum)]) {
        for (key, sum) in sums {
            let Some((stop, frames)) = sites.user_walk(space_of(key), key.user_stack) else {
                continue;
            };
            match stop {
                Stop::Complete => self.sums.whole_ns += sum.off_ns,
                Stop::FramePointers => {
                    self.sums.frame_pointers_ns += sum.off_ns;
                    self.sums.shallow_ns += if frames <= 1 { sum.off_ns } else { 0 };
                }
                other => *self.truncated.entry(other).or_default() += sum.off_ns,
            }
        }
    }

    /// All of it.
    pub(super) fn unwinding(&self) -> Unwinding {
        let mut unwinding = self.sums.clone();
        let truncated = self.truncated.iter();
        unwinding.truncated = truncated
            .filter_map(|(stop, ns)| Some((stop.reason()?.to_owned(), *ns)))
            .collect();
        unwinding
    }
}
