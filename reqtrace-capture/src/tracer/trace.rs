//! A trace that runs: everything attached in; events while it goes out.

use std::fmt;
use std::os::fd::OwnedFd;

use log::info;
use reqtrace_recording::{Cost, Header};

use super::Options;
use super::follow::{EndedBy, Follower, Keyed};
use super::guarding::{Guarding, Limit};
use super::latecomers::Latecomers;
use super::processes::Processes;
use super::roster::{Changes, Roster, roster};
use super::stopper::Stopper;
use super::watched::Watched;
use crate::attach::{Session, maps_go_by_descriptor};
use crate::events::{EventSink, Names, Notices, Stream};
use crate::kernel::give_up::{StillNeeded, give_up};
use crate::kernel::priority;
use reqtrace_base::error::Result;
use reqtrace_recording::Untraced;

/// A trace with everything attached, made by [`super::Tracer::start`]. Requests are counted from its
/// start on; they wait in the kernel's ring until it is run.
pub struct Trace {
    session: Session,
    events: Events,
    options: Options,
    notices: Notices,
    stopper: Stopper,
    roster: Roster,
    changes: Changes,
    /// While it is open the kernel counts the time of programs.
    stats: Option<OwnedFd>,
}

/// What makes events, and where they go.
pub(super) struct Events {
    pub(super) header: Header,
    pub(super) names: Names,
    pub(super) request_types: usize,
    pub(super) keyed: Keyed,
    pub(super) processes: Processes,
    /// All processes that are traced from the start on.
    pub(super) pids: Vec<u32>,
    /// Processes for which the kernel's table has no room.
    pub(super) left_out: u64,
    pub(super) latecomers: Latecomers,
    pub(super) watched: Watched,
    /// What they took before.
    pub(super) untraced: Option<Untraced>,
    /// See [`Cost::cold_percent`].
    pub(super) cold_percent: u32,
}

/// A trace that is over: every event was sent, and the probes are being taken out, which
/// [`Finished::detach`] and the end of this wait for.
#[non_exhaustive]
pub struct Finished {
    /// Why it ended.
    pub ended_by: EndedBy,
    session: Session,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("pids", &self.events.pids)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("ended_by", &self.ended_by)
            .finish_non_exhaustive()
    }
}

impl Trace {
    pub(super) fn new(
        session: Session,
        events: Events,
        stats: Option<OwnedFd>,
        options: Options,
        notices: Notices,
        stopper: Stopper,
    ) -> Self {
        let (roster, changes) = roster();
        Self {
            session,
            events,
            options,
            notices,
            stopper,
            roster,
            changes,
            stats,
        }
    }

    /// What was traced, where and how.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.events.header
    }

    /// Where its notices go.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// What ends it from another thread, or from a signal handler.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What adds processes to it while it runs, and takes them out.
    #[must_use]
    pub fn roster(&self) -> Roster {
        self.roster.clone()
    }

    /// Gives up the privileges that this trace needs no more, of the calling thread, which has to be the one
    /// that runs it: from now on it reads processes, and no more. The kernel's tables and links are open.
    /// The arguments say what the caller still does: give
    /// names to files in folders of other users, and send signals to a program that it has started.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn give_up_privileges(&self, foreign_folders: bool, signals: bool) -> Result<()> {
        priority::come_first();
        let left = give_up(StillNeeded {
            perf_probes: self.options.follow && self.session.sets_by_perf_events(),
            maps: !maps_go_by_descriptor()?,
            foreign_folders,
            signals,
        })?;
        info!("privileges left: {}", left.join(", "));
        Ok(())
    }

    /// Runs it to its end: everything that is seen goes to a sink.
    ///
    /// # Errors
    ///
    /// When the kernel's maps cannot be read, or the sink cannot go on.
    pub fn run(self, sink: &mut dyn EventSink) -> Result<Finished> {
        let Self {
            mut session,
            events,
            options,
            notices,
            stopper,
            roster,
            changes,
            stats,
        } = self;
        // From now on only others ask for changes.
        drop(roster);
        let stream = Stream::new(sink);
        let (names, types) = (events.names, events.request_types);
        let mut follower = Follower::new(
            stream,
            names,
            types,
            (events.processes, &events.pids),
            (stopper, events.latecomers, events.watched, changes),
            events.keyed,
            events.header.monotonic_to_unix_ns,
        )?;
        follower.left_out(events.left_out)?;
        if options.is_one_of_many {
            session.is_of_this_thread();
        }
        let alive = follower.processes().alive();
        let cold_percent = events.cold_percent;
        let limit = Limit {
            percent: options.max_overhead,
            cold_percent,
            window: options.may_leave_out,
            // With blame a waker that is left out would be unknown.
            wants_all: options.blame,
        };
        let mut guarding = Guarding::new(limit, alive, notices);
        priority::come_first();
        let ended_by = follower.run(&mut session, options.duration, &mut guarding)?;
        follower.ended();
        let stop_ns = session.stop()?;
        priority::come_as_others();
        // What is read from now on is in the kernel's tables and in ours.
        session.begin_detach()?;
        let (overhead, shed) = guarding.finish(&session, follower.processes())?;
        let cost = Cost {
            overhead: Some(overhead),
            shed,
            untraced: events.untraced,
            cold_percent: events.cold_percent,
            ..session.cost()?
        };
        follower.drain(&mut session)?;
        follower.end(&mut session, stop_ns, ended_by, cost)?;
        drop(stats);
        Ok(Finished { ended_by, session })
    }
}

impl Finished {
    /// Waits until all probes are out.
    pub fn detach(&mut self) {
        self.session.detach();
    }
}
