//! Where requests are while no thread runs them: names by number.

use reqtrace_profile::RUNTIME;

/// Names of the places where requests are parked or queued, in the order of every ledger. The last of each
/// list is empty: it stands for time that the profile gives no name. Both lists are empty when no request
/// type has a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Places {
    /// Where they wait for an event.
    pub parked: Vec<String>,
    /// Where they wait for a thread.
    pub queued: Vec<String>,
}

impl Places {
    /// Whether no request is ever parked or queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// All names that the profile gives.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let all = self.parked.iter().chain(&self.queued);
        all.map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The name of a place by its number behind so many wait classes; empty where it has none.
    pub(crate) fn name_behind(&self, classes: usize, number: u16) -> &str {
        let mut all = self.parked.iter().chain(&self.queued);
        let place = usize::from(number).checked_sub(classes);
        let name = place.and_then(|place| all.nth(place));
        name.map_or("", String::as_str)
    }

    /// In words: `parked: upstream`, or `parked` where there is no name.
    #[must_use]
    pub fn parked_words(&self, place: usize) -> String {
        words("parked", self.parked.get(place))
    }

    /// In words: `queued: pool queue`, or `queued` where there is no name. What waits for a runtime is not called
    /// queued: the kernel has a queue for CPUs too.
    #[must_use]
    pub fn queued_words(&self, place: usize) -> String {
        match self.queued.get(place) {
            Some(name) if name == RUNTIME => name.clone(),
            name => words("queued", name),
        }
    }
}

fn words(what: &str, name: Option<&String>) -> String {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => format!("{what}: {name}"),
        None => what.to_owned(),
    }
}
