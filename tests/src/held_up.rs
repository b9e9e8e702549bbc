//! Services whose handlers wait for what is known: traced with blame, each kind of wait by a client of its own, beside
//! other clients that ask for what is answered at once.
//!
//! In: a service and its profile. Out: who held its requests up, against the clocks of handlers, of who has the lock, and
//! of the upstream.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::blamed::{self, Blamed};
use crate::covered::Answer;
use crate::hyper::{self, Load};
use crate::jobs::{self, INNOCENT, SHARE};
use crate::process::Child;
use crate::reqtrace::Trace;
use crate::rows::Row;
use crate::workspace;

/// Requests of each kind that waits.
const REQUESTS: u64 = 100;

/// What a handler does that is answered at once.
const AT_ONCE: &str = "at-once";

/// How many times as many of those there are as of a kind that waits.
const TIMES: u64 = 10;

/// Connections by which others ask for what is answered at once, each some 500 times a second.
const OTHERS: u64 = 6;

/// How much of a wait may have no known cause.
const UNKNOWN: f64 = 0.05;

/// How much longer than by its clock who lets something come may be the culprit: it reads its clock, and does so then.
const MOST_UNTIL: f64 = 1.02;

/// A service that runs, and how it is traced.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// `http1`, `http2` or `grpc`.
    pub protocol: &'static str,
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub address: &'a str,
    /// The profile, whose attribute has the kind.
    pub profile: &'a Path,
    /// That attribute.
    pub attribute: &'a str,
    /// Whether the places of its parked time are tokio's.
    pub is_tokio: bool,
    /// Whether its runtime has several threads: on one, no function of tokio tells that a task makes another one ready.
    pub has_threads: bool,
}

/// A kind of handler that waits.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// On the command line of the client.
    option: &'static [&'static str],
    /// The place of its parked time where that is tokio's, as the names of columns have it.
    place: &'static str,
    /// Where it may be beside that.
    beside: &'static [&'static str],
    /// Whether a row of `blame.csv` says for what. What waits for what is no request: nobody.
    is_right: Option<fn(&Blamed) -> bool>,
    /// Who lets it go on has the clock of that. A culprit beside that is of something else, such as of data that has come and
    /// that its runtime has not seen yet.
    by_clock: bool,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "sleeps",
        option: &["--kind", "sleeps"],
        place: "tokio_timer",
        beside: &[],
        is_right: Some(by_timer),
        by_clock: false,
    },
    Kind {
        name: "holds",
        option: &["--kind", "holds"],
        place: "tokio_timer",
        // Who is to have the lock may wait for one that has it just then.
        beside: &["tokio_lock"],
        is_right: Some(by_timer),
        by_clock: false,
    },
    Kind {
        name: "locks",
        // So that one that holds it comes first.
        option: &["--kind", "locks", "--pause", "3"],
        place: "tokio_lock",
        beside: &[],
        is_right: Some(|row| row.culprit_kind == "request" && is_of("holds", &row.culprit_label)),
        by_clock: true,
    },
    Kind {
        name: "asks",
        option: &["--kind", "asks"],
        place: "tokio_socket",
        beside: &[],
        is_right: Some(|row| row.culprit_kind == "thread" && row.culprit_comm == "upstream"),
        by_clock: true,
    },
];

/// Of tokio only: it waits for a job of the blocking pool.
const BLOCKS: Kind = Kind {
    name: "blocks",
    option: &["--kind", "blocks"],
    place: "tokio_spawn_blocking",
    beside: &["waited_for_the_blocking_pool"],
    is_right: None,
    by_clock: false,
};

/// For another task.
const JOINS: Kind = Kind {
    name: "joins",
    option: &["--kind", "joins"],
    place: "tokio_join",
    beside: &[],
    is_right: None,
    by_clock: false,
};

/// For a task that notifies it.
const RINGS: Kind = Kind {
    name: "rings",
    option: &["--kind", "rings"],
    place: "tokio_notify",
    beside: &[],
    is_right: None,
    by_clock: false,
};

/// For one that sends, by no function of tokio that a stack has.
const ANSWERS: Kind = Kind {
    name: "answers",
    option: &["--kind", "answers"],
    place: "tokio_channel",
    beside: &[],
    is_right: None,
    by_clock: false,
};

impl Service<'_> {
    fn kinds(&self) -> Vec<Kind> {
        let of_tokio = [BLOCKS, RINGS, ANSWERS, JOINS].into_iter();
        let of_tokio = of_tokio.filter(|_| self.is_tokio);
        KINDS.into_iter().chain(of_tokio).collect()
    }
}

/// Whether a kind, a path or a method is this kind.
fn is_of(kind: &str, label: &str) -> bool {
    label.split('/').any(|part| part == kind)
}

fn by_timer(row: &Blamed) -> bool {
    row.culprit_kind == "interrupt" && row.root_cause == "timer"
}

/// A profile of the program's with the attribute `kind`, which handlers of the example `web` say.
///
/// # Errors
///
/// When it cannot be read or written.
pub fn with_kinds(profile: &str, folder: &Path) -> Result<PathBuf> {
    const KIND: &str = "\n[[request.attribute]]\nname = \"kind\"\nfunction = \"web_handles\"\n\
                        arg = 0\nlength = { arg = 1 }\n";
    let text = fs::read_to_string(workspace::root().join(format!("profiles/{profile}.toml")))?;
    let path = folder.join(format!("{profile}.toml"));
    fs::write(&path, text + KIND)?;
    Ok(path)
}

/// Checks that waits of each kind are blamed on what they were for.
///
/// # Errors
///
/// With the kind of which that does not hold.
pub fn check(service: Service<'_>) -> Result<()> {
    let more = ["--blame", "--group-by", service.attribute];
    let trace = Trace::start(service.profile, service.pid, &more)?;
    let answers = loads(service)?;
    let outcome = trace.finish()?;
    let summary = outcome.checked()?;
    if service.is_tokio {
        let places = service.kinds().into_iter().map(|kind| kind.place);
        stacks(
            &outcome.folded()?,
            places.filter(|place| *place != "tokio_socket"),
        )?;
    }
    let (rows, blamed) = blamed::of(&outcome)?;
    let at_once = rows
        .iter()
        .filter(|row| is_of(AT_ONCE, &row.attributes[service.attribute]));
    let all = rows.len() as u64;
    println!("{service:?}: {} of {all} at once", at_once.clone().count());
    ensure!(
        at_once.count() as u64 >= TIMES * REQUESTS,
        "{all} requests: too few others: {:?}",
        summary.requests
    );
    for (kind, answers) in service.kinds().into_iter().zip(answers) {
        let of_kind: Vec<&Row> = rows
            .iter()
            .filter(|row| is_of(kind.name, &row.attributes[service.attribute]))
            .collect();
        if service.is_tokio {
            reasons(kind, &of_kind).with_context(|| format!("{}: {of_kind:#?}", kind.name))?;
        }
        let Some(is_right) = kind.is_right else {
            continue;
        };
        held_up(&blamed, kind, is_right, &answers).with_context(|| {
            let is_kind = |row: &&Blamed| is_of(kind.name, &row.victim_label);
            let rows: Vec<_> = blamed.iter().filter(is_kind).collect();
            format!("{}: {rows:#?}", kind.name)
        })?;
    }
    Ok(())
}

/// Checks that parked time has the name of what handlers waited for, though the task of their connection looks at more than that: at
/// its socket, and at what tells it to shut down.
fn reasons(kind: Kind, rows: &[&Row]) -> Result<()> {
    let in_place = |place: &str| -> u64 { rows.iter().map(|row| jobs::in_place(row, place)).sum() };
    let parked: u64 = rows.iter().map(|row| row.parked_ns).sum();
    let own = in_place(kind.place);
    let beside: u64 = kind.beside.iter().map(|place| in_place(place)).sum();
    println!(
        "{}: {own} ns of {parked} in {}, {beside} beside",
        kind.name, kind.place
    );
    let named = (own + beside) as f64;
    ensure!(
        own > 0 && named >= SHARE * parked as f64,
        "{named} of {parked} ns are named right"
    );
    Ok(())
}

/// Checks that what is parked at these places has the stack of that, and not the one at which its connection's task looked whether to
/// shut down.
fn stacks(folded: &str, places: impl Iterator<Item = &'static str>) -> Result<()> {
    for place in places.map(|place| place.replace("tokio_", "tokio ")) {
        let parked = format!("[parked: {place}]");
        let (mut all, mut elsewhere) = (0, 0);
        for line in folded.lines().filter(|line| line.contains(&parked)) {
            let (stack, us) = line.rsplit_once(' ').context("no number")?;
            let us: u64 = us.parse()?;
            all += us;
            let is_elsewhere = match place.as_str() {
                "tokio notify" => stack.contains("::fuse::Fuse"),
                _ => stack.contains("::notify::"),
            };
            elsewhere += if is_elsewhere { us } else { 0 };
        }
        println!("{place}: {elsewhere} of {all} us at the stack of a notification");
        ensure!(
            all > 0 && elsewhere as f64 <= (1.0 - SHARE) * all as f64,
            "{place}: {elsewhere} of {all} us have the stack of something else: {folded}"
        );
    }
    Ok(())
}

/// The answers to each kind, all of which are asked for at a time.
fn loads(service: Service<'_>) -> Result<Vec<Vec<Answer>>> {
    let load = |requests, connections, more| Load {
        protocol: service.protocol,
        connections,
        streams: 1,
        requests,
        more,
    };
    let folder = workspace::scratch()?;
    let others = load(u64::MAX, OTHERS, &["--kind", AT_ONCE, "--pause", "1"]);
    let others = hyper::command(service.address, others)?;
    let _others = Child::start(others, folder.path(), "others")?;
    let of_kinds = service.kinds().into_iter();
    let of_kinds = of_kinds.map(|kind| load(REQUESTS, 1, kind.option));
    thread::scope(|scope| {
        let running: Vec<_> = of_kinds
            .map(|load| scope.spawn(move || hyper::load(service.address, load)))
            .collect();
        let ended = running.into_iter().map(|one| match one.join() {
            Ok(loaded) => Ok(loaded?.answers),
            Err(_) => anyhow::bail!("a load panicked"),
        });
        ended.collect()
    })
}

/// Checks who held up the requests of a kind. Its handlers have the clock of when what they waited for came.
fn held_up(
    blamed: &[Blamed],
    kind: Kind,
    is_right: fn(&Blamed) -> bool,
    answers: &[Answer],
) -> Result<()> {
    let waits =
        |row: &Blamed| is_of(kind.name, &row.victim_label) && row.wait_class.starts_with("parked");
    let is_known = |row: &Blamed| row.root_cause != "unknown";
    // A handler that lost its turn may look at its clock when the answer has come.
    let until = answers
        .iter()
        .map(|answer| answer.came.saturating_sub(answer.waits));
    let until: u64 = until.sum();
    let all = blamed::sum(blamed, waits);
    let known = blamed::sum(blamed, |row| waits(row) && is_known(row));
    let right = |row: &Blamed| waits(row) && is_known(row) && is_right(row);
    let right = blamed::sum(blamed, right);
    let (others, unknown) = (known - right, all - known);
    let of_all = |ns: u64| 100.0 * ns as f64 / all as f64;
    println!(
        "{}: parked for {} µs, {} µs until it came; {:.2} % right, {:.2} % others, {:.2} % not known",
        kind.name,
        all / 1000,
        until / 1000,
        of_all(right),
        of_all(others),
        of_all(unknown)
    );
    ensure!(
        until > 0 && all >= until / 2,
        "{all} ns parked, {until} until it came"
    );
    let beside = match kind.by_clock {
        true => all.saturating_sub(until),
        // Who is to have the lock may wait for one that has it just then.
        false => answers.iter().map(|one| one.waits - one.begun).sum(),
    };
    let whole = all.saturating_sub(beside);
    ensure!(
        right as f64 >= SHARE * whole as f64,
        "{right} of {whole} ns are right"
    );
    // Who has let it come is no culprit from then on.
    ensure!(
        !kind.by_clock || right as f64 <= MOST_UNTIL * until as f64,
        "{right} ns because of who let it come after {until}"
    );
    let most = INNOCENT * all as f64 + beside as f64;
    ensure!(
        others as f64 <= most,
        "{others} of {all} ns because of others, {beside} beside"
    );
    ensure!(
        unknown as f64 <= UNKNOWN * all as f64,
        "{unknown} of {all} ns not known"
    );
    Ok(())
}
