//! What a request knows of its own times, and its line of the log:
//!
//! `KIND NUMBER begin_ns..begin_ns end_ns..end_ns MOVES PLACE:least..most…`
//!
//! A moment is the two clock readings that it lies between. MOVES is how often another thread went on with the
//! request than the one before; a place is where it was while no thread ran it, and how long at least and at
//! most that was, ns.

use std::fmt::Write;

use example_clock as clock;

/// Something happened between these two readings of the clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    before_ns: u64,
    after_ns: u64,
}

/// Time at a place.
#[derive(Clone, Copy, Debug)]
struct Away {
    place: &'static str,
    least_ns: u64,
    most_ns: u64,
}

/// The times of one request.
#[derive(Debug, Default)]
pub(super) struct Story {
    begin: Moment,
    away: Vec<Away>,
    /// Since when no thread runs it.
    left: Option<Moment>,
    /// Who ran it last.
    thread: i32,
    moves: u32,
    before_ns: u64,
}

impl Moment {
    /// Between this reading and now.
    pub(super) fn since(before_ns: u64) -> Self {
        Self {
            before_ns,
            after_ns: clock::now_ns(),
        }
    }

    /// The two readings, to be kept elsewhere.
    pub(super) fn readings(self) -> [u64; 2] {
        [self.before_ns, self.after_ns]
    }

    /// The reverse of [`Moment::readings`].
    pub(super) fn of(readings: [u64; 2]) -> Self {
        let [before_ns, after_ns] = readings;
        Self {
            before_ns,
            after_ns,
        }
    }

    /// The later one of two.
    fn later(self, other: Self) -> Self {
        Self {
            before_ns: self.before_ns.max(other.before_ns),
            after_ns: self.after_ns.max(other.after_ns),
        }
    }
}

impl Story {
    /// Reads the clock ahead of a moment.
    pub(super) fn about(&mut self) {
        self.before_ns = clock::now_ns();
    }

    /// The moment between [`Story::about`] and now.
    pub(super) fn moment(&self) -> Moment {
        Moment::since(self.before_ns)
    }

    /// The request began, on this thread.
    pub(super) fn begins(&mut self, at: Moment) {
        self.begin = at;
        self.thread = clock::thread_id();
    }

    /// No thread runs it from here on.
    pub(super) fn leaves(&mut self, at: Moment) {
        self.left = Some(at);
    }

    /// This thread goes on with it, which was at `place`.
    pub(super) fn is_back(&mut self, at: Moment, place: &'static str) {
        if let Some(left) = self.left.take() {
            self.was(place, left, at);
            self.runs_here();
        }
    }

    /// The same when it was parked at one place until `ready`, and then at another. It may have been ready
    /// before it left: then it was at the second only.
    pub(super) fn is_back_from_two(
        &mut self,
        parked: &'static str,
        ready: Moment,
        queued: &'static str,
        at: Moment,
    ) {
        if let Some(left) = self.left.take() {
            self.was(parked, left, ready);
            self.was(queued, left.later(ready), at);
            self.runs_here();
        }
    }

    /// Its line of the log, now that it has ended.
    pub(super) fn write(&self, log: &mut String, kind: &str, number: u64, end: Moment) {
        let [begin, end] = [self.begin, end].map(|at| format!("{}..{}", at.before_ns, at.after_ns));
        // Writing to a String does not fail.
        let _ = write!(log, "{kind} {number} {begin} {end} {}", self.moves);
        for away in &self.away {
            let _ = write!(log, " {}:{}..{}", away.place, away.least_ns, away.most_ns);
        }
        log.push('\n');
    }

    fn was(&mut self, place: &'static str, from: Moment, until: Moment) {
        self.away.push(Away {
            place,
            least_ns: until.before_ns.saturating_sub(from.after_ns),
            most_ns: until.after_ns.saturating_sub(from.before_ns),
        });
    }

    fn runs_here(&mut self) {
        let thread = clock::thread_id();
        self.moves += u32::from(self.thread != thread);
        self.thread = thread;
    }
}
