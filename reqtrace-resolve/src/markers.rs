//! Markers: a profile's functions, offsets and addresses in, file offsets of probes out.

mod explicit;
mod found;
mod request;
mod units;

use std::path::Path;
use std::sync::Arc;

use super::missing::missing;
use super::opened::{ObjectFile, Opened};
use super::process::Process;
use super::symbols::{self, Function};
use super::target::Target;
use super::usdt::usdt_probes;
use super::{Doubt, ProbeSite, ResolvedProfile, calls, runs_tasks};
use reqtrace_base::error::{Error, Result};
use reqtrace_profile::{At, Edge, MarkerSpec, Origin, PlaceSpec, Profile, Role, builtin};

use explicit::Number;
use found::Found;

/// Resolves a profile in a process.
///
/// # Errors
///
/// The first marker that names no function or more than one, no loaded object, an offset outside
/// the code, or a function whose returns cannot be found; the message names request and marker.
pub fn resolve(profile: &Profile, process: &Process) -> Result<ResolvedProfile> {
    resolve_in(profile, &Target::Process(process))
}

/// Resolves a profile in a program or library that need not run.
///
/// # Errors
///
/// As [`resolve`].
pub fn resolve_file(profile: &Profile, path: &Path) -> Result<ResolvedProfile> {
    resolve_in(profile, &Target::file(path))
}

/// The same in either.
///
/// # Errors
///
/// As [`resolve`].
pub fn resolve_in(profile: &Profile, target: &Target<'_>) -> Result<ResolvedProfile> {
    let mut resolver = Resolver {
        target,
        warnings: Vec::new(),
        notes: Vec::new(),
        doubts: Vec::new(),
        is_built_in: profile.origin == Origin::BuiltIn,
    };
    let executable = target.executable();
    let is_other_program =
        !profile.executables.is_empty() && !profile.is_made_for(executable.file_name());
    if is_other_program {
        resolver.warnings.push(format!(
            "the profile `{}` is made for {}, and the executable is {}",
            profile.name,
            profile.executables.join(", "),
            executable.shown
        ));
    }
    let types_apart = resolver.one_request_a_unit(&profile.requests);
    let requests = types_apart
        .and_then(|()| {
            let requests = profile.requests.iter();
            requests
                .map(|request| resolver.request(request))
                .collect::<Result<Vec<_>>>()
        })
        .map_err(|error| resolver.of_language(error, profile.is_about_goroutines()))
        .map_err(|error| resolver.of_tasks(error, profile))
        // A profile for another program finds nothing in this one: that error comes first.
        .map_err(
            |error| match resolver.warnings.first().filter(|_| is_other_program) {
                Some(warning) => other_program(error.within(warning.clone()), profile, executable),
                None => error,
            },
        )?;
    Ok(ResolvedProfile {
        name: profile.name.clone(),
        units: resolver.unit_names(&profile.requests)?,
        requests,
        service: 0,
        first_type: 0,
        warnings: resolver.warnings,
        notes: resolver.notes,
        doubts: resolver.doubts,
    })
}

/// What to do about an error in a program that the profile is not made for: names that are near to
/// the missing one help only where the profile is the user's own.
fn other_program(error: Error, profile: &Profile, executable: &ObjectFile) -> Error {
    let mut advice = format!(
        "`pgrep -a '{}'` finds the process that it is made for",
        profile.executables.join("|")
    );
    let fitting = builtin::made_for(executable.file_name());
    if !fitting.is_empty() {
        advice.push_str(&format!(
            "; {} has the built-in profile {}",
            executable.file_name(),
            fitting.join(", ")
        ));
    }
    if let (Origin::File(_), Some(more)) = (&profile.origin, error.advice()) {
        advice.push_str(&format!("; {more}"));
    }
    error.next(advice)
}

struct Resolver<'a> {
    target: &'a Target<'a>,
    warnings: Vec<String>,
    /// Findings that the author of a built-in profile has known.
    notes: Vec<String>,
    /// What a trace is refused for, unless it is asked for all the same.
    doubts: Vec<Doubt>,
    is_built_in: bool,
}

impl Resolver<'_> {
    /// That a program is Go's and the profile is not, or the other way round, is the first thing to know, whatever was not
    /// found in it.
    fn of_language(&mut self, error: Error, is_about_goroutines: bool) -> Error {
        let executable = self.target.executable().clone();
        let Ok(is_go) = self.open(&executable).map(|object| object.is_go()) else {
            return error;
        };
        let shown = &executable.shown;
        let first = match (is_go, is_about_goroutines) {
            (true, false) => format!(
                "{shown} is a Go program: goroutines change threads, so its profile needs [runtime] with \
                 kind = \"go\", and its requests key = \"unit\"; go-http is one for net/http"
            ),
            (false, true) => {
                return error.next(format!(
                    "{shown} is no Go program, and the profile is for those; `reqtrace -p PID` names one that fits"
                ));
            }
            _ => return error,
        };
        let advice = error.advice().map(|advice| format!("{first}. {advice}"));
        error.next(advice.unwrap_or(first))
    }

    /// A program on tokio without names has its tasks all the same.
    fn of_tasks(&mut self, error: Error, profile: &Profile) -> Error {
        let executable = self.target.executable().clone();
        let is_resumed = |marker: &MarkerSpec| marker.place == PlaceSpec::Edge(Edge::Resume);
        let mut requests = profile.requests.iter();
        let within_tasks = requests
            .any(|request| request.unit().is_none() && request.more_markers().any(is_resumed));
        let is_nameless = |object: &Opened| object.symbols().is_empty() && runs_tasks(object);
        match self.open(&executable) {
            Ok(object) if within_tasks && is_nameless(&object) => {
                let more = "whole tasks need no names: `reqtrace functions -p PID --as-profile`";
                let advice = error.advice().map(|advice| format!("{advice}; {more}"));
                error.next(advice.unwrap_or_else(|| more.to_owned()))
            }
            _ => error,
        }
    }

    fn find(&mut self, marker: &MarkerSpec) -> Result<Found> {
        let file = self.target.object(marker.object.as_deref())?.clone();
        match &marker.place {
            PlaceSpec::Edge(edge) => self.edge(file, *edge),
            PlaceSpec::Function { patterns, at } => {
                let function = self.function(&file, patterns, marker)?;
                if let Some(caller) = &marker.called_by {
                    return self.called(file, &function, caller, marker);
                }
                Ok(Found {
                    file,
                    symbol: function.name,
                    bodies: function.bodies,
                    at: *at,
                    is_function: true,
                    usdt: Vec::new(),
                    is_fixed: false,
                    is_movable: false,
                    instructions: Vec::new(),
                })
            }
            PlaceSpec::Usdt { provider, name } => {
                self.usdt(file, provider, name, marker.object.is_some())
            }
            PlaceSpec::Offset(offset) => self.instruction(file, Number::Offset(*offset)),
            PlaceSpec::Address(address) => self.instruction(file, Number::Address(*address)),
        }
    }

    /// The end that a request has when its profile names none.
    fn return_of(&self, begin: &Found) -> Result<Found> {
        if !begin.is_function {
            return Err(Error::usage(format!(
                "no function is known to begin at offset {} of {}, so its return cannot be found",
                begin.symbol, begin.file.shown
            ))
            .next("give the request an `end`"));
        }
        Ok(Found {
            file: begin.file.clone(),
            symbol: begin.symbol.clone(),
            bodies: begin.bodies.clone(),
            at: At::Return,
            is_function: true,
            usdt: Vec::new(),
            is_fixed: false,
            is_movable: false,
            instructions: Vec::new(),
        })
    }

    /// The return of a function into one of its callers.
    fn called(
        &mut self,
        file: ObjectFile,
        function: &Function,
        caller: &str,
        marker: &MarkerSpec,
    ) -> Result<Found> {
        let caller = self.function(&file, &[caller.to_owned()], marker)?;
        let object = self.open(&file)?;
        let behind = calls::returns_into(&object, &caller.bodies, &function.bodies);
        if behind.probed.is_empty() {
            return Err(Error::usage(format!(
                "`{}` makes no direct call of `{}` in {}",
                caller.name, function.name, file.shown
            ))
            .next("leave called-by out, or name the function that makes the call: one of those between them may be inlined, or call through a pointer"));
        }
        if !behind.joined.is_empty() {
            let offset_of = |address: &u64| object.file_offset(*address).unwrap_or(*address);
            let joined = behind.joined.iter().map(offset_of);
            let joined: Vec<String> = joined.map(|offset| format!("0x{offset:x}")).collect();
            return Err(Error::usage(format!(
                "`{}` comes to where it goes on after its call of `{}`, at offset {} of {}, also \
                 without that call: that would count, too",
                caller.name,
                function.name,
                joined.join(", "),
                file.shown
            ))
            .next(format!(
                "leave called-by out, which marks each return of `{}`, or mark another function; \
                 offset = {} marks that place, however control comes there",
                function.name, joined[0]
            )));
        }
        let mut instructions = Vec::new();
        for address in &behind.probed {
            instructions.extend(object.file_offset(*address).map(ProbeSite::at));
        }
        Ok(Found {
            symbol: format!("{}, called by {}", function.name, caller.name),
            bodies: behind
                .probed
                .iter()
                .map(|address| *address..address + 1)
                .collect(),
            at: At::Entry,
            is_function: false,
            usdt: Vec::new(),
            is_fixed: true,
            is_movable: true,
            instructions,
            file,
        })
    }

    fn usdt(
        &mut self,
        file: ObjectFile,
        provider: &str,
        name: &str,
        is_named: bool,
    ) -> Result<Found> {
        let object = self.open(&file)?;
        let probes = usdt_probes(&object);
        let Some(probe) = probes.find(provider, name) else {
            let elsewhere = self.target.with_usdt(&file, provider, name);
            return Err(probes.missing(&file.shown, provider, name, &elsewhere, is_named));
        };
        let found = Found {
            symbol: probe.full_name(),
            bodies: probe
                .sites
                .iter()
                .map(|site| site.address..site.address + 1)
                .collect(),
            at: At::Entry,
            is_function: false,
            is_fixed: true,
            is_movable: false,
            instructions: probe
                .sites
                .iter()
                .map(|site| ProbeSite {
                    semaphore: site.semaphore,
                    ..ProbeSite::at(site.file_offset)
                })
                .collect(),
            usdt: probe.sites.clone(),
            file,
        };
        if probes.malformed > 0 {
            let warning = format!(
                "{} USDT notes of {} are malformed: places of `{}` may be missing",
                probes.malformed, found.file.shown, found.symbol
            );
            self.warn(warning);
        }
        Ok(found)
    }

    /// The first of the patterns that names a function.
    fn function(
        &mut self,
        file: &ObjectFile,
        patterns: &[String],
        marker: &MarkerSpec,
    ) -> Result<Function> {
        let object = self.open(file)?;
        for pattern in patterns {
            let found = if marker.is_all {
                symbols::find_all(&object, pattern)?
            } else {
                symbols::find(&object, pattern)?
            };
            if let Some(function) = found {
                if let Some(part) = &function.partly_inlined {
                    let warning = format!(
                        "`{}` was partly inlined by the compiler ({part}): calls from functions \
                         that hold its beginning are not seen",
                        function.name
                    );
                    self.warn(warning);
                }
                return Ok(function);
            }
        }
        // Not to have one is no error of an attribute, nor of a profile for several versions.
        let is_wanted = marker.role != Role::Attribute && !self.is_built_in;
        let elsewhere = is_wanted.then(|| self.target.with_function(file, patterns));
        let elsewhere = elsewhere.unwrap_or_default();
        let error = missing(&object, patterns, marker.object.as_deref(), &elsewhere);
        // A debug file that could not be used may be all that is wrong.
        Err(match object.refused.as_slice() {
            [] => error,
            refused => error.because(refused.join("; ")),
        })
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn open(&mut self, file: &ObjectFile) -> Result<Arc<Opened>> {
        let object = self.target.open(file)?;
        for sentence in &object.refused {
            self.warn(sentence.clone());
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests;
