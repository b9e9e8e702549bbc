//! The other pages: stacks of a type, requests that run with their stacks, statements, the slowest requests, and
//! the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

use super::overview::{
    RUNNING, running_line, slow_line, statement_line, statement_name, statement_title,
};
use super::parts::{Cell, row};
use super::{Paint, lines};
use crate::live::snapshot::{RunningRequest, Snapshot, StackShown};
use crate::live::state::State;
use reqtrace_base::figures::{duration, number, share};
use reqtrace_base::names::clean;

/// Columns of stacks.
const STACKS: [Cell; 5] = [
    Cell::Right(7),
    Cell::Right(8),
    Cell::Right(9),
    Cell::Right(8),
    Cell::Left(16),
];

/// Stacks, and all frames of the chosen one below.
pub(super) fn stacks(
    frame: &mut Frame<'_>,
    area: Rect,
    snapshot: &Snapshot,
    state: &mut State,
    paint: Paint,
) {
    let chosen = state.chosen(snapshot);
    let stacks = snapshot.stacks.as_ref();
    let Some(stacks) = stacks.filter(|stacks| Some(stacks.of) == chosen) else {
        return lines(
            frame,
            area,
            vec![Line::raw("the stacks come with the next second…")],
        );
    };
    let name = chosen.map_or("", |index| &snapshot.types[index].name);
    let names = ["SHARE", "TIME", "TIMES", "LONGEST", "IN"];
    let words = format!("stacks of `{name}` since the start");
    let line = |stack: &StackShown| {
        let texts = [
            share(stack.ns, stacks.all_ns),
            duration(stack.ns),
            number(stack.count),
            duration(stack.longest_ns),
            stack.what.clone(),
        ];
        row(&STACKS, &texts.each_ref().map(String::as_str), &stack.short)
    };
    let list: Vec<String> = stacks.lines.iter().map(line).collect();
    let frames = stacks
        .lines
        .get(state.line)
        .map(|stack| stack.frames.as_slice());
    let title = row(&STACKS, &names, &words);
    let below = "innermost first";
    split(
        frame,
        area,
        (&title, &list),
        (below, frames.unwrap_or_default()),
        state,
        paint,
    );
}

/// Requests that run, and all frames of where the chosen one is blocked below.
pub(super) fn running(
    frame: &mut Frame<'_>,
    area: Rect,
    snapshot: &Snapshot,
    state: &mut State,
    paint: Paint,
) {
    let list: Vec<String> = snapshot.running.iter().map(running_line).collect();
    let chosen = snapshot.running.get(state.line);
    let frames: Vec<String> = chosen
        .and_then(|running| running.request.blocked.as_ref())
        .map(|block| block.kernel.iter().chain(&block.user).cloned().collect())
        .unwrap_or_default();
    let below = chosen.map_or_else(String::new, about);
    let title = match snapshot.all_running {
        0 => "requests that run now".to_owned(),
        1 => "1 request runs".to_owned(),
        all => format!(
            "{} requests run; the {} that began first",
            number(all as u64),
            snapshot.running.len()
        ),
    };
    split(
        frame,
        area,
        (&title, &list),
        (&below, &frames),
        state,
        paint,
    );
}

/// Statements of the last minute, and where the time of the chosen one went below.
pub(super) fn statements(
    frame: &mut Frame<'_>,
    area: Rect,
    snapshot: &Snapshot,
    state: &mut State,
    paint: Paint,
) {
    let has_types = snapshot.types.len() > 1;
    let lines = snapshot.statements.iter();
    let list: Vec<String> = lines.map(|line| statement_line(line, has_types)).collect();
    let chosen = snapshot.statements.get(state.line);
    let below = chosen.map_or_else(String::new, |line| statement_name(line, has_types));
    let parts = chosen.map_or_else(Vec::new, |line| {
        let part = |(name, ns): &(String, u64)| {
            let each = duration(ns / line.count.max(1));
            format!("{:>7} {each:>8} {name}", share(*ns, line.latency_ns))
        };
        line.parts.iter().map(part).collect()
    });
    split(
        frame,
        area,
        (&statement_title(), &list),
        (&below, &parts),
        state,
        paint,
    );
}

/// The slowest requests of the last minute, and all of the chosen one's label below.
pub(super) fn slowest(
    frame: &mut Frame<'_>,
    area: Rect,
    snapshot: &Snapshot,
    state: &mut State,
    paint: Paint,
) {
    let names = ["SLOWEST", "MOSTLY", "", "TYPE", "THREAD"];
    let title = row(&RUNNING, &names, "of the last minute");
    let list: Vec<String> = snapshot
        .slowest
        .iter()
        .map(|slow| slow_line(slow, &format!("{} s ago ", slow.ago.as_secs())))
        .collect();
    let chosen = snapshot.slowest.get(state.line);
    let below = chosen.map_or_else(String::new, |slow| slow.label.to_string());
    let place = chosen.map(|slow| slow.place.clone());
    let place: Vec<String> = place.into_iter().filter(|text| !text.is_empty()).collect();
    split(frame, area, (&title, &list), (&below, &place), state, paint);
}

fn about(running: &RunningRequest) -> String {
    let request = &running.request;
    let label = match request.label.is_empty() {
        true => String::new(),
        false => format!(": {}", request.label),
    };
    format!(
        "{} of pid {}, thread {} ({}){label}",
        request.request, request.pid, request.tid, request.comm
    )
}

/// A list, and below it what there is to say of the chosen line.
fn split(
    frame: &mut Frame<'_>,
    area: Rect,
    (title, list): (&str, &[String]),
    (below, frames): (&str, &[String]),
    state: &mut State,
    paint: Paint,
) {
    let [above, under] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    state.line = state.line.min(list.len().saturating_sub(1));
    let room = usize::from(above.height).saturating_sub(1);
    let first = (state.line + 1).saturating_sub(room);
    let mut drawn = vec![Line::styled(title.to_owned(), paint.title())];
    for (index, text) in list.iter().enumerate().skip(first).take(room) {
        let style = match index == state.line {
            true => paint.chosen(),
            false => ratatui::style::Style::new(),
        };
        drawn.push(Line::styled(text.clone(), style));
    }
    if list.is_empty() {
        drawn.push(Line::raw("none"));
    }
    lines(frame, above, drawn);
    let room = usize::from(under.height).saturating_sub(1);
    state.scrolled = state.scrolled.min(frames.len().saturating_sub(room));
    let mut drawn = vec![Line::styled(below.to_owned(), paint.title())];
    let shown = frames.iter().skip(state.scrolled).take(room);
    drawn.extend(shown.map(|name| Line::raw(format!("  {}", clean(name)))));
    lines(frame, under, drawn);
}

/// What the keys do, and what the words mean.
pub(super) fn help<'a>() -> Vec<Line<'a>> {
    [
        "q, Ctrl-C   end the trace; the report follows",
        "f, space    freeze the picture; the trace goes on",
        "s           order of types: time, rate, p99, name",
        "↑ ↓, k j    another type, or another line",
        "Enter       the stacks of the type since the start",
        "n           requests that run, each with its stack",
        "t           statements of the last minute, each with where its time went",
        "l           the slowest requests of the last minute",
        "PgUp PgDn   scroll a stack",
        "Esc         back",
        "",
        "Rates, percentiles, the time and root causes are of the last 10 seconds; percentiles",
        "are up to 6 % high. IN is what a request does: a wait class, run queue, preempted or",
        "on CPU, and FOR how long; of one that has ended it is most of its time.",
        "`Now:` is who held requests up most that ended in the last two seconds.",
        "Root causes need --blame, statements and paths --labels.",
    ]
    .map(Line::raw)
    .into()
}
