//! A file of roll-ups that is made: figures of windows in, Parquet with a row of each minute and level out.

use std::io::Write;

use reqtrace_base::error::Result;
use reqtrace_output::parquet::RollupsExporter;
use reqtrace_output::rollups::{Rollup, RollupsMeta};

use crate::metrics::grid;
use crate::records::Table;
use crate::records::journal::Head;

/// A file of roll-ups.
pub(crate) struct RollupsTable(RollupsExporter);

impl Table<Rollup> for RollupsTable {
    fn begin(head: &Head, name: &str, to: Box<dyn Write + Send>, _first: &Rollup) -> Self {
        let Head { of, slow_ns, .. } = head;
        let meta = RollupsMeta {
            reqtrace: env!("CARGO_PKG_VERSION").to_owned(),
            service: of.service.clone(),
            profile: of.profile.clone(),
            kernel: of.kernel.clone(),
            slow_above_ns: *slow_ns,
            most_groups: of.most_groups,
            edges_ns: grid().collect(),
            ..RollupsMeta::default()
        };
        Self(RollupsExporter::new(to, name, &of.columns, meta))
    }

    fn add(&mut self, rollup: &Rollup, _host: &str) -> Result<()> {
        self.0.add(rollup);
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.0.rows()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn finish(&mut self, host: &str, _last_end_ns: u64) -> Result<()> {
        self.0.finish(host)
    }
}
