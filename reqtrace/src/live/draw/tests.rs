use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw;
use crate::live::Title;
use crate::live::snapshot::{
    HeldBy, RunningRequest, SlowRequest, Snapshot, StackShown, Stacks, StatementLine, TypeLine,
    held, holds,
};
use crate::live::state::{Page, State};
use reqtrace_analysis::report::blame::{Cause, CulpritKind, CulpritName};
use reqtrace_analysis::report::page::Holding;
use reqtrace_analysis::report::{OpenBlock, OpenRequest};
use reqtrace_base::plain::Plain;

fn open(request: &str, tid: u32, label: &str, running_ns: u64) -> OpenRequest {
    OpenRequest {
        request: request.to_owned(),
        pid: 4711,
        tid,
        comm: Plain::of("mariadbd"),
        label: Plain::of(label),
        running_ns,
        blocked: None,
        place: None,
    }
}

fn snapshot() -> Snapshot {
    let hung = RunningRequest {
        request: OpenRequest {
            blocked: Some(OpenBlock {
                for_ns: 31_900_000_000,
                class: "row lock".to_owned(),
                user: ["pthread_cond_wait", "lock_wait", "row_upd"]
                    .map(str::to_owned)
                    .into(),
                kernel: ["__schedule", "futex_wait"].map(str::to_owned).into(),
            }),
            ..open("command", 4730, "update t set n = n + 1", 32_100_000_000)
        },
        does: "row lock".to_owned(),
        for_ns: Some(31_900_000_000),
        held_by: None,
    };
    let busy = RunningRequest {
        request: open("command", 4731, "", 52_000),
        does: "on CPU".to_owned(),
        for_ns: None,
        held_by: None,
    };
    let time = |name: &str, ns| (name.to_owned(), ns);
    let command = TypeLine {
        name: "command".to_owned(),
        complete: 48_211,
        per_second: 8_012.4,
        latency: Some([52_100, 12_900_000, 214_000_000]),
        running: 2,
        rates: (0..30).map(|second| 7_000 + 100 * (second % 10)).collect(),
        latency_ns: 1_000,
        ledger: vec![
            time("redo log", 393),
            time("preempted", 310),
            time("on CPU", 150),
            time("run queue", 107),
            time("row lock", 30),
            time("InnoDB latch", 10),
        ],
        causes: Some(vec![("disk", 649), ("run queue", 242), ("on CPU", 43)]),
    };
    let slow = SlowRequest {
        request: "command".to_owned(),
        tid: 4735,
        label: Plain::of("COMMIT"),
        latency_ns: 214_000_000,
        mostly: Some(("redo log".to_owned(), 213_000_000)),
        place: "fdatasync ← fil_flush".to_owned(),
        ago: Duration::from_secs(12),
    };
    let statement = |text: &str, count, max_ns, parts: &[(&str, u64)]| StatementLine {
        request: "command".to_owned(),
        statement: Plain::of(text),
        count,
        latency_ns: parts.iter().map(|(_, ns)| ns).sum(),
        max_ns,
        parts: parts.iter().map(|(name, ns)| time(name, *ns)).collect(),
    };
    let stack = |what: &str, ns, frames: &[&str]| StackShown {
        what: what.to_owned(),
        ns,
        count: 3,
        longest_ns: ns / 2,
        short: "fdatasync ← fil_flush".to_owned(),
        frames: frames.iter().map(|name| (*name).to_owned()).collect(),
    };
    Snapshot {
        title: Arc::new(Title {
            profile: "mysql".to_owned(),
            processes: "mariadbd (pid 4711)".to_owned(),
            duration: None,
        }),
        elapsed: Duration::from_secs(34),
        overhead: Some([0.098, 0.142]),
        types: vec![
            command,
            TypeLine {
                name: "ping".to_owned(),
                ..TypeLine::default()
            },
        ],
        running: vec![hung, busy],
        ended: vec![SlowRequest {
            latency_ns: 41_000_000,
            ..slow.clone()
        }],
        all_running: 2,
        statements: vec![
            statement(
                "COMMIT",
                9_571,
                214_000_000,
                &[("redo log", 91_000_000_000), ("on CPU", 9_000_000_000)],
            ),
            statement("", 12, 60_000, &[("on CPU", 600_000)]),
        ],
        slowest: vec![slow],
        stacks: Some(Arc::new(Stacks {
            of: 0,
            all_ns: 10_000_000,
            lines: vec![
                stack(
                    "redo log",
                    6_000_000,
                    &["__schedule", "fdatasync", "a;b\u{1b}[2J"],
                ),
                stack("row lock", 4_000_000, &["__schedule", "futex_wait"]),
            ],
        })),
        ..Snapshot::default()
    }
}

/// The screen as text, without spaces at the ends of lines.
fn drawn(snapshot: &Snapshot, state: &mut State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame, snapshot, state, false))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(width));
    let lines: Vec<String> = rows
        .map(|row| {
            let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

#[test]
fn the_overview_fits_eighty_columns_and_twenty_four_lines() {
    let text = drawn(&snapshot(), &mut State::default(), 80, 24);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/live/draw/overview.txt");
    if std::env::var_os("REQTRACE_BLESS").is_some() {
        std::fs::write(file, format!("{text}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(file).unwrap();
    assert_eq!(text, expected.trim_end_matches('\n'));
}

#[test]
fn a_wide_screen_uses_the_room() {
    let text = drawn(&snapshot(), &mut State::default(), 140, 50);
    assert!(
        text.contains("ping") && text.contains("InnoDB latch"),
        "{text}"
    );
    assert!(
        text.contains("update t set n = n + 1 ← pthread_cond_wait ← lock_wait ← row_upd"),
        "{text}"
    );
}

#[test]
fn the_verdict_is_above_and_leaves_room() {
    let sentence = "slow `command` (214 of 3,000, each at least 5 × the median of 160 µs): 98 % of the excess is \
        metadata lock, and 99 % of that is thread 7575 (holder, orders), which ran on for 301 ms, 10 times";
    let snapshot = Snapshot {
        verdict: vec![sentence.to_owned(); 3],
        ..snapshot()
    };
    let text = drawn(&snapshot, &mut State::default(), 80, 24);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[2].starts_with("Verdict: slow `command` (214"),
        "{text}"
    );
    assert!(lines[7].starts_with("  TYPE"), "{text}");
    assert!(text.contains("32.1 s row lock"), "{text}");
    let text = drawn(&snapshot, &mut State::default(), 200, 60);
    assert_eq!(text.matches("301 ms, 10 times").count(), 3, "{text}");
}

#[test]
fn who_holds_up_whom_is_above_too() {
    let holding = Holding {
        victim: Plain::of("update t set n = n + ?"),
        class: Some(1),
        culprit: CulpritName {
            kind: CulpritKind::Thread,
            label: Plain::of("select sum(k) for update"),
            comm: Plain::of("mariadbd"),
            ..CulpritName::default()
        },
        cause: Cause::BetweenRequests,
    };
    let classes = ["disk", "row lock"].map(str::to_owned);
    let snapshot = Snapshot {
        held: Some(held(&(holding, 350_000_000), &classes)),
        ..snapshot()
    };
    let text = drawn(&snapshot, &mut State::default(), 160, 24);
    assert!(
        text.contains(
            "Now: update t set n = n + ? waited 350 ms, row lock, for thread mariadbd after select sum(k) for \
             update (between requests)"
        ),
        "{text}"
    );
}

#[test]
fn who_has_a_lock_is_known_while_others_wait_for_it() {
    let mut snapshot = snapshot();
    assert_eq!(holds(&snapshot.running), None);
    let held_by = |label| {
        Some(HeldBy {
            tid: 4731,
            label: Plain::of(label),
        })
    };
    let waiting = |tid, ns, label| RunningRequest {
        request: open("command", tid, "select 1", ns),
        does: "mutex".to_owned(),
        for_ns: Some(ns),
        held_by: held_by(label),
    };
    snapshot.running = vec![waiting(4732, 2_100_000_000, "")];
    let (sentence, ns) = holds(&snapshot.running).unwrap();
    assert_eq!(ns, 2_100_000_000);
    assert_eq!(
        sentence,
        "a request has waited 2.10 s so far, for a lock of thread 4731"
    );
    let other = RunningRequest {
        held_by: Some(HeldBy {
            tid: 4740,
            label: Plain::default(),
        }),
        ..waiting(4741, 2_500_000_000, "")
    };
    snapshot.running = vec![
        waiting(4732, 2_100_000_000, "call p()"),
        other,
        waiting(4733, 500_000_000, "call p()"),
    ];
    let (sentence, ns) = holds(&snapshot.running).unwrap();
    assert_eq!(ns, 2_600_000_000);
    assert_eq!(
        sentence,
        "2 requests have waited up to 2.10 s so far, for a lock of thread 4731, in call p()"
    );
    let text = drawn(&snapshot, &mut State::default(), 160, 24);
    assert!(
        text.contains("select 1 ← held by thread 4731, in call p()"),
        "{text}"
    );
}

#[test]
fn losses_and_messages_are_reported() {
    let snapshot = Snapshot {
        losses: vec![("ring_full".to_owned(), 1_234)],
        notices: vec!["reqtrace: at 3.0 s tracing takes 60 %".to_owned()],
        ..snapshot()
    };
    let mut state = State {
        is_frozen: true,
        ..State::default()
    };
    let text = drawn(&snapshot, &mut state, 120, 24);
    assert!(text.starts_with("FROZEN mysql"), "{text}");
    assert!(
        text.contains("lost: 1,234 × ring_full · at 3.0 s tracing takes 60 %"),
        "{text}"
    );
}

#[test]
fn pages_show_stacks_and_no_escapes() {
    let mut state = State {
        page: Page::Stacks,
        ..State::default()
    };
    let text = drawn(&snapshot(), &mut state, 80, 24);
    assert!(text.contains("60.0 %  6.00 ms"), "{text}");
    assert!(text.contains("  a:b [2J"), "{text}");
    state.page = Page::Running;
    let text = drawn(&snapshot(), &mut state, 80, 24);
    assert!(
        text.contains("command of pid 4711, thread 4730 (mariadbd): update t set n = n + 1"),
        "{text}"
    );
    assert!(
        text.contains("\n  __schedule\n  futex_wait\n  pthread_cond_wait\n"),
        "{text}"
    );
    state.page = Page::Statements;
    let text = drawn(&snapshot(), &mut state, 80, 24);
    assert!(
        text.contains("   9,571  10.4 ms   214 ms redo log        91.0 % `command` COMMIT"),
        "{text}"
    );
    assert!(text.contains("\n   91.0 %  9.51 ms redo log\n"), "{text}");
    assert!(text.contains("      12  50.0 µs  60.0 µs on CPU"), "{text}");
    state.page = Page::Slowest;
    let text = drawn(&snapshot(), &mut state, 80, 24);
    assert!(
        text.contains("  214 ms redo log           213 ms command         4735 12 s ago COMMIT"),
        "{text}"
    );
    assert!(
        text.contains("\nCOMMIT\n  fdatasync ← fil_flush\n"),
        "{text}"
    );
    state.page = Page::Running;
    // A line that is no longer there is not chosen.
    state.line = 99;
    drawn(&snapshot(), &mut state, 80, 24);
    assert_eq!(state.line, 1);
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (10, 3), (20, 6), (80, 5)] {
        for page in [
            Page::Overview,
            Page::Stacks,
            Page::Running,
            Page::Statements,
            Page::Slowest,
            Page::Help,
        ] {
            let mut state = State {
                page,
                ..State::default()
            };
            drawn(&snapshot(), &mut state, width, height);
            drawn(&Snapshot::default(), &mut state, width, height);
        }
    }
}
