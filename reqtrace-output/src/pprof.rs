//! `--pprof`: a report in, a gzipped profile out, as `go tool pprof` and all that read its format take it.
//!
//! A sample is a line of the folded stacks: the same frames, the same sums. What folded stacks cannot say
//! is in its labels: process, request type, wait class and, in a trace with blame, root cause.
//!
//! The profiles of an agent are those of a period ([`of_period`]): one for each request type.

mod period;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use prost::Message as _;

use self::wire::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use super::folded::{FoldedOptions, frames, lines};
use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::palette::Time;
use reqtrace_analysis::report::{Module, Report, StackKind, StackLine};
use reqtrace_base::plain::Plain;

pub use self::period::{NamesOfTimes, of_period};

/// Writes a profile. Where the stacks are those of all requests, they are split by root cause.
pub(crate) fn write(
    report: &Report,
    stacks: FoldedOptions,
    all_requests: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let causes = match all_requests && report.trace.stack_filter.is_empty() {
        true => CausesByStack::of(report),
        false => CausesByStack::default(),
    };
    packed(
        &Builder::new(&report.modules).build(report, stacks, &causes),
        out,
    )
}

fn packed(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&gzipped(profile)?)?;
    out.flush()
}

fn gzipped(profile: &Profile) -> io::Result<Vec<u8>> {
    // No name and no time: the same report makes the same bytes.
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::default());
    writer.write_all(&profile.encode_to_vec())?;
    writer.finish()
}

/// A sample of no report.
pub(crate) struct Profiled<'a> {
    /// Outermost first.
    pub(crate) frames: Vec<&'a str>,
    /// Below 0 of what is subtracted.
    pub(crate) ns: i64,
    /// Keys and texts.
    pub(crate) labels: Vec<(&'static str, &'a str)>,
}

/// Writes a profile of these samples.
pub(crate) fn write_samples<'a>(
    samples: impl Iterator<Item = Profiled<'a>>,
    duration_ns: u64,
    comment: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut builder = Builder::new(&[]);
    builder.profile.sample_type = vec![builder.value_type("time", "nanoseconds")];
    builder.profile.duration_nanos = signed(duration_ns);
    builder.comment(comment);
    for sample in samples {
        let frames = sample.frames.iter().rev();
        let location_id = frames.map(|name| builder.location(name)).collect();
        let labels = sample.labels.iter();
        let label = labels.map(|(key, text)| builder.label(key, text)).collect();
        let value = vec![sample.ns];
        builder.profile.sample.push(Sample {
            location_id,
            value,
            label,
        });
    }
    packed(&builder.profile, out)
}

/// A request type and a stack, outermost first.
type StackKey<'a> = (&'a str, Vec<&'a str>);

/// Blocked time by root cause, of stacks of which that is known exactly.
#[derive(Default)]
struct CausesByStack<'a>(HashMap<StackKey<'a>, BTreeMap<Cause, u64>>);

impl<'a> CausesByStack<'a> {
    /// Chains are of complete requests and know neither process nor class of a stack. So a stack is left
    /// out that is of two processes or classes, and one whose chains have more time than it has.
    fn of(report: &'a Report) -> Self {
        let mut sums: HashMap<StackKey<'_>, BTreeMap<Cause, u64>> = HashMap::new();
        for chain in report.blame.iter().flat_map(|blame| &blame.chains) {
            if let (Some(request), Some(cause)) = (chain.frames.first(), chain.cause()) {
                let stack = chain.own_stack().iter().map(String::as_str).collect();
                let causes = sums.entry((request, stack)).or_default();
                *causes.entry(cause).or_default() += chain.ns;
            }
        }
        let mut lines: HashMap<StackKey<'_>, (usize, u64)> = HashMap::new();
        for line in report.stacks.iter().filter(|line| is_blocked(line)) {
            let (count, ns) = lines.entry(key_of(line)).or_default();
            *count += 1;
            *ns += line.ns;
        }
        sums.retain(|key, causes| {
            let ns: u64 = causes.values().sum();
            lines
                .get(key)
                .is_some_and(|(count, all)| *count == 1 && ns <= *all)
        });
        Self(sums)
    }

    /// The root causes of a line; none where they are not known.
    fn get(&self, line: &'a StackLine) -> impl Iterator<Item = (Cause, u64)> {
        let causes = match is_blocked(line) {
            true => self.0.get(&key_of(line)),
            false => None,
        };
        causes
            .into_iter()
            .flatten()
            .map(|(cause, ns)| (*cause, *ns))
    }
}

fn is_blocked(line: &StackLine) -> bool {
    line.kind == StackKind::Blocked
}

fn key_of(line: &StackLine) -> StackKey<'_> {
    let frames = line.user.iter().chain(&line.kernel);
    (&line.request, frames.map(String::as_str).collect())
}

/// A profile that is being made.
struct Builder<'a> {
    profile: Profile,
    texts: HashMap<String, i64>,
    /// Ids of functions; their locations have the same.
    functions: HashMap<String, u64>,
    /// Ids of mappings by the names of their functions.
    mappings: HashMap<&'a str, u64>,
}

impl<'a> Builder<'a> {
    fn new(modules: &'a [Module]) -> Self {
        let mut builder = Self {
            profile: Profile::default(),
            texts: HashMap::new(),
            functions: HashMap::new(),
            mappings: HashMap::new(),
        };
        builder.text("");
        // The first is taken for the program.
        let (programs, libraries): (Vec<_>, Vec<_>) = modules
            .iter()
            .partition(|module| !module.path.contains(".so") && !module.path.starts_with('['));
        for (id, module) in (1..).zip(programs.into_iter().chain(libraries)) {
            let build_id: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
            let mapping = Mapping {
                id,
                filename: builder.text(&module.path),
                build_id: builder.text(&build_id),
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            };
            builder.profile.mapping.push(mapping);
            let functions = module.functions.iter();
            let ids = functions.map(|function| (function.as_str(), id));
            builder.mappings.extend(ids);
        }
        builder
    }

    fn build(
        mut self,
        report: &Report,
        options: FoldedOptions,
        causes: &CausesByStack<'_>,
    ) -> Profile {
        let trace = &report.trace;
        self.profile.sample_type = vec![
            self.value_type("intervals", "count"),
            self.value_type("time", "nanoseconds"),
        ];
        self.profile.default_sample_type = self.text("time");
        self.profile.time_nanos = signed(trace.start_unix_ns);
        self.profile.duration_nanos = signed(trace.duration_ns);
        let words = format!(
            "{} time in requests of profile {}, by reqtrace {}",
            options.part.name(),
            trace.profile,
            trace.version
        );
        self.comment(&words);
        for line in lines(report, options) {
            self.line(report, line, options, causes);
        }
        self.profile
    }

    /// A sample for each root cause, and one for what has none. Intervals have no root cause: a block may
    /// have several.
    fn line(
        &mut self,
        report: &Report,
        line: &StackLine,
        options: FoldedOptions,
        causes: &CausesByStack<'_>,
    ) {
        let frames = frames(line, options);
        let locations: Vec<u64> = frames
            .iter()
            .rev()
            .map(|name| self.location(name))
            .collect();
        let class = Time::of(line).name(report);
        let labels = [
            self.label("process", &line.comm),
            self.label("request", &line.request),
            self.label("class", &class),
        ];
        let mut rest = line.ns;
        for (cause, ns) in causes.get(line) {
            let mut label = labels.to_vec();
            label.push(self.label("root_cause", cause.words()));
            rest = rest.saturating_sub(ns);
            self.profile.sample.push(Sample {
                location_id: locations.clone(),
                value: vec![0, signed(ns)],
                label,
            });
        }
        self.profile.sample.push(Sample {
            location_id: locations,
            value: vec![signed(line.count), signed(rest)],
            label: labels.to_vec(),
        });
    }

    fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: self.text(name),
            unit: self.text(unit),
        }
    }

    fn comment(&mut self, text: &str) {
        let text = self.text(text);
        self.profile.comment.push(text);
    }

    fn label(&mut self, key: &str, value: &str) -> Label {
        Label {
            key: self.text(key),
            str: self.text(&Plain::of(value)),
        }
    }

    fn location(&mut self, name: &str) -> u64 {
        if let Some(id) = self.functions.get(name) {
            return *id;
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(name.to_owned(), id);
        let text = self.text(&Plain::of(name));
        self.profile.function.push(Function {
            id,
            name: text,
            system_name: text,
        });
        self.profile.location.push(Location {
            id,
            mapping_id: self.mappings.get(name).copied().unwrap_or(0),
            line: vec![Line { function_id: id }],
        });
        id
    }

    /// The number of a text.
    fn text(&mut self, text: &str) -> i64 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), number);
        number
    }
}

/// What is longer than 292 years is that long.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
