//! Code of others, which may panic on what a traced process has written, in; its answer, or nothing, out.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};

thread_local! {
    /// Whether this thread runs such code.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Runs it; `None` when it panics. What it has changed by then is not to be used again.
pub(crate) fn contained<T>(code: impl FnOnce() -> T) -> Option<T> {
    let outer = RUNS.replace(true);
    let answer = panic::catch_unwind(AssertUnwindSafe(code));
    RUNS.set(outer);
    answer.ok()
}

/// From now on a panic that is caught here is a line of the log (level `info`), and not a message of the
/// panic hook. All other panics are left to the hook that is set now.
pub fn log_contained_panics() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| match RUNS.get() {
        true => log::info!("{}", one_line(panic)),
        false => hook(panic),
    }));
}

fn one_line(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map(ToString::to_string);
    let message = panic.payload_as_str().unwrap_or("no message");
    let line = format!("{}: {message}", place.as_deref().unwrap_or("panic"));
    reqtrace_base::names::clean(&line)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// One test, as the hook is the process's: other tests may panic meanwhile, on threads of their own.
    #[test]
    fn only_panics_of_contained_code_are_kept_from_the_hook() {
        let messages = Arc::new(AtomicU32::new(0));
        let thread = std::thread::current().id();
        let (outer, counted) = (panic::take_hook(), Arc::clone(&messages));
        panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == thread {
                counted.fetch_add(1, Ordering::Relaxed);
            } else {
                outer(panic);
            }
        }));
        log_contained_panics();

        assert_eq!(contained(|| 7), Some(7));
        assert_eq!(contained(|| -> u32 { panic!("on\npurpose") }), None);
        let nested = contained(|| {
            assert_eq!(contained(|| -> u32 { panic!("inside") }), None);
            panic!("behind it");
        });
        assert_eq!(nested, None::<u32>);
        assert_eq!(messages.load(Ordering::Relaxed), 0);

        assert!(panic::catch_unwind(|| panic!("elsewhere")).is_err());
        assert_eq!(messages.load(Ordering::Relaxed), 1);
    }
}
