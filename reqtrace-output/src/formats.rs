//! The formats, one line of a table each. Options, their help, the files of `--out` and checks follow from it.

use std::fmt;
use std::io::{self, Write};

use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Exporter, Report};

use crate::chunks::Limits;
use crate::csv::{CsvExporter, IntervalsExporter, WindowsExporter};
use crate::folded::{FoldedOptions, Shows};
#[cfg(feature = "parquet")]
use crate::parquet::ParquetExporter;
use crate::perfetto::PerfettoExporter;
use crate::{blame_csv, flamegraph, folded, html, json, pprof};

/// A format of outputs.
pub struct Format {
    /// Its option, without `--`; empty when only `--out` writes it.
    pub option: &'static str,
    /// The name of its file in the folder of `--out`, and in advice.
    pub file_name: &'static str,
    /// What its option does.
    pub help: &'static str,
    /// Whether `--out` writes it.
    pub folder: InFolder,
    /// What it does with intervals.
    pub intervals: Intervals,
    pub(crate) kind: Kind,
}

/// Whether `--out` writes a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFolder {
    /// Of each trace.
    Always,
    /// Of a trace with blame.
    WithBlame,
    /// It has an option only.
    Never,
}

/// What a format does with intervals, which a trace with blame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intervals {
    /// Nothing.
    Unused,
    /// Its option turns blame on. Of a recording without intervals it has less, which stands here if the file does not
    /// say so itself.
    Better(Option<&'static str>),
    /// There is nothing without them.
    Needed,
}

/// Opens an output that takes rows: where it goes, its name for messages, the columns of the trace, which rows.
pub(crate) type OpenRows =
    fn(Box<dyn Write + Send>, &str, &Columns, Limits) -> Box<dyn Exporter + Send>;

/// When a format is written.
pub(crate) enum Kind {
    /// While the trace runs: it takes rows.
    Rows(OpenRows),
    /// At the end: it takes the report.
    Final {
        write: fn(&Report, Chosen, &mut dyn Write) -> io::Result<()>,
        wants_page: bool,
    },
}

/// What of a report is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) stacks: FoldedOptions,
    /// The stacks are those of all requests, and not of slow ones only.
    pub(crate) all_requests: bool,
}

/// All formats, in the order in which they are named.
pub static FORMATS: &[Format] = &[
    Format {
        option: "html",
        file_name: "report.html",
        help: "Write a page to look at: requests by time and latency, flame graphs, who held whom up, what happened in \
               the slowest (turns --blame on); - is standard output",
        folder: InFolder::Always,
        intervals: Intervals::Better(None),
        kind: Kind::Final {
            write: |report, _, out| html::write(report, out),
            wants_page: true,
        },
    },
    Format {
        option: "json",
        file_name: "summary.json",
        help: "Write the summary as JSON; - is standard output",
        folder: InFolder::Always,
        intervals: Intervals::Unused,
        kind: Kind::Final {
            write: |report, _, out| json::write(report, out),
            wants_page: false,
        },
    },
    Format {
        option: "csv",
        file_name: "requests.csv",
        help: "Write one row for each request; - is standard output",
        folder: InFolder::Always,
        intervals: Intervals::Unused,
        kind: Kind::Rows(|out, name, columns, limits| {
            Box::new(CsvExporter::new(out, name, columns, limits))
        }),
    },
    Format {
        option: "folded",
        file_name: "stacks.folded",
        help: "Write folded stacks; - is standard output",
        folder: InFolder::Always,
        intervals: Intervals::Unused,
        kind: Kind::Final {
            write: |report, chosen, out| folded::write(report, Shows::Stacks(chosen.stacks), out),
            wants_page: false,
        },
    },
    Format {
        option: "flamegraph",
        file_name: "flamegraph.svg",
        help: "Write a flame graph (SVG); - is standard output",
        folder: InFolder::Always,
        intervals: Intervals::Unused,
        kind: Kind::Final {
            write: |report, chosen, out| {
                flamegraph::write(report, Shows::Stacks(chosen.stacks), out)
            },
            wants_page: false,
        },
    },
    Format {
        option: "",
        file_name: "blame.csv",
        help: "",
        folder: InFolder::WithBlame,
        intervals: Intervals::Unused,
        kind: Kind::Final {
            write: |report, _, out| blame_csv::write(report, out),
            wants_page: false,
        },
    },
    Format {
        option: "",
        file_name: "chains.folded",
        help: "",
        folder: InFolder::WithBlame,
        intervals: Intervals::Unused,
        kind: Kind::Final {
            write: |report, _, out| folded::write(report, Shows::Chains, out),
            wants_page: false,
        },
    },
    Format {
        option: "",
        file_name: "chains.svg",
        help: "",
        folder: InFolder::WithBlame,
        intervals: Intervals::Unused,
        kind: Kind::Final {
            write: |report, _, out| flamegraph::write(report, Shows::Chains, out),
            wants_page: false,
        },
    },
    Format {
        option: "intervals",
        file_name: "intervals.csv",
        help: "Write one row for each time that a request was off the CPU, and who ended that (turns --blame on); - is \
               standard output",
        folder: InFolder::Never,
        intervals: Intervals::Needed,
        kind: Kind::Rows(|out, name, _, limits| {
            Box::new(IntervalsExporter::new(out, name, limits))
        }),
    },
    Format {
        option: "windows",
        file_name: "windows.csv",
        help: "Write one row for each second and request type: how many requests, their latencies, where their time \
               went; - is standard output",
        folder: InFolder::Never,
        intervals: Intervals::Unused,
        kind: Kind::Rows(|out, name, columns, limits| {
            Box::new(WindowsExporter::new(out, name, columns, limits))
        }),
    },
    #[cfg(feature = "parquet")]
    Format {
        option: "parquet",
        file_name: "requests.parquet",
        help: "Write the rows of --csv in Parquet, with what is known of the trace; - is standard output",
        folder: InFolder::Never,
        intervals: Intervals::Unused,
        kind: Kind::Rows(|out, name, columns, limits| {
            Box::new(ParquetExporter::new(out, name, columns, limits))
        }),
    },
    Format {
        option: "pprof",
        file_name: "profile.pb.gz",
        help: "Write a gzipped profile of the stacks for `go tool pprof` and all that reads its format, with process, \
               request, class and root cause as labels; - is standard output",
        folder: InFolder::Never,
        intervals: Intervals::Unused,
        kind: Kind::Final {
            write: |report, chosen, out| {
                pprof::write(report, chosen.stacks, chosen.all_requests, out)
            },
            wants_page: false,
        },
    },
    Format {
        option: "perfetto",
        file_name: "trace.pftrace",
        help: "Write a trace for ui.perfetto.dev: a track for each thread, requests and when they were off the CPU, \
               arrows from who woke to who was woken (turns --blame on); - is standard output",
        folder: InFolder::Never,
        intervals: Intervals::Better(Some("has requests only")),
        kind: Kind::Rows(|out, name, columns, limits| {
            Box::new(PerfettoExporter::new(out, name, columns, limits))
        }),
    },
];

impl Format {
    /// The option that writes it, for messages.
    #[must_use]
    pub fn asked_by(&self) -> String {
        format!(
            "--{}",
            if self.option.is_empty() {
                "out"
            } else {
                self.option
            }
        )
    }

    /// Whether `--out` writes it.
    #[must_use]
    pub fn is_in_folder(&self, has_blame: bool) -> bool {
        match self.folder {
            InFolder::Always => true,
            InFolder::WithBlame => has_blame,
            InFolder::Never => false,
        }
    }

    /// Whether its option turns blame on.
    #[must_use]
    pub fn wants_blame(&self) -> bool {
        self.intervals != Intervals::Unused
    }

    /// The format of an option.
    #[must_use]
    pub fn of(option: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.option == option)
    }
}

/// Names of files are unique.
impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.file_name == other.file_name
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_formats_share_a_name() {
        for (at, format) in FORMATS.iter().enumerate() {
            for other in &FORMATS[..at] {
                assert_ne!(format, other);
                assert!(format.option.is_empty() || format.option != other.option);
            }
            // What nobody can ask for is never written.
            assert!(!format.option.is_empty() || format.folder != InFolder::Never);
            assert_eq!(format.option.is_empty(), format.help.is_empty());
        }
    }
}
