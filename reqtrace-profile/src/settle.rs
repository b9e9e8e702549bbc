//! Profiles with alternatives: what was chosen for the programs of a trace in, the profile as it is traced
//! out.

use super::{Instead, Profile, RequestSpec};

/// Heads what is appended to the text of a profile.
const HEAD: &str = "\n# Which [[request.instead]] was traced of each request type, from 1; 0 is none.\n\
                    [as-traced]\n";

impl Profile {
    /// Whether some request type has alternatives that are not chosen yet.
    #[must_use]
    pub fn has_alternatives(&self) -> bool {
        self.requests.iter().any(|one| !one.instead.is_empty())
    }

    /// The profile with one alternative of each request type, and a text that is read as that. `choose` gives
    /// which, of a request type that has some; `None`: the request as it stands.
    #[must_use]
    pub fn settled(&self, mut choose: impl FnMut(&RequestSpec) -> Option<usize>) -> Self {
        if !self.has_alternatives() {
            return self.clone();
        }
        let mut settled = self.clone();
        let mut chosen = Vec::new();
        for request in &mut settled.requests {
            let choice = match request.instead.is_empty() {
                true => None,
                false => choose(request).filter(|&index| index < request.instead.len()),
            };
            if !request.instead.is_empty() {
                let number = choice.map_or(0, |index| index + 1);
                chosen.push(format!("{:?} = {number}", request.name));
            }
            take(request, choice);
        }
        let line = format!("{HEAD}instead = {{ {} }}\n", chosen.join(", "));
        settled.text.push_str(&line);
        settled
    }
}

/// Makes a request type one of its alternatives.
pub(super) fn take(request: &mut RequestSpec, choice: Option<usize>) {
    let instead = std::mem::take(&mut request.instead);
    if let Some(Instead { request: other, .. }) =
        choice.and_then(|index| instead.into_iter().nth(index))
    {
        *request = other;
    }
}

#[cfg(test)]
mod tests;
