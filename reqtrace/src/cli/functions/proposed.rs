//! Proposals of keys as TOML: what was watched in, request types of a profile, or comments, out.

use std::collections::BTreeSet;

use reqtrace_common::limits::MAX_CALLS;

use super::evidence;
use super::find::{Finding, Findings};
use super::proposal::{Alone, Inside, Part, Proposal, Slot};
use super::watch::Watched;
use super::written::{comment, marker, of_calls, of_times, offset, quoted, unique};
use reqtrace_base::figures::number;
use reqtrace_resolve::search::{Match, Probing};

/// Proposals that are printed; those with most calls.
const MAX_PROPOSALS: usize = 4;

/// Results of a function that are printed.
const MAX_RESULTS: usize = 4;

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
    if watched.stopped.is_some() {
        proposed.text.push_str(&format!(
            "\n# Counting took too much, and was stopped after {seconds:.1} s. What follows is about that time.\n"
        ));
    }
    if watched.unnoted > 0 {
        proposed.text.push_str(&format!(
            "\n# {} or returns were not noted: there were more than {}, or too many at once.\n\
             # What follows is about the others. Count for a shorter time.\n",
            of_calls(watched.unnoted),
            number(MAX_CALLS as u64)
        ));
    }
    if !watched.returns {
        proposed.text.push_str(
            "\n# Results were not looked at: the functions return in too many places. Give a longer pattern.\n",
        );
    }
    if watched.found.proposals.is_empty() {
        let watching = match watched.functions.len() {
            1 => "one function".to_owned(),
            many => format!("{many} functions"),
        };
        proposed.text.push_str(&format!(
            "\n# No key was found in the calls of {watching} in {seconds:.1} s: no pointer comes back, on\n\
             # another thread or after others, as often as those of requests would. A key shows when the\n\
             # pattern fits functions that begin, go on with and end a request, and requests run meanwhile.\n"
        ));
    }
    for proposal in watched.found.proposals.iter().take(MAX_PROPOSALS) {
        let Some(draft) = Draft::of(findings, watched, proposal) else {
            continue;
        };
        proposed.text.push('\n');
        proposed.text.push_str(&draft.numbers(seconds));
        let request = draft.request(names);
        if proposal.is_clear() {
            proposed.text.push_str(&draft.advice());
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
    let shown = watched.found.proposals.iter().take(MAX_PROPOSALS);
    let shown = shown.flat_map(|proposal| &proposal.parts);
    let shown: BTreeSet<usize> = shown.map(|part| part.source.function).collect();
    proposed
        .text
        .push_str(&evidence::of(findings, watched, &shown));
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
            let (at, found, function) = find(part.source.function)?;
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
            "# {} the same requests, whose key may be a pointer that comes back.\n\
             # In {seconds:.1} s it had {} values in {}. It came back {} after its\n\
             # thread had another one, and {} on another thread.\n",
            match self.functions.len() {
                1 => "This function may work several times on",
                _ => "These functions may work on",
            },
            number(proposal.values),
            of_calls(proposal.calls),
            of_times(proposal.turns),
            of_times(proposal.moves)
        );
        text.push_str(
            "#\n#        CALLS  FIRST FOR   LAST FOR  AFTER OTHERS  OTHER THREAD  FUNCTION\n",
        );
        for function in &self.functions {
            let part = function.part;
            let note = match (part.inside, function.returns) {
                (Inside::Mostly, _) => "  (called by others of these)",
                (Inside::Sometimes, _) => "  (sometimes called by others of these)",
                (Inside::Never, false) => "  (never returns)",
                (Inside::Never, true) => "",
            };
            text.push_str(&format!(
                "# {:>12} {:>10} {:>10} {:>13} {:>13}  {}: {}{note}\n",
                number(part.calls),
                number(part.first),
                number(part.last),
                number(part.turns),
                number(part.moves),
                comment(&function.function.signature),
                evidence::slot(part)
            ));
        }
        for stranger in &self.strangers {
            text.push_str(&format!(
                "# {} has some of these values, but mostly others: it is left out.\n",
                comment(stranger)
            ));
        }
        if self.functions.iter().any(|one| one.part.offset > 0) {
            text.push_str(
                "# A pointer that is always so many bytes behind another one is to a part of its object, or to\n\
                 # what happens to lie behind it.\n",
            );
        }
        if let Some(alone) = &proposal.alone {
            text.push_str(&results(alone));
        }
        text.push_str("#\n");
        text
    }

    /// What to look at before it is believed.
    fn advice(&self) -> String {
        let name = |index: usize| comment(self.functions[index].function.short_name());
        let mut text = match self.proposal.ends() {
            Some((begin, end)) => format!(
                "# Look whether it is one object a request, whether {} is called first for it, and {} last.\n",
                name(begin),
                name(end)
            ),
            None => {
                "# Look whether it is one object a request, and what the result means.\n".to_owned()
            }
        };
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
        text.push_str(if proposal.alone.is_some() {
            "# It is one function that does all, and no result tells when a request ends: what comes back may as well\n\
             # be memory that is used again. Give a pattern that fits what begins and ends a request.\n"
        } else if proposal.begin.is_none() {
            "# It is not clear which function begins a request: none of them is the first for most values.\n\
             # Requests that ran before the count are first seen anywhere: count for longer, or give a\n\
             # pattern that fits the function that begins them.\n"
        } else {
            "# It is not clear which function ends a request: none of them is the last for most values, and called for\n\
             # them only then. Give a pattern that fits it.\n"
        });
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
        let name = match proposal.is_clear() {
            true => unique(name, names),
            false => name.to_owned(),
        };
        let key = self.key();
        let mut text = format!("[[request]]\nname   = {}\nkey    = {key}\n", quoted(&name));
        let one = |index: Option<usize>, what: &str| match index {
            Some(index) => self.functions[index].entry(&key),
            None => format!("{{ function = \"?\" }}   # {what}"),
        };
        text.push_str(&format!(
            "begin  = {}\n",
            one(
                proposal.begin,
                "which function is called first for a request?"
            )
        ));
        if let (Some(alone), Some(only)) = (&proposal.alone, proposal.begin) {
            let only = &self.functions[only];
            let when = |test: &str| {
                let result = match alone.end {
                    Some(result) => result.to_string(),
                    None => "?".to_owned(),
                };
                only.marker(&format!(
                    ", at = \"return\", when = {{ arg = \"result\", {test} = {result} }}"
                ))
            };
            text.push_str(&format!("resume = {}\n", only.entry(&key)));
            text.push_str(&format!("park   = {}\n", when("not-equals")));
            text.push_str(&format!("end    = {}\n", when("equals")));
            return text;
        }
        text.push_str(&list(
            "resume",
            self.resumed().map(|function| function.entry(&key)),
        ));
        text.push_str(&list(
            "park",
            self.parked()
                .map(|function| function.marker(", at = \"return\"")),
        ));
        text.push_str(&format!(
            "end    = {}\n",
            one(proposal.end, "which function is called last for a request?")
        ));
        text
    }

    /// The key that most functions have.
    fn key(&self) -> String {
        let is_argument = |one: &&Function<'_>| one.part.source.slot != Slot::Result;
        let keys = self.functions.iter().filter(is_argument);
        let keys: Vec<String> = keys.map(Function::key).collect();
        let of = |key: &String| keys.iter().filter(|other| *other == key).count();
        // Of several the first one.
        let most = keys.iter().rev().max_by_key(|key| of(key));
        let any = || self.functions.first().map(Function::key);
        most.cloned().or_else(any).unwrap_or_default()
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
            .filter(|function| function.part.source.slot != Slot::Result)
    }
}

impl Function<'_> {
    fn can_return(&self) -> bool {
        self.returns && self.spelling.is_some()
    }

    /// Where the request is, as TOML.
    fn key(&self) -> String {
        let arg = match self.part.source.slot {
            Slot::Argument(at) => at.to_string(),
            Slot::Result => quoted("result"),
        };
        match self.part.offset {
            0 => format!("{{ arg = {arg} }}"),
            offset => format!("{{ arg = {arg}, add = -{offset} }}"),
        }
    }

    /// A marker where the function has the key, whose request type has `usual` as its key.
    fn entry(&self, usual: &str) -> String {
        let at = match self.part.source.slot {
            Slot::Argument(_) => "",
            Slot::Result => ", at = \"return\"",
        };
        let key = self.key();
        match key == usual {
            true => self.marker(at),
            false => self.marker(&format!("{at}, key = {key}")),
        }
    }

    /// A marker there, with what stands behind its place.
    fn marker(&self, behind: &str) -> String {
        let place = match &self.spelling {
            Some(name) => format!("function = {}{behind}", quoted(name)),
            None => format!("offset = {:#x}{behind}", offset(self.found, self.function)),
        };
        marker(self.found, &place)
    }
}

/// What the only function returned.
fn results(alone: &Alone) -> String {
    let few = alone.results.iter().take(MAX_RESULTS);
    let few: Vec<String> = few
        .map(|(result, calls, last)| {
            format!(
                "{result} in {} (last for {})",
                of_calls(*calls),
                number(*last)
            )
        })
        .collect();
    let more = alone.results.len().saturating_sub(MAX_RESULTS);
    match (few.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!("# It returned {}.\n", few.join(", ")),
        (false, more) => format!(
            "# It returned {}, and {} other results.\n",
            few.join(", "),
            number(more as u64)
        ),
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
