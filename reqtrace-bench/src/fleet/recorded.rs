//! A recording that is to be replayed: its file in; what an agent's session is given of each of its seconds out.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use reqtrace_agent::simulated::Session;
use reqtrace_analysis::aggregate::{Aggregator, Options};
use reqtrace_analysis::cells::Cell;
use reqtrace_analysis::report::blame::Causes;
use reqtrace_analysis::report::{
    Exporter, Ledger, Origin, Report, RequestKey, RequestRow, WindowRow,
};
use reqtrace_base::plain::Plain;
use reqtrace_profile::Profiles;
use reqtrace_recording::{Incomplete, Series};

use super::recordings::Wanted;

pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// A recording, analysed.
#[derive(Debug)]
pub(super) struct Recorded {
    /// Of what.
    pub(super) wanted: Wanted,
    /// The name of its profile, which is `profiles`.
    pub(super) profile: String,
    /// Its request types.
    pub(super) profiles: Profiles,
    /// Where it was made.
    pub(super) kernel: String,
    /// Whole seconds.
    pub(super) seconds: Vec<Second>,
    /// Above the ids of all requests.
    pub(super) ids: u64,
}

/// What came of a second.
#[derive(Debug, Default)]
pub(super) struct Second {
    rows: Vec<Row>,
    windows: Vec<Window>,
}

/// A request.
#[derive(Debug)]
struct Row {
    id: u64,
    /// Since the begin of the first whole second.
    start_ns: i64,
    request: String,
    pid: u32,
    tid: u32,
    comm: Plain,
    attributes: Vec<Plain>,
    ledger: Ledger,
    blocks: u32,
    preemptions: u32,
    incomplete: Option<Incomplete>,
    weight: u32,
    waited_before_ns: Option<u64>,
    is_keyed: bool,
    causes: Option<Causes>,
    /// Requests that held it up, their begins since its own.
    blames: Vec<RequestKey>,
}

/// A request type.
#[derive(Debug)]
struct Window {
    length_ns: u64,
    request: String,
    cell: Cell,
    incomplete: u64,
    has_causes: bool,
}

/// Where a second is replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    /// Name of the machine.
    pub(super) host: &'a str,
    /// Build id of the service.
    pub(super) build_id: &'a str,
    /// When the recording begins, by the clock of the machine.
    pub(super) begin_unix_ns: u64,
    /// The same since the session's begin.
    pub(super) since_start_ns: u64,
    /// Added to ids of requests.
    pub(super) ids: u64,
    /// Added to numbers of processes and threads.
    pub(super) pids: u32,
}

impl Recorded {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// When it is damaged, or has no three seconds.
    pub(super) fn read(wanted: Wanted, path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        let series = Series::open([path.to_owned()]);
        let series = series.map_err(|(_, error)| error).with_context(shown)?;
        let header = series.header().clone();
        ensure!(header.blame, "{}: it was made without --blame", shown());
        let profiles = Profiles::parse(header.profile_texts(), &shown())?;
        let mut analysis = Aggregator::new(&profiles, &header, Options::default())?;
        let taken = Rc::<RefCell<Taken>>::default();
        let mut exporters: Vec<Box<dyn Exporter>> = vec![Box::new(Taking(Rc::clone(&taken)))];
        let read = series.read(|event| analysis.event(&event, &mut exporters));
        let ending = read.map_err(|(_, error)| error).with_context(shown)??;
        ensure!(
            ending.is_whole(),
            "{}: it is not whole: {ending:?}",
            shown()
        );
        analysis.finish(&ending, &mut exporters)?;
        drop(exporters);
        let taken = Rc::into_inner(taken).context("the analysis has ended")?;
        let seconds = taken.into_inner().seconds().with_context(shown)?;
        let rows = seconds.iter().flat_map(|second| &second.rows);
        Ok(Self {
            wanted,
            profile: header.profile.clone(),
            ids: rows.map(|row| row.id).max().unwrap_or(0) + 1,
            profiles,
            kernel: header.kernel,
            seconds,
        })
    }

    /// The least latency up to which so large a share of its complete requests is, ns.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        let rows = self.seconds.iter().flat_map(|second| &second.rows);
        let complete = rows.filter(|row| row.incomplete.is_none());
        let mut all: Vec<u64> = complete.map(|row| row.ledger.latency_ns).collect();
        all.sort_unstable();
        let last = all.len().saturating_sub(1);
        let at = (share * all.len() as f64).ceil() as usize;
        all.get(at.saturating_sub(1).min(last))
            .copied()
            .unwrap_or(0)
    }

    /// Complete requests of all its seconds.
    #[must_use]
    pub(super) fn requests(&self) -> u64 {
        self.seconds.iter().map(Second::requests).sum()
    }
}

impl Second {
    /// Complete requests.
    #[must_use]
    pub(super) fn requests(&self) -> u64 {
        let cells = self.windows.iter().map(|window| &window.cell);
        cells.map(|cell| cell.sum.weight).sum()
    }

    /// Hands it to a session; it is the `number`th of its recording.
    ///
    /// # Errors
    ///
    /// None that an agent knows.
    pub(super) fn play(&self, number: u64, at: &At<'_>, session: &mut Session) -> Result<()> {
        for row in &self.rows {
            let start = |from: u64| from.saturating_add_signed(row.start_ns);
            let since_start_ns = i64::try_from(start(at.since_start_ns))?;
            let blames = row.blames.iter().map(|key| RequestKey {
                pid: key.pid + at.pids,
                // 0 is any thread.
                tid: if key.tid == 0 { 0 } else { key.tid + at.pids },
                since_start_ns: since_start_ns + key.since_start_ns,
            });
            let blames: Vec<RequestKey> = blames.collect();
            session.request(&RequestRow {
                id: row.id + at.ids,
                origin: Origin {
                    host: at.host,
                    service: "",
                    build_id: Some(at.build_id),
                },
                start_unix_ns: start(at.begin_unix_ns),
                since_start_ns,
                request: &row.request,
                pid: row.pid + at.pids,
                tid: row.tid + at.pids,
                comm: &row.comm,
                label: &Plain::default(),
                attributes: &row.attributes,
                ledger: &row.ledger,
                blocks: row.blocks,
                preemptions: row.preemptions,
                incomplete: row.incomplete,
                weight: row.weight,
                slow: None,
                waited_before_ns: row.waited_before_ns,
                lost: None,
                is_keyed: row.is_keyed,
                causes: row.causes,
                blames: &blames,
                kept: None,
            })?;
        }
        for window in &self.windows {
            session.window(&WindowRow {
                start_unix_ns: at.begin_unix_ns + number * SECOND_NS,
                length_ns: window.length_ns,
                request: &window.request,
                cell: &window.cell,
                incomplete: window.incomplete,
                has_causes: window.has_causes,
                build_id: Some(at.build_id),
            })?;
        }
        Ok(())
    }
}

/// What an analysis has given, with times since the Unix epoch.
#[derive(Default)]
struct Taken {
    rows: Vec<(u64, Row)>,
    windows: Vec<(u64, Window)>,
}

/// Takes it.
struct Taking(Rc<RefCell<Taken>>);

impl Exporter for Taking {
    fn request(&mut self, row: &RequestRow<'_>) -> reqtrace_base::error::Result<()> {
        let blames = row.blames.iter().map(|key| RequestKey {
            since_start_ns: key.since_start_ns - row.since_start_ns,
            ..*key
        });
        self.0.borrow_mut().rows.push((
            row.start_unix_ns,
            Row {
                id: row.id,
                start_ns: 0,
                request: row.request.to_owned(),
                pid: row.pid,
                tid: row.tid,
                comm: row.comm.clone(),
                attributes: row.attributes.to_vec(),
                ledger: row.ledger.clone(),
                blocks: row.blocks,
                preemptions: row.preemptions,
                incomplete: row.incomplete,
                weight: row.weight,
                waited_before_ns: row.waited_before_ns,
                is_keyed: row.is_keyed,
                causes: row.causes,
                blames: blames.collect(),
            },
        ));
        Ok(())
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn wants_blames_of(&self, _latency_ns: u64, _is_complete: bool) -> bool {
        true
    }

    fn window(&mut self, row: &WindowRow<'_>) -> reqtrace_base::error::Result<()> {
        self.0.borrow_mut().windows.push((
            row.start_unix_ns,
            Window {
                length_ns: row.length_ns,
                request: row.request.to_owned(),
                cell: row.cell.clone(),
                incomplete: row.incomplete,
                has_causes: row.has_causes,
            },
        ));
        Ok(())
    }

    fn wants_windows(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> reqtrace_base::error::Result<()> {
        Ok(())
    }
}

impl Taken {
    /// Its whole seconds: the first and the last are cut by the trace.
    fn seconds(self) -> Result<Vec<Second>> {
        let begins = || self.windows.iter().map(|(begin, _)| *begin);
        let (first, last) = (begins().min(), begins().max());
        let (first, last) = first
            .zip(last)
            .ok_or_else(|| anyhow!("it has no request"))?;
        let from_ns = first + SECOND_NS;
        let count = last.saturating_sub(from_ns) / SECOND_NS;
        ensure!(count >= 1, "it has no whole second: record three at least");
        let mut seconds: Vec<Second> = (0..count).map(|_| Second::default()).collect();
        let index_of = |unix_ns: u64| Some((unix_ns.checked_sub(from_ns)? / SECOND_NS) as usize);
        for (begin_ns, window) in self.windows {
            let is_aligned = begin_ns.abs_diff(from_ns).is_multiple_of(SECOND_NS);
            if !is_aligned {
                bail!("the wall clock was set while it was made: make it again");
            }
            if let Some(second) = index_of(begin_ns).and_then(|at| seconds.get_mut(at)) {
                second.windows.push(window);
            }
        }
        for (start_ns, row) in self.rows {
            let end_ns = start_ns + row.ledger.latency_ns;
            if let Some(second) = index_of(end_ns).and_then(|at| seconds.get_mut(at)) {
                let start_ns = i64::try_from(i128::from(start_ns) - i128::from(from_ns))?;
                second.rows.push(Row { start_ns, ..row });
            }
        }
        // The same requests came both ways.
        for (number, second) in seconds.iter().enumerate() {
            let complete = second.rows.iter().filter(|row| row.incomplete.is_none());
            let rows: u64 = complete.map(|row| u64::from(row.weight)).sum();
            let windows = second.requests();
            ensure!(
                rows == windows,
                "second {number} has {rows} requests by their rows, and {windows} by its windows"
            );
        }
        Ok(seconds)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
