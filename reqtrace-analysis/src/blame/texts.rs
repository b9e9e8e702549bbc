//! Texts by number: labels of requests and names of threads.

use rustc_hash::FxHashMap;

/// Texts that are kept; all others are one.
const MAX_TEXTS: usize = 20_000;
/// Labels among them: however many there are, names of threads find room.
const MAX_LABELS: usize = 16_000;

/// The number of a text.
pub(super) type Number = u32;

/// No text.
pub(super) const NONE: Number = 0;
/// All texts that found no room, and all rows that were merged.
pub(super) const OTHERS: Number = 1;

/// Texts, each once.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    numbers: FxHashMap<Box<str>, Number>,
    texts: Vec<Box<str>>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            numbers: FxHashMap::default(),
            texts: vec!["".into(), "[others]".into()],
        }
    }
}

impl Texts {
    /// The number of a name.
    pub(super) fn number(&mut self, text: &str) -> Number {
        self.number_of(text, MAX_TEXTS)
    }

    /// The number of a label.
    pub(super) fn label(&mut self, text: &str) -> Number {
        self.number_of(text, MAX_LABELS)
    }

    fn number_of(&mut self, text: &str, most: usize) -> Number {
        if text.is_empty() {
            return NONE;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.texts.len() >= most {
            return OTHERS;
        }
        let number = self.texts.len() as Number;
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    /// The text of a number.
    pub(super) fn text(&self, number: Number) -> &str {
        &self.texts[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_room_however_many_labels_there_are() {
        let mut texts = Texts::default();
        for number in 0..=MAX_LABELS {
            texts.label(&number.to_string());
        }
        assert_eq!(texts.label("one more"), OTHERS);
        let flusher = texts.number("flusher");
        assert_eq!(texts.text(flusher), "flusher");
    }
}
