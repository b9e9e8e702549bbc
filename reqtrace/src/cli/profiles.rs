//! `reqtrace profiles`: lists the profiles that have a name, or prints one word for word.

use std::io::{self, Write as _};

use super::library::{self, Entry};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;

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
        Some(name) => library::by_name(name)?.text()?,
        None => list(&library::all()),
    };
    print(&text)
}

/// A line for each: name, place, description; or why it cannot be used.
fn list(entries: &[Entry]) -> String {
    let width = |of: fn(&Entry) -> usize| entries.iter().map(of).max().unwrap_or_default();
    let names = width(|entry| entry.name.len());
    let places = width(|entry| entry.place.to_string().len());
    let mut text = String::new();
    for (index, entry) in entries.iter().enumerate() {
        let is_hidden = entries[..index].iter().any(|one| one.name == entry.name);
        let description = match entry.parse() {
            _ if is_hidden => "not used: the one above has its name".to_owned(),
            Ok(profile) => profile.description,
            Err(error) => format!("cannot be used: {error}"),
        };
        let place = entry.place.to_string();
        text.push_str(&format!(
            "{:names$}  {place:places$}  {description}\n",
            entry.name
        ));
    }
    text
}

/// Writes to standard output; a reader that has gone away is no error.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out
        .write_all(Plain::lines(text).as_bytes())
        .and_then(|()| out.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::failed("cannot write to standard output").because(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::library::Place;
    use reqtrace_profile::builtin::BUILT_IN;

    #[test]
    fn the_list_has_every_profile_with_its_place_and_description() {
        let mysql = BUILT_IN.iter().find(|profile| profile.name == "mysql");
        let built_in = || Entry {
            name: "mysql".to_owned(),
            place: Place::BuiltIn(mysql.unwrap()),
        };
        let mut entries = vec![built_in(), built_in()];
        entries.push(Entry {
            name: "x".to_owned(),
            place: Place::File("/nonexistent/x.toml".into()),
        });
        let list = list(&entries);
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines[0].starts_with("mysql  built in "), "{list}");
        assert!(
            lines[0].contains("one request per client command"),
            "{list}"
        );
        assert!(
            lines[1].ends_with("not used: the one above has its name"),
            "{list}"
        );
        assert!(
            lines[2].starts_with("x      /nonexistent/x.toml  cannot be used: "),
            "{list}"
        );
    }
}
