//! Drawing: a snapshot and what the user has chosen in, one screen out. Everything is in words and
//! characters; colours only make it easier to read.

mod overview;
mod pages;
mod parts;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::snapshot::Snapshot;
use super::state::{Page, State};
use reqtrace_base::figures::{number, range};

/// Styles, with colours or without.
#[derive(Clone, Copy, Debug)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn coloured(self, colour: Color) -> Style {
        match self.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn title(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    fn bar(self) -> Style {
        self.coloured(Color::Blue)
    }

    fn warning(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot, state: &mut State, colour: bool) {
    let paint = Paint { colour };
    let rows = [
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [head, body, foot] = Layout::vertical(rows).areas(frame.area());
    lines(frame, head, header(snapshot, state, paint));
    match state.page {
        Page::Overview => overview::draw(frame, body, snapshot, state, paint),
        Page::Stacks => pages::stacks(frame, body, snapshot, state, paint),
        Page::Running => pages::running(frame, body, snapshot, state, paint),
        Page::Statements => pages::statements(frame, body, snapshot, state, paint),
        Page::Slowest => pages::slowest(frame, body, snapshot, state, paint),
        Page::Help => lines(frame, body, pages::help()),
    }
    lines(frame, foot, vec![footer(state)]);
}

fn lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

fn header<'a>(snapshot: &Snapshot, state: &State, paint: Paint) -> Vec<Line<'a>> {
    let title = &snapshot.title;
    let mut first = Vec::new();
    if state.is_frozen {
        first.push(Span::styled("FROZEN ", paint.warning()));
    }
    let length = match title.duration {
        Some(all) => format!("{} of {} s", snapshot.elapsed.as_secs(), all.as_secs_f64()),
        None => format!("{} s", snapshot.elapsed.as_secs()),
    };
    let complete: u64 = snapshot.types.iter().map(|line| line.complete).sum();
    first.push(Span::styled(
        format!("{} · {} · {length}", title.profile, title.processes),
        paint.title(),
    ));
    first.push(Span::raw(format!(" · {} requests", number(complete))));
    let mut second = Vec::new();
    if let Some(overhead) = snapshot.overhead {
        second.push(Span::raw(format!(
            "tracing takes {} of the processes' CPU time · ",
            range(overhead)
        )));
    }
    if snapshot.losses.is_empty() {
        second.push(Span::raw("nothing lost"));
    } else {
        let lost = snapshot.losses.iter();
        let lost: Vec<String> = lost
            .map(|(name, count)| format!("{} × {name}", number(*count)))
            .collect();
        second.push(Span::styled(
            format!("lost: {}", lost.join(", ")),
            paint.warning(),
        ));
    }
    if let Some(notice) = snapshot.notices.last() {
        let notice = notice.strip_prefix("reqtrace: ").unwrap_or(notice);
        second.push(Span::raw(format!(" · {}", notice.replace('\n', " "))));
    }
    vec![Line::from(first), Line::from(second)]
}

fn footer<'a>(state: &State) -> Line<'a> {
    let order = state.order.words();
    let keys = match state.page {
        Page::Overview => {
            format!(
                "q end  f freeze  s order: {order}  ↑↓ Enter stacks  n running  t statements  ? help"
            )
        }
        Page::Stacks | Page::Running | Page::Statements | Page::Slowest => {
            "q end  f freeze  ↑↓ line  PgUp PgDn scroll  Esc back  ? help".to_owned()
        }
        Page::Help => "Esc back".to_owned(),
    };
    Line::styled(keys, Style::new().add_modifier(Modifier::DIM))
}

#[cfg(test)]
mod tests;
