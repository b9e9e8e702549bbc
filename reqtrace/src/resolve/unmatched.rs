//! Named waits without a match: a profile and where it is to be used in, the function matchers that
//! fit nothing there out.

use std::collections::BTreeSet;

use super::elf::Object;
use super::search::names_matching;
use super::target::Target;
use crate::classify::named::function_matches;
use crate::error::Result;
use crate::profile::{CALLS, Profile, WaitSpec};

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
    let (object, _) = target.open(executable)?;
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
    let mut drop_found = |object: &Object| {
        silent.retain(|link| {
            names_matching(object, link, |name| function_matches(link, name)).is_empty()
        });
        silent.is_empty()
    };
    let mut none_left = drop_found(&object);
    if let Target::Process(process) = target {
        for file in process.objects.iter().filter(|file| *file != executable) {
            if none_left {
                break;
            }
            // What cannot be read has no names either.
            if let Ok((object, _)) = target.open(file) {
                none_left = drop_found(&object);
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
