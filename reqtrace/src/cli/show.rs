//! The end of a trace and of a report alike: a report in, the table and messages out.

use std::os::fd::AsFd;

use super::outputs::OutputArgs;
use reqtrace_analysis::report::{Exporter as _, Report};
use reqtrace_base::error::Result;
use reqtrace_output::formats::FORMATS;
use reqtrace_output::outputs::UntilClosed;
use reqtrace_output::table::TableExporter;

/// The table goes to standard output, or to standard error when an output has taken that.
pub(super) fn table(report: &Report, outputs: &OutputArgs) -> Result<()> {
    if outputs.quiet {
        for warning in &report.warnings {
            reqtrace_base::say!("reqtrace: warning: {warning}");
        }
        for loss in &report.losses {
            reqtrace_base::say!("reqtrace: {} × {}: {}", loss.count, loss.name, loss.advice);
        }
        return Ok(());
    }
    let (out, columns): (Box<dyn std::io::Write>, _) = if outputs.takes_stdout() {
        let err = std::io::stderr();
        let columns = columns(&err);
        (Box::new(err), columns)
    } else {
        let out = std::io::stdout();
        let columns = columns(&out);
        (Box::new(out), columns)
    };
    let verbose = outputs.verbose > 0;
    TableExporter::new(Box::new(UntilClosed::new(out)), verbose, columns).finish(report)
}

/// Says which files there are now.
pub(super) fn written(outputs: &OutputArgs, report: &Report) {
    if outputs.quiet {
        return;
    }
    if let Some(out) = &outputs.out {
        let has_blame = report.blame.is_some();
        let written = FORMATS
            .iter()
            .filter(|format| format.is_in_folder(has_blame));
        let written = written.map(|format| out.join(format.file_name).display().to_string());
        reqtrace_base::say!("wrote {}", written.collect::<Vec<_>>().join(", "));
    }
}

/// Room behind so many columns of a terminal; without one there is no end.
#[cfg(feature = "capture")]
pub(super) fn room(output: &impl AsFd, before: usize) -> usize {
    columns(output).map_or(usize::MAX, |columns| {
        usize::from(columns).saturating_sub(before)
    })
}

/// Columns of what a terminal is at the other end of; `None` elsewhere.
fn columns(output: &impl AsFd) -> Option<u16> {
    terminal_size::terminal_size_of(output).map(|(width, _)| width.0)
}
