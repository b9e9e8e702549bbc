//! Functions by what one remembers of their names: an [`Object`] and a pattern in, every function
//! that fits out, each with the way in which a profile would name it.
//!
//! A pattern with `*` or `?` is a glob over whole names; any other is looked for anywhere in a
//! name. Names are demangled signatures (with parameters), paths (without), and the symbols
//! themselves. Upper and lower case are one, unless the pattern has an upper case letter.

use std::ops::Range;

use super::returns;
use super::symbols::{self, Group, body, collect, merge_aliases, word_in};
use reqtrace_base::text::{glob_matches, is_glob};
use reqtrace_binary::demangle::{Demangled, last_component, without_generics};
use reqtrace_binary::elf::Object;

/// One function that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Demangled, with parameters where they are known.
    pub signature: String,
    /// Without parameters and generic arguments.
    pub path: String,
    /// The code of each entry, the function itself first; virtual addresses. Empty when only
    /// pieces of it are left, because the compiler inlined its beginning into its callers.
    pub bodies: Vec<Range<u64>>,
}

/// How a function is left, and what that means for a request that is one call of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probing {
    /// Entry and return can be probed; this many places at which it is left.
    Sites(usize),
    /// It never returns, or its code could not be decoded: as a begin only.
    NeverReturns,
    /// The compiler left no beginning of it.
    PiecesOnly,
}

impl Match {
    /// Bytes of code, all entries together.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bodies.iter().map(|body| body.end - body.start).sum()
    }

    /// What can be probed of it. Its code is disassembled for that.
    #[must_use]
    pub fn probing(&self, object: &Object) -> Probing {
        let mut sites = Vec::new();
        for body in &self.bodies {
            let exits = returns::exits(object, body, true);
            sites.extend(exits.sites.into_iter().map(|(address, _)| address));
        }
        // Clones can share a cold part.
        sites.sort_unstable();
        sites.dedup();
        match (self.bodies.len(), sites.len()) {
            (0, _) => Probing::PiecesOnly,
            (_, 0) => Probing::NeverReturns,
            (_, count) => Probing::Sites(count),
        }
    }

    /// The shortest of path, signature and symbol that names this function and no other in a
    /// profile; `None` where only an offset does.
    #[must_use]
    pub fn spelling(&self, object: &Object) -> Option<String> {
        let symbols = object.symbols().iter().filter(|symbol| {
            self.bodies
                .first()
                .is_some_and(|body| body.start == symbol.address)
        });
        let symbols: Vec<&str> = symbols.map(|symbol| object.name(symbol)).collect();
        [self.path.as_str(), &self.signature]
            .into_iter()
            .chain(symbols.iter().copied())
            // What has these is read as a glob, unless it is a symbol, such as Go's `main.(*T).f`.
            .filter(|name| !is_glob(name) || symbols.contains(name))
            .map(str::to_owned)
            .find(|name| {
                let found = symbols::find(object, name);
                found.is_ok_and(|found| found.is_some_and(|found| found.bodies == self.bodies))
            })
    }

    /// The last component of its path: what to call it for short.
    #[must_use]
    pub fn short_name(&self) -> &str {
        last_component(&self.path)
    }
}

/// Every function of an object that fits, by name.
#[must_use]
pub fn search(object: &Object, pattern: &str) -> Vec<Match> {
    let matcher = NameMatcher::new(pattern);
    let rank = |raw: &str, base: &str, name: &Demangled| matcher.fits(raw, base, name).then_some(0);
    let mut groups = Vec::new();
    if let Some(word) = word_in(pattern) {
        let word = matcher.fold(word);
        groups = collect(object, |raw| matcher.fold(raw).contains(&*word), rank);
    }
    if groups.is_empty() {
        // The word may be abbreviated in mangled names.
        groups = collect(object, |_| true, rank);
    }
    let (entries, pieces): (Vec<Group>, Vec<Group>) =
        groups.into_iter().partition(Group::has_entry);
    let mut entries = entries;
    merge_aliases(&mut entries);
    let mut found: Vec<Match> = entries
        .iter()
        .flat_map(|group| matches_of(object, group))
        .collect();
    found.extend(pieces.iter().map(|group| Match {
        signature: group.name.signature.clone(),
        path: without_generics(&group.name.path),
        bodies: Vec::new(),
    }));
    // What fits only by the types it is made for comes last.
    let key = |found: &Match| (!matcher.matches(&found.path), first(found));
    found.sort_by(|a, b| {
        let ((a_types, a_first), (b_types, b_first)) = (key(a), key(b));
        (a_types, &a.signature, a_first).cmp(&(b_types, &b.signature, b_first))
    });
    found
}

/// Signatures of the functions of an object that fit. `pattern` is what is asked for: only symbols
/// with a word of it are demangled.
#[must_use]
pub fn names_matching(object: &Object, pattern: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let word = word_in(pattern);
    let worth = |raw: &str| word.is_none_or(|word| raw.contains(word));
    let groups = collect(object, worth, |_, _, name| {
        fits(&name.signature).then_some(0)
    });
    groups
        .into_iter()
        .map(|group| group.name.signature)
        .collect()
}

fn first(found: &Match) -> u64 {
    found.bodies.first().map_or(0, |body| body.start)
}

/// A group is one function, or several static ones of one name.
fn matches_of(object: &Object, group: &Group) -> Vec<Match> {
    let one = Match {
        signature: group.name.signature.clone(),
        path: without_generics(&group.name.path),
        bodies: group.function(object).bodies,
    };
    if group.mains() == 1 || group.distinct_names {
        return vec![one];
    }
    one.bodies
        .iter()
        .map(|entry| Match {
            bodies: vec![body(object, entry.start)],
            ..one.clone()
        })
        .collect()
}

/// A pattern over names of functions and of USDT probes.
#[derive(Clone, Debug)]
pub struct NameMatcher {
    pattern: String,
    folds_case: bool,
    is_glob: bool,
}

impl NameMatcher {
    /// Any text is a pattern.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            folds_case: !pattern.chars().any(char::is_uppercase),
            is_glob: is_glob(pattern),
        }
    }

    /// Whether one name fits.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = self.fold(name);
        if self.is_glob {
            glob_matches(&self.pattern, &name)
        } else {
            name.contains(&self.pattern)
        }
    }

    fn fits(&self, raw: &str, base: &str, name: &Demangled) -> bool {
        self.matches(&name.signature)
            || self.matches(&name.path)
            || self.matches(base)
            || self.matches(raw)
    }

    fn fold<'a>(&self, name: &'a str) -> std::borrow::Cow<'a, str> {
        if self.folds_case {
            name.to_lowercase().into()
        } else {
            name.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;

    const PROGRAM: &str = "\
        #include <cstdlib>\n\
        #define KEEP __attribute__((noinline, noclone))\n\
        namespace shop { struct Cart { int add(int); int add(long); }; }\n\
        KEEP int shop::Cart::add(int a) { asm(\"\"); return a; }\n\
        KEEP int shop::Cart::add(long a) { asm(\"\"); return int(a) + 1; }\n\
        KEEP int Serve(int a) { asm(\"\"); if (a > 3) return shop::Cart().add(a) + 1; return a; }\n\
        KEEP void serve_forever() { static volatile int calls; calls = 1; for (;;) asm volatile(\"\" ::: \"memory\"); }\n\
        int main(int c, char **) { if (c > 5) serve_forever(); return Serve(c) + shop::Cart().add(2L); }";

    fn names(object: &Object, pattern: &str) -> Vec<String> {
        let found = search(object, pattern);
        found.into_iter().map(|found| found.signature).collect()
    }

    #[test]
    fn patterns_are_substrings_or_globs_and_case_counts_when_it_is_written() {
        let fixture = Fixture::cpp(PROGRAM, &["-O1"]);
        let object = fixture.object();
        let adds = ["shop::Cart::add(int)", "shop::Cart::add(long)"];
        assert_eq!(names(&object, "cart::ad"), adds);
        assert_eq!(names(&object, "Cart"), adds);
        assert_eq!(names(&object, "cArt"), Vec::<String>::new());
        assert_eq!(names(&object, "shop::*(long)"), adds[1..]);
        assert_eq!(names(&object, "serve"), ["Serve(int)", "serve_forever()"]);
        assert_eq!(names(&object, "serve*"), ["Serve(int)", "serve_forever()"]);
        assert_eq!(names(&object, "Serve"), ["Serve(int)"]);
        assert_eq!(names(&object, "art::*d(int"), Vec::<String>::new());
        assert_eq!(names(&object, "add(int"), adds[..1]);
    }

    #[test]
    fn what_is_found_says_how_to_name_it_and_whether_it_returns() {
        let fixture = Fixture::cpp(PROGRAM, &["-O1"]);
        let object = fixture.object();
        let found = |pattern: &str| search(&object, pattern).remove(0);
        // Of overloads only the signature is unambiguous.
        let add = found("add(long)");
        assert_eq!(
            add.spelling(&object).as_deref(),
            Some("shop::Cart::add(long)")
        );
        assert_eq!(add.short_name(), "add");
        let serve = found("Serve");
        assert_eq!(serve.spelling(&object).as_deref(), Some("Serve"));
        assert!(matches!(serve.probing(&object), Probing::Sites(1..)));
        assert!(serve.size() > 0);
        let forever = found("serve_forever");
        assert_eq!(forever.probing(&object), Probing::NeverReturns);
    }

    #[test]
    fn what_fits_by_its_types_only_comes_last() {
        let source = "\
            namespace shop { struct Cart { int n; }; }\n\
            template <class T> __attribute__((noinline)) int a(T t) { asm(\"\"); return t.n; }\n\
            namespace shop { __attribute__((noinline)) int serve(Cart c) { return a(c); } }\n\
            int main(int n, char **) { return shop::serve({n}); }";
        let fixture = Fixture::cpp(source, &["-O1"]);
        let found = names(&fixture.object(), "shop::");
        let expected = ["shop::serve(shop::Cart)", "int a<shop::Cart>(shop::Cart)"];
        assert_eq!(found, expected);
    }

    #[test]
    fn static_functions_of_one_name_are_two_functions_known_by_offset_only() {
        let twin = "static int __attribute__((noinline)) twin(int a) { asm(\"\"); return a; }\n";
        let folder = tempfile::tempdir().unwrap();
        let second = folder.path().join("second.c");
        std::fs::write(
            &second,
            format!("{twin}int second(int a) {{ return twin(a) + 1; }}"),
        )
        .unwrap();
        let main =
            "int second(int);\nint main(int c, char **v) { (void)v; return twin(c) + second(c); }";
        let fixture = Fixture::c(&format!("{twin}{main}"), &["-O1", second.to_str().unwrap()]);
        let object = fixture.object();
        let found = search(&object, "twin");
        assert_eq!(names(&object, "twin"), ["twin", "twin"]);
        assert_ne!(found[0].bodies, found[1].bodies);
        assert_eq!(found[0].spelling(&object), None);
    }
}
