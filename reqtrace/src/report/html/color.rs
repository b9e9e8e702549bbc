//! Colours: what time is in, its colour out.
//!
//! A wait class has the same colour in every picture of a page. Those of the profile's own waits are taken in
//! turn. They are told apart by their names, too: nothing is said by a colour alone.

/// On a CPU.
pub(super) const ON_CPU: &str = "#5a9e4b";
/// On the run queue.
pub(super) const RUN_QUEUE: &str = "#e0a42e";
/// Preempted.
pub(super) const PREEMPTED: &str = "#c9803a";
/// Blocked, and nobody knows in what.
pub(super) const UNATTRIBUTED: &str = "#8a8f98";

/// Of the built-in classes.
const BUILT_IN: &[(&str, &str)] = &[
    ("disk", "#b0567d"),
    ("network", "#3f87b8"),
    ("lock", "#c5504b"),
    ("sleep", "#9a8fb8"),
    ("poll", "#58a6a6"),
    ("pipe", "#7d9bc9"),
    ("page-fault", "#a8763e"),
    ("process", "#8c7a5b"),
    ("tracing", "#6b7280"),
    ("other", "#9aa0a6"),
];

/// Of a profile's own waits.
const NAMED: &[&str] = &[
    "#7a5fc0", "#d0622f", "#2f9c8f", "#b54796", "#4f74d1", "#a3a02c", "#8d4f3a", "#4b8f6b",
    "#d17fa8", "#5c6aa8", "#bf8f5a", "#3d9cc4",
];

/// Of all wait classes.
pub(super) fn classes(names: &[String], named: usize) -> Vec<&'static str> {
    let of = |(at, name): (usize, &String)| {
        let built_in = BUILT_IN.iter().find(|(class, _)| class == name);
        match built_in.filter(|_| at >= named) {
            Some((_, color)) => color,
            None => NAMED[at % NAMED.len()],
        }
    };
    names.iter().enumerate().map(of).collect()
}
