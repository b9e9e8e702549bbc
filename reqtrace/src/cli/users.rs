//! Users: names in, numbers out, and the reverse for messages. `/etc/passwd` is all that is asked; a user
//! of a directory service has a number too.

use reqtrace_base::error::{Error, Result};

/// The number of a user.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Usage`] when nobody has that name.
pub(super) fn number(user: &str) -> Result<u32> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let wanted = |(name, _): &(String, u32)| name == user;
    known().into_iter().find(wanted).map_or_else(
        || {
            Err(
                Error::usage(format!("--user `{user}`: /etc/passwd has no such user"))
                    .next("give the number, which `id -u USER` says"),
            )
        },
        |(_, number)| Ok(number),
    )
}

/// The name of a user, or the number where it has none.
pub(super) fn name(number: u32) -> String {
    let wanted = |(_, known): &(String, u32)| *known == number;
    let found = known().into_iter().find(wanted);
    found.map_or_else(|| number.to_string(), |(name, _)| name)
}

fn known() -> Vec<(String, u32)> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_the_same_users() {
        assert_eq!(number("root").unwrap(), 0);
        assert_eq!(number("4242").unwrap(), 4242);
        assert_eq!(name(0), "root");
        assert_eq!(name(4_000_000_000), "4000000000");
        let error = number("nobody here").unwrap_err().to_string();
        assert!(error.contains("nobody here"), "{error}");
    }
}
