//! A trace that is analysed while it runs: a [`Tracer`] and what is wanted of its model in; events with the
//! model, and at its end the report and all outputs, out.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use reqtrace::analysed::Analysed;
//! use reqtrace_analysis::aggregate::Aggregator;
//! use reqtrace_capture::tracer::Tracer;
//! use reqtrace_profile::builtin;
//! use reqtrace_recording::Event;
//!
//! # fn main() -> reqtrace_base::error::Result<()> {
//! let profile = builtin::from_file(Path::new("shop.toml"))?;
//! let tracer = Tracer::new(profile)
//!     .pid(4711)
//!     .duration(Duration::from_secs(30));
//! let trace = Analysed::new(tracer).start()?;
//! let finished = trace.run(|event: &Event<'_>, model: &Aggregator| {
//!     if let Event::Request(request) = event
//!         && request.latency_ns() > 10_000_000
//!     {
//!         println!("{} took {} ns", model.request_name(request), request.latency_ns());
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! println!("{} requests", finished.report.requests[0].count);
//! # Ok(())
//! # }
//! ```
//!
//! The example `slow_requests` of this crate is a whole program.

mod later;
mod observer;
mod seen;
mod sinks;
mod trace;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_analysis::aggregate::{self, Aggregator};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::Grouping;
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::tracer::Tracer;
use reqtrace_output::outputs::{self, BoxedExporter, Keep, RolledFolder};
use reqtrace_recording::{Files, Header, Recorder, Removed, Roll};

pub use observer::{Observer, Watcher};
pub use seen::Seen;
pub use trace::{Finished, Trace};

/// Opens the outputs of a trace; it is given its columns.
type OpenOutputs = Box<dyn FnOnce(&Columns) -> Result<Vec<BoxedExporter>>>;

/// The files of a recording, in a folder.
struct InFolder {
    folder: RolledFolder,
    /// When the trace began, by the wall clock as it was then: it names its files.
    trace_unix_ns: Option<u64>,
}

impl Files for InFolder {
    fn begin(&mut self, header: &Header) -> io::Result<File> {
        let unix_ns = |ns: u64| ns.saturating_add_signed(header.monotonic_to_unix_ns);
        let part = header.part;
        let trace_unix_ns = unix_ns(part.trace_start_ns);
        let trace_unix_ns = *self.trace_unix_ns.get_or_insert(trace_unix_ns);
        self.folder
            .begin(trace_unix_ns, part.number, unix_ns(header.start_ns))
    }

    fn complete(&mut self, file: File) -> io::Result<Removed> {
        let outputs::Removed { files, bytes } = self.folder.complete(&file)?;
        Ok(Removed { files, bytes })
    }
}

/// What to trace, and what to make of it. Nothing happens before [`Analysed::start`].
pub struct Analysed {
    tracer: Tracer,
    group_by: Option<Grouping>,
    slower_than_ns: Option<u64>,
    record: Option<PathBuf>,
    rolls: Option<(Roll, Keep)>,
    outputs: OpenOutputs,
}

/// Where a recording goes.
enum Recording {
    File(File),
    Folder(RolledFolder, Roll),
}

impl Analysed {
    /// What this tracer sees, without an output.
    #[must_use]
    pub fn new(tracer: Tracer) -> Self {
        Self {
            tracer,
            group_by: None,
            slower_than_ns: None,
            record: None,
            rolls: None,
            outputs: Box::new(|_| Ok(Vec::new())),
        }
    }

    /// Adds requests up by their labels or an attribute. Labels are recorded then, but for an attribute that
    /// is a number.
    #[must_use]
    pub fn group_by(mut self, by: Grouping) -> Self {
        self.group_by = Some(by);
        self
    }

    /// Keeps stacks only of requests at or above this latency.
    #[must_use]
    pub fn slower_than(mut self, latency: Duration) -> Self {
        self.slower_than_ns = Some(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// Writes a recording to this file, for `reqtrace report`.
    #[must_use]
    pub fn record(mut self, file: impl Into<PathBuf>) -> Self {
        self.record = Some(file.into());
        self
    }

    /// Makes the recording a folder of files, each of which goes on where the one before ends: when they end, and which of
    /// them stay.
    #[must_use]
    pub fn roll(mut self, roll: Roll, keep: Keep) -> Self {
        self.rolls = Some((roll, keep));
        self
    }

    /// Opens the outputs of the trace: when it is not refused, and before anything is attached. It is given the names
    /// of wait classes, places and attributes, in the order of every row.
    #[must_use]
    pub fn outputs(
        mut self,
        open: impl FnOnce(&Columns) -> Result<Vec<BoxedExporter>> + 'static,
    ) -> Self {
        self.outputs = Box::new(open);
        self
    }

    /// Attaches everything; the trace runs from then on. Needs root, or the capabilities that
    /// `reqtrace doctor` names.
    ///
    /// # Errors
    ///
    /// As [`Tracer::start`], and what is wrong with the outputs; nothing is attached then.
    pub fn start(self) -> Result<Trace> {
        let Self {
            mut tracer,
            group_by,
            slower_than_ns,
            record,
            rolls,
            outputs: open,
        } = self;
        if let Some(by) = &group_by {
            let needs_texts = aggregate::needs_texts(tracer.profiles(), by)?;
            tracer = tracer.labels(needs_texts);
        }
        let (has_before, has_lost) = (tracer.has_before(), tracer.has_interrupts());
        let is_private = tracer.has_labels();
        let (trace, (profiles, exporters, recording)) = tracer.start_with(|profiles| {
            let exporters = open(
                &Columns::of(profiles)?
                    .with_before(has_before)
                    .with_lost(has_lost),
            )?;
            let create = |path| match rolls {
                None => outputs::create("--record", path, is_private).map(Recording::File),
                Some((roll, keep)) => outputs::create_folder("--record", path, is_private, keep)
                    .map(|folder| Recording::Folder(folder, roll)),
            };
            let recording = record.as_deref().map(create).transpose()?;
            Ok((profiles.clone(), exporters, recording))
        })?;
        let header = trace.header();
        let analysis = Aggregator::new(
            &profiles,
            header,
            aggregate::Options {
                slower_than_ns,
                group_by,
                histogram: header.options.histogram,
                ..aggregate::Options::default()
            },
        )?;
        let recorder = match (recording, &record) {
            (Some(file), Some(path)) => Some(recorder(file, path, header)?),
            _ => None,
        };
        Ok(Trace::new(trace, analysis, exporters, recorder))
    }
}

/// A recorder, and its name for messages.
fn recorder(to: Recording, path: &Path, header: &Header) -> Result<(Recorder, String)> {
    let name = path.display().to_string();
    let begin = match &to {
        Recording::Folder(folder, _) if folder.is_foreign() => {
            outputs::give_up_privileges_but_files
        }
        _ => outputs::give_up_privileges,
    };
    let recorder = match to {
        Recording::File(file) => {
            outputs::empty(&file).and_then(|()| Recorder::start(file, header, begin))
        }
        Recording::Folder(folder, roll) => {
            let files = InFolder {
                folder,
                trace_unix_ns: None,
            };
            Recorder::start_rolling(Box::new(files), roll, header, begin)
        }
    };
    let recorder = recorder.map_err(|error| {
        Error::failed(format!("--record {name} cannot be written")).because(error)
    })?;
    Ok((recorder, name))
}
