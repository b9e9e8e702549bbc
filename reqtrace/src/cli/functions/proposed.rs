//! Proposals of keys as TOML: what was watched in, request types of a profile, or comments, out.

use std::collections::BTreeSet;

use reqtrace_common::limits::MAX_ARGUMENTS;

use super::find::{Finding, Findings};
use super::proposal::{Inside, Part, Proposal};
use super::starter::{comment, marker, of_calls, offset, quoted, unique};
use super::watch::Watched;
use crate::report::text::number;
use crate::resolve::search::{Match, Probing};

/// Proposals that are printed; those with most calls.
const MAX_PROPOSALS: usize = 4;

/// Request types, or comments in their place.
#[derive(Default)]
pub(super) struct Proposed {
    /// For the profile.
    pub(super) text: String,
    /// Request types in it.
    pub(super) requests: usize,
    /// Functions of these, by object and by index in it.
    pub(super) functions: BTreeSet<(usize, usize)>,
}

/// What to put in the profile; names of request types are added to `names`.
pub(super) fn of(findings: &Findings, watched: &Watched, names: &mut BTreeSet<String>) -> Proposed {
    let mut proposed = Proposed::default();
    let seconds = watched.elapsed.as_secs_f64();
    if watched.proposals.is_empty() {
        let watching = match watched.functions.len() {
            1 => "one function was".to_owned(),
            many => format!("{many} functions were"),
        };
        proposed.text.push_str(&format!(
            "\n# No key was found: the first arguments of {watching} watched for {seconds:.1} s, and none\n\
             # comes back as that of a request would that changes threads, or takes turns with others. A key\n\
             # shows when the pattern fits functions that begin, go on with and end a request, and\n\
             # requests run meanwhile.\n"
        ));
    }
    if watched.unnoted > 0 {
        proposed.text.push_str(&format!(
            "\n# {} were not noted: there were more than {} different arguments, or too many threads.\n\
             # What follows is about the others. Count for a shorter time.\n",
            of_calls(watched.unnoted),
            number(u64::from(MAX_ARGUMENTS))
        ));
    }
    for proposal in watched.proposals.iter().take(MAX_PROPOSALS) {
        let Some(draft) = Draft::of(findings, watched, proposal) else {
            continue;
        };
        proposed.text.push('\n');
        proposed.text.push_str(&draft.numbers(seconds));
        let request = draft.request(names);
        if let Some((begin, end)) = proposal.ends() {
            proposed.text.push_str(&draft.advice(begin, end));
            proposed.text.push_str(&request);
            proposed.requests += 1;
            let functions = draft.functions.iter();
            proposed
                .functions
                .extend(functions.map(|function| function.at));
        } else {
            proposed.text.push_str(&draft.gaps());
            let lines = request.lines().map(|line| format!("#     {line}\n"));
            proposed.text.extend(lines);
        }
    }
    proposed
}

/// A proposal with its functions.
struct Draft<'a> {
    proposal: &'a Proposal,
    functions: Vec<Function<'a>>,
    strangers: Vec<&'a str>,
}

struct Function<'a> {
    at: (usize, usize),
    part: &'a Part,
    found: &'a Finding,
    function: &'a Match,
    /// How a profile names it; `None`: by its offset only.
    spelling: Option<String>,
    returns: bool,
}

impl<'a> Draft<'a> {
    fn of(findings: &'a Findings, watched: &Watched, proposal: &'a Proposal) -> Option<Self> {
        let find = |number: usize| {
            let watched = watched.function(number)?;
            let found = findings.objects.get(watched.object)?;
            let function = found.functions.get(watched.index)?;
            Some(((watched.object, watched.index), found, function))
        };
        let of_part = |part: &'a Part| {
            let (at, found, function) = find(part.function)?;
            Some(Function {
                at,
                part,
                found,
                function,
                spelling: function.spelling(&found.object),
                returns: matches!(function.probing(&found.object), Probing::Sites(_)),
            })
        };
        let strangers = proposal.strangers.iter();
        let names = strangers.filter_map(|&number| Some(find(number)?.2.signature.as_str()));
        Some(Self {
            proposal,
            functions: proposal.parts.iter().map(of_part).collect::<Option<_>>()?,
            strangers: names.collect(),
        })
    }

    /// What was counted.
    fn numbers(&self, seconds: f64) -> String {
        let proposal = self.proposal;
        let mut text = format!(
            "# These functions may work on the same requests, whose key may be their first argument: it is a pointer\n\
             # that comes back. In {seconds:.1} s it had {} values in {}. It came back {} after its\n\
             # thread had another one, and {} on another thread.\n",
            number(proposal.values),
            of_calls(proposal.calls),
            of_times(proposal.turns),
            of_times(proposal.moves)
        );
        text.push_str("#\n#        CALLS  FIRST FOR   LAST FOR  FUNCTION\n");
        for function in &self.functions {
            let part = function.part;
            let note = match (part.inside, function.returns) {
                (Inside::Mostly, _) => "  (called by others of these)",
                (Inside::Sometimes, _) => "  (sometimes called by others of these)",
                (Inside::Never, false) => "  (never returns)",
                (Inside::Never, true) => "",
            };
            text.push_str(&format!(
                "# {:>12} {:>10} {:>10}  {}{note}\n",
                number(part.calls),
                number(part.first),
                number(part.last),
                comment(&function.function.signature)
            ));
        }
        for stranger in &self.strangers {
            text.push_str(&format!(
                "# {} has some of these values, but mostly others: it is left out.\n",
                comment(stranger)
            ));
        }
        text.push_str("#\n");
        text
    }

    /// What to look at before it is believed.
    fn advice(&self, begin: usize, end: usize) -> String {
        let name = |index: usize| comment(self.functions[index].function.short_name());
        let mut text = format!(
            "# Look whether it is one object a request, whether {} is called first for it, and {} last.\n",
            name(begin),
            name(end)
        );
        if self.parked().next().is_some() {
            text.push_str(
                "# A request is parked where one of these functions returns: that may be too early.\n",
            );
        }
        text
    }

    /// What has to be filled in.
    fn gaps(&self) -> String {
        let mut text = String::new();
        let proposal = self.proposal;
        if proposal.begin.is_none() {
            text.push_str(
                "# It is not clear which function begins a request: none of them is the first for most values.\n\
                 # Requests that ran before the count are first seen anywhere: count for longer, or give a\n\
                 # pattern that fits the function that begins them.\n",
            );
        } else {
            text.push_str(
                "# It is not clear which function ends a request: none of them is the last for most values, and called for\n\
                 # them only then. Give a pattern that fits it.\n",
            );
        }
        text.push_str("# So this is no request type yet:\n#\n");
        text
    }

    /// The request type.
    fn request(&self, names: &mut BTreeSet<String>) -> String {
        let proposal = self.proposal;
        let name = match proposal.begin {
            Some(begin) => self.functions[begin].function.short_name(),
            None => "request",
        };
        let name = match proposal.ends() {
            Some(_) => unique(name, names),
            None => name.to_owned(),
        };
        let mut text = format!(
            "[[request]]\nname   = {}\nkey    = {{ arg = 0 }}\n",
            quoted(&name)
        );
        let one = |index: Option<usize>, what: &str| match index {
            Some(index) => self.functions[index].marker(false),
            None => format!("{{ function = \"?\" }}   # {what}"),
        };
        text.push_str(&format!(
            "begin  = {}\n",
            one(
                proposal.begin,
                "which function is called first for a request?"
            )
        ));
        text.push_str(&list(
            "resume",
            self.resumed().map(|function| function.marker(false)),
        ));
        text.push_str(&list(
            "park",
            self.parked().map(|function| function.marker(true)),
        ));
        text.push_str(&format!(
            "end    = {}\n",
            one(proposal.end, "which function is called last for a request?")
        ));
        text
    }

    /// Functions at which a thread goes on with a request. One that is called by another goes on with nothing.
    fn resumed(&self) -> impl Iterator<Item = &Function<'a>> {
        let (begin, end) = (self.proposal.begin, self.proposal.end);
        self.functions
            .iter()
            .enumerate()
            .filter(move |(index, _)| Some(*index) != begin && Some(*index) != end)
            .map(|(_, function)| function)
            .filter(|function| function.part.inside != Inside::Mostly)
    }

    /// Functions behind which a thread is done with a request for now. It is not behind one that another calls.
    fn parked(&self) -> impl Iterator<Item = &Function<'a>> {
        let begin = self.proposal.begin.map(|begin| &self.functions[begin]);
        begin
            .into_iter()
            .chain(self.resumed())
            .filter(|function| function.part.inside == Inside::Never && function.can_return())
    }
}

impl Function<'_> {
    fn can_return(&self) -> bool {
        self.returns && self.spelling.is_some()
    }

    fn marker(&self, at_return: bool) -> String {
        let place = match &self.spelling {
            Some(name) if at_return => format!("function = {}, at = \"return\"", quoted(name)),
            Some(name) => format!("function = {}", quoted(name)),
            None => format!("offset = {:#x}", offset(self.found, self.function)),
        };
        marker(self.found, &place)
    }
}

/// A key of a profile whose value is one marker or a list of them; nothing without any.
fn list(key: &str, markers: impl Iterator<Item = String>) -> String {
    let markers: Vec<String> = markers.collect();
    match markers.as_slice() {
        [] => String::new(),
        [one] => format!("{key:6} = {one}\n"),
        many => format!("{key:6} = [\n    {},\n]\n", many.join(",\n    ")),
    }
}

fn of_times(times: u64) -> String {
    let s = if times == 1 { "" } else { "s" };
    format!("{} time{s}", number(times))
}
