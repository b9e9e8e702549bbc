//! Profiles that wait to be sent: all in; the oldest out, or dropped where there is no room.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of all that wait: at 50 KB a profile and one a minute some five hours.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// A request to Pyroscope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Push {
    /// A message of the push API.
    pub(super) body: Vec<u8>,
}

/// The queue between the writer and the sender.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    come: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Push>,
    bytes: usize,
}

impl State {
    /// Removes the oldest until the rest fits; how many.
    fn bound(&mut self) -> u64 {
        let mut removed = 0;
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.bytes -= oldest.body.len();
            removed += 1;
        }
        removed
    }
}

impl Waiting {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds one; how many of the oldest were dropped for it.
    pub(super) fn push(&self, push: Push) -> u64 {
        let dropped = self.change(|state| {
            state.bytes += push.body.len();
            state.waiting.push_back(push);
            state.bound()
        });
        self.come.notify_one();
        dropped
    }

    /// Gives one back that could not be sent: it is the oldest; how many were dropped, it among them.
    pub(super) fn give_back(&self, push: Push) -> u64 {
        self.change(|state| {
            state.bytes += push.body.len();
            state.waiting.push_front(push);
            state.bound()
        })
    }

    /// The oldest, when there is one within this time.
    pub(super) fn next(&self, within: Duration) -> Option<Push> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |state: &mut State| state.waiting.is_empty();
        let waited = self.come.wait_timeout_while(state, within, is_empty);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = state.waiting.pop_front()?;
        state.bytes -= next.body.len();
        Some(next)
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.change(|state| state.waiting.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let push = |byte: u8| Push {
            body: vec![byte; MAX_BYTES / 4],
        };
        let waiting = Waiting::default();
        assert_eq!([1, 2, 3, 4].map(|byte| waiting.push(push(byte))), [0; 4]);
        let first = waiting.next(Duration::ZERO).unwrap();
        assert_eq!((first.body[0], waiting.len()), (1, 3));
        assert_eq!((waiting.give_back(first), waiting.len()), (0, 4));
        assert_eq!((waiting.push(push(5)), waiting.len()), (1, 4));
        let second = waiting.next(Duration::ZERO).unwrap();
        assert_eq!((second.body[0], waiting.push(push(6))), (2, 0));
        // While it was tried others came: it is the oldest.
        assert_eq!((waiting.give_back(second), waiting.len()), (1, 4));
        assert_eq!(waiting.next(Duration::ZERO).unwrap().body[0], 3);
        let all = [(); 4].map(|()| waiting.next(Duration::ZERO).map(|push| push.body[0]));
        assert_eq!(all, [Some(4), Some(5), Some(6), None]);
    }
}
