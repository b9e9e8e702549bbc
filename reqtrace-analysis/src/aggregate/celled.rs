//! Cells: requests as they come in; where each is counted out, so that its root causes find it.

use reqtrace_recording::{ClockStep, Request};

use super::Aggregator;
use super::order::{Home, Row};
use crate::blame::Causes;
use crate::cells::{Cells, Groups, One};
use crate::error::Result;
use crate::fingerprint::statement;
use crate::report::{Exporter, GroupRow, Grouping, Ledger, WindowRow};

impl Aggregator {
    /// Requests by the second in which they ended, type and latency.
    #[must_use]
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Requests by group; `None` when nobody wants them.
    #[must_use]
    pub fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// Adds requests up by their labels from here on, if that is not done anyway: without numbers and strings.
    pub fn keep_groups(&mut self) {
        let to_unix_ns = self.trace.to_unix_ns();
        let has_causes = self.blame.is_some();
        self.groups
            .get_or_insert_with(|| Groups::new(to_unix_ns, has_causes));
    }

    /// Requests so far: complete ones, and incomplete ones. For progress.
    #[must_use]
    pub fn requests(&self) -> (u64, u64) {
        self.cells.requests()
    }

    /// 99th percentile of the latency of all complete requests so far, ns: the highest over the
    /// request types. For progress.
    #[must_use]
    pub fn p99_ns(&self) -> Option<u64> {
        let types = 0..self.types.len() as u32;
        let of = |request| self.cells.latencies(request).quantile(0.99);
        types.filter_map(of).max()
    }

    /// Counts a request; `group` stands for it in groups in place of its label.
    pub(super) fn count(
        &mut self,
        request: &Request<'_>,
        group: Option<&[u8]>,
        index: usize,
        ledger: &Ledger,
    ) -> Home {
        let one = One {
            id: request.id,
            ledger,
            weight: request.weight,
        };
        let (end_ns, of_type) = (request.end_ns, index as u32);
        let mut home = Home {
            window: self.cells.add(end_ns, of_type, request.incomplete, &one),
            group: None,
        };
        if request.incomplete.is_some() {
            return home;
        }
        let state = &mut self.types[index];
        state.longest.add(request);
        if let Some(before) = &mut state.before {
            before.add(request);
        }
        if let Some(lost) = &mut state.lost {
            lost.add(request);
        }
        if let Some(followed) = &mut state.followed {
            followed.add(request);
        }
        let by = self.options.group_by.as_ref().map(Grouping::of_text);
        if let Some(groups) = &mut self.groups {
            let group = statement(group.unwrap_or(request.label), by);
            home.group = Some(groups.add(end_ns, of_type, group.as_str(), &one));
        }
        if let Some(groups) = &mut self.group_windows {
            let group = statement(group.unwrap_or(request.label), by);
            home.group = Some(groups.add(end_ns, of_type, group.as_str(), &one));
        }
        home
    }

    /// What a complete request comes down to.
    pub(super) fn book(&mut self, row: &Row, causes: &Causes) {
        // Most requests were never blocked: their cells are not looked for.
        if causes.sum() == 0 {
            return;
        }
        let (request, latency_ns) = (row.request_type as u32, row.ledger.latency_ns);
        let Home { window, group } = &row.home;
        self.cells
            .book(*window, request, latency_ns, causes, row.weight);
        let Some(cell) = group else { return };
        if let Some(groups) = &mut self.groups {
            groups.book(cell, causes, row.weight);
        }
        if let Some(groups) = &mut self.group_windows {
            groups.book(cell, causes, row.weight);
        }
    }

    /// The wall clock has changed.
    pub(super) fn clock(&mut self, step: &ClockStep) {
        self.trace.clock(*step);
        self.cells.clock(step.at_ns, step.to_unix_ns);
        if let Some(groups) = &mut self.groups {
            groups.clock(step.at_ns, step.to_unix_ns);
        }
        if let Some(groups) = &mut self.group_windows {
            groups.clock(step.at_ns, step.to_unix_ns);
        }
    }

    /// Closes windows of which all requests have come, and all that came are written.
    pub(super) fn advance_cells(&mut self, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
        let until_ns = self.rows.watermark_ns();
        // This is asked at each request, and windows take seconds.
        match self.cells.is_due(until_ns) {
            true => self.close_windows(until_ns, exporters),
            false => Ok(()),
        }
    }

    /// Closes windows that end until then, and hands them over when nothing in them changes any more.
    pub(super) fn close_windows(
        &mut self,
        until_ns: u64,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<()> {
        if exporters.iter().any(|exporter| exporter.wants_windows()) {
            self.cells.keep_sealed();
        }
        self.cells.advance(until_ns);
        if let Some(groups) = &mut self.groups {
            groups.advance(until_ns);
        }
        let sealed = self.cells.take_sealed();
        if self.options.groups_by_second {
            self.cells.forget_sealed();
        }
        for window in sealed {
            if let Some(stacks) = &mut self.stacks {
                let sites = self.sites.get_mut();
                stacks.seal(window.begin_ns, window.unix_ns, sites, &self.spots);
            }
            for (state, request) in self.types.iter().zip(0..) {
                let (mut cell, incomplete) = window.of_type(request);
                if cell.count == 0 {
                    let classes = self.ledger.classes.len();
                    cell.sum.ledger = Ledger::of(classes, &self.spots.names);
                }
                let row = WindowRow {
                    start_unix_ns: window.unix_ns,
                    length_ns: window.until_ns - window.begin_ns,
                    request: &state.name,
                    cell: &cell,
                    incomplete,
                    has_causes: self.blame.is_some(),
                    build_id: self.origins.of(request as usize).build_id,
                };
                if cell.count + incomplete > 0 {
                    let mut exporters = exporters.iter_mut();
                    exporters.try_for_each(|exporter| exporter.window(&row))?;
                }
            }
        }
        self.close_group_windows(until_ns, exporters)
    }

    fn close_group_windows(
        &mut self,
        until_ns: u64,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<()> {
        let Some(groups) = &mut self.group_windows else {
            return Ok(());
        };
        groups.advance(until_ns);
        for window in groups.take_sealed() {
            for ((request, group), cell) in window.cells() {
                let Some(state) = self.types.get(*request as usize) else {
                    continue;
                };
                let row = GroupRow {
                    start_unix_ns: window.unix_ns,
                    request: &state.name,
                    group: group.as_deref(),
                    cell: &cell.cell,
                };
                let mut exporters = exporters.iter_mut();
                exporters.try_for_each(|exporter| exporter.group(&row))?;
            }
        }
        Ok(())
    }
}
