//! Profiles with fewer probes: a profile with a runtime in; the same with `cheap = true`, and a text that is read as that, out.

use reqtrace_base::error::{Error, Result};

use super::schema::File;
use super::{Origin, Profile};

/// Behind the name of a profile: it is wanted with fewer probes.
pub const CHEAP: &str = ":cheap";

impl Profile {
    /// The profile with fewer probes, and a text that is read as that.
    ///
    /// # Errors
    ///
    /// A usage error when it has no `[runtime]`: only what that adds can be left out.
    pub fn cheap(&self) -> Result<Self> {
        let file = toml::from_str::<File>(&self.text).ok();
        let Some(runtime) = file.and_then(|file| file.runtime) else {
            return Err(Error::usage(format!(
                "`{0}{CHEAP}`: the profile `{0}` has no [runtime], so it has no probes that can be left out",
                self.name
            ))
            .next("leave `:cheap` out"));
        };
        if runtime.get_ref().cheap {
            return Ok(self.clone());
        }
        let at = runtime.get_ref().kind.span().end;
        // In a table of its own, in one within braces, and with dots.
        let ways = ["\ncheap = true", ", cheap = true", "\nruntime.cheap = true"];
        let parsed = ways.iter().find_map(|way| {
            let text = format!("{}{way}{}", &self.text[..at], &self.text[at..]);
            let file: File = toml::from_str(&text).ok()?;
            file.runtime.filter(|runtime| runtime.get_ref().cheap)?;
            Some(Self::parse(&text, &self.shown(), self.origin.clone()))
        });
        parsed.unwrap_or_else(|| {
            Err(Error::usage(format!(
                "`{}{CHEAP}`: the profile could not be changed",
                self.name
            ))
            .next("write cheap = true into its [runtime]"))
        })
    }

    /// Whether it has probes that [`Profile::cheap`] leaves out.
    #[must_use]
    pub fn can_be_cheap(&self) -> bool {
        self.cheap()
            .is_ok_and(|cheap| cheap.requests != self.requests)
    }

    /// What messages call it.
    fn shown(&self) -> String {
        match &self.origin {
            Origin::File(path) => path.display().to_string(),
            Origin::BuiltIn => format!("{}.toml", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::built_in;
    use crate::{Edge, PlaceSpec, RUNTIME, Role};

    const REQUEST: &str = "[[request]]\nname = \"job\"\nunit = \"*job*\"\n";

    fn parse(head: &str) -> Profile {
        let text = format!("{head}[profile]\nname = \"p\"\n{REQUEST}");
        Profile::parse(&text, "p.toml", Origin::BuiltIn).unwrap()
    }

    #[test]
    fn however_the_runtime_is_written_the_text_says_that_it_is_cheap() {
        for head in [
            "[runtime]\nkind = \"tokio\" # hyper\n",
            "runtime = { kind = \"tokio\" }\n",
            "runtime.kind = \"tokio\"\n",
        ] {
            let profile = parse(head);
            let cheap = profile.cheap().unwrap();
            let again = Profile::parse(&cheap.text, "p.toml", Origin::BuiltIn).unwrap();
            assert_eq!(cheap, again);
            assert_ne!(cheap.requests, profile.requests);
            assert_eq!(cheap.cheap().unwrap(), cheap);
            assert!(profile.can_be_cheap() && !cheap.can_be_cheap());
        }
        let error = built_in("redis").unwrap().parse().unwrap().cheap();
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("`redis:cheap`: the profile `redis` has no [runtime]"),
            "{text}"
        );
    }

    #[test]
    fn what_takes_a_unit_up_and_leaves_it_is_probed_all_the_same() {
        let roles = |name: &str| -> Vec<Role> {
            let profile = built_in(name).unwrap().parse().unwrap();
            let cheap = profile.cheap().unwrap();
            assert_eq!(cheap.requests[0].places[0], RUNTIME);
            cheap.requests[0]
                .more_markers()
                .map(|one| one.role)
                .collect()
        };
        assert_eq!(
            roles("axum"),
            [Role::Resume, Role::Park, Role::Ready, Role::Done]
        );
        // Coroutines, what the collector stops and what has lost its turn are told by the places that are probed anyway.
        let go = [
            Role::Resume,
            Role::Resume,
            Role::Park,
            Role::Park,
            Role::Ready,
            Role::Recover,
            Role::Done,
        ];
        assert_eq!(roles("go-http"), go);
        // The spawn of a task is where it is queued.
        let whole = parse("[runtime]\nkind = \"tokio\"\n").cheap().unwrap();
        let queued = whole.requests[0].ready.iter();
        let is_queue = |place: &PlaceSpec| *place == PlaceSpec::Edge(Edge::Queue);
        assert_eq!(queued.filter(|marker| is_queue(&marker.place)).count(), 1);
    }
}
