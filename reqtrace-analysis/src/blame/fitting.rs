//! A deque that takes no more memory than half as much again as what is in it.
//!
//! There is one for each thread that ever did something, so what a deque of the standard library keeps after it
//! was emptied, and sets aside before it is filled, adds up.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Elements in order.
#[derive(Debug)]
pub(super) struct Fitting<T>(VecDeque<T>);

impl<T> Default for Fitting<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Fitting<T> {
    pub(super) fn push_back(&mut self, element: T) {
        self.make_room();
        self.0.push_back(element);
    }

    pub(super) fn insert(&mut self, at: usize, element: T) {
        self.make_room();
        self.0.insert(at, element);
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let first = self.0.pop_front();
        if self.0.len() <= self.0.capacity() / 2 {
            self.0.shrink_to(with_room(self.0.len()));
        }
        first
    }

    fn make_room(&mut self) {
        let len = self.0.len();
        if len == self.0.capacity() {
            // More would be moved the more often the less is set aside.
            self.0.reserve_exact(len / 2 + 1);
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
        &self.0
    }
}

impl<T> DerefMut for Fitting<T> {
    fn deref_mut(&mut self) -> &mut VecDeque<T> {
        &mut self.0
    }
}
