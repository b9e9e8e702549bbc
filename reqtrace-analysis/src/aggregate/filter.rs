//! Which requests a report is about: options in, a decision for each request out.

use globset::{GlobBuilder, GlobMatcher};
use reqtrace_recording::{Header, Request};

use super::attributes::Attributes;
use crate::error::{Error, Result};
use crate::label::label_text;
use crate::profile::Profiles;
use reqtrace_base::figures::duration;
use reqtrace_base::text::check_glob;

/// What was asked for. An empty list and `None` keep all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterOptions {
    /// Names of request types.
    pub requests: Vec<String>,
    /// A glob that the whole label matches.
    pub label: Option<String>,
    /// Names of attributes, each with a glob that its whole text matches.
    pub attributes: Vec<(String, String)>,
    /// Requests that began at or after this time since the start of the trace, ns.
    pub from_ns: Option<u64>,
    /// Requests that began before this time since the start of the trace, ns.
    pub to_ns: Option<u64>,
    /// Requests that began in one of these ranges, from and until before times since the start of the trace, ns.
    pub ranges: Vec<(u64, u64)>,
    /// Processes.
    pub pids: Vec<u32>,
    /// Threads.
    pub tids: Vec<u32>,
}

/// Decides for each request.
#[derive(Debug)]
pub(super) struct Filter {
    types: Option<Vec<bool>>,
    label: Option<GlobMatcher>,
    /// Columns of attributes.
    attributes: Vec<(usize, GlobMatcher)>,
    from_ns: u64,
    to_ns: u64,
    ranges: Vec<(u64, u64)>,
    pids: Vec<u32>,
    tids: Vec<u32>,
    /// In words.
    pub(super) which: String,
    pub(super) kept: u64,
    pub(super) left_out: u64,
    pub(super) without_stack_ns: u64,
}

impl Filter {
    /// `None` when all requests are kept.
    pub(super) fn new(
        options: &FilterOptions,
        profiles: &Profiles,
        attributes: &Attributes,
        header: &Header,
    ) -> Result<Option<Self>> {
        if *options == FilterOptions::default() {
            return Ok(None);
        }
        if options.label.is_some() && !header.options.labels {
            return Err(Error::usage(
                "--label: the recording has no labels, so none can be compared",
            )
            .next("record with --labels"));
        }
        let of_label = |pattern| glob("--label", pattern, "--label 'SELECT *'");
        let label = options.label.as_deref().map(of_label).transpose()?;
        let of_attribute = |(name, pattern): &(String, String)| {
            let column = attributes.asked_for(name, profiles, header)?;
            let option = format!("--attribute {name}");
            Ok((
                column,
                glob(&option, pattern, "--attribute 'path=/user/*'")?,
            ))
        };
        let asked = options.attributes.iter().map(of_attribute);
        if let (Some(from), Some(to)) = (options.from_ns, options.to_ns)
            && from >= to
        {
            return Err(Error::usage(format!(
                "--from {} is not before --to {}",
                duration(from),
                duration(to)
            ))
            .next("both are times since the start of the trace, such as --from 10s --to 20s"));
        }
        Ok(Some(Self {
            types: types(options, profiles)?,
            label,
            attributes: asked.collect::<Result<_>>()?,
            from_ns: options
                .from_ns
                .map_or(0, |from| header.start_ns.saturating_add(from)),
            to_ns: options
                .to_ns
                .map_or(u64::MAX, |to| header.start_ns.saturating_add(to)),
            ranges: options
                .ranges
                .iter()
                .map(|(from, to)| {
                    (
                        header.start_ns.saturating_add(*from),
                        header.start_ns.saturating_add(*to),
                    )
                })
                .collect(),
            pids: options.pids.clone(),
            tids: options.tids.clone(),
            which: describe(options),
            kept: 0,
            left_out: 0,
            without_stack_ns: 0,
        }))
    }

    /// Whether a request is kept; counts it.
    pub(super) fn keeps(&mut self, request: &Request<'_>, attributes: &mut Attributes) -> bool {
        let is_type = |types: &Vec<bool>| types.get(request.request_type as usize) == Some(&true);
        let one_of = |list: &[u32], id| list.is_empty() || list.contains(&id);
        let keeps = self.types.as_ref().is_none_or(is_type)
            && one_of(&self.pids, request.space.tgid)
            && one_of(&self.tids, request.tid)
            && (self.from_ns..self.to_ns).contains(&request.begin_ns)
            && self.is_in_range(request.begin_ns)
            && self.label.as_ref().is_none_or(|glob| {
                let label = label_text(&attributes.label_of(request));
                glob.is_match(label.as_str())
            })
            && self.has_attributes(request, attributes);
        if keeps {
            self.kept += 1;
            self.without_stack_ns += request.run_queue_ns + request.preempted_ns;
        } else {
            self.left_out += 1;
        }
        keeps
    }

    fn is_in_range(&self, at_ns: u64) -> bool {
        let mut ranges = self.ranges.iter();
        self.ranges.is_empty() || ranges.any(|(from, to)| (*from..*to).contains(&at_ns))
    }

    fn has_attributes(&self, request: &Request<'_>, attributes: &mut Attributes) -> bool {
        if self.attributes.is_empty() {
            return true;
        }
        let mut texts = Vec::new();
        attributes.texts(request, &mut texts);
        let mut asked = self.attributes.iter();
        asked.all(|(column, glob)| glob.is_match(texts[*column].as_str()))
    }
}

/// The glob of an option; `example` shows how one is written.
pub(super) fn glob(option: &str, pattern: &str, example: &str) -> Result<GlobMatcher> {
    check_glob(pattern)
        .map_err(Into::into)
        .and_then(|()| {
            let glob = GlobBuilder::new(pattern).build();
            glob.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
        })
        .map(|glob| glob.compile_matcher())
        .map_err(|error| {
            Error::usage(format!("{option} `{pattern}` is no glob"))
                .because(error)
                .next(format!(
                    "* stands for any text, ? for one character: {example}"
                ))
        })
}

/// Which request types are asked for, in the order of their numbers.
fn types(options: &FilterOptions, profiles: &Profiles) -> Result<Option<Vec<bool>>> {
    let names = profiles.request_names();
    for wanted in &options.requests {
        if !names.contains(wanted) {
            return Err(Error::usage(format!(
                "--request {wanted}: the recording has no request type of that name"
            ))
            .next(format!("it has {}", names.join(", "))));
        }
    }
    let asked = |name: &String| options.requests.contains(name);
    Ok((!options.requests.is_empty()).then(|| names.iter().map(asked).collect()))
}

/// In words: `request type command, label SELECT*, process 4711`.
fn describe(options: &FilterOptions) -> String {
    let list = |what: &str, ids: &[u32]| {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        (!ids.is_empty()).then(|| format!("{what} {}", ids.join(" or ")))
    };
    let requests = (!options.requests.is_empty())
        .then(|| format!("request type {}", options.requests.join(" or ")));
    let label = options.label.as_ref().map(|glob| format!("label {glob}"));
    let attributes = options.attributes.iter();
    let attributes: Vec<_> = attributes
        .map(|(name, glob)| format!("{name} {glob}"))
        .collect();
    let attributes = (!attributes.is_empty()).then(|| attributes.join(", "));
    let from = options
        .from_ns
        .map(|ns| format!("begun {} or more after the start", duration(ns)));
    let to = options
        .to_ns
        .map(|ns| format!("begun less than {} after the start", duration(ns)));
    let words = [
        requests,
        label,
        attributes,
        list("process", &options.pids),
        list("thread", &options.tids),
        from,
        to,
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
