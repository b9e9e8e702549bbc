//! Profiles with fewer probes: a profile that has a runtime or details in; the same with `cheap = true`, and a text that is read
//! as that, out.

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
    /// A usage error when it has neither a `[runtime]` nor details: nothing else can be left out.
    pub fn cheap(&self) -> Result<Self> {
        let could_not = || {
            Error::usage(format!(
                "`{}{CHEAP}`: the profile could not be changed",
                self.name
            ))
            .next("write cheap = true into its [profile]")
        };
        let file = toml::from_str::<File>(&self.text).map_err(|_| could_not())?;
        if file.is_cheap() {
            return Ok(self.clone());
        }
        let at = file.profile.name.span().end;
        // In a table of its own, in one within braces, and with dots.
        let ways = ["\ncheap = true", ", cheap = true", "\nprofile.cheap = true"];
        let parsed = ways.iter().find_map(|way| {
            let text = format!("{}{way}{}", &self.text[..at], &self.text[at..]);
            let file: File = toml::from_str(&text).ok()?;
            file.is_cheap()
                .then(|| Self::parse(&text, &self.shown(), self.origin.clone()))
        });
        let cheap = parsed.ok_or_else(could_not)??;
        if cheap.requests == self.requests {
            return Err(Error::usage(format!(
                "`{0}{CHEAP}`: the profile `{0}` has no [runtime], and no marker with detail = true, so it has no probes that \
                 can be left out",
                self.name
            ))
            .next("leave `:cheap` out"));
        }
        Ok(cheap)
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

    fn parse(text: &str) -> Profile {
        Profile::parse(text, "p.toml", Origin::BuiltIn).unwrap()
    }

    #[test]
    fn however_the_runtime_is_written_the_text_says_that_it_is_cheap() {
        for head in [
            "[runtime]\nkind = \"tokio\" # hyper\n[profile]\nname = \"p\" # it\n",
            "runtime = { kind = \"tokio\" }\nprofile = { name = \"p\" }\n",
            "runtime.kind = \"tokio\"\nprofile.name = \"p\"\n",
        ] {
            let profile = parse(&format!("{head}{REQUEST}"));
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
            text.contains(
                "`redis:cheap`: the profile `redis` has no [runtime], and no marker with detail"
            ),
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
        let text = format!("runtime.kind = \"tokio\"\nprofile.name = \"p\"\n{REQUEST}");
        let whole = parse(&text).cheap().unwrap();
        let queued = whole.requests[0].ready.iter();
        let is_queue = |place: &PlaceSpec| *place == PlaceSpec::Edge(Edge::Queue);
        assert_eq!(queued.filter(|marker| is_queue(&marker.place)).count(), 1);
    }

    const KEYED: &str = r#"
        [profile]
        name = "p"
        [[request]]
        name = "job"
        key = { arg = 0 }
        begin = { function = "take" }
        resume = [{ function = "read", as = "client", detail = true }, { function = "answered", as = "upstream" }]
        park = { function = "turn", at = "return", DETAIL }
        idle = { function = "epoll_wait" }
        end = { function = "drop" }
        [[request.attribute]]
        name = "path"
        function = "route"
        arg = 1
        detail = true
        [[request.attribute]]
        name = "status"
        arg = 1
        on = "end"
    "#;

    #[test]
    fn details_are_left_out_and_with_them_the_names_that_they_tell_apart() {
        let profile = parse(&KEYED.replace("DETAIL", "detail = true"));
        let cheap = profile.cheap().unwrap();
        let of = |profile: &Profile| {
            let request = &profile.requests[0];
            let names = request.attributes.iter().map(|one| one.name.clone());
            (
                request.resume.len(),
                request.park.len(),
                request.places.clone(),
                names.collect::<Vec<_>>(),
            )
        };
        let places = vec!["client".to_owned(), "upstream".to_owned()];
        let names = vec!["path".to_owned(), "status".to_owned()];
        assert_eq!(of(&profile), (2, 2, places, names.clone()));
        // `idle` stays, and what is not known has no name.
        assert_eq!(of(&cheap), (1, 1, vec![], names[1..].to_vec()));
        assert_eq!(cheap.requests[0].resume[0].waits_in, None);
        assert!(profile.can_be_cheap() && !cheap.can_be_cheap());
    }

    #[test]
    fn what_a_request_needs_is_no_detail() {
        for (wrong, words) in [
            (
                KEYED.replace("\"take\"", "\"take\", detail = true"),
                "`detail` belongs to `resume`",
            ),
            (
                KEYED.replace("\"epoll_wait\"", "\"epoll_wait\", detail = true"),
                "`detail` belongs to `resume`",
            ),
            (
                KEYED.replace("idle = { function = \"epoll_wait\" }", ""),
                "without details nothing parks a request",
            ),
        ] {
            let text = wrong.replace("DETAIL", "detail = true");
            let error = Profile::parse(&text, "p.toml", Origin::BuiltIn).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
