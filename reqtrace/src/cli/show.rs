//! The end of a trace and of a report alike: a report in, the table and messages out.

use std::io::Write;
use std::os::fd::AsFd;

use super::outputs::OutputArgs;
use reqtrace_analysis::report::{Exporter as _, Report};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
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
    let (out, columns) = place(outputs.takes_stdout());
    let verbose = outputs.verbose > 0;
    TableExporter::new(Box::new(UntilClosed::new(out)), verbose, columns).finish(report)
}

/// Text goes to the same place. Its width is that of the terminal, if there is one.
pub(super) fn text(stdout_is_taken: bool, text: impl FnOnce(Option<u16>) -> String) -> Result<()> {
    let (out, columns) = place(stdout_is_taken);
    let mut out = UntilClosed::new(out);
    let written = out.write_all(Plain::lines(&text(columns)).as_bytes());
    let written = written.and_then(|()| out.flush());
    written.map_err(|error| Error::failed("the table could not be written").because(error))
}

/// Where people look, and its width.
fn place(stdout_is_taken: bool) -> (Box<dyn Write>, Option<u16>) {
    if stdout_is_taken {
        let err = std::io::stderr();
        let columns = columns(&err);
        (Box::new(err), columns)
    } else {
        let out = std::io::stdout();
        let columns = columns(&out);
        (Box::new(out), columns)
    }
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
