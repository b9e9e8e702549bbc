//! `--count` with `--as-profile`: findings in, calls of each function and what their arguments and results
//! tell about keys, out.

use std::time::Duration;

use reqtrace_common::call::{CallRecord, NOTED_ARGUMENTS};
use reqtrace_common::limits::MAX_WATCHED;

use super::Search;
use super::find::Findings;
use super::measure::{Limits, Plan};
use super::proposal::{Proposals, proposals};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::figures::number;
use reqtrace_resolve::arguments;

/// What was seen of the functions.
pub(super) struct Watched {
    /// Each that was watched.
    pub(super) functions: Vec<WatchedFunction>,
    /// Keys that requests may have.
    pub(super) found: Proposals,
    /// For how long it was asked for.
    pub(super) seconds: String,
    /// For how long.
    pub(super) elapsed: Duration,
    /// Calls and returns that were not noted, because there was no room.
    pub(super) unnoted: u64,
    /// Whether returns were noted.
    pub(super) returns: bool,
    /// Why it ended early, if counting took too much.
    pub(super) stopped: Option<Error>,
}

/// A function that was watched.
pub(super) struct WatchedFunction {
    /// How [`Proposals`] name it.
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
        let mut plan = Plan::of_functions(findings);
        let count = plan.matches();
        if count > MAX_WATCHED as usize {
            return Err(Error::usage(format!(
                "`{}` fits {} functions; at most {MAX_WATCHED} are watched for a key at once",
                search.pattern,
                number(count as u64)
            ))
            .next("list them without --count, and give a longer pattern or --object"));
        }
        let returns = plan.add_returns(findings);
        let mut measured = plan.note(search, findings, limits)?;
        // What is read below does not change any more.
        measured.counter.detach();
        let (mut calls, unnoted) = measured.counter.calls()?;
        let mut functions: Vec<WatchedFunction> = Vec::with_capacity(count);
        for one in &measured.counted {
            if let Some((object, index)) = one.function {
                functions.push(WatchedFunction {
                    number: one.number,
                    object,
                    index,
                    calls: measured.hits(one),
                });
            }
        }
        forget_unread(&mut calls, &functions, findings);
        Ok(Self {
            functions,
            found: proposals(&calls),
            seconds: limits.seconds.to_owned(),
            elapsed: measured.elapsed,
            unnoted,
            returns,
            stopped: measured.stopped,
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

/// Takes out what no function reads: what was in a register by chance.
fn forget_unread(calls: &mut [CallRecord], functions: &[WatchedFunction], findings: &Findings) {
    let mut read = [[true; NOTED_ARGUMENTS]; MAX_WATCHED as usize];
    for function in functions {
        let found = &findings.objects[function.object];
        let bodies = &found.functions[function.index].bodies;
        if let Some(body) = bodies.first() {
            read[function.number] = arguments::reads(&found.object, body.start);
        }
    }
    for call in calls.iter_mut().filter(|call| !call.is_return()) {
        let read = read[call.number() as usize];
        let unread = call.values.iter_mut().zip(read).filter(|(_, read)| !read);
        unread.for_each(|(value, _)| *value = 0);
    }
}
