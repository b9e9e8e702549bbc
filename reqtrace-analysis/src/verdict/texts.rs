//! Statements and paths of cgroups: texts in; numbers out, which stay as long as something has them.

use reqtrace_base::plain::Plain;
use rustc_hash::{FxHashMap, FxHashSet};

/// Texts that are kept at once.
const MOST: usize = 1 << 12;
/// Room that statements leave to cgroups.
const OF_CGROUPS: usize = 1 << 8;
/// So many find no room before some is made.
const REFUSED: usize = 1 << 10;

/// Texts, each once. The number 0 is that of none, and of one without room.
#[derive(Debug)]
pub(super) struct Texts {
    numbers: FxHashMap<Plain, u32>,
    texts: Vec<Plain>,
    /// Numbers that nothing has.
    free: Vec<u32>,
    /// Texts without room since some was made.
    refused: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            numbers: FxHashMap::default(),
            texts: vec![Plain::default()],
            free: Vec::new(),
            refused: 0,
        }
    }
}

impl Texts {
    /// The number of a statement.
    pub(super) fn statement(&mut self, text: &Plain) -> u32 {
        self.number(text, MOST - OF_CGROUPS)
    }

    /// The number of a cgroup's path.
    pub(super) fn cgroup(&mut self, path: &str) -> u32 {
        self.number(&Plain::of(path), MOST)
    }

    fn number(&mut self, text: &Plain, most: usize) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.numbers.len() >= most {
            self.refused += 1;
            return 0;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.texts.push(Plain::default());
            self.texts.len() as u32 - 1
        });
        self.texts[number as usize] = text.clone();
        self.numbers.insert(text.clone(), number);
        number
    }

    /// The text of a number, but for 0.
    pub(super) fn get(&self, number: u32) -> Option<&Plain> {
        self.texts.get(number as usize).filter(|_| number != 0)
    }

    /// Whether so many found no room that it is worth to look for some.
    pub(super) fn is_short(&self) -> bool {
        self.refused >= REFUSED
    }

    /// Forgets all but those whose numbers are used.
    pub(super) fn keep(&mut self, used: &FxHashSet<u32>) {
        self.refused = 0;
        self.numbers.retain(|_, number| {
            let is_used = used.contains(number);
            if !is_used {
                self.texts[*number as usize] = Plain::default();
                self.free.push(*number);
            }
            is_used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_makes_room_for_others() {
        let mut texts = Texts::default();
        let statement = |number: usize| Plain::of(&format!("statement {number}"));
        let first = texts.statement(&statement(0));
        let mut number = 1;
        while !texts.is_short() {
            texts.statement(&statement(number));
            number += 1;
        }
        let newest = statement(number);
        assert_eq!(texts.statement(&newest), 0);
        // A cgroup finds room all the same.
        let cgroup = texts.cgroup("/php");
        assert_eq!(texts.get(cgroup).unwrap(), "/php");
        texts.keep(&FxHashSet::from_iter([first, cgroup]));
        assert!(!texts.is_short());
        assert_eq!(texts.statement(&statement(0)), first);
        let known = texts.statement(&newest);
        assert_eq!(texts.get(known), Some(&newest));
        assert_eq!(texts.get(cgroup).unwrap(), "/php");
        assert!(texts.get(0).is_none() && texts.texts.len() <= MOST);
    }
}
