//! Names of functions: demangled names in, the parts that people look for out.

use crate::plain::{is_printable_ascii, is_unprintable};

/// Makes a frame fit for one line of folded stacks: `;` separates frames there, and line breaks
/// separate stacks. Other control characters would change a terminal.
#[must_use]
pub fn clean(name: &str) -> String {
    if is_printable_ascii(name) && !name.contains(';') {
        return name.to_owned();
    }
    name.chars()
        .map(|c| match c {
            ';' => ':',
            c if is_unprintable(c) => ' ',
            c => c,
        })
        .collect()
}

/// A demangled name without its parameters, qualifiers and return type:
/// `int *ns::f<int>(long) const` becomes `ns::f<int>`.
#[must_use]
pub fn without_signature(name: &str) -> &str {
    if name.starts_with('[') {
        return name;
    }
    let name = without_parameters(name);
    // `operator new`, `operator bool`: the blank belongs to the name.
    if name.contains("operator ") {
        return name;
    }
    match last_blank_outside_brackets(name) {
        Some(at) => name[at + 1..].trim_start_matches(['*', '&']),
        None => name,
    }
}

/// [`without_signature`], and without template arguments: `ns::f<int>` becomes `ns::f`.
#[must_use]
pub fn plain(name: &str) -> String {
    let name = without_signature(name);
    if name.starts_with(['<', '[']) || name.contains("operator") || name.contains("{{") {
        return name.to_owned();
    }
    let mut depth = 0_u32;
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            // Nothing is left between two colons of Rust's `ns::<impl T>::f`.
            ':' if depth == 0 && out.ends_with("::") => {}
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    // Rust writes `f::<T>`.
    while out.ends_with("::") {
        out.truncate(out.len() - 2);
    }
    out
}

/// Cuts the last top-level `(…)` and what follows it.
fn without_parameters(name: &str) -> &str {
    let mut depth = 0_i32;
    let mut close = None;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => {
                if depth == 0 && close.is_none() {
                    close = Some(at);
                }
                depth += 1;
            }
            b'(' => {
                depth -= 1;
                if depth == 0 && close.is_some() {
                    let is_call_operator = name[..at].ends_with("operator");
                    let is_anonymous = name[at..].starts_with("(anonymous namespace)");
                    // `main.(*Server).serve`, of Go.
                    let is_receiver = name[..at].ends_with('.');
                    return if is_call_operator || is_anonymous || is_receiver || at == 0 {
                        name
                    } else {
                        name[..at].trim_end()
                    };
                }
            }
            _ => {}
        }
    }
    name
}

fn last_blank_outside_brackets(name: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b'>' if at > 0 && name.as_bytes()[at - 1] == b'-' => {}
            b'>' | b')' | b'}' | b']' => depth += 1,
            b'<' | b'(' | b'{' | b'[' => depth -= 1,
            b' ' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// A kernel function's name without what the compiler appended: `.isra.0`, `.constprop.0`,
/// `.part.0`, `.cold`, `.llvm.123`.
#[must_use]
pub fn without_suffix(name: &str) -> &str {
    match name.find('.') {
        Some(at) if at > 0 && !name.starts_with('[') => &name[..at],
        _ => name,
    }
}

/// Paths of what tokio and the standard library wake tasks by.
const OF_RUNTIME: [&str; 5] = [
    "tokio::runtime::scheduler::",
    "tokio::runtime::task::",
    "tokio::util::wake_list::",
    "alloc::task::",
    "core::task::",
];

/// The same of functions that were inlined there, which debug information calls by their last name.
const INLINED_WAKES: [&str; 5] = ["schedule", "wake", "wake_by_ref", "wake_by_val", "wake_all"];

/// The frames that say where a thread waited, innermost first: up to three of the program's, where they
/// have names, or else two of the kernel's. Short, and clean.
pub fn telling<'a>(
    user: impl Iterator<Item = &'a str>,
    kernel: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let is_named = |name: &&str| !name.starts_with('[');
    // How glibc waits on a condition variable says less than that it does, and how tokio wakes a task less than why.
    let mut in_runtime = false;
    let inner = |name: &&str| {
        let is_of_runtime = OF_RUNTIME.iter().any(|path| name.contains(path));
        in_runtime |= is_of_runtime;
        is_of_runtime
            || in_runtime && INLINED_WAKES.contains(name)
            || name.starts_with("__futex_abstimed_wait")
            || name.starts_with("__pthread_cond_wait_common")
    };
    let mut shown: Vec<_> = user.filter(is_named).skip_while(inner).take(3).collect();
    if shown.is_empty() {
        let generic = |name: &&str| name.contains("schedule");
        let named = kernel.filter(is_named).skip_while(generic);
        shown = named.take(2).collect();
    }
    let short = |name: &str| clean(&plain(name)).trim().to_owned();
    shown.into_iter().map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_stay_on_their_line() {
        assert_eq!(clean("a;b\nc\u{1b}d"), "a:b c d");
    }

    #[test]
    fn signatures_are_cut() {
        for (name, cut) in [
            (
                "dispatch_command(enum_server_command, THD*, char*)",
                "dispatch_command",
            ),
            (
                "MDL_context::acquire_lock(MDL_request*, double)",
                "MDL_context::acquire_lock",
            ),
            ("ns::C::f(int (*)(char)) const", "ns::C::f"),
            ("int *ns::f<int (*)(long)>(long)", "ns::f<int (*)(long)>"),
            ("main.(*Server).serve", "main.(*Server).serve"),
            ("operator new(unsigned long)", "operator new"),
            ("C::operator()(int) const", "C::operator()"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            (
                "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt",
                "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt",
            ),
            ("shop::serve::{{closure}}", "shop::serve::{{closure}}"),
            ("[libc.so.6+0x1234]", "[libc.so.6+0x1234]"),
            ("read", "read"),
            ("", ""),
            (")(", ")("),
        ] {
            assert_eq!(without_signature(name), cut, "{name}");
        }
        assert_eq!(plain("void ns::f<int>(int)"), "ns::f");
        assert_eq!(plain("core::f::<u8>"), "core::f");
        assert_eq!(plain("core::<impl T for U>::f"), "core::f");
    }

    #[test]
    fn what_wakes_a_task_is_shown_and_not_how() {
        let shown = |user: &[&str]| telling(user.iter().copied(), [].into_iter());
        let how = [
            "tokio::runtime::scheduler::multi_thread::handle::<impl tokio::runtime::task::Schedule for H>::schedule",
            "wake_by_val",
            "<app::Story as alloc::task::Wake>::wake_by_ref",
            "wake",
            "tokio::util::wake_list::WakeList::wake_all",
        ];
        let why = [
            "tokio::sync::mpsc::chan::Tx<T,S>::send",
            "app::reply",
            "app::main",
            "app::start",
        ];
        assert_eq!(
            shown(&[&how[..], &why[..]].concat()),
            [
                "tokio::sync::mpsc::chan::Tx::send",
                "app::reply",
                "app::main"
            ]
        );
        // Another program may have functions of these names.
        assert_eq!(shown(&["schedule", "run"]), ["schedule", "run"]);
    }

    #[test]
    fn compiler_suffixes_are_cut() {
        assert_eq!(
            without_suffix("finish_task_switch.isra.0"),
            "finish_task_switch"
        );
        assert_eq!(without_suffix("do_poll.constprop.0"), "do_poll");
        assert_eq!(without_suffix("[kernel+0x1.]"), "[kernel+0x1.]");
    }
}
