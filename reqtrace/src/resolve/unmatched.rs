//! Named waits without a match: a profile and where it is to be used in, the function matchers that
//! fit nothing there out.

use super::search::names_matching;
use super::target::Target;
use crate::classify::named::function_matches;
use crate::error::Result;
use crate::profile::{CALLS, Profile};

/// Function matchers of a profile's waits that match nothing in an executable that has no symbol
/// table: names of waits, and for each the patterns. With a symbol table there is nothing to say: a
/// function that is not in it is not in the program.
///
/// # Errors
///
/// When the executable cannot be read.
pub fn unmatched_without_symbols(
    profile: &Profile,
    target: &Target<'_>,
) -> Result<Vec<(String, Vec<String>)>> {
    let (object, _) = target.open(target.executable())?;
    if object.has_symtab() {
        return Ok(Vec::new());
    }
    let mut unmatched = Vec::new();
    for wait in &profile.waits {
        let silent: Vec<String> = wait
            .functions
            .iter()
            // What a chain ends in is often in a library; it is silent without its beginning.
            .filter(|pattern| {
                let first = pattern.split(CALLS).next().unwrap_or_default();
                let first = first.trim();
                names_matching(&object, first, |name| function_matches(first, name)).is_empty()
            })
            .cloned()
            .collect();
        if !silent.is_empty() {
            unmatched.push((wait.name.clone(), silent));
        }
    }
    Ok(unmatched)
}
