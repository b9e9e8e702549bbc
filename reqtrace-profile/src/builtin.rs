//! Profiles embedded in the program, and profiles in files: a name or a path in, a [`Profile`] out.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::{Origin, Profile, RequestSpec};
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

/// All built-in profiles, in the order in which they are listed. Of several that are made for one
/// program the first is the one for most.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "apache",
        text: include_str!("../../profiles/apache.toml"),
    },
    BuiltIn {
        name: "axum",
        text: include_str!("../../profiles/axum.toml"),
    },
    BuiltIn {
        name: "go-grpc",
        text: include_str!("../../profiles/go-grpc.toml"),
    },
    BuiltIn {
        name: "go-http",
        text: include_str!("../../profiles/go-http.toml"),
    },
    BuiltIn {
        name: "mysql",
        text: include_str!("../../profiles/mysql.toml"),
    },
    BuiltIn {
        name: "mysql-do-command",
        text: include_str!("../../profiles/mysql-do-command.toml"),
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
        name: "php-fpm",
        text: include_str!("../../profiles/php-fpm.toml"),
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
    BuiltIn {
        name: "tonic",
        text: include_str!("../../profiles/tonic.toml"),
    },
];

/// Other names of built-in profiles, which they once had.
const ALSO: &[(&str, &str)] = &[("mariadb", "mysql")];

/// What a name stands for: itself, or the profile that it is another name of.
#[must_use]
pub fn full_name(name: &str) -> &str {
    let of = ALSO.iter().find(|(also, _)| *also == name);
    of.map_or(name, |(_, own)| *own)
}

/// The built-in profile of this name, with or without `.toml`.
///
/// # Errors
///
/// A usage error that names the nearest one and lists all.
pub fn built_in(name: &str) -> Result<&'static BuiltIn> {
    let bare = name.strip_suffix(".toml").unwrap_or(name);
    let full = full_name(bare);
    if let Some(found) = BUILT_IN.iter().find(|profile| profile.name == full) {
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
            .is_ok_and(|profile| profile.is_made_for(executable))
    };
    BUILT_IN
        .iter()
        .filter(fits)
        .map(|profile| profile.name)
        .collect()
}

/// Names of the built-in profiles of which a request has a label, or an attribute that is text.
#[must_use]
pub fn with_labels() -> Vec<&'static str> {
    let has = |profile: &&BuiltIn| {
        profile
            .parse()
            .is_ok_and(|profile| profile.requests.iter().any(RequestSpec::has_texts))
    };
    BUILT_IN
        .iter()
        .filter(has)
        .map(|profile| profile.name)
        .collect()
}

/// The largest profile that is read. It need not be a file, and a device has no end.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a profile from a file.
///
/// # Errors
///
/// Usage errors: not readable, or not a valid profile.
pub fn from_file(path: &Path) -> Result<Profile> {
    let name = path.display().to_string();
    let cannot = |error: io::Error| {
        Error::usage(format!("cannot read the profile {name}"))
            .because(error)
            .next(
                "give the path of a TOML file, or the name of a profile (`reqtrace profiles` lists \
                 them)",
            )
    };
    let mut text = String::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::usage(format!(
            "the profile {name} has more than {} KiB",
            MAX_BYTES >> 10
        ))
        .next("a profile is a page of TOML: is this the right file?"));
    }
    Profile::parse(&text, &name, Origin::File(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// They were read until the memory was full, or the stack was.
    #[test]
    fn profiles_without_an_end_are_refused() {
        let refused = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            from_file(file.path()).unwrap_err().to_string()
        };
        let error = from_file(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("more than 1024 KiB"), "{error}");
        let head =
            "[profile]\nname = \"x\"\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n";
        let nested = "{a,".repeat(200);
        let error = refused(&format!(
            "{head}[[wait]]\nname = \"w\"\nfiles = [\"{nested}\"]\n"
        ));
        assert!(error.contains("braces inside each other"), "{error}");
        let many: String = (0..20_000)
            .map(|number| format!("[[wait]]\nname=\"w{number}\"\nfunctions=[\"f\"]\n"))
            .collect();
        let begun = std::time::Instant::now();
        let error = refused(&format!("{head}{many}"));
        assert!(error.contains("more than 1000 waits"), "{error}");
        assert!(begun.elapsed().as_secs() < 5);
    }

    #[test]
    fn what_a_profile_is_made_for_is_known() {
        assert_eq!(made_for("redis-server"), ["redis"]);
        assert_eq!(made_for("nginx"), ["nginx", "nginx-event-loop"]);
        assert_eq!(made_for("mariadbd"), ["mysql", "mysql-do-command"]);
        assert_eq!(built_in("mariadb.toml").unwrap().name, "mysql");
        assert_eq!(made_for("php-fpm8.2"), ["php-fpm"]);
        assert!(made_for("bash").is_empty());
        assert!(with_labels().contains(&"postgresql-usdt"));
        assert!(!with_labels().contains(&"nginx-event-loop"));
    }
}
