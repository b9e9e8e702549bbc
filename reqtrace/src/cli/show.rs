//! The end of a trace and of a report alike: a report in, the table and messages out.

use super::outputs::Outputs;
use crate::error::Result;
use crate::report::outputs::UntilClosed;
use crate::report::table::TableExporter;
use crate::report::{Exporter as _, Report};

/// The table goes to standard output, or to standard error when an output has taken that.
pub(super) fn table(report: &Report, outputs: &Outputs) -> Result<()> {
    if outputs.quiet {
        for loss in &report.losses {
            eprintln!("reqtrace: {} × {}: {}", loss.count, loss.name, loss.advice);
        }
        return Ok(());
    }
    let out: Box<dyn std::io::Write> = if outputs.takes_stdout() {
        Box::new(std::io::stderr())
    } else {
        Box::new(std::io::stdout())
    };
    let verbose = outputs.verbose > 0;
    TableExporter::new(Box::new(UntilClosed::new(out)), verbose).finish(report)?;
    if let Some(out) = &outputs.out {
        eprintln!(
            "wrote {0}/summary.json, {0}/requests.csv, {0}/stacks.folded, {0}/flamegraph.svg",
            out.display()
        );
    }
    Ok(())
}
