//! The agent's user: the configuration in, whose rights its processes without privileges have out. `/etc/passwd` is all that is asked.

use std::fs;

use reqtrace_base::error::{Error, Result};
use rustix::process::geteuid;

use crate::config::Config;

/// Whose rights they have when the configuration names nobody.
pub const WORKER_USER: &str = "reqtrace";

const PASSWD: &str = "/etc/passwd";

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) group: u32,
}

/// Whose rights they get; `None`: those of the user that runs the agent.
///
/// # Errors
///
/// A usage error: nobody has the name that is configured.
pub(crate) fn of(configured: Option<&str>) -> Result<Option<User>> {
    let known = fs::read_to_string(PASSWD).unwrap_or_default();
    among(configured, &known, geteuid().as_raw())
}

fn among(configured: Option<&str>, known: &str, own: u32) -> Result<Option<User>> {
    let found = find(known, configured.unwrap_or(WORKER_USER));
    if let (None, Some(name)) = (&found, configured) {
        return Err(Error::usage(format!(
            "[agent]: user = \"{name}\": {PASSWD} has no such user"
        ))
        .next(
            "make it: systemd-sysusers with deploy/sysusers.d/reqtrace.conf; or leave out user",
        ));
    }
    // Only root may choose, and who does not ask for a user gets none that needs root.
    Ok(found.filter(|user| user.number != own && (own == 0 || configured.is_some())))
}

/// `NAME:x:UID:GID:…`
fn find(known: &str, name: &str) -> Option<User> {
    known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next()? == name;
        let number = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        is_it.then(|| User {
            name: name.to_owned(),
            number,
            group,
        })
    })
}

/// Whose rights they will have, for people.
///
/// # Errors
///
/// A usage error: there is no such user.
pub(crate) fn words(config: &Config) -> Result<String> {
    of(config.agent.user.as_deref()).map(|user| words_of(user.as_ref()))
}

/// The same of a user.
pub(crate) fn words_of(user: Option<&User>) -> String {
    let own = geteuid().as_raw();
    match user {
        Some(user) => format!(
            "what traces and the worker have no capabilities, and the rights of {}",
            user.name
        ),
        None if own == 0 => format!(
            "what traces and the worker have no capabilities, but are root, as there is no user {WORKER_USER} and [agent] names no \
             other: they can write files that are root's"
        ),
        None => {
            format!("what traces and the worker have no capabilities, and the rights of user {own}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nwww:x:33:34::/:/bin/false\nreqtrace:x:990:991::/:/bin/false\n";

    #[test]
    fn the_user_is_the_one_that_is_named_or_reqtrace_if_there_is_one() {
        let of = |configured, known, own| among(configured, known, own).unwrap();
        let www = User {
            name: "www".to_owned(),
            number: 33,
            group: 34,
        };
        assert_eq!(of(Some("www"), KNOWN, 0), Some(www));
        assert_eq!(of(None, KNOWN, 0).unwrap().number, 990);
        assert_eq!(of(None, "root:x:0:0::/:/bin/sh\n", 0), None);
        assert_eq!(of(Some("root"), KNOWN, 0), None, "it is already");
        // An agent that is not root cannot become another one, and is not asked to.
        assert_eq!(of(None, KNOWN, 33), None);
        assert!(of(Some("www"), KNOWN, 990).is_some());
        let error = among(Some("wwww"), KNOWN, 0).unwrap_err();
        assert!(error.to_string().contains("user = \"wwww\""), "{error}");
        assert!(error.advice().unwrap().contains("systemd-sysusers"));
    }
}
