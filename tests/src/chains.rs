//! Services whose requests wait because of somebody who is known, and what a trace has to say of them.
//!
//! In: `requests.csv` and `blame.csv`. Out: nothing, or who was named that should not have been.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use crate::blamed::Blamed;
use crate::rows::Row;

/// Whose time it is. An empty name fits all.
#[derive(Clone, Copy, Debug)]
pub struct Culprit {
    /// `request`, `thread` or `interrupt`.
    pub kind: &'static str,
    /// Type of a request.
    pub request: &'static str,
    /// Name of a thread.
    pub comm: &'static str,
}

impl Culprit {
    /// A request of this type.
    #[must_use]
    pub const fn request(request: &'static str) -> Self {
        Self {
            kind: "request",
            request,
            comm: "",
        }
    }

    /// A thread in no request, of this name.
    #[must_use]
    pub const fn thread(comm: &'static str) -> Self {
        Self {
            kind: "thread",
            request: "",
            comm,
        }
    }

    fn is_in(self, row: &Blamed) -> bool {
        let fits = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        row.culprit_kind == self.kind
            && fits(self.request, &row.culprit_request)
            && fits(self.comm, &row.culprit_comm)
    }
}

/// An interrupt ended the request's own wait.
const OWN: Culprit = Culprit {
    kind: "interrupt",
    request: "",
    comm: "",
};

/// What a thread does that computes, on a machine with others.
const COMPUTES: &[&str] = &["on_cpu", "preempted", "run_queue"];
/// What a thread does that sleeps, and what one that writes to a disk.
const SLEEPS: &[&str] = &["timer", "on_cpu", "preempted", "run_queue"];
const SYNCS: &[&str] = &["disk", "on_cpu", "preempted", "run_queue"];

/// Why the requests of a type wait.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Their type, which is the name of the function that is probed.
    pub victim: &'static str,
    /// How many of them a call makes.
    pub requests: usize,
    /// Calls until who makes them wait is watched: a thread in no request is from when it first woke
    /// somebody, and who wakes that one from then on.
    pub unwatched: usize,
    /// What it may come down to.
    pub causes: &'static [&'static str],
    /// What of that there has to be, and its least share. Beside others, all wait for a CPU, too.
    pub mainly: (&'static [&'static str], f64),
    /// Who makes them wait. The first of them has to be there.
    pub culprits: &'static [Culprit],
    /// How many threads made each other wait, at least.
    pub depth: u64,
}

/// A type whose requests wait for a thread or a request.
const fn kind(
    victim: &'static str,
    causes: &'static [&'static str],
    culprits: &'static [Culprit],
) -> Kind {
    Kind {
        victim,
        requests: 1,
        unwatched: 1,
        causes,
        mainly: (causes.split_at(1).0, 0.02),
        culprits,
        depth: 1,
    }
}

/// The kinds of `chains.cpp`.
const CHAINS: [Kind; 7] = [
    Kind {
        depth: 0,
        ..kind("alone", &["timer"], &[OWN])
    },
    kind("behind_sleeper", SLEEPS, &[Culprit::thread("c-sleeper")]),
    kind("behind_disk", SYNCS, &[Culprit::request("syncs")]),
    Kind {
        unwatched: 2,
        depth: 2,
        // The one that passes on what they wait for may wait for a CPU meanwhile.
        ..kind(
            "behind_two",
            COMPUTES,
            &[Culprit::thread("c-second"), Culprit::thread("c-first")],
        )
    },
    kind(
        "behind_idler",
        &["between_requests"],
        &[Culprit::thread("c-idler")],
    ),
    kind("behind_server", COMPUTES, &[Culprit::thread("c-server")]),
    Kind {
        requests: 4,
        ..kind("in_turn", COMPUTES, &[Culprit::request("in_turn")])
    },
];

/// The kinds of `locks.cpp`.
const LOCKS: [Kind; 5] = [
    Kind {
        // Two others are on its CPU.
        mainly: (&["preempted", "run_queue"], 0.4),
        ..kind("behind_preempted", COMPUTES, &[Culprit::request("crowded")])
    },
    Kind {
        requests: 10,
        // Those that were woken take the mutex, one after the other.
        ..kind(
            "behind_broadcast",
            COMPUTES,
            &[
                Culprit::thread("c-caster"),
                Culprit::request("behind_broadcast"),
            ],
        )
    },
    kind("behind_semaphore", SLEEPS, &[Culprit::request("posts")]),
    Kind {
        mainly: (&["timer"], 0.5),
        depth: 4,
        ..kind("behind_four", SLEEPS, &[Culprit::request("passes_on")])
    },
    kind("behind_writer", COMPUTES, &[Culprit::thread("c-writer")]),
];

/// The kinds of `pair.cpp`. The other process reads what it serves in no request: until it has a CPU for
/// that it is between its requests.
const PAIR: [Kind; 4] = [
    kind(
        "asks_by_socketpair",
        &["on_cpu", "preempted", "run_queue", "between_requests"],
        &[Culprit::request("serves_by_socketpair"), OTHER],
    ),
    kind(
        "asks_by_pipe",
        &[
            "timer",
            "on_cpu",
            "preempted",
            "run_queue",
            "between_requests",
        ],
        &[Culprit::request("serves_by_pipe"), OTHER],
    ),
    kind(
        "asks_by_unix_socket",
        &[
            "disk",
            "on_cpu",
            "preempted",
            "run_queue",
            "between_requests",
        ],
        &[Culprit::request("serves_by_unix_socket"), OTHER],
    ),
    Kind {
        depth: 2,
        mainly: (&["between_requests"], 0.5),
        ..kind(
            "asks_by_tcp",
            &["between_requests", "on_cpu", "preempted", "run_queue"],
            &[
                Culprit::thread("c-idler"),
                Culprit::request("serves_by_tcp"),
                Culprit::request("unlocks"),
                OTHER,
            ],
        )
    },
];

const OTHER: Culprit = Culprit::thread("c-other");

/// A service: a program in `tests/fixtures`.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Its name.
    pub name: &'static str,
    /// Kinds of requests that wait.
    pub kinds: &'static [Kind],
    /// Further functions that are probed.
    pub further: &'static [&'static str],
}

/// All services.
pub const SERVICES: [Service; 3] = [
    Service {
        name: "chains",
        kinds: &CHAINS,
        further: &["syncs", "takes", "gives"],
    },
    Service {
        name: "locks",
        kinds: &LOCKS,
        further: &["crowded", "posts", "passes_on"],
    },
    Service {
        name: "pair",
        kinds: &PAIR,
        further: &[
            "serves_by_socketpair",
            "serves_by_pipe",
            "serves_by_unix_socket",
            "serves_by_tcp",
            "locks",
            "unlocks",
        ],
    },
];

/// Functions whose first argument is a pointer: their requests have a condition and an attribute, so that other kernels see the
/// programs for those.
const WITH_A_POINTER: [&str; 2] = ["behind_semaphore", "behind_writer"];

impl Service {
    /// Its profile.
    ///
    /// # Errors
    ///
    /// None: a text can be written to.
    pub fn profile(&self) -> Result<String> {
        let mut text = format!("[profile]\nname = \"{}\"\n", self.name);
        let victims = self.kinds.iter().map(|kind| &kind.victim);
        for function in victims.chain(self.further) {
            let takes_a_pointer = WITH_A_POINTER.contains(function);
            let condition = match takes_a_pointer {
                true => ", when = { arg = 0, not-equals = 0 }",
                false => "",
            };
            writeln!(
                text,
                "\n[[request]]\nname = \"{function}\"\nbegin = {{ function = \"{function}\"{condition} }}"
            )?;
            if takes_a_pointer {
                text += "[[request.attribute]]\nname = \"object\"\narg = 0\ntype = \"unsigned\"\nsize = 8\n";
            }
        }
        Ok(text)
    }
}

/// Of what is known so much at most may have the name of somebody else, however slow the machine is.
const INNOCENT: f64 = 0.2;

/// Checks kinds that were called so often: `share` of what they were blocked has the right root
/// causes, and less than the rest the name of anybody who had nothing to do with it. As much of the threads that make each other
/// wait is known at once, rounded up.
///
/// # Errors
///
/// With the rows of the first kind that has not.
pub fn check(
    kinds: &[Kind],
    calls: usize,
    share: f64,
    rows: &[Row],
    blamed: &[Blamed],
) -> Result<()> {
    for kind in kinds {
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| row.request == kind.victim)
            .collect();
        let blamed: Vec<_> = blamed
            .iter()
            .filter(|row| row.victim_request == kind.victim)
            .collect();
        check_kind(kind, calls, share, &rows, &blamed)
            .with_context(|| format!("{}: {blamed:#?}", kind.victim))?;
    }
    Ok(())
}

fn check_kind(
    kind: &Kind,
    calls: usize,
    share: f64,
    rows: &[&Row],
    blamed: &[&Blamed],
) -> Result<()> {
    let all = kind.requests * calls;
    ensure!(rows.len() == all, "{} requests of {all}", rows.len());
    let later = &rows[kind.unwatched * kind.requests..];
    let blocked: u64 = later.iter().flat_map(|row| row.causes.values()).sum();
    let of = |causes: &[&str]| -> u64 {
        let sums = later
            .iter()
            .flat_map(|row| causes.iter().map(|cause| row.causes[*cause]));
        sums.sum()
    };
    let (main, least) = kind.mainly;
    let mainly = of(main);
    ensure!(
        mainly > 0 && mainly as f64 >= least * blocked as f64,
        "{main:?}: {mainly} of {blocked} ns"
    );
    let right = of(kind.causes);
    ensure!(
        right as f64 >= share * blocked as f64,
        "{:?}: {right} of {blocked} ns",
        kind.causes
    );

    // Whoever is named has done it.
    let known = || blamed.iter().filter(|row| row.culprit_kind != "unknown");
    let all: u64 = known().map(|row| row.ns).sum();
    let sum_of = |culprits: &[Culprit]| -> u64 {
        let named = known().filter(|row| culprits.iter().any(|culprit| culprit.is_in(row)));
        named.map(|row| row.ns).sum()
    };
    ensure!(sum_of(&kind.culprits[..1]) * 4 > all, "they are not named");
    let innocent = all - sum_of(kind.culprits);
    ensure!(
        innocent as f64 <= (1.0 - share).min(INNOCENT) * all as f64,
        "innocent: {innocent} of {all} ns"
    );
    ensure!(
        blamed.iter().all(|row| row.culprit_comm != "c-innocent"),
        "somebody else is named"
    );
    let deepest = known().map(|row| row.depth).max();
    let wanted = (kind.depth as f64 * share).ceil() as u64;
    ensure!(
        deepest.is_some_and(|deepest| deepest >= wanted),
        "{deepest:?} threads made each other wait, not {wanted}"
    );
    Ok(())
}
