//! Who is traced, by somebody else's rule: processes that are added to a trace that runs, or taken out of it, in; what
//! became of that out.

use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

use reqtrace_base::error::{Error, Result};

/// Adds processes to a trace that runs, and takes them out of it, from another thread. While there is one, a trace does
/// not end when its last process leaves.
#[derive(Clone, Debug)]
pub struct Roster(Sender<Change>);

/// What becomes of a change, which the thread that runs the trace makes within 200 ms.
#[derive(Debug)]
pub struct Answer(Receiver<Result<()>>);

/// What is asked for.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) pid: u32,
    /// Whether it is to be traced.
    pub(super) is_in: bool,
    answer: Sender<Result<()>>,
}

/// Changes that are asked for.
pub(super) struct Changes {
    asked: Receiver<Change>,
    /// Somebody may ask for more.
    pub(super) has_roster: bool,
}

pub(super) fn roster() -> (Roster, Changes) {
    let (ask, asked) = mpsc::channel();
    let changes = Changes {
        asked,
        has_roster: true,
    };
    (Roster(ask), changes)
}

impl Roster {
    /// Traces this process from now on, and the children that it starts, if the trace follows children. A request that it
    /// is in already is not seen. Its program may be another one than those that are traced: its markers are
    /// looked for beside the trace, in some ten milliseconds; when there are none, a notice says why, and the process
    /// is counted as one without probes.
    ///
    /// The trace must not have given up its privileges. To wait for the answer in the thread that runs the trace would
    /// be to wait for ever.
    #[must_use]
    pub fn add(&self, pid: u32) -> Answer {
        self.ask(pid, true)
    }

    /// Traces this process no longer. What it has open is reported as open; its children, if they are traced, still are.
    /// The probes of its program go when no other process is traced that runs it; until then they cost it their traps.
    #[must_use]
    pub fn remove(&self, pid: u32) -> Answer {
        self.ask(pid, false)
    }

    fn ask(&self, pid: u32, is_in: bool) -> Answer {
        let (answer, answered) = mpsc::channel();
        let change = Change { pid, is_in, answer };
        // Nobody is there to answer when the trace is over.
        let _ = self.0.send(change);
        Answer(answered)
    }
}

impl Answer {
    /// Waits for it.
    ///
    /// # Errors
    ///
    /// When the process is not there, is or is not traced already, or the trace is over.
    pub fn wait(self) -> Result<()> {
        let over = || Error::failed("the trace is over");
        self.0.recv().map_err(|_| over()).flatten()
    }
}

impl Change {
    pub(super) fn answer(self, answer: Result<()>) {
        // Who asked may not want to know.
        let _ = self.answer.send(answer);
    }
}

impl Changes {
    /// The next one.
    pub(super) fn next(&mut self) -> Option<Change> {
        match self.asked.try_recv() {
            Ok(change) => Some(change),
            Err(error) => {
                self.has_roster = error == TryRecvError::Empty;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_answered_until_the_trace_is_over() {
        let (roster, mut changes) = roster();
        let (one, two) = (roster.add(1), roster.clone().remove(2));
        let change = changes.next().unwrap();
        assert!(change.pid == 1 && change.is_in);
        change.answer(Ok(()));
        one.wait().unwrap();
        let change = changes.next().unwrap();
        assert!(change.pid == 2 && !change.is_in);
        assert!(changes.next().is_none() && changes.has_roster);
        change.answer(Err(Error::failed("it is not traced")));
        assert!(two.wait().unwrap_err().to_string().contains("not traced"));
        let late = roster.add(3);
        drop(changes);
        assert!(late.wait().unwrap_err().to_string().contains("is over"));
        assert!(roster.add(4).wait().is_err());
    }

    #[test]
    fn who_has_no_roster_asks_for_nothing_more() {
        let (roster, mut changes) = roster();
        drop(roster);
        assert!(changes.next().is_none() && !changes.has_roster);
    }
}
