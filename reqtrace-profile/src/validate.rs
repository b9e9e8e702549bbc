//! What a profile's text means: [`schema`] in, a checked [`Profile`] or the first error out.

use std::collections::HashMap;
use std::ops::Range;

use globset::Glob;
use reqtrace_common::cookie;
use reqtrace_common::limits::MAX_REQUEST_TYPES;
use toml::Spanned;

use super::label;
use super::place::Source;
use super::schema;
use super::{
    At, Combine, MarkerSpec, Origin, PlaceSpec, Profile, RequestSpec, ReturnProbe, WaitSpec,
};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::check_glob;

/// Named waits of a profile at most; each name is a column.
const MAX_WAITS: usize = 1000;

/// Wait classes that reqtrace knows by itself.
const BUILT_IN_WAITS: &[&str] = &[
    "disk",
    "network",
    "lock",
    "sleep",
    "poll",
    "pipe",
    "page-fault",
    "process",
    "tracing",
    "other",
];

/// What a marker can be.
const PLACES: &str = "write { function = \"name\" }, { usdt = \"provider:name\" } or \
                      { offset = 0x1234 }";

/// What stands before `_ns` in the other columns of requests.csv.
const CSV_COLUMNS: &[&str] = &[
    "start unix",
    "latency",
    "on cpu",
    "run queue",
    "preempted",
    "blocked",
    "unattributed",
];

/// Parses and checks a profile.
pub(super) fn parse(text: &str, name: &str, origin: Origin) -> Result<Profile> {
    let source = Source {
        name: name.to_owned(),
        text,
    };
    let file: schema::File = toml::from_str(text).map_err(|error| source.parse_error(&error))?;
    Checker { source }.profile(file, origin)
}

struct Checker<'a> {
    source: Source<'a>,
}

impl Checker<'_> {
    fn profile(&self, file: schema::File, origin: Origin) -> Result<Profile> {
        let name = self.name(&file.profile.name, "profile.name")?;
        let executables = self.strings(file.profile.executables, "profile.executables")?;
        if file.request.is_empty() {
            return Err(Error::usage(format!(
                "{}: the profile has no [[request]], so there is nothing to trace",
                self.source.name
            ))
            .next("add one: [[request]] with name = \"…\" and begin = { function = \"…\" }"));
        }
        if let Some(extra) = file.request.get(MAX_REQUEST_TYPES) {
            return Err(self.source.error(
                extra.span(),
                format!(
                    "{} request types, but at most {MAX_REQUEST_TYPES} fit in one profile",
                    file.request.len()
                ),
            ));
        }
        let mut seen = HashMap::new();
        let mut requests = Vec::new();
        for request in file.request {
            let request = request.into_inner();
            let span = request.name.span();
            let request = self.request(request)?;
            self.unique(&mut seen, &request.name, span, "request")?;
            requests.push(request);
        }
        if let Some(wait) = file.wait.get(MAX_WAITS) {
            return Err(self.source.error(
                wait.span(),
                format!("there are more than {MAX_WAITS} waits"),
            ));
        }
        let mut seen = HashMap::new();
        let mut waits = Vec::new();
        for wait in file.wait {
            let whole = wait.span();
            let wait = wait.into_inner();
            let span = wait.name.span();
            let wait = self.wait(wait, whole)?;
            // Several of one name are one wait; of two names, none may hide the other's column.
            if !waits.iter().any(|known: &WaitSpec| known.name == wait.name) {
                self.unique(&mut seen, &wait.name, span, "wait")?;
            }
            waits.push(wait);
        }
        Ok(Profile {
            name,
            description: file.profile.description,
            executables,
            origin,
            text: self.source.text.to_owned(),
            requests,
            waits,
        })
    }

    fn request(&self, request: schema::Request) -> Result<RequestSpec> {
        let name = self.name(&request.name, "a request's name")?;
        let begin_span = request.begin.span();
        let begin = self.marker(request.begin)?;
        let end = request.end.map(|end| self.marker(end)).transpose()?;
        let where_else = match begin.place {
            PlaceSpec::Function { at: At::Return, .. } => {
                Some(("return", "add end = { function = \"…\", at = \"return\" }"))
            }
            PlaceSpec::Usdt { .. } => {
                Some(("USDT probe", "add end = { usdt = \"provider:name\" }"))
            }
            PlaceSpec::Function { .. } | PlaceSpec::Offset(_) => None,
        };
        if let (None, Some((place, next))) = (&end, where_else) {
            let what = format!("a request that begins at a {place} needs an `end`");
            return Err(self.source.error(begin_span, what).next(next));
        }
        let labels = label::check(&self.source, request.label, &begin.place)?;
        Ok(RequestSpec {
            labels,
            name,
            begin,
            end,
            reentry: match request.reentry {
                schema::Reentry::Nest => cookie::Reentry::Nest,
                schema::Reentry::Ignore => cookie::Reentry::Ignore,
                schema::Reentry::Restart => cookie::Reentry::Restart,
            },
            return_probe: match request.return_probe {
                schema::ReturnProbe::Sites => ReturnProbe::Sites,
                schema::ReturnProbe::Uretprobe => ReturnProbe::Uretprobe,
            },
        })
    }

    fn marker(&self, marker: Spanned<schema::Marker>) -> Result<MarkerSpec> {
        let span = marker.span();
        let marker = marker.into_inner();
        self.refuse(marker.build_id.as_ref(), "build-id")?;
        let kinds = [
            ("function", marker.function.as_ref().map(Spanned::span)),
            ("offset", marker.offset.as_ref().map(Spanned::span)),
            ("usdt", marker.usdt.as_ref().map(Spanned::span)),
        ];
        let mut given = kinds
            .into_iter()
            .filter_map(|(key, span)| Some((key, span?)));
        if let (Some((first, _)), Some((second, span))) = (given.next(), given.next()) {
            return Err(self.source.error(
                span,
                format!("a marker is either a `{first}` or `{second}`, not both"),
            ));
        }
        if let (Some(at), None) = (&marker.at, &marker.function) {
            return Err(self.source.error(
                at.span(),
                "`at` belongs to `function`; an `offset` or a `usdt` probe is one instruction",
            ));
        }
        let place = if let Some(function) = marker.function {
            PlaceSpec::Function {
                patterns: self.strings(Some(function), "function")?,
                at: match marker.at.map(Spanned::into_inner) {
                    Some(schema::At::Return) => At::Return,
                    Some(schema::At::Entry) | None => At::Entry,
                },
            }
        } else if let Some(offset) = marker.offset {
            let value = u64::try_from(*offset.get_ref()).map_err(|_| {
                self.source.error(
                    offset.span(),
                    format!("offset {} is negative", offset.get_ref()),
                )
            })?;
            PlaceSpec::Offset(value)
        } else if let Some(usdt) = marker.usdt {
            self.usdt(&usdt)?
        } else {
            return Err(self
                .source
                .error(span, "the marker names no place")
                .next(PLACES));
        };
        let object = match marker.object {
            Some(object) => {
                self.not_empty(object.get_ref(), object.span(), "object")?;
                self.glob(object.get_ref(), object.span())?;
                Some(object.into_inner())
            }
            None => None,
        };
        let called_by = match marker.called_by {
            Some(caller) => {
                self.not_empty(caller.get_ref(), caller.span(), "called-by")?;
                let PlaceSpec::Function { at: At::Return, .. } = place else {
                    return Err(self
                        .source
                        .error(
                            caller.span(),
                            "`called-by` belongs to the return of a function",
                        )
                        .next("add at = \"return\", or leave called-by out"));
                };
                Some(caller.into_inner())
            }
            None => None,
        };
        Ok(MarkerSpec {
            place,
            object,
            called_by,
        })
    }

    fn usdt(&self, usdt: &Spanned<String>) -> Result<PlaceSpec> {
        match usdt.get_ref().split_once(':') {
            Some((provider, name))
                if !provider.is_empty() && !name.is_empty() && !name.contains(':') =>
            {
                Ok(PlaceSpec::Usdt {
                    provider: provider.to_owned(),
                    name: name.to_owned(),
                })
            }
            _ => Err(self
                .source
                .error(
                    usdt.span(),
                    format!("`{}` is not a USDT probe", usdt.get_ref()),
                )
                .next("write usdt = \"provider:name\", such as \"postgresql:query__start\"")),
        }
    }

    fn wait(&self, wait: schema::Wait, whole: Range<usize>) -> Result<WaitSpec> {
        let name = self.name(&wait.name, "a wait's name")?;
        let column = column(&name);
        for (names, what) in [
            (BUILT_IN_WAITS, "a built-in wait class"),
            (CSV_COLUMNS, "a column of requests.csv"),
        ] {
            if names.iter().any(|taken| self::column(taken) == column) {
                return Err(self
                    .source
                    .error(wait.name.span(), format!("`{name}` is already {what}"))
                    .next(format!("choose another name, such as `my {name}`")));
            }
        }
        self.refuse(wait.build_id.as_ref(), "build-id")?;
        self.refuse(wait.offsets.as_ref(), "offsets")?;
        if let Some(files) = &wait.files {
            self.globs(files)?;
        }
        let wait = WaitSpec {
            combine: match wait.combine {
                schema::Combine::Any => Combine::Any,
                schema::Combine::All => Combine::All,
            },
            functions: self.strings(wait.functions, "functions")?,
            files: self.strings(wait.files, "files")?,
            kernel_functions: self.strings(wait.kernel_functions, "kernel-functions")?,
            syscalls: self.strings(wait.syscalls, "syscalls")?,
            name,
        };
        let lists = [
            &wait.functions,
            &wait.files,
            &wait.kernel_functions,
            &wait.syscalls,
        ];
        if lists.iter().all(|list| list.is_empty()) {
            return Err(self
                .source
                .error(
                    whole,
                    format!("the wait `{}` has nothing to match", wait.name),
                )
                .next("add functions, files, kernel-functions or syscalls"));
        }
        Ok(wait)
    }

    /// Keys of the format that this version does not know how to honour. Taking them silently
    /// would trace something else than was asked for.
    fn refuse(&self, value: Option<&Spanned<toml::Value>>, key: &str) -> Result<()> {
        match value {
            Some(value) => Err(self
                .source
                .error(
                    value.span(),
                    format!("`{key}` is not supported yet by this version of reqtrace"),
                )
                .next("remove it; a marker can be a `function`, an `offset` or a `usdt` probe")),
            None => Ok(()),
        }
    }

    fn name(&self, name: &Spanned<String>, what: &str) -> Result<String> {
        let text = name.get_ref();
        self.not_empty(text, name.span(), what)?;
        if text.trim() != text || text.contains(|c: char| c.is_control() || c == ';') {
            return Err(self.source.error(
                name.span(),
                format!("{what} {text:?} has spaces around it, a semicolon or a control character"),
            ));
        }
        Ok(text.clone())
    }

    fn not_empty(&self, text: &str, span: Range<usize>, what: &str) -> Result<()> {
        if text.trim().is_empty() {
            return Err(self.source.error(span, format!("{what} is empty")));
        }
        Ok(())
    }

    fn strings(&self, strings: Option<Spanned<schema::Strings>>, key: &str) -> Result<Vec<String>> {
        let Some(strings) = strings else {
            return Ok(Vec::new());
        };
        let span = strings.span();
        match strings.into_inner() {
            schema::Strings::One(one) => {
                self.not_empty(&one, span, key)?;
                Ok(vec![one])
            }
            schema::Strings::Many(many) if many.is_empty() => Err(self
                .source
                .error(span, format!("{key} is an empty list"))
                .next(format!("leave {key} out, or name at least one"))),
            schema::Strings::Many(many) => many
                .into_iter()
                .map(|item| {
                    self.not_empty(item.get_ref(), item.span(), key)?;
                    Ok(item.into_inner())
                })
                .collect(),
        }
    }

    fn globs(&self, strings: &Spanned<schema::Strings>) -> Result<()> {
        match strings.get_ref() {
            schema::Strings::One(one) => self.glob(one, strings.span()),
            schema::Strings::Many(many) => many
                .iter()
                .try_for_each(|item| self.glob(item.get_ref(), item.span())),
        }
    }

    fn glob(&self, pattern: &str, span: Range<usize>) -> Result<()> {
        let built = check_glob(pattern)
            .and_then(|()| Glob::new(pattern).map_err(|error| error.kind().to_string()));
        match built {
            Ok(_) => Ok(()),
            Err(why) => {
                let shown: String = pattern.chars().take(60).collect();
                Err(self
                    .source
                    .error(span, format!("`{shown}` is not a valid glob: {why}")))
            }
        }
    }

    fn unique(
        &self,
        seen: &mut HashMap<String, String>,
        name: &str,
        span: Range<usize>,
        what: &str,
    ) -> Result<()> {
        match seen.insert(column(name), name.to_owned()) {
            None => Ok(()),
            Some(first) if first == name => Err(self
                .source
                .error(span, format!("there are two {what}s named `{name}`"))),
            Some(first) => Err(self.source.error(
                span,
                format!("the {what}s `{first}` and `{name}` would share one column"),
            )),
        }
    }
}

/// Names that would be hard to tell apart as columns count as one.
fn column(name: &str) -> String {
    name.to_lowercase().replace([' ', '-'], "_")
}

#[cfg(test)]
mod tests;
