//! Several services in one trace: their profiles in, one numbering of request types and the profile of
//! each program out.

use reqtrace_base::error::{Error, Result};
use reqtrace_common::limits::MAX_REQUEST_TYPES;

use crate::{LabelKind, Origin, Profile, RequestSpec};

/// The profiles of one trace, one for each service; never empty.
///
/// Request types are numbered through, in the order of the profiles. A service's named waits hold for
/// its own request types only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiles {
    all: Vec<Profile>,
}

impl From<Profile> for Profiles {
    fn from(profile: Profile) -> Self {
        Self { all: vec![profile] }
    }
}

impl Profiles {
    /// Puts profiles together.
    ///
    /// # Errors
    ///
    /// Usage errors: none at all, one of them twice, or more request types than a trace can have.
    pub fn new(all: Vec<Profile>) -> Result<Self> {
        if all.is_empty() {
            return Err(Error::usage("a trace needs a profile").next("give --profile PROFILE"));
        }
        for (index, profile) in all.iter().enumerate() {
            if all[..index].iter().any(|one| one.name == profile.name) {
                return Err(Error::usage(format!(
                    "two of the profiles have the name `{}`",
                    profile.name
                ))
                .next(
                    "give each profile once, for all processes that it is made for; two profiles \
                     need two names: `name` below [profile]",
                ));
            }
        }
        let types: usize = all.iter().map(|profile| profile.requests.len()).sum();
        if types > MAX_REQUEST_TYPES {
            return Err(Error::usage(format!(
                "the profiles have {types} request types, but at most {MAX_REQUEST_TYPES} fit in \
                 one trace"
            ))
            .next("trace fewer services at once, or leave request types out of the profiles"));
        }
        Ok(Self { all })
    }

    /// Parses the texts that a recording has; `name` is what to call them in messages.
    ///
    /// # Errors
    ///
    /// As [`Profile::parse`] and [`Profiles::new`].
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>, name: &str) -> Result<Self> {
        let texts = texts.into_iter();
        let all = texts.map(|text| Profile::parse(text, name, Origin::BuiltIn));
        Self::new(all.collect::<Result<_>>()?)
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> &[Profile] {
        &self.all
    }

    /// Whether requests of some type are known by a key.
    #[must_use]
    pub fn have_keys(&self) -> bool {
        self.requests().any(|request| request.is_keyed)
    }

    /// Whether requests of some type may wait for what comes to sockets.
    #[must_use]
    pub fn wait_at_sockets(&self) -> bool {
        self.requests().any(|request| request.sockets)
    }

    /// The bytes before which texts end, by request type and index of the attribute.
    #[must_use]
    pub fn text_ends(&self) -> Vec<Vec<Option<u8>>> {
        self.requests()
            .map(|request| {
                let names = request.attribute_names().into_iter();
                let until = |name| {
                    let mut attributes = request.attributes.iter();
                    attributes.find(|attribute| attribute.name == name)?.until
                };
                names.map(until).collect()
            })
            .collect()
    }

    /// Attributes that are symbols: of each request type, a bit for each index.
    #[must_use]
    pub fn symbols(&self) -> Vec<u32> {
        self.of_kind(&LabelKind::Symbol)
    }

    /// The same of attributes that say what a unit is.
    #[must_use]
    pub fn units(&self) -> Vec<u32> {
        self.of_kind(&LabelKind::Unit)
    }

    fn of_kind(&self, kind: &LabelKind) -> Vec<u32> {
        self.requests()
            .map(|request| {
                let names = request.attribute_names();
                let of_kind = request.attributes.iter().filter(|spec| spec.kind == *kind);
                let indices =
                    of_kind.filter_map(|spec| names.iter().position(|name| *name == spec.name));
                indices.fold(0, |bits, index| bits | 1 << index)
            })
            .collect()
    }

    /// Their names, with a comma between.
    #[must_use]
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.all.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    }

    /// All request types; the index is the type's number.
    pub fn requests(&self) -> impl Iterator<Item = &RequestSpec> {
        self.all.iter().flat_map(|profile| &profile.requests)
    }

    /// Names of all request types. A name that two services have is `PROFILE/NAME`.
    #[must_use]
    pub fn request_names(&self) -> Vec<String> {
        let is_shared = |name: &str| self.requests().filter(|one| one.name == name).count() > 1;
        let named = self.all.iter().flat_map(|profile| {
            let requests = profile.requests.iter();
            requests.map(move |request| match is_shared(&request.name) {
                true => format!("{}/{}", profile.name, request.name),
                false => request.name.clone(),
            })
        });
        named.collect()
    }

    /// The number of the first request type of a profile, by the profile's index.
    #[must_use]
    pub fn first_type(&self, profile: usize) -> usize {
        let before = self.all.iter().take(profile);
        before.map(|profile| profile.requests.len()).sum()
    }

    /// The index of the profile that a program takes, by the file name of its executable.
    ///
    /// One profile alone is for every program. Of several it is the one that is made for the program, or
    /// else the one that does not say what it is made for.
    ///
    /// # Errors
    ///
    /// Usage errors: none of them fits, or more than one.
    pub fn of_program(&self, executable: &str) -> Result<usize> {
        if self.all.len() == 1 {
            return Ok(0);
        }
        let those = |fits: &dyn Fn(&Profile) -> bool| -> Vec<usize> {
            let all = self.all.iter().enumerate();
            all.filter(|(_, profile)| fits(profile))
                .map(|(index, _)| index)
                .collect()
        };
        let mut fitting = those(&|profile| profile.is_made_for(executable));
        if fitting.is_empty() {
            fitting = those(&|profile| profile.executables.is_empty());
        }
        match fitting.as_slice() {
            [one] => Ok(*one),
            [] => Err(Error::usage(format!(
                "none of the profiles is made for {executable}: {}",
                self.programs()
            ))
            .next("leave the process out, or give --profile with one that is made for it")),
            many => {
                let names = many.iter().map(|&index| self.all[index].name.as_str());
                Err(Error::usage(format!(
                    "{executable} fits more than one of the profiles: {}",
                    names.collect::<Vec<_>>().join(", ")
                ))
                .next(
                    "give one profile for each program: `executables` says what it is made for. One that is for any program, as \
                     `axum` and `go-http` are, has none: `reqtrace profiles NAME > FILE`, and add executables = [\"…\"] below \
                     [profile]; or trace each process by a command of its own",
                ))
            }
        }
    }

    /// The index of the one profile that says it is made for an executable of this file name.
    #[must_use]
    pub fn made_for(&self, executable: &str) -> Option<usize> {
        let mut fitting = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, profile)| profile.is_made_for(executable));
        let (first, _) = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }

    /// Whether all of them say what they are made for.
    #[must_use]
    pub fn name_programs(&self) -> bool {
        self.all
            .iter()
            .all(|profile| !profile.executables.is_empty())
    }

    /// What each is made for, in words.
    #[must_use]
    pub fn programs(&self) -> String {
        let each = self
            .all
            .iter()
            .map(|profile| format!("{} for {}", profile.name, profile.executables.join(" or ")));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str, executables: &str, requests: &[&str]) -> Profile {
        let mut text = format!("[profile]\nname = \"{name}\"\n{executables}\n");
        for request in requests {
            text.push_str(&format!(
                "[[request]]\nname = \"{request}\"\nbegin = {{ function = \"f\" }}\n"
            ));
        }
        Profile::parse(&text, name, Origin::BuiltIn).unwrap()
    }

    #[test]
    fn request_types_are_numbered_through_and_have_names_of_their_own() {
        let profiles = Profiles::new(vec![
            profile(
                "redis",
                "executables = [\"redis*\"]",
                &["command", "script"],
            ),
            profile("mysql", "executables = [\"mariadbd\"]", &["command"]),
        ])
        .unwrap();
        assert_eq!(profiles.names(), "redis, mysql");
        assert_eq!(
            profiles.request_names(),
            ["redis/command", "script", "mysql/command"]
        );
        assert_eq!((profiles.first_type(0), profiles.first_type(1)), (0, 2));
        let one = Profiles::from(profile("redis", "", &["command"]));
        assert_eq!(one.request_names(), ["command"]);
    }

    #[test]
    fn a_program_takes_the_profile_that_is_made_for_it() {
        let mysql = || profile("mysql", "executables = [\"mariadbd\"]", &["command"]);
        let own = || profile("own", "", &["work"]);
        let of = |all: Vec<Profile>, program: &str| Profiles::new(all).unwrap().of_program(program);
        assert_eq!(of(vec![mysql()], "bash").unwrap(), 0);
        assert_eq!(of(vec![own(), mysql()], "mariadbd").unwrap(), 1);
        assert_eq!(of(vec![mysql(), own()], "shop").unwrap(), 1);
        let both = Profiles::new(vec![own(), mysql()]).unwrap();
        assert_eq!(
            (both.made_for("mariadbd"), both.made_for("shop")),
            (Some(1), None)
        );
        assert!(!both.name_programs() && Profiles::from(mysql()).name_programs());
        let other = profile("other", "executables = [\"mariadbd\", \"x\"]", &["y"]);
        let error = of(vec![mysql(), other.clone()], "mariadbd").unwrap_err();
        assert!(error.to_string().contains("mysql, other"), "{error}");
        let error = of(vec![mysql(), other], "bash").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("mysql for mariadbd, other for mariadbd or x"),
            "{error}"
        );
    }

    #[test]
    fn what_cannot_be_one_trace_is_refused() {
        assert!(Profiles::new(Vec::new()).is_err());
        let twice = vec![profile("a", "", &["x"]), profile("a", "", &["y"])];
        assert!(Profiles::new(twice).is_err());
        let names: Vec<String> = (0..MAX_REQUEST_TYPES).map(|i| format!("r{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let many = vec![profile("a", "", &names), profile("b", "", &["y"])];
        let error = Profiles::new(many).unwrap_err().to_string();
        assert!(error.contains("17 request types"), "{error}");
    }
}
