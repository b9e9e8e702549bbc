//! `reqtrace profiles`: lists the built-in profiles, or prints one word for word.

use std::io::{self, Write as _};

use crate::error::{Error, Result};
use crate::profile::builtin::{BUILT_IN, built_in};

/// Arguments of `profiles`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfilesArgs {
    /// Print this one, to start a profile of your own from
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Runs it.
///
/// # Errors
///
/// No such profile, or standard output cannot be written (a broken pipe is no error).
pub fn run(args: &ProfilesArgs) -> Result<()> {
    let text = match &args.name {
        Some(name) => built_in(name)?.text.to_owned(),
        None => list()?,
    };
    print(&text)
}

fn list() -> Result<String> {
    let width = BUILT_IN.iter().map(|profile| profile.name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for profile in BUILT_IN {
        let description = profile.parse()?.description;
        text.push_str(&format!("{:width$}  {description}\n", profile.name));
    }
    Ok(text)
}

/// Writes to standard output; a reader that has gone away is no error.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::failed("cannot write to standard output").because(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_profile_with_its_description() {
        let list = list().unwrap();
        assert_eq!(list.lines().count(), BUILT_IN.len());
        assert!(list.contains("mysql"), "{list}");
        assert!(list.contains("one request per client command"), "{list}");
    }
}
