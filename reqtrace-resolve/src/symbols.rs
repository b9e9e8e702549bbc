//! Functions by name: an [`Object`] and a pattern in, one [`Function`] or the reason why not out.
//!
//! A name without wildcards is tried as, in this order: the symbol as it stands in the table, the
//! full signature, the full path, the end of a path (`serve` or `shop::serve` for
//! `app::shop::serve`). The first that fits anything decides. A glob is tried last, over
//! signatures, paths and symbols.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::variants;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::{glob_matches, is_glob, nearest};
use reqtrace_binary::demangle::{
    Copy, Demangled, demangle, is_rust, last_component, split_suffix, without_generics,
};
use reqtrace_binary::elf::{Object, Symbol};

/// Names that C++ need not write out in a mangled name.
const ABBREVIATED: [&str; 8] = [
    "std",
    "allocator",
    "basic_string",
    "string",
    "basic_istream",
    "basic_ostream",
    "basic_iostream",
    "char_traits",
];

/// Candidates printed by an error before it says how many more there are.
const MAX_LISTED: usize = 10;

/// One function: its aliases, constructor variants and clones folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Demangled, with parameters where they are known.
    pub name: String,
    /// The code of each entry: one, or several where a constructor has variants or the compiler
    /// made clones. The function itself comes first. Virtual addresses.
    pub bodies: Vec<Range<u64>>,
    /// Set where callers may have inlined the beginning: what the warning should name.
    pub partly_inlined: Option<String>,
}

/// The one function that a pattern names; `None` when it names none.
///
/// # Errors
///
/// When it names more than one: a usage error that lists them.
pub fn find(object: &Object, pattern: &str) -> Result<Option<Function>> {
    let mut groups = matches(object, pattern);
    groups.retain(Group::has_entry);
    merge_aliases(&mut groups);
    match groups.as_slice() {
        [] => Ok(None),
        [group] if group.mains() == 1 || group.distinct_names => Ok(Some(group.function(object))),
        groups => Err(ambiguous(object, pattern, groups)),
    }
}

/// Every function of the one name that a pattern fits, as one: copies of a generic have one name but for their
/// types, and overloads but for their parameters. `None` when it fits none.
///
/// # Errors
///
/// When it fits functions of several names: a usage error that lists them.
pub fn find_all(object: &Object, pattern: &str) -> Result<Option<Function>> {
    let mut groups = matches(object, pattern);
    groups.retain(Group::has_entry);
    merge_aliases(&mut groups);
    let Some(name) = one_name(&groups) else {
        return match groups.as_slice() {
            [] => Ok(None),
            groups => Err(ambiguous(object, pattern, groups)),
        };
    };
    let found: Vec<Function> = groups.iter().map(|group| group.function(object)).collect();
    Ok(Some(match <[Function; 1]>::try_from(found) {
        Ok([one]) => one,
        Err(many) => Function {
            partly_inlined: many.iter().find_map(|one| one.partly_inlined.clone()),
            bodies: many.into_iter().flat_map(|one| one.bodies).collect(),
            name,
        },
    }))
}

/// The name that groups have in common, without types and parameters.
fn one_name(groups: &[Group]) -> Option<String> {
    let mut names = groups
        .iter()
        .map(|group| without_generics(&group.name.path));
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}

/// Symbols that are one function to a programmer.
pub(super) struct Group {
    pub(super) name: Demangled,
    members: Vec<Member>,
    /// Entries of several mangled names: variants of a constructor or destructor.
    pub(super) distinct_names: bool,
}

struct Member {
    symbol: usize,
    address: u64,
    copy: Copy,
}

impl Group {
    pub(super) fn has_entry(&self) -> bool {
        self.members.iter().any(|member| member.copy != Copy::Part)
    }

    /// Number of different addresses of the function itself, clones left out.
    pub(super) fn mains(&self) -> usize {
        let mut addresses: Vec<u64> = self.addresses(Copy::Main).collect();
        addresses.dedup();
        addresses.len().max(1)
    }

    fn addresses(&self, copy: Copy) -> impl Iterator<Item = u64> {
        self.members
            .iter()
            .filter(move |member| member.copy == copy)
            .map(|member| member.address)
    }

    pub(super) fn function(&self, object: &Object) -> Function {
        let mut entries: Vec<u64> = self
            .addresses(Copy::Main)
            .chain(self.addresses(Copy::Clone))
            .collect();
        let mut seen = Vec::new();
        entries.retain(|address| {
            let new = !seen.contains(address);
            seen.push(*address);
            new
        });
        let part = self.members.iter().find_map(|member| {
            let name = object.name(&object.symbols()[member.symbol]);
            (member.copy == Copy::Part && name.contains(".part.")).then(|| name.to_owned())
        });
        let bodies: Vec<Range<u64>> = entries.into_iter().map(|at| body(object, at)).collect();
        Function {
            name: self.name.signature.clone(),
            bodies: if self.distinct_names {
                variants::once_each(object, bodies)
            } else {
                bodies
            },
            partly_inlined: part,
        }
    }
}

/// The code of the function that begins at an address. The symbol's size where there is one, else
/// the frame description's, else up to the next symbol.
#[must_use]
pub fn body(object: &Object, address: u64) -> Range<u64> {
    let symbols = object.symbols();
    let from = symbols.partition_point(|symbol| symbol.address < address);
    let size = symbols[from..]
        .iter()
        .take_while(|symbol| symbol.address == address)
        .map(|symbol| symbol.size)
        .max()
        .unwrap_or_default();
    let end = if size > 0 {
        address.saturating_add(size)
    } else if let Some(range) = object.frames().range(address) {
        range.end
    } else {
        symbols[from..]
            .iter()
            .map(|symbol| symbol.address)
            .find(|next| *next > address)
            .unwrap_or(u64::MAX)
    };
    // A size from the file may be anything; code ends with its segment.
    address..end.min(address.saturating_add(object.code(address).len() as u64))
}

/// What to call the code at an address in messages.
#[must_use]
pub fn name_at(object: &Object, address: u64) -> String {
    let symbols = object.symbols();
    let from = symbols.partition_point(|symbol| symbol.address < address);
    match symbols.get(from).filter(|found| found.address == address) {
        Some(symbol) => demangle(split_suffix(object.name(symbol)).0).signature,
        None if object.in_plt(address) => "a function of another object".to_owned(),
        None => format!("code at 0x{address:x}, which has no name"),
    }
}

pub(super) fn matches(object: &Object, pattern: &str) -> Vec<Group> {
    let fits = |raw: &str, base: &str, name: &Demangled| {
        if raw == pattern {
            Some(0)
        } else {
            rank(pattern, base, name)
        }
    };
    if let Some(word) = word_in(pattern) {
        let found = collect(object, |raw| raw.contains(word), fits);
        if !found.is_empty() || is_glob(pattern) {
            return found;
        }
        // The word that symbols were filtered by may be abbreviated in a mangled name.
    }
    collect(object, |_| true, fits)
}

/// Groups of the symbols that fit best. `worth` says which are worth demangling; `rank` gets a
/// symbol, the same without suffixes, and its name, and says how well it fits.
pub(super) fn collect(
    object: &Object,
    worth: impl Fn(&str) -> bool,
    rank: impl Fn(&str, &str, &Demangled) -> Option<u8>,
) -> Vec<Group> {
    let mut best = u8::MAX;
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    let mut bases: BTreeMap<(String, String), String> = BTreeMap::new();
    for (index, symbol) in object.symbols().iter().enumerate() {
        let raw = object.name(symbol);
        if !worth(raw) {
            continue;
        }
        let (base, copy) = split_suffix(raw);
        let name = demangle(base);
        let Some(rank) = rank(raw, base, &name).filter(|rank| *rank <= best) else {
            continue;
        };
        if rank < best {
            best = rank;
            groups.clear();
            bases.clear();
        }
        // Instances of a generic Rust function share a demangled name but are not one function;
        // variants of a C++ constructor do and are.
        let apart = if is_rust(base) { base } else { "" };
        let key = (name.signature.clone(), apart.to_owned());
        let group = groups.entry(key.clone()).or_insert_with(|| Group {
            name,
            members: Vec::new(),
            distinct_names: true,
        });
        if copy == Copy::Main {
            let other = group
                .members
                .iter()
                .any(|member| member.copy == Copy::Main && member.address != symbol.address);
            // One name at two addresses: two static functions of different files.
            if other && bases.get(&key).is_some_and(|first| first == base) {
                group.distinct_names = false;
            }
            bases.insert(key, base.to_owned());
        }
        group.members.push(Member {
            symbol: index,
            address: symbol.address,
            copy,
        });
    }
    groups.into_values().collect()
}

/// How well a name fits, the lower the better; `None`: not at all. `base` is the symbol without
/// suffixes.
pub(super) fn rank(pattern: &str, base: &str, name: &Demangled) -> Option<u8> {
    if base == pattern {
        return Some(0);
    }
    if same_text(pattern, &name.signature) {
        return Some(1);
    }
    let plain = without_generics(&name.path);
    // As it is printed, too: a path has no brackets around a type of Rust.
    let printed = without_generics(&name.signature);
    let whole = [&name.path, &plain, &name.signature, &printed];
    if whole.iter().any(|text| *text == pattern) {
        return Some(2);
    }
    let ends = |path: &str| {
        path.strip_suffix(pattern)
            .is_some_and(|head| head.ends_with("::"))
    };
    if ends(&name.path) || ends(&plain) || ends(&name.signature) {
        return Some(3);
    }
    let fits = |text: &str| glob_matches(pattern, text);
    (is_glob(pattern) && (fits(&name.signature) || fits(&name.path) || fits(&plain) || fits(base)))
        .then_some(4)
}

/// Signatures are compared without spaces: `f(char *, int)` is `f(char*,int)`.
fn same_text(a: &str, b: &str) -> bool {
    let letters =
        |text: &'_ str| -> Vec<char> { text.chars().filter(|c| !c.is_whitespace()).collect() };
    a.contains('(') && letters(a) == letters(b)
}

/// An identifier that a symbol must contain to match: demangling every name of a large server
/// takes seconds, and most need not be.
pub(super) fn word_in(pattern: &str) -> Option<&str> {
    if pattern.contains("operator") || pattern.starts_with("_Z") || pattern.starts_with("_R") {
        return None;
    }
    let end = pattern.find(['(', '<', '[']).unwrap_or(pattern.len());
    // Of `Class::*` it is the class.
    let mut words = pattern[..end].rsplit("::").map(|component| {
        let words = component.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.max_by_key(|word| word.len()).unwrap_or_default()
    });
    words
        .find(|word| !word.is_empty())
        .filter(|word| !ABBREVIATED.contains(word))
}

/// Two names at one address are one function.
pub(super) fn merge_aliases(groups: &mut Vec<Group>) {
    let mut merged: Vec<Group> = Vec::new();
    // Of each address, the first of them that has it.
    let mut first: HashMap<u64, usize> = HashMap::new();
    for group in groups.drain(..) {
        let mains: Vec<u64> = group.addresses(Copy::Main).collect();
        let alias = mains.iter().filter_map(|address| first.get(address)).min();
        let index = match alias.copied() {
            Some(index) => {
                let other = &mut merged[index];
                other.distinct_names &= group.distinct_names;
                other.members.extend(group.members);
                index
            }
            None => {
                merged.push(group);
                merged.len() - 1
            }
        };
        for address in mains {
            let known = first.entry(address).or_insert(index);
            *known = index.min(*known);
        }
    }
    *groups = merged;
}

fn ambiguous(object: &Object, pattern: &str, groups: &[Group]) -> Error {
    let mut listed = Vec::new();
    let mut of_signature: HashMap<&str, usize> = HashMap::new();
    for group in groups {
        *of_signature.entry(&group.name.signature).or_default() += 1;
    }
    for group in groups {
        let twins = of_signature[&*group.name.signature] > 1;
        let mut addresses: Vec<(u64, &Symbol)> = group
            .members
            .iter()
            .filter(|member| member.copy != Copy::Part)
            .map(|member| (member.address, &object.symbols()[member.symbol]))
            .collect();
        addresses.dedup_by_key(|(address, _)| *address);
        if group.distinct_names {
            addresses.truncate(1);
        }
        for (address, symbol) in addresses {
            let offset = object.file_offset(address).unwrap_or(address);
            let name = if twins {
                object.name(symbol)
            } else {
                &group.name.signature
            };
            listed.push(format!("{name} (offset 0x{offset:x})"));
        }
    }
    let advice = if one_name(groups).is_some() {
        "write one of these names in full, or offset = 0x… of the one that is meant; all = true marks \
         all of them"
    } else {
        "write one of these names in full, or offset = 0x… of the one that is meant"
    };
    Error::usage(format!(
        "`{pattern}` is ambiguous in {}: {} functions match: {}",
        object.shown(),
        listed.len(),
        shortened(listed)
    ))
    .next(advice)
}

/// Candidates as an error lists them: the first ones, and how many more there are.
pub(super) fn shortened(mut listed: Vec<String>) -> String {
    let more = listed.len().saturating_sub(MAX_LISTED);
    listed.truncate(MAX_LISTED);
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    listed.join("; ")
}

pub(super) fn nearest_names(object: &Object, patterns: &[String]) -> Vec<String> {
    let Some(pattern) = patterns.first() else {
        return Vec::new();
    };
    let end = pattern.find(['(', '<']).unwrap_or(pattern.len());
    let wanted = last_component(&pattern[..end]);
    let mut by_last: BTreeMap<String, String> = BTreeMap::new();
    for symbol in object.symbols() {
        let (base, copy) = split_suffix(object.name(symbol));
        if copy == Copy::Main {
            let path = demangle(base).path;
            let last = last_component(&without_generics(&path)).to_owned();
            by_last.entry(last).or_insert(path);
        }
    }
    nearest(wanted, by_last.keys().map(String::as_str), 3)
        .into_iter()
        .filter_map(|last| by_last.get(last))
        .map(|path| format!("`{path}`"))
        .collect()
}

#[cfg(test)]
mod tests;
