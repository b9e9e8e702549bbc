//! Messages: words in, a line on standard error out, if somebody reads it. While a screen is shown there,
//! they are held back.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::plain::Plain;

/// Messages that are held back at most; of more, the first are only counted.
const MAX_HELD: usize = 200;

/// Those that are held back; `None` when they are printed at once.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

#[derive(Default)]
struct Held {
    lines: VecDeque<String>,
    left_out: u64,
}

/// Prints a line on standard error. `eprintln!` panics when nobody can read it any more: the terminal is
/// gone, or the program behind a pipe has left. Names in it are those of others, and are cleaned.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::print(&format!($($words)*))
    };
}

/// What [`say!`](crate::say!) does.
#[doc(hidden)]
pub fn print(text: &str) {
    let text = Plain::lines(text);
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(held) = held.as_mut() else {
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    };
    if held.lines.len() == MAX_HELD {
        held.lines.pop_front();
        held.left_out += 1;
    }
    held.lines.push_back(text.into_owned());
}

/// Whether messages are held back.
#[must_use]
pub fn is_held() -> bool {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.is_some()
}

/// Messages are held back from now on.
pub fn hold() {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.get_or_insert_default();
}

/// The messages that are held back, the newest last.
pub fn held() -> Vec<String> {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.iter()
        .flat_map(|held| held.lines.iter().cloned())
        .collect()
}

/// Prints what was held back; from now on messages are printed at once.
pub fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(held) = held else { return };
    if held.left_out > 0 {
        print(&format!(
            "reqtrace: {} messages before these are left out",
            held.left_out
        ));
    }
    held.lines.iter().for_each(|line| print(line));
}
