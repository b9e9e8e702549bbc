//! Named waits without a match: a profile and where it is to be used in, the function matchers that
//! fit nothing there out.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;

use super::symbols::word_in;
use super::target::Target;
use reqtrace_base::error::Result;
use reqtrace_binary::demangle::{signature, split_suffix};
use reqtrace_binary::elf::Object;
use reqtrace_profile::matching::function_matches;
use reqtrace_profile::{CALLS, Profile, WaitSpec};

/// Function matchers of a profile's waits that match nothing in any object of a target whose
/// executable has no symbol table: names of waits, and for each the patterns. With a symbol table
/// there is nothing to say: a function that is not in it is not in the program.
///
/// # Errors
///
/// When the executable cannot be read.
pub fn unmatched_without_symbols(
    profile: &Profile,
    target: &Target<'_>,
) -> Result<Vec<(String, Vec<String>)>> {
    let patterns = || profile.waits.iter().flat_map(|wait| &wait.functions);
    if patterns().next().is_none() {
        return Ok(Vec::new());
    }
    let executable = target.executable();
    let object = target.open(executable)?;
    if object.has_symtab() {
        return Ok(Vec::new());
    }
    // Each link of a chain has to be somewhere. Most are in the executable; libraries are opened
    // only for the others.
    let links = |pattern: &'_ String| -> Vec<String> {
        let links = pattern.split(CALLS).map(str::trim);
        links.map(str::to_owned).collect()
    };
    let mut silent: BTreeSet<String> = patterns().flat_map(links).collect();
    drop_found(&mut silent, &object);
    if let Target::Process(process) = target {
        for file in process.objects.iter().filter(|file| *file != executable) {
            if silent.is_empty() {
                break;
            }
            // What cannot be read has no names either.
            if let Ok(object) = target.look_at(file) {
                drop_found(&mut silent, &object);
            }
        }
    }
    let of_wait = |wait: &WaitSpec| {
        let patterns = wait.functions.iter();
        let unmatched: Vec<String> = patterns
            .filter(|pattern| links(pattern).iter().any(|link| silent.contains(link)))
            .cloned()
            .collect();
        (!unmatched.is_empty()).then(|| (wait.name.clone(), unmatched))
    };
    Ok(profile.waits.iter().filter_map(of_wait).collect())
}

/// Drops what a function of the object fits. To demangle all names of a large server takes a second:
/// only those with a word of a link are, and each once.
fn drop_found(silent: &mut BTreeSet<String>, object: &Object) {
    let (worded, wordless): (Vec<String>, Vec<String>) = silent
        .iter()
        .cloned()
        .partition(|link| word_in(link).is_some());
    // Only words of gigabytes are refused.
    let Ok(words) = AhoCorasick::new(worded.iter().filter_map(|link| word_in(link))) else {
        return;
    };
    for symbol in object.symbols() {
        let raw = object.name(symbol);
        let found = words.find_overlapping_iter(raw);
        let mut links: Vec<&String> = found.map(|at| &worded[at.pattern().as_usize()]).collect();
        links.dedup();
        links.extend(&wordless);
        if links.is_empty() {
            continue;
        }
        let name = signature(split_suffix(raw).0);
        for link in links {
            if silent.contains(link) && function_matches(link, &name) {
                silent.remove(link);
            }
        }
        if silent.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;

    const PROGRAM: &str = "\
        namespace shop { struct Cart { int add(int); int operator[](int); }; }\n\
        __attribute__((noinline)) int shop::Cart::add(int a) { asm(\"\"); return a; }\n\
        __attribute__((noinline)) int shop::Cart::operator[](int a) { asm(\"\"); return a; }\n\
        int main(int c, char **) { shop::Cart cart; return cart.add(c) + cart[c]; }";

    #[test]
    fn what_a_function_fits_is_dropped() {
        let fixture = Fixture::cpp(PROGRAM, &["-O1"]);
        let mut silent: BTreeSet<String> = [
            "shop::Cart::*",
            "shop::Cart::add(int)",
            "*ain",
            "shop::Cart::operator*",
            "shop::Basket::*",
            "add_*",
            "operator new*",
        ]
        .map(str::to_owned)
        .into();
        drop_found(&mut silent, &fixture.object());
        let left: Vec<&str> = silent.iter().map(String::as_str).collect();
        assert_eq!(left, ["add_*", "operator new*", "shop::Basket::*"]);
    }
}
