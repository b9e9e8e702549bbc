//! The screen: snapshots in, drawn by a thread of its own, which reads keys too. Whatever that thread waits
//! for, nobody waits for it longer than a moment.

use std::io::BufWriter;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::draw;
use super::snapshot::Snapshot;
use super::state::{Asked, State};
use super::terminal::{self, Prepared, Taken};
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::tracer::Stopper;
use reqtrace_output::outputs::give_up_privileges;

/// How long a key or a new snapshot may wait.
const LOOK: Duration = Duration::from_millis(100);
/// How long the thread is waited for at the end: a terminal may take no bytes.
const PATIENCE: Duration = Duration::from_secs(1);

/// A screen that is shown.
pub(super) struct Screen {
    shared: Arc<Mutex<Shared>>,
    /// Until it is left.
    taken: Option<Taken>,
    /// Ends with the thread.
    ended: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    /// One that was not drawn yet.
    next: Option<Snapshot>,
    wants_stacks: Option<usize>,
    is_over: bool,
}

impl Screen {
    /// Takes the terminal and shows that nothing is known yet.
    pub(super) fn start(terminal: Prepared, stopper: Stopper) -> Result<Self> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (running, ended) = mpsc::channel();
        let taken = terminal.take()?;
        reqtrace_base::say::hold();
        let screen = Self {
            shared: Arc::clone(&shared),
            taken: Some(taken),
            ended,
        };
        thread::Builder::new()
            .name("screen".to_owned())
            .spawn(move || {
                // It has the terminal open, and needs nothing else.
                give_up_privileges();
                let _running = running;
                if let Err(error) = show(&shared, &stopper) {
                    // Or the user would look at nothing.
                    terminal::restore();
                    log::warn!("the screen cannot be drawn: {error}");
                }
            })
            .map_err(|error| Error::failed("the screen could not be started").because(error))?;
        Ok(screen)
    }

    /// Shows this next.
    pub(super) fn show(&self, snapshot: Snapshot) {
        lock(&self.shared).next = Some(snapshot);
    }

    /// The type whose stacks are wanted.
    pub(super) fn wants_stacks(&self) -> Option<usize> {
        lock(&self.shared).wants_stacks
    }

    /// Gives the terminal back, and prints what was logged meanwhile.
    pub(super) fn leave(&mut self) {
        let Some(taken) = self.taken.take() else {
            return;
        };
        lock(&self.shared).is_over = true;
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            log::warn!("the terminal takes nothing");
        }
        drop(taken);
        reqtrace_base::say::release();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What is in it is whole whoever has panicked.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What comes within a moment; nothing from a terminal that is another job's.
fn next_event(is_here: bool) -> std::io::Result<Option<Event>> {
    if !is_here {
        thread::sleep(LOOK);
        return Ok(None);
    }
    event::poll(LOOK)?.then(event::read).transpose()
}

fn show(shared: &Mutex<Shared>, stopper: &Stopper) -> std::io::Result<()> {
    let empty = || {
        let out = BufWriter::with_capacity(64 << 10, terminal::output()?);
        Terminal::new(CrosstermBackend::new(out))
    };
    let mut terminal = empty()?;
    let mut state = State::default();
    let mut snapshot = Snapshot::default();
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut is_new = true;
    let mut was_here = true;
    loop {
        if !terminal::is_taken() {
            return Ok(());
        }
        let is_here = terminal::is_in_foreground();
        if is_here && !was_here {
            terminal::show()?;
            terminal = empty()?;
            is_new = true;
        } else if was_here && !is_here {
            terminal::hide();
        }
        was_here = is_here;
        if is_here && is_new {
            terminal.draw(|frame| draw::draw(frame, &snapshot, &mut state, colour))?;
            is_new = false;
        }
        match next_event(is_here) {
            Ok(None) => {}
            Ok(Some(Event::Key(key))) if state.key(key, &snapshot) == Asked::Quit => stopper.stop(),
            Ok(Some(_)) => is_new = true,
            // The shell may take the terminal at any time.
            Err(_) if !terminal::is_in_foreground() => {}
            Err(error) => return Err(error),
        }
        let mut shared = lock(shared);
        if shared.is_over {
            return Ok(());
        }
        shared.wants_stacks = state.wants_stacks(&snapshot);
        if !state.is_frozen
            && let Some(next) = shared.next.take()
        {
            snapshot = next;
            is_new = true;
        }
    }
}
