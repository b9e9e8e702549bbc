//! What rows do not have: culprits, locks and files of a summary and stacks of a file beside it in, sums of one stretch out.

use std::path::Path;

use reqtrace_base::error::{Error, Result};
use reqtrace_compare::{ItemKind, Known};
use reqtrace_output::json::Summary;

use super::what::output_in;
use super::{Reading, Wanted};

/// Adds what rows do not have, as one stretch; what of it is known, and notes.
pub(super) fn add_items(
    reading: &mut Reading,
    folder: &Path,
    summary: &Summary,
    wanted: &Wanted,
) -> Result<([Known; 4], Vec<String>)> {
    let nothing = [Known::Nothing; 4];
    if !wanted.selected.which.is_empty() {
        let note = format!(
            "{}: culprits, locks, files and stacks are known of all its requests only, and not of those that were selected",
            folder.display()
        );
        return Ok((nothing, vec![note]));
    }
    let mut items = summary.items();
    let stacks = output_in(folder, "folded");
    let mut known = nothing;
    known[2] = Known::Whole;
    if summary
        .meta()
        .alike
        .get("--blame")
        .is_some_and(|is| is == "yes")
    {
        known[..2].fill(Known::Whole);
    }
    if stacks.is_file() {
        known[3] = Known::Folded;
        let requests = summary.requests();
        let text = std::fs::read_to_string(&stacks).map_err(|error| {
            Error::usage(format!("{} cannot be read", stacks.display())).because(error)
        })?;
        for (line, at) in text.lines().zip(1_u64..) {
            let stack = folded(line, &requests).ok_or_else(|| {
                Error::usage(format!(
                    "{}: line {at} is no stack: {line}",
                    stacks.display()
                ))
                .next("write it again: reqtrace report RECORDING --out FOLDER")
            })?;
            items.push(stack);
        }
    }
    reading.side.cut(summary.requests(), items);
    Ok((known, Vec::new()))
}

/// A line of folded stacks: process, the request type if there are several, frames; and µs.
fn folded(line: &str, requests: &[(String, u64)]) -> Option<(ItemKind, String, String, u64)> {
    let (frames, micros) = line.rsplit_once(' ')?;
    let ns = micros.parse::<u64>().ok()?.checked_mul(1_000)?;
    let (request, name) = match requests {
        [(only, _)] => (only.clone(), frames.to_owned()),
        all => {
            let mut frames = frames.split(';');
            let process = frames.next()?;
            let request = frames.next()?;
            let (request, _) = all.iter().find(|(name, _)| name == request)?;
            let rest: Vec<&str> = std::iter::once(process).chain(frames).collect();
            (request.clone(), rest.join(";"))
        }
    };
    Some((ItemKind::Stack, request, name, ns))
}
