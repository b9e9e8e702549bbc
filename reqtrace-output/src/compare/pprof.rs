//! A profile of both sides: stacks in, samples out, those of the first side with the label that pprof takes for the base.

use std::io::{self, Write};

use reqtrace_compare::Comparison;

use super::folded::frames;
use crate::pprof::{Profiled, signed, write_samples};

/// What pprof holds the sum against. Its samples are below 0, as `pprof -diff_base` makes them.
const BASE: (&str, &str) = ("pprof::base", "true");

/// Writes the profile.
pub(super) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let samples = comparison.stacks.iter().flat_map(|stack| {
        (0..2)
            .filter(|side| stack.sides_ns[*side] > 0)
            .map(|side| Profiled {
                frames: frames(comparison, stack).skip(1).collect(),
                ns: if side == 0 {
                    -signed(stack.sides_ns[0])
                } else {
                    signed(stack.sides_ns[1])
                },
                labels: [
                    Some(("process", stack.name.split(';').next().unwrap_or(""))),
                    Some(("request", stack.request.as_str())),
                    (side == 0).then_some(BASE),
                ]
                .into_iter()
                .flatten()
                .collect(),
            })
    });
    let words =
        "off-CPU and on-CPU time in requests: B, and A (pprof::base) as if it had as many requests";
    write_samples(samples, comparison.sides[1].length_ns, words, out)
}
