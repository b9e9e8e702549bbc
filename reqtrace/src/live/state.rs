//! What the user has chosen: keys in; which page, which line, which order out.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::snapshot::{Snapshot, TypeLine};

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    /// All in a few lines.
    #[default]
    Overview,
    /// The stacks of the chosen type.
    Stacks,
    /// The requests that are open, and the stack of the chosen one.
    Running,
    /// Statements of the last minute.
    Statements,
    /// The slowest requests of the last minute.
    Slowest,
    /// The keys.
    Help,
}

/// The order of request types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The most time first.
    #[default]
    Time,
    /// The most requests a second first.
    Rate,
    /// The highest 99th percentile first.
    P99,
    /// By name.
    Name,
}

impl Order {
    /// What it is by, in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Rate => "rate",
            Self::P99 => "p99",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Time => Self::Rate,
            Self::Rate => Self::P99,
            Self::P99 => Self::Name,
            Self::Name => Self::Time,
        }
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The end of the trace.
    Quit,
    /// Another picture, or the same.
    Draw,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) page: Page,
    pub(super) order: Order,
    /// The picture stands still.
    pub(super) is_frozen: bool,
    /// Index of the chosen type, once one is chosen: the first of the order until then.
    pub(super) choice: Option<usize>,
    /// The chosen line of a page with lines.
    pub(super) line: usize,
    /// Lines of a stack that are scrolled away.
    pub(super) scrolled: usize,
}

impl State {
    /// Indices of the types in their order.
    pub(super) fn types(&self, snapshot: &Snapshot) -> Vec<usize> {
        let types = &snapshot.types;
        let mut order: Vec<usize> = (0..types.len()).collect();
        let p99 = |line: &TypeLine| line.latency.map_or(0, |[_, p99, _]| p99);
        order.sort_by(|&one, &two| {
            let (one, two) = (&types[one], &types[two]);
            match self.order {
                Order::Time => two.latency_ns.cmp(&one.latency_ns),
                Order::Rate => two.per_second.total_cmp(&one.per_second),
                Order::P99 => p99(two).cmp(&p99(one)),
                Order::Name => one.name.cmp(&two.name),
            }
        });
        order
    }

    /// Index of the chosen type.
    pub(super) fn chosen(&self, snapshot: &Snapshot) -> Option<usize> {
        let there = self.choice.filter(|index| *index < snapshot.types.len());
        there.or_else(|| self.types(snapshot).first().copied())
    }

    /// The type whose stacks are wanted.
    pub(super) fn wants_stacks(&self, snapshot: &Snapshot) -> Option<usize> {
        match self.page {
            Page::Stacks => self.chosen(snapshot),
            _ => None,
        }
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent, snapshot: &Snapshot) -> Asked {
        if key.kind == KeyEventKind::Release {
            return Asked::Draw;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            // The terminal makes a signal of it; some send it as a key.
            KeyCode::Char('c') if is_control => return Asked::Quit,
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Char('f' | ' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('?' | 'h') => self.toggle(Page::Help),
            KeyCode::Char('n') => self.toggle(Page::Running),
            KeyCode::Char('t') => self.toggle(Page::Statements),
            KeyCode::Char('l') => self.toggle(Page::Slowest),
            KeyCode::Enter if self.page == Page::Overview => {
                // The order may change; what is looked at does not.
                self.choice = self.chosen(snapshot);
                self.open(Page::Stacks);
            }
            KeyCode::Esc | KeyCode::Backspace => self.open(Page::Overview),
            KeyCode::Up | KeyCode::Char('k') => self.go(snapshot, -1),
            KeyCode::Down | KeyCode::Char('j') => self.go(snapshot, 1),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(5),
            KeyCode::PageDown => self.scrolled += 5,
            _ => {}
        }
        Asked::Draw
    }

    fn toggle(&mut self, page: Page) {
        let page = match self.page == page {
            true => Page::Overview,
            false => page,
        };
        self.open(page);
    }

    fn open(&mut self, page: Page) {
        self.page = page;
        (self.line, self.scrolled) = (0, 0);
    }

    fn go(&mut self, snapshot: &Snapshot, by: isize) {
        match self.page {
            Page::Overview => {
                let order = self.types(snapshot);
                let chosen = self.chosen(snapshot);
                let at = order.iter().position(|index| Some(*index) == chosen);
                let next = at.unwrap_or(0).saturating_add_signed(by);
                self.choice = order.get(next.min(order.len().saturating_sub(1))).copied();
            }
            Page::Stacks => {
                let stacks = snapshot.stacks.as_ref();
                self.line_of(by, stacks.map_or(0, |stacks| stacks.lines.len()));
            }
            Page::Running => self.line_of(by, snapshot.running.len()),
            Page::Statements => self.line_of(by, snapshot.statements.len()),
            Page::Slowest => self.line_of(by, snapshot.slowest.len()),
            Page::Help => {}
        }
    }

    fn line_of(&mut self, by: isize, lines: usize) {
        let next = self.line.saturating_add_signed(by);
        self.line = next.min(lines.saturating_sub(1));
        self.scrolled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let line = |name: &str, latency_ns, per_second| TypeLine {
            name: name.to_owned(),
            latency_ns,
            per_second,
            ..TypeLine::default()
        };
        Snapshot {
            types: vec![line("b", 10, 1.0), line("a", 5, 9.0), line("c", 20, 0.5)],
            ..Snapshot::default()
        }
    }

    fn press(state: &mut State, code: KeyCode) -> Asked {
        state.key(KeyEvent::new(code, KeyModifiers::NONE), &snapshot())
    }

    #[test]
    fn types_are_sorted_and_the_chosen_one_stays() {
        let (mut state, snapshot) = (State::default(), snapshot());
        assert_eq!(state.types(&snapshot), [2, 0, 1]);
        assert_eq!(state.chosen(&snapshot), Some(2));
        press(&mut state, KeyCode::Down);
        assert_eq!(state.chosen(&snapshot), Some(0));
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(state.types(&snapshot), [1, 0, 2]);
        assert_eq!(state.chosen(&snapshot), Some(0));
        press(&mut state, KeyCode::Down);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.chosen(&snapshot), Some(2));
    }

    #[test]
    fn pages_open_and_close() {
        let (mut state, snapshot) = (State::default(), snapshot());
        assert_eq!(state.wants_stacks(&snapshot), None);
        press(&mut state, KeyCode::Enter);
        assert_eq!(state.wants_stacks(&snapshot), Some(2));
        press(&mut state, KeyCode::Esc);
        press(&mut state, KeyCode::Char('n'));
        assert_eq!(state.page, Page::Running);
        press(&mut state, KeyCode::Char('t'));
        assert_eq!(state.page, Page::Statements);
        press(&mut state, KeyCode::Char('l'));
        assert_eq!(state.page, Page::Slowest);
        press(&mut state, KeyCode::Char('?'));
        assert_eq!(state.page, Page::Help);
        press(&mut state, KeyCode::Char('?'));
        assert_eq!(state.page, Page::Overview);
        press(&mut state, KeyCode::Char(' '));
        assert!(state.is_frozen);
        assert_eq!(press(&mut state, KeyCode::Char('q')), Asked::Quit);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control, &snapshot), Asked::Quit);
    }
}
