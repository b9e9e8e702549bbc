//! Clients at a fixed rate: what one of them does, and for how long, in; how many requests were answered, and of how many
//! nobody knows, out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Behind by more than this a client does not catch up.
const BEHIND: Duration = Duration::from_secs(1);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Its whole answer is there.
    Answered,
    /// It was not sent: nobody listened.
    NotSent,
    /// It was sent, and the connection broke off before its answer was whole.
    Broken,
}

/// What clients have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) answered: u64,
    pub(super) broken: u64,
}

/// How long they ask.
#[derive(Clone, Copy, Debug)]
pub(super) enum For<'a> {
    /// So many requests, of all together.
    Requests(u64),
    /// Until somebody ends it.
    Until(&'a AtomicBool),
}

/// Asks at a rate (requests a second, of all clients together); each client begins with what `client` makes. Returns when
/// none waits for an answer.
pub(super) fn ask<C: FnMut() -> Asked>(
    clients: u32,
    rate: u32,
    long: For<'_>,
    client: impl Fn() -> C + Sync,
) -> Counted {
    let counts = [const { AtomicU64::new(0) }; 2];
    let begun = AtomicU64::new(0);
    let every = Duration::from_secs(1) * clients / rate.max(1);
    thread::scope(|scope| {
        for number in 0..clients {
            let (counts, begun, client) = (&counts, &begun, &client);
            scope.spawn(move || {
                let mut ask = client();
                let mut next = Instant::now() + every * number / clients;
                loop {
                    let goes_on = match long {
                        For::Requests(all) => begun.fetch_add(1, Ordering::Relaxed) < all,
                        For::Until(over) => !over.load(Ordering::Relaxed),
                    };
                    if !goes_on {
                        return;
                    }
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                    let at = match ask() {
                        Asked::Answered => 0,
                        Asked::Broken => 1,
                        Asked::NotSent => usize::MAX,
                    };
                    if let Some(count) = counts.get(at) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    next += every;
                    if next.elapsed() > BEHIND {
                        next = Instant::now();
                    }
                }
            });
        }
    });
    let [answered, broken] = counts.map(AtomicU64::into_inner);
    Counted { answered, broken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_asked_at_their_rate() {
        let begun = Instant::now();
        let counted = ask(3, 1_000, For::Requests(100), || || Asked::Answered);
        assert_eq!((counted.answered, counted.broken), (100, 0));
        assert!(
            begun.elapsed() >= Duration::from_millis(90),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn what_was_not_sent_is_no_request() {
        let over = AtomicBool::new(false);
        let number = AtomicU64::new(0);
        let counted = ask(1, 10_000, For::Until(&over), || {
            || match number.fetch_add(1, Ordering::Relaxed) {
                0 => Asked::NotSent,
                1 => Asked::Broken,
                2 => Asked::Answered,
                _ => {
                    over.store(true, Ordering::Relaxed);
                    Asked::NotSent
                }
            }
        });
        assert_eq!((counted.answered, counted.broken), (1, 1));
    }
}
