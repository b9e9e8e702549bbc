//! Names of symbols: as they stand in a symbol table in, as programmers write them out.

use std::fmt;

use cpp_demangle::{DemangleOptions, Symbol};

/// Bytes of a name of C++ that are written out. The longest real ones have some 10 KB; one that names its own parts again
/// and again has no end.
const MAX_WRITTEN: usize = 64 << 10;

/// A name as programmers write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demangled {
    /// With parameters, where the language mangles them: `shop::Cart::add(int, char const*)`.
    pub signature: String,
    /// Without parameters and return type: `shop::Cart::add`, whichever way Rust mangles it.
    pub path: String,
}

/// What a compiler's suffix says about a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// No suffix: the function itself.
    Main,
    /// A specialised copy that is called in place of the function: `.isra.0`, `.constprop.0`.
    Clone,
    /// A piece of a function, entered from inside it: `.cold`, `.part.0`.
    Part,
}

/// Splits a compiler's suffixes from the name of a symbol.
#[must_use]
pub fn split_suffix(name: &str) -> (&str, Copy) {
    let mut copy = Copy::Main;
    let mut base = name;
    // From the end, so that the dots of Go's names (`main.serve`) stay.
    while let Some((head, tail)) = base.rsplit_once('.') {
        let (head, word) = if !tail.is_empty() && tail.bytes().all(|byte| byte.is_ascii_digit()) {
            match head.rsplit_once('.') {
                Some((head, word)) => (head, word),
                None => break,
            }
        } else {
            (head, tail)
        };
        let this = match word {
            "cold" | "part" | "warm" => Copy::Part,
            "isra" | "constprop" => Copy::Clone,
            "localalias" | "lto_priv" | "llvm" => Copy::Main,
            _ => break,
        };
        if head.is_empty() {
            break;
        }
        if this == Copy::Part || copy == Copy::Main {
            copy = this;
        }
        base = head;
    }
    (base, copy)
}

/// Demangles C++ and Rust (both manglings; the hash of the legacy one is dropped). Any other name
/// is its own signature and path. Give it a name without suffixes; see [`split_suffix`].
#[must_use]
pub fn demangle(name: &str) -> Demangled {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let signature = format!("{rust:#}");
        return Demangled {
            path: inherent(&signature),
            signature,
        };
    }
    if let Some(symbol) = cpp(name) {
        let options = DemangleOptions::new();
        if let Some(signature) = written(&symbol, options)
            && let Some(path) = written(&symbol, options.no_params().no_return_type())
        {
            return Demangled { signature, path };
        }
    }
    Demangled {
        signature: name.to_owned(),
        path: name.to_owned(),
    }
}

/// A function of a type, `<a::T>::f` by the newer mangling of Rust, is `a::T::f`, as by the older one. Types that are more than a path
/// stay: what one has by a trait (`<a::T as a::U>::f`), `<dyn a::U>::f`, `<[u8]>::f`.
fn inherent(name: &str) -> String {
    let close = group_end(name);
    let of_type = name[..close]
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'));
    match of_type {
        Some(path)
            if path.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                && path.contains("::")
                && !has_words(path) =>
        {
            format!("{path}{}", &name[close..])
        }
        _ => name.to_owned(),
    }
}

/// Whether a type is several words, those of its arguments aside.
fn has_words(of_type: &str) -> bool {
    let (mut depth, mut previous) = (0_i64, b' ');
    of_type.bytes().any(|byte| {
        match byte {
            b'<' => depth += 1,
            // `->` in a function type.
            b'>' if previous != b'-' => depth -= 1,
            _ => {}
        }
        previous = byte;
        byte == b' ' && depth == 0
    })
}

/// The signature alone, of a name that may have suffixes: `f(int) [clone .cold]`.
#[must_use]
pub fn signature(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    cpp(name)
        .and_then(|symbol| written(&symbol, DemangleOptions::new()))
        .unwrap_or_else(|| name.to_owned())
}

/// A name mangled by C++. Without the prefix it may be a C function's, and `f` is no `float`.
fn cpp(name: &str) -> Option<Symbol<&str>> {
    let mangled = name.starts_with("_Z") || name.starts_with("__Z");
    mangled.then(|| Symbol::new(name).ok()).flatten()
}

/// A name of C++ written out; `None` when it is too long, or makes no sense.
fn written(symbol: &Symbol<&str>, options: DemangleOptions) -> Option<String> {
    let mut out = Bounded::default();
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.0)
}

/// Text of at most [`MAX_WRITTEN`] bytes.
#[derive(Debug, Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_WRITTEN {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Whether a name is mangled by Rust's legacy scheme, where functions that differ in nothing but
/// their type parameters share one demangled name.
#[must_use]
pub fn is_rust(name: &str) -> bool {
    rustc_demangle::try_demangle(name).is_ok()
}

/// A path without type arguments and ABI tags: `f<int>` and `f::<i32>` are `f`. The group that a
/// path begins with (`<T as Trait>::f`) stays: it is the type itself.
#[must_use]
pub fn without_generics(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        if let Some(operator) = rest.strip_prefix("operator")
            && !out.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            let symbols = operator
                .bytes()
                .take_while(|byte| b"<>=-!()".contains(byte))
                .count()
                // `operator< <int>` is written with a space, `operator()<int>` is not.
                .min(if operator.starts_with("()") { 2 } else { 3 });
            out.push_str(&rest[.."operator".len() + symbols]);
            rest = &operator[symbols..];
            continue;
        }
        if first == '<' || rest.starts_with("[abi:") {
            let close = group_end(rest);
            if out.is_empty() && first == '<' {
                out.push_str(&rest[..close]);
            } else if first == '<' && out.ends_with("::") {
                out.truncate(out.len() - 2);
            }
            rest = &rest[close..];
            continue;
        }
        out.push(first);
        rest = &rest[first.len_utf8()..];
    }
    out.trim_end().to_owned()
}

/// The byte after the bracket that closes the one `text` begins with; all of it if none does.
fn group_end(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut previous = ' ';
    for (index, c) in text.char_indices() {
        match c {
            '<' | '[' => depth += 1,
            // `->` in a function type.
            '>' if previous == '-' => {}
            '>' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
        previous = c;
    }
    text.len()
}

/// The last component of a path: `add` of `shop::Cart::add`.
#[must_use]
pub fn last_component(path: &str) -> &str {
    path.rsplit_once("::").map_or(path, |(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_split_off() {
        assert_eq!(split_suffix("f"), ("f", Copy::Main));
        assert_eq!(split_suffix("f.cold"), ("f", Copy::Part));
        assert_eq!(split_suffix("f.constprop.0.cold"), ("f", Copy::Part));
        assert_eq!(split_suffix("f.part.0.isra.0"), ("f", Copy::Part));
        assert_eq!(split_suffix("f.isra.0"), ("f", Copy::Clone));
        assert_eq!(split_suffix("f.llvm.123"), ("f", Copy::Main));
        assert_eq!(split_suffix("main.serve"), ("main.serve", Copy::Main));
        assert_eq!(split_suffix("a.b.7"), ("a.b.7", Copy::Main));
        assert_eq!(split_suffix(".cold"), (".cold", Copy::Main));
    }

    #[test]
    fn cpp_and_rust_are_demangled() {
        let name = demangle("_Z16dispatch_command19enum_server_commandP3THDPcjb");
        assert_eq!(
            name.signature,
            "dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)"
        );
        assert_eq!(name.path, "dispatch_command");
        assert_eq!(demangle("_ZN3FooC1Ei").path, "Foo::Foo");
        assert_eq!(demangle("_ZN4shop5serveIiEEvT_").path, "shop::serve<int>");
        assert_eq!(
            demangle("_ZN4shop5serve17h0123456789abcdefE").path,
            "shop::serve"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo").path, "mycrate::foo");
        assert_eq!(demangle("main.serve").path, "main.serve");
        assert_eq!(demangle("_Zgarbage").path, "_Zgarbage");
    }

    #[test]
    fn functions_of_a_type_have_one_path_by_both_manglings_of_rust() {
        let path = |name: &str| demangle(name).path;
        let newer = "_RNvMNtCs1234_4http6methodNtB2_6Method10from_bytes";
        assert_eq!(
            demangle(newer).signature,
            "<http::method::Method>::from_bytes"
        );
        assert_eq!(path(newer), "http::method::Method::from_bytes");
        let older = "_ZN4http6method6Method10from_bytes17h0123456789abcdefE";
        assert_eq!(path(older), path(newer));
        for (name, path) in [
            ("<a::T<b::U>>::f::{closure#0}", "a::T<b::U>::f::{closure#0}"),
            ("<a::T<<b::U as c::V>::W>>::f", "a::T<<b::U as c::V>::W>::f"),
            ("<a::T as a::U>::f", "<a::T as a::U>::f"),
            ("<dyn a::U>::f", "<dyn a::U>::f"),
            (
                "<a::T<fn() -> u8> as a::U>::f",
                "<a::T<fn() -> u8> as a::U>::f",
            ),
            ("<[u8]>::f", "<[u8]>::f"),
            ("<&a::T>::f", "<&a::T>::f"),
            ("a::f::<b::T>", "a::f::<b::T>"),
            ("<", "<"),
            ("", ""),
        ] {
            assert_eq!(inherent(name), path);
        }
    }

    #[test]
    fn short_names_of_c_functions_are_no_types() {
        for name in ["f", "g", "i", "st", "Ss", "main", "_Zgarbage"] {
            assert_eq!(signature(name), name);
            assert_eq!(demangle(name).signature, name);
        }
        assert_eq!(signature("_Z1fi"), "f(int)");
        assert_eq!(signature("_Z1fi.cold"), "f(int) [clone .cold]");
        assert_eq!(
            signature("_ZN4shop5serve17h0123456789abcdefE"),
            "shop::serve"
        );
    }

    /// A function whose last parameter is written with 16 to the power of `levels` words.
    fn nested(levels: usize) -> String {
        let mut name = format!("_Z1f1AI{}E", "i".repeat(16));
        for before in 0..levels - 1 {
            name += &format!("S_I{}E", format!("S{before}_").repeat(16));
        }
        name
    }

    /// Some hundred bytes were written out as gigabytes.
    #[test]
    fn a_name_that_has_no_end_stays_as_it_is() {
        let name = nested(2);
        assert!(signature(&name).starts_with("f(A<int, int, "));
        assert_eq!(demangle(&name).path, "f");
        for levels in [5, 8] {
            let name = nested(levels);
            assert!(name.len() < 600);
            assert_eq!(signature(&name), name);
            let demangled = demangle(&name);
            assert_eq!((&demangled.signature, &demangled.path), (&name, &name));
        }
    }

    /// That took the square of its length.
    #[test]
    fn the_arguments_of_a_type_may_have_many_words() {
        let arguments = "b c, ".repeat(100_000);
        let name = format!("<a::T<{arguments}>>::f");
        assert_eq!(inherent(&name), format!("a::T<{arguments}>::f"));
        let name = format!("<a::T<{arguments}> d>::f");
        assert_eq!(inherent(&name), name);
    }

    #[test]
    fn generics_are_dropped() {
        assert_eq!(without_generics("a::f<b<int> >"), "a::f");
        assert_eq!(without_generics("a::f::<i32>"), "a::f");
        assert_eq!(without_generics("V<int>::push"), "V::push");
        assert_eq!(without_generics("<a::T as a::U>::f"), "<a::T as a::U>::f");
        assert_eq!(without_generics("a::operator<<"), "a::operator<<");
        assert_eq!(without_generics("a::operator->"), "a::operator->");
        assert_eq!(without_generics("f[abi:cxx11]"), "f");
        assert_eq!(without_generics("C::operator()"), "C::operator()");
    }
}
