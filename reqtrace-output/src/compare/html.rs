//! The page of a comparison: the data of its JSON, heatmaps and stacks in, one file out.

use std::io::{self, Write};

use reqtrace_analysis::cells::bucket::lowest;
use reqtrace_compare::{Comparison, HEAT_BITS, Heat};
use serde::Serialize;

use super::Document;
use crate::html::write_diff;

/// What the page is drawn from.
#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    /// Lower end of each row of the heatmaps, ns.
    edges_ns: Vec<u64>,
    /// Of each request type both sides.
    heat: Vec<&'a [Heat; 2]>,
    /// Request type, frames with `;` between, ns on both sides.
    stacks: Vec<(usize, &'a str, u64, u64)>,
}

/// Writes the page.
pub(super) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let heat: Vec<&[Heat; 2]> = comparison.types.iter().map(|of| &of.heat).collect();
    let cells = heat
        .iter()
        .flat_map(|sides| sides.iter())
        .flat_map(|side| &side.cells);
    let last = cells.map(|(_, row, _)| u32::from(*row)).max().unwrap_or(0);
    let place = |request: &str| comparison.types.iter().position(|of| of.name == request);
    let stacks = comparison.stacks.iter();
    let data = Data {
        document: Document::of(comparison),
        edges_ns: (0..=last + 1).map(|row| lowest(HEAT_BITS, row)).collect(),
        stacks: stacks
            .filter_map(|stack| {
                Some((
                    place(&stack.request)?,
                    stack.name.as_str(),
                    stack.sides_ns[0],
                    stack.sides_ns[1],
                ))
            })
            .collect(),
        heat,
    };
    write_diff(&data, out)?;
    out.flush()
}
