//! Profiles embedded in the program: what stands after `--profile` in, a [`Profile`] out.

use std::path::Path;

use super::{Origin, Profile};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::nearest;

/// A profile that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The name it is asked for by; its file name is this with `.toml`.
    pub name: &'static str,
    /// Its text, word for word.
    pub text: &'static str,
}

impl BuiltIn {
    /// Parses it.
    ///
    /// # Errors
    ///
    /// Never for a released program: a test parses every built-in profile.
    pub fn parse(&self) -> Result<Profile> {
        Profile::parse(self.text, &format!("{}.toml", self.name), Origin::BuiltIn)
    }
}

/// All built-in profiles, in the order in which they are listed.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "mysql",
        text: include_str!("../../profiles/mysql.toml"),
    },
    BuiltIn {
        name: "nginx",
        text: include_str!("../../profiles/nginx.toml"),
    },
    BuiltIn {
        name: "nginx-event-loop",
        text: include_str!("../../profiles/nginx-event-loop.toml"),
    },
    BuiltIn {
        name: "mysql-do-command",
        text: include_str!("../../profiles/mysql-do-command.toml"),
    },
    BuiltIn {
        name: "postgresql",
        text: include_str!("../../profiles/postgresql.toml"),
    },
    BuiltIn {
        name: "postgresql-usdt",
        text: include_str!("../../profiles/postgresql-usdt.toml"),
    },
    BuiltIn {
        name: "redis",
        text: include_str!("../../profiles/redis.toml"),
    },
];

/// The built-in profile of this name, with or without `.toml`.
///
/// # Errors
///
/// A usage error that names the nearest one and lists all.
pub fn built_in(name: &str) -> Result<&'static BuiltIn> {
    let bare = name.strip_suffix(".toml").unwrap_or(name);
    if let Some(found) = BUILT_IN.iter().find(|profile| profile.name == bare) {
        return Ok(found);
    }
    let all: Vec<&str> = BUILT_IN.iter().map(|profile| profile.name).collect();
    let mut advice = format!("built-in profiles: {}", all.join(", "));
    if let Some(best) = nearest(bare, all.iter().copied(), 1).first() {
        advice = format!("did you mean `{best}`? {advice}");
    }
    Err(Error::usage(format!("there is no built-in profile `{name}`")).next(advice))
}

/// Names of the built-in profiles that are made for a program of this file name.
#[must_use]
pub fn made_for(executable: &str) -> Vec<&'static str> {
    let fits = |profile: &&BuiltIn| {
        profile
            .parse()
            .is_ok_and(|profile| profile.executables.iter().any(|name| name == executable))
    };
    BUILT_IN
        .iter()
        .filter(fits)
        .map(|profile| profile.name)
        .collect()
}

/// Names of the built-in profiles of which a request has a label.
#[must_use]
pub fn with_labels() -> Vec<&'static str> {
    let has = |profile: &&BuiltIn| {
        profile
            .parse()
            .is_ok_and(|profile| profile.requests.iter().any(|r| !r.labels.is_empty()))
    };
    BUILT_IN
        .iter()
        .filter(has)
        .map(|profile| profile.name)
        .collect()
}

/// Loads what the user named: a file where there is one or where the name has a slash, else a
/// built-in profile.
///
/// # Errors
///
/// Usage errors: no such file or built-in profile, not readable, or not a valid profile.
pub fn load(name: &str) -> Result<Profile> {
    let path = Path::new(name);
    if name.contains('/') || path.is_file() {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::usage(format!("cannot read the profile {name}"))
                .because(error)
                .next("give the path of a TOML file, or the name of a built-in profile (`reqtrace profiles` lists them)")
        })?;
        return Profile::parse(&text, name, Origin::File(path.to_owned()));
    }
    match built_in(name) {
        Ok(profile) => profile.parse(),
        Err(error) => {
            let advice = error.advice().unwrap_or_default().to_owned();
            Err(Error::usage(format!(
                "there is no file and no built-in profile named `{name}`"
            ))
            .next(advice))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_profile_is_made_for_is_known() {
        assert_eq!(made_for("redis-server"), ["redis"]);
        assert_eq!(made_for("nginx"), ["nginx", "nginx-event-loop"]);
        assert!(made_for("bash").is_empty());
        assert!(with_labels().contains(&"postgresql-usdt"));
        assert!(!with_labels().contains(&"postgresql"));
    }
}
