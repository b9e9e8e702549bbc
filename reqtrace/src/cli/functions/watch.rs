//! `--count` with `--as-profile`: findings in, calls of each function and what their first arguments tell
//! about keys, out.

use std::time::Duration;

use reqtrace_common::limits::MAX_WATCHED;

use super::Search;
use super::find::Findings;
use super::measure::{Limits, Plan};
use super::proposal::{Noted, Proposal, proposals};
use crate::error::{Error, Result};
use crate::report::text::number;

/// What was seen of the functions.
pub(super) struct Watched {
    /// Each that was watched.
    pub(super) functions: Vec<WatchedFunction>,
    /// Keys that requests may have.
    pub(super) proposals: Vec<Proposal>,
    /// For how long it was asked for.
    pub(super) seconds: String,
    /// For how long.
    pub(super) elapsed: Duration,
    /// Calls that were not noted, because a table was full.
    pub(super) unnoted: u64,
}

/// A function that was watched.
pub(super) struct WatchedFunction {
    /// How [`Proposal`]s name it.
    pub(super) number: usize,
    /// Index of its object in [`Findings`].
    pub(super) object: usize,
    /// Its index there.
    pub(super) index: usize,
    /// Calls.
    pub(super) calls: u64,
}

impl Watched {
    /// Watches the functions.
    ///
    /// # Errors
    ///
    /// More functions than are watched at once; otherwise as [`Plan::note`].
    pub(super) fn of(search: &Search, findings: &Findings, limits: Limits<'_>) -> Result<Self> {
        let plan = Plan::of_functions(findings);
        let count = plan.matches();
        if count > MAX_WATCHED as usize {
            return Err(Error::usage(format!(
                "`{}` fits {} functions; at most {MAX_WATCHED} are watched for a key at once",
                search.pattern,
                number(count as u64)
            ))
            .next("list them without --count, and give a longer pattern or --object"));
        }
        let mut early: Vec<Vec<u64>> = Vec::new();
        let mut measured = plan.note(search, findings, limits, |counter| {
            let first = counter.first_arguments(count)?;
            if early.last() != Some(&first) {
                early.push(first);
            }
            Ok(())
        })?;
        // What is read below does not change any more.
        measured.counter.detach();
        let arguments = measured.counter.arguments(count)?;
        let mut functions: Vec<WatchedFunction> = Vec::with_capacity(count);
        let mut calls = vec![0; count];
        for one in &measured.counted {
            calls[one.number] = measured.hits(one);
            if let Some((object, index)) = one.function {
                functions.push(WatchedFunction {
                    number: one.number,
                    object,
                    index,
                    calls: measured.hits(one),
                });
            }
        }
        let proposals = proposals(&Noted {
            arguments: &arguments,
            calls: &calls,
            early: &early,
        });
        Ok(Self {
            functions,
            proposals,
            seconds: limits.seconds.to_owned(),
            elapsed: measured.elapsed,
            unnoted: arguments.unnoted,
        })
    }

    /// The function of this number.
    pub(super) fn function(&self, number: usize) -> Option<&WatchedFunction> {
        self.functions.iter().find(|one| one.number == number)
    }

    /// Calls of a function, if it was watched.
    pub(super) fn calls(&self, object: usize, index: usize) -> Option<u64> {
        let mut functions = self.functions.iter();
        let found = functions.find(|one| (one.object, one.index) == (object, index));
        found.map(|one| one.calls)
    }
}
