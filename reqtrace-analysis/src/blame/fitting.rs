//! A deque that takes no more memory than half as much again as what is in it.
//!
//! There is one for each thread that ever did something, so what a deque of the standard library keeps after it
//! was emptied, and sets aside before it is filled, adds up.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use super::recent;

/// Elements in order.
#[derive(Debug)]
pub(super) struct Fitting<T> {
    all: VecDeque<T>,
    /// How many were taken from the front; it wraps.
    gone: u32,
    /// Where a place was last looked for, those that are gone included: the next one is mostly near it.
    last: Cell<u32>,
}

impl<T> Default for Fitting<T> {
    fn default() -> Self {
        Self {
            all: VecDeque::new(),
            gone: 0,
            last: Cell::new(0),
        }
    }
}

impl<T> Fitting<T> {
    pub(super) fn push_back(&mut self, element: T) {
        self.make_room();
        self.all.push_back(element);
    }

    pub(super) fn insert(&mut self, at: usize, element: T) {
        self.make_room();
        self.all.insert(at, element);
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let first = self.all.pop_front();
        self.gone = self.gone.wrapping_add(u32::from(first.is_some()));
        if self.all.len() <= self.all.capacity() / 2 {
            self.all.shrink_to(with_room(self.all.len()));
        }
        first
    }

    /// The same as [`VecDeque::partition_point`], quickly if it is near the one before.
    pub(super) fn find(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let last = self.last.get().wrapping_sub(self.gone);
        let at = recent::partition_near(&self.all, last as usize, is_before);
        self.last.set(self.gone.wrapping_add(at as u32));
        at
    }

    fn make_room(&mut self) {
        let len = self.all.len();
        if len == self.all.capacity() {
            // More would be moved the more often the less is set aside.
            self.all.reserve_exact(len / 2 + 1);
        }
    }
}

/// What is set aside for so many: nothing for few, else a quarter more.
fn with_room(len: usize) -> usize {
    len + len / 4
}

impl<T> Deref for Fitting<T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &VecDeque<T> {
        &self.all
    }
}

impl<T> DerefMut for Fitting<T> {
    fn deref_mut(&mut self) -> &mut VecDeque<T> {
        &mut self.all
    }
}
