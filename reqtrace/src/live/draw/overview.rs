//! The first page: the verdict if there is one, who holds up whom, types, where the time of the chosen one goes, the longest
//! requests of the last second, and which statements took time.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::parts::{Cell, bar, row, sparkline};
use super::{Paint, lines};
use crate::live::snapshot::{RunningRequest, SlowRequest, Snapshot, StatementLine, TypeLine};
use crate::live::state::State;
use reqtrace_base::figures::{cut, duration, number, share};

/// Columns of types.
const TYPES: [Cell; 7] = [
    Cell::Left(1),
    Cell::Left(16),
    Cell::Right(8),
    Cell::Right(8),
    Cell::Right(8),
    Cell::Right(8),
    Cell::Right(7),
];
/// Columns of requests.
pub(super) const RUNNING: [Cell; 5] = [
    Cell::Right(8),
    Cell::Left(16),
    Cell::Right(8),
    Cell::Left(12),
    Cell::Right(7),
];
/// Columns of statements.
const STATEMENTS: [Cell; 5] = [
    Cell::Right(8),
    Cell::Right(8),
    Cell::Right(8),
    Cell::Left(14),
    Cell::Right(7),
];
/// What a sentence of the verdict begins with, and the one of who holds up whom.
const VERDICT: &str = "Verdict: ";
const HELD: &str = "Now: ";
/// Widest name of a part of the time.
const NAME: usize = 17;

pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    snapshot: &Snapshot,
    state: &State,
    paint: Paint,
) {
    if snapshot.types.is_empty() {
        return lines(frame, area, vec![Line::raw("the first second…")]);
    }
    let (of_verdict, area) = verdict_above(snapshot, area);
    let verdict = Paragraph::new(verdict_lines(snapshot, paint)).wrap(Wrap { trim: true });
    frame.render_widget(verdict, of_verdict);
    let height = usize::from(area.height);
    // A terminal of 24 lines has one type, five parts, and six requests that run.
    let types = snapshot.types.len().min(height / 8).max(1);
    let parts = (height / 4).clamp(3, 12);
    let statements = (height / 6).clamp(1, 10);
    let rows = [
        Constraint::Length(types as u16 + 1),
        Constraint::Length(parts as u16 + 1),
        Constraint::Fill(1),
        Constraint::Length(statements as u16 + 1),
    ];
    let [of_types, of_time, of_running, of_statements] = Layout::vertical(rows).areas(area);
    lines(
        frame,
        of_types,
        type_lines(snapshot, state, paint, of_types),
    );
    if let Some(chosen) = state.chosen(snapshot) {
        time(frame, of_time, &snapshot.types[chosen], paint);
    }
    lines(frame, of_running, running(snapshot, paint, of_running));
    lines(
        frame,
        of_statements,
        by_statement(snapshot, paint, of_statements),
    );
}

/// Room for the verdict, and the rest: it has a quarter of the page at most.
fn verdict_above(snapshot: &Snapshot, area: Rect) -> (Rect, Rect) {
    let characters = |(title, sentence): (&str, &String)| title.len() + sentence.chars().count();
    // Words do not fill their lines.
    let width = usize::from(area.width).saturating_sub(8).max(1);
    let wanted: usize = sentences(snapshot)
        .map(|sentence| characters(sentence).div_ceil(width))
        .sum();
    let height = wanted.min(usize::from(area.height) / 4);
    let rows = [Constraint::Length(height as u16), Constraint::Fill(1)];
    let [verdict, rest] = Layout::vertical(rows).areas(area);
    (verdict, rest)
}

/// The verdict, and who holds up whom.
fn sentences(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, &String)> {
    let verdict = snapshot.verdict.iter().map(|sentence| (VERDICT, sentence));
    verdict.chain(snapshot.held.iter().map(|sentence| (HELD, sentence)))
}

fn verdict_lines<'a>(snapshot: &Snapshot, paint: Paint) -> Vec<Line<'a>> {
    let lines = sentences(snapshot).map(|(title, sentence)| {
        Line::from(vec![
            Span::styled(title, paint.title()),
            Span::raw(sentence.clone()),
        ])
    });
    lines.collect()
}

fn type_lines<'a>(snapshot: &Snapshot, state: &State, paint: Paint, area: Rect) -> Vec<Line<'a>> {
    let order = state.types(snapshot);
    let chosen = state.chosen(snapshot);
    let shown = usize::from(area.height).saturating_sub(1);
    let at = order.iter().position(|index| Some(*index) == chosen);
    let first = (at.unwrap_or(0) + 1).saturating_sub(shown);
    let more = order.len().saturating_sub(shown);
    let words = match more {
        0 => "last minute".to_owned(),
        more => format!("{more} more: ↑↓"),
    };
    let names = ["", "TYPE", "RATE/S", "P50", "P99", "MAX", "RUNNING"];
    let mut drawn = vec![Line::styled(row(&TYPES, &names, &words), paint.title())];
    let width = usize::from(area.width).saturating_sub(row(&TYPES, &names, "").chars().count());
    for index in order.iter().skip(first).take(shown) {
        let line = &snapshot.types[*index];
        let is_chosen = Some(*index) == chosen;
        let text = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), duration);
        let latency = [0, 1, 2].map(|at| text(line.latency.map(|latency| latency[at])));
        let rate = match line.per_second {
            rate if rate >= 99.95 => number(rate.round() as u64),
            rate => format!("{rate:.1}"),
        };
        let texts = [
            if is_chosen { ">" } else { "" },
            &line.name,
            &rate,
            &latency[0],
            &latency[1],
            &latency[2],
            &line.running.to_string(),
        ];
        let numbers = row(&TYPES, &texts, "");
        let style = if is_chosen {
            paint.chosen()
        } else {
            paint.coloured(ratatui::style::Color::Reset)
        };
        drawn.push(Line::from(vec![
            Span::styled(numbers, style),
            Span::styled(sparkline(&line.rates, width.min(60)), paint.bar()),
        ]));
    }
    drawn
}

/// Where the time of a type goes, and beside it what its blocked time comes down to.
fn time(frame: &mut Frame<'_>, area: Rect, line: &TypeLine, paint: Paint) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(area);
    let (left, right) = match &line.causes {
        Some(_) => (left, Some(right)),
        None => (area, None),
    };
    let title = format!("TIME OF `{}`, last 10 s", line.name);
    let parts = line.ledger.iter().map(|(name, ns)| (name.as_str(), *ns));
    lines(
        frame,
        left,
        shares(&title, parts.collect(), line.latency_ns, left, paint),
    );
    if let (Some(area), Some(causes)) = (right, &line.causes) {
        let all = causes.iter().map(|(_, ns)| ns).sum();
        let title = "ROOT CAUSES of blocked time";
        lines(frame, area, shares(title, causes.clone(), all, area, paint));
    }
}

fn shares<'a>(
    title: &str,
    parts: Vec<(&str, u64)>,
    whole: u64,
    area: Rect,
    paint: Paint,
) -> Vec<Line<'a>> {
    let width = usize::from(area.width);
    let mut drawn = vec![Line::styled(
        cut(title, width.saturating_sub(1)),
        paint.title(),
    )];
    let room = usize::from(area.height).saturating_sub(1);
    let cells = width.saturating_sub(NAME + 10).min(40);
    // The last line is for all that have none.
    let shown = match parts.len() <= room {
        true => parts.len(),
        false => room.saturating_sub(1),
    };
    let left_out = parts.len() - shown;
    for (name, ns) in &parts[..shown] {
        drawn.push(share_line(name, *ns, whole, cells, paint));
    }
    if left_out > 0 {
        let rest = parts[shown..].iter().map(|(_, ns)| ns).sum();
        let name = format!("{left_out} more");
        drawn.push(share_line(&name, rest, whole, cells, paint));
    }
    if parts.is_empty() {
        drawn.push(Line::raw(" nothing"));
    }
    drawn
}

fn share_line<'a>(name: &str, ns: u64, whole: u64, cells: usize, paint: Paint) -> Line<'a> {
    let cells_of = row(
        &[Cell::Left(NAME), Cell::Right(7)],
        &[name, &share(ns, whole)],
        "",
    );
    Line::from(vec![
        Span::raw(format!(" {cells_of}")),
        Span::styled(bar(ns, whole, cells), paint.bar()),
    ])
}

fn running<'a>(snapshot: &Snapshot, paint: Paint, area: Rect) -> Vec<Line<'a>> {
    let names = ["LONGEST", "IN", "FOR", "TYPE", "THREAD"];
    let all = number(snapshot.all_running as u64);
    let words = format!("{all} run; last second");
    let mut drawn = vec![Line::styled(row(&RUNNING, &names, &words), paint.title())];
    let room = usize::from(area.height).saturating_sub(1);
    let open = snapshot.running.iter();
    let mut all: Vec<(u64, String)> = open
        .map(|open| (open.request.running_ns, running_line(open)))
        .collect();
    let ended = snapshot.ended.iter();
    all.extend(ended.map(|ended| (ended.latency_ns, slow_line(ended, "ended: "))));
    all.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    drawn.extend(all.into_iter().take(room).map(|(_, line)| Line::raw(line)));
    drawn
}

/// A request that has ended, in a line; `when` comes before its label.
pub(super) fn slow_line(request: &SlowRequest, when: &str) -> String {
    let (part, time) = match &request.mostly {
        Some((name, ns)) => (name.as_str(), duration(*ns)),
        None => ("-", String::new()),
    };
    let tid = request.tid.to_string();
    let latency = duration(request.latency_ns);
    let texts = [latency.as_str(), part, &time, &request.request, &tid];
    let text = with_place(&request.label, &request.place);
    row(&RUNNING, &texts, &format!("{when}{text}"))
}

/// One request that runs, in a line.
pub(super) fn running_line(request: &RunningRequest) -> String {
    let RunningRequest {
        request,
        does,
        for_ns,
        held_by,
    } = request;
    let since = for_ns.map_or_else(String::new, duration);
    let tid = request.tid.to_string();
    let running = duration(request.running_ns);
    let texts = [running.as_str(), does, &since, &request.request, &tid];
    let place = request.blocked.as_ref().map(|block| {
        let user = block.user.iter().map(String::as_str);
        let kernel = block.kernel.iter().map(String::as_str);
        reqtrace_base::names::telling(user, kernel).join(" ← ")
    });
    let place = place.unwrap_or_default();
    let waits = match held_by {
        Some(held_by) => with_place(&format!("held by {}", held_by.words()), &place),
        None => place,
    };
    row(&RUNNING, &texts, &with_place(&request.label, &waits))
}

/// The label, and then the place.
fn with_place(label: &str, place: &str) -> String {
    match (label.is_empty(), place.is_empty()) {
        (true, _) => place.to_owned(),
        (false, true) => label.to_owned(),
        (false, false) => format!("{label} ← {place}"),
    }
}

fn by_statement<'a>(snapshot: &Snapshot, paint: Paint, area: Rect) -> Vec<Line<'a>> {
    let mut drawn = vec![Line::styled(statement_title(), paint.title())];
    let room = usize::from(area.height).saturating_sub(1);
    let has_types = snapshot.types.len() > 1;
    let shown = snapshot.statements.iter().take(room);
    drawn.extend(shown.map(|line| Line::raw(statement_line(line, has_types))));
    drawn
}

/// Names of the columns of statements.
pub(super) fn statement_title() -> String {
    let names = ["COUNT", "MEAN", "MAX", "MOSTLY", ""];
    row(&STATEMENTS, &names, "STATEMENT, last minute")
}

/// Requests of one statement, in a line.
pub(super) fn statement_line(line: &StatementLine, has_types: bool) -> String {
    let (part, part_share) = match line.parts.first() {
        Some((name, ns)) => (name.as_str(), share(*ns, line.latency_ns)),
        None => ("-", String::new()),
    };
    let texts = [
        number(line.count),
        duration(line.latency_ns / line.count.max(1)),
        duration(line.max_ns),
        part.to_owned(),
        part_share,
    ];
    row(
        &STATEMENTS,
        &texts.each_ref().map(String::as_str),
        &statement_name(line, has_types),
    )
}

/// What a statement is called; without labels, and with several types, by the request type.
pub(super) fn statement_name(line: &StatementLine, has_types: bool) -> String {
    match (line.statement.is_empty(), has_types) {
        (true, _) => format!("`{}`", line.request),
        (false, true) => format!("`{}` {}", line.request, line.statement),
        (false, false) => line.statement.to_string(),
    }
}
