//! Conditions on a program: an [`OnlyIf`] and a target in, whether it holds there, and why, out.

use std::os::unix::fs::FileExt as _;

use reqtrace_binary::maps;
use reqtrace_binary::procfs;

use super::opened::ObjectFile;
use super::opened::Opened;
use super::process::Process;
use super::readings::variable;
use super::symbols;
use super::target::Target;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use reqtrace_profile::{
    Instead, OnlyIf, Profile, ProgramCondition, RequestSpec, Sign, Test, ValueSource, ValueSpec,
};

/// Bytes of a number when a profile does not say.
const INT: u8 = super::readings::INT;

/// Whether something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It does.
    Holds,
    /// It does not.
    Fails,
    /// It cannot be known now: the program has not begun, or does not run.
    Unknown,
}

/// What was found out, and in which words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// Whether it holds.
    pub(super) verdict: Verdict,
    /// What was seen.
    pub(super) why: String,
}

/// Which alternative a request type has in the programs of a trace, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Name of the request type.
    pub request: String,
    /// Which alternative; `None`: the request as it stands.
    pub taken: Option<usize>,
    /// Whether it is taken because nobody can know.
    pub is_unknown: bool,
    /// A sentence.
    pub why: String,
}

/// Chooses for each request type that has alternatives the first whose condition holds in one of the targets.
/// Where it cannot be known it counts as holding: what is then traced is right in both cases. So it does when
/// there is no target yet.
///
/// # Errors
///
/// An object that cannot be read, or a function or a variable that is not the only one of its name.
pub fn settle(profile: &Profile, targets: &[Target<'_>]) -> Result<(Profile, Vec<Choice>)> {
    let mut choices = Vec::new();
    let with_some = |one: &&RequestSpec| !one.instead.is_empty();
    for request in profile.requests.iter().filter(with_some) {
        choices.push(choose(request, targets)?);
    }
    let mut taken = choices.iter();
    let settled = profile.settled(|_| taken.next().and_then(|choice| choice.taken));
    Ok((settled, choices))
}

fn choose(request: &RequestSpec, targets: &[Target<'_>]) -> Result<Choice> {
    let choice = |taken, is_unknown, why| Choice {
        request: request.name.clone(),
        taken,
        is_unknown,
        why,
    };
    let mut reasons: Vec<String> = Vec::new();
    for (index, Instead { only_if, .. }) in request.instead.iter().enumerate() {
        let mut judged = targets
            .iter()
            .map(|target| judge(only_if, target))
            .collect::<Result<Vec<_>>>()?;
        if targets.is_empty() {
            judged.push(Judged {
                verdict: Verdict::Unknown,
                why: "the program does not run yet".to_owned(),
            });
        }
        for verdict in [Verdict::Holds, Verdict::Unknown] {
            if let Some(one) = judged.iter().find(|one| one.verdict == verdict) {
                let is_unknown = verdict == Verdict::Unknown;
                return Ok(choice(Some(index), is_unknown, one.why.clone()));
            }
        }
        for one in judged {
            if !reasons.contains(&one.why) {
                reasons.push(one.why);
            }
        }
    }
    Ok(choice(None, false, reasons.join("; ")))
}

/// Whether something is used in a program.
///
/// # Errors
///
/// As [`settle`].
pub(super) fn judge(only_if: &OnlyIf, target: &Target<'_>) -> Result<Judged> {
    let all = all(&only_if.all, target)?;
    if all.verdict == Verdict::Fails || only_if.unless.is_empty() {
        return Ok(all);
    }
    let unless = self::all(&only_if.unless, target)?;
    let verdict = match (all.verdict, unless.verdict) {
        (_, Verdict::Holds) => Verdict::Fails,
        (Verdict::Holds, Verdict::Fails) => Verdict::Holds,
        _ => Verdict::Unknown,
    };
    let why = match all.why.is_empty() || verdict == Verdict::Fails {
        true => unless.why,
        false => format!("{}, and {}", all.why, unless.why),
    };
    Ok(Judged { verdict, why })
}

/// Whether all of them hold: the first that does not is the reason.
fn all(conditions: &[ProgramCondition], target: &Target<'_>) -> Result<Judged> {
    let mut whys = Vec::new();
    let mut unknown = None;
    for condition in conditions {
        let judged = one(condition, target)?;
        match judged.verdict {
            Verdict::Fails => return Ok(judged),
            Verdict::Unknown => unknown = unknown.or(Some(judged)),
            Verdict::Holds => whys.push(judged.why),
        }
    }
    Ok(unknown.unwrap_or_else(|| Judged {
        verdict: Verdict::Holds,
        why: whys.join(", and "),
    }))
}

fn one(condition: &ProgramCondition, target: &Target<'_>) -> Result<Judged> {
    let file = match target.object(condition.object.as_deref()) {
        Ok(file) => file,
        // A library that is not there has neither functions nor variables.
        Err(error) => return Ok(fails(error.to_string())),
    };
    let object = target.open(file)?;
    match &condition.sign {
        Sign::Function { pattern, code } => function(&object, pattern, code),
        Sign::Number(number) => {
            let ValueSource::Global(name) = &number.value.source else {
                return Err(Error::failed("a condition on a program without a variable"));
            };
            let Some(variable) = variable(&object, name)?.and_then(|one| one.address) else {
                return Ok(fails(format!(
                    "{} has no variable `{name}`",
                    object.shown()
                )));
            };
            let shown = shown(&number.value);
            let unknown = |why: &str| Judged {
                verdict: Verdict::Unknown,
                why: format!("{shown} is not known: {why}"),
            };
            let Target::Process(process) = target else {
                return Ok(unknown("the program does not run"));
            };
            if !process.has_begun {
                return Ok(unknown("the program has not begun"));
            }
            let Some(value) = read(process, file, &object, variable, &number.value) else {
                return Ok(unknown(&format!(
                    "the memory of process {} cannot be read there",
                    process.pid
                )));
            };
            let fits = match &number.test {
                Test::OneOf(numbers) => numbers.contains(&value),
                Test::Range(from, to) => (*from..=*to).contains(&value),
                Test::Text(_) | Test::Bits { .. } | Test::Unit(_) | Test::Starts(_) | Test::Job => {
                    false
                }
            };
            let wanted = wanted(&number.test, number.negate);
            Ok(match fits != number.negate {
                true => Judged {
                    verdict: Verdict::Holds,
                    why: format!("{shown} is {value}"),
                },
                false => fails(format!("{shown} is {value}, and not {wanted}")),
            })
        }
    }
}

fn fails(why: String) -> Judged {
    Judged {
        verdict: Verdict::Fails,
        why,
    }
}

fn function(object: &Opened, pattern: &str, code: &[Vec<u8>]) -> Result<Judged> {
    let shown = object.shown();
    let Some(function) = symbols::find(object, pattern)? else {
        return Ok(fails(format!("{shown} has no function `{pattern}`")));
    };
    let name = &function.name;
    let has = |wanted: &[u8]| {
        function.bodies.iter().any(|body| {
            let length = usize::try_from(body.end - body.start).unwrap_or_default();
            let code = object.code(body.start);
            let code = &code[..length.min(code.len())];
            code.windows(wanted.len()).any(|here| here == wanted)
        })
    };
    if let Some(missing) = code.iter().find(|wanted| !has(wanted)) {
        let bytes: Vec<String> = missing.iter().map(|byte| format!("{byte:02x}")).collect();
        return Ok(fails(format!(
            "the code of `{name}` in {shown} has no {}, so it is another build than the profile knows",
            bytes.join(" ")
        )));
    }
    Ok(Judged {
        verdict: Verdict::Holds,
        why: match code.is_empty() {
            true => format!("{shown} has `{name}`"),
            false => format!("`{name}` in {shown} has the code that the profile knows"),
        },
    })
}

/// Reads a number behind a variable of a process that runs.
fn read(
    process: &Process,
    file: &ObjectFile,
    object: &Opened,
    variable: u64,
    value: &ValueSpec,
) -> Option<i64> {
    let bias = bias(process, file, object)?;
    let memory = procfs::memory(process.pid).ok()?;
    let mut at = variable.wrapping_add(bias);
    let (last, before) = value.deref.split_last()?;
    for offset in before {
        let mut pointer = [0; 8];
        memory
            .read_exact_at(&mut pointer, at.wrapping_add_signed(i64::from(*offset)))
            .ok()?;
        at = u64::from_le_bytes(pointer);
    }
    let mut bytes = [0; 8];
    let size = usize::from(value.size.unwrap_or(INT)).min(bytes.len());
    let at = at.wrapping_add_signed(i64::from(*last));
    memory.read_exact_at(&mut bytes[..size], at).ok()?;
    let unused = 64 - 8 * size as u32;
    Some((i64::from_le_bytes(bytes) << unused) >> unused)
}

/// What is added to addresses as linked: by where the code of a function is mapped.
fn bias(process: &Process, file: &ObjectFile, object: &Opened) -> Option<u64> {
    let mapped = maps::executable(process.pid).ok()?;
    let own = mapped
        .iter()
        .filter(|mapping| *Plain::of(&mapping.path()) == *file.shown);
    let mut biases = own.filter_map(|mapping| {
        let length = mapping.end - mapping.start;
        let mut pages = (mapping.offset..mapping.offset + length).step_by(4096);
        // A segment may begin within the first page.
        let (offset, address) = pages.find_map(|page| {
            let mut within = [page, page + 4095].into_iter();
            within.find_map(|offset| Some((offset, object.address_of(offset)?)))
        })?;
        let here = mapping.start + (offset - mapping.offset);
        Some(here.wrapping_sub(address))
    });
    biases.next()
}

/// A value in words, as `check` shows those of markers.
fn shown(value: &ValueSpec) -> String {
    let ValueSource::Global(name) = &value.source else {
        return String::new();
    };
    match value.deref.as_slice() {
        [0] => format!("the variable `{name}`"),
        deref => format!("what is behind the variable `{name}` at {deref:?}"),
    }
}

fn wanted(test: &Test, negate: bool) -> String {
    let other = if negate { "another than " } else { "" };
    let wanted = match test {
        Test::OneOf(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            numbers.join(" or ")
        }
        Test::Range(i64::MIN, to) => format!("at most {to}"),
        Test::Range(from, i64::MAX) => format!("at least {from}"),
        Test::Range(from, to) => format!("from {from} to {to}"),
        Test::Text(texts) => texts.join(" or "),
        Test::Bits { .. } | Test::Unit(_) | Test::Starts(_) | Test::Job => {
            "something else".to_owned()
        }
    };
    format!("{other}{wanted}")
}

#[cfg(test)]
mod tests;
