//! Windows that are open: seconds that are over in, in whole windows out, by request type and group.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use reqtrace_analysis::report::{Exporter, GroupRow, Report, WindowRow};
use reqtrace_base::error::Result;

use crate::metrics::Closed;

/// Windows that are not closed: by their begin, ns since the Unix epoch, and request type.
pub(crate) type Open = BTreeMap<u64, BTreeMap<String, Closed>>;

/// Takes seconds that are over.
pub(crate) struct Windows {
    pub(crate) window_ns: u64,
    pub(crate) open: Rc<RefCell<Open>>,
    /// Requests are distinguished by group.
    pub(crate) has_groups: bool,
}

impl Windows {
    /// Changes what is known of a type in the window of this second.
    fn of(&self, start_unix_ns: u64, request: &str, change: impl FnOnce(&mut Closed)) {
        let begin_ns = start_unix_ns - start_unix_ns % self.window_ns;
        let mut open = self.open.borrow_mut();
        let types = open.entry(begin_ns).or_default();
        let new = || Closed::new(self.has_groups);
        change(types.entry(request.to_owned()).or_insert_with(new));
    }
}

impl Exporter for Windows {
    fn window(&mut self, row: &WindowRow<'_>) -> Result<()> {
        self.of(row.start_unix_ns, row.request, |closed| {
            closed.add(row.cell, row.incomplete, row.has_causes);
            closed.of_build(row.build_id);
        });
        Ok(())
    }

    fn group(&mut self, row: &GroupRow<'_>) -> Result<()> {
        self.of(row.start_unix_ns, row.request, |closed| {
            closed.add_group(row.group, row.cell);
        });
        Ok(())
    }

    fn wants_windows(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}
