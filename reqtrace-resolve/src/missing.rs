//! A function that is not there: the object and what was asked for in, why it is not found and what to do
//! about it out.

use super::symbols::{matches, nearest_names, rank, word_in};
use reqtrace_base::error::Error;
use reqtrace_binary::demangle::{demangle, split_suffix};
use reqtrace_binary::elf::Object;

/// Why none of the patterns was found, and what is near. `named` is what the profile calls the object;
/// `elsewhere` are files that have one of them.
#[must_use]
pub fn missing(
    object: &Object,
    patterns: &[String],
    named: Option<&str>,
    elsewhere: &[String],
) -> Error {
    let shown = object.shown();
    let wanted = match patterns {
        [one] => format!("no function `{one}`"),
        many => format!("none of the functions `{}`", many.join("`, `")),
    };
    let what = format!("{wanted} in {shown}");
    if let Some(first) = elsewhere.first() {
        let file_name = first.rsplit('/').next().unwrap_or(first);
        return Error::usage(format!(
            "{what}: it is in {}, which the process has mapped",
            elsewhere.join(", ")
        ))
        .next(format!("add object = \"{file_name}\" to the marker"));
    }
    for pattern in patterns {
        // Without symbols any import may fit a part of what is asked for.
        let fits = |name: &&str| {
            let rank = rank(pattern, name, &demangle(name));
            rank.is_some_and(|rank| rank < WHOLE_NAMES || !object.symbols().is_empty())
        };
        if let Some(name) = object.imported().find(fits) {
            return Error::usage(format!(
                "{what}: `{}` is imported from another object",
                demangle(name).signature
            ))
            .next(match named {
                None => "set object = \"…\" to the library that has it, such as object = \
                         \"libfoo.so*\""
                    .to_owned(),
                Some(named) => format!(
                    "object = \"{named}\" only calls it: name the library that has it instead"
                ),
            });
        }
        if let Some(part) = matches(object, pattern).first() {
            return Error::usage(format!(
                "{what}: only pieces of `{}` are left, the compiler inlined its beginning into \
                 its callers",
                part.name.signature
            ))
            .next("use a function that calls it, or one that it calls");
        }
    }
    let near = nearest_names(object, patterns);
    let mut advice = String::new();
    if !near.is_empty() {
        advice = format!("near to it: {}. ", near.join(", "));
    }
    let what_to_do = if object.has_symtab() {
        "It may have been inlined into its callers: use one of those, or a function that it calls"
            .to_owned()
    } else if is_java(object) {
        NO_JAVA.to_owned()
    } else {
        let which = if object.symbols().is_empty() {
            "has no function symbols at all"
        } else {
            "is stripped and names only what it exports: static functions are missing"
        };
        format!(
            "The file {which}. {}, or use address = 0x… of an instruction",
            symbols_from(object)
        )
    };
    advice.push_str(&what_to_do);
    Error::usage(what).next(advice)
}

/// Ranks of [`rank`] below this are of whole names.
const WHOLE_NAMES: u8 = 3;

/// Whether an object has a function that a pattern names, not only one with a longer name.
pub(super) fn has_named(object: &Object, pattern: &str) -> bool {
    let word = word_in(pattern).unwrap_or_default();
    object.symbols().iter().any(|symbol| {
        let raw = object.name(symbol);
        let (base, _) = split_suffix(raw);
        raw.contains(word)
            && rank(pattern, base, &demangle(base)).is_some_and(|rank| rank < WHOLE_NAMES)
    })
}

/// What to do about functions of Java.
const NO_JAVA: &str = "Functions of Java are in no file: mark a native function, such as one of \
                       object = \"libnio.so\" (docs/cookbook.md)";

/// Where a file without symbols could have them from.
#[must_use]
pub fn symbols_from(object: &Object) -> &'static str {
    if object.is_go() {
        "Go has no debug symbols to install: build it without -ldflags=-s"
    } else if is_java(object) {
        NO_JAVA
    } else {
        "Install its debug symbols"
    }
}

/// Whether it is the launcher of a Java machine.
fn is_java(object: &Object) -> bool {
    object.shown().rsplit('/').next() == Some("java")
}

#[cfg(test)]
mod tests;
