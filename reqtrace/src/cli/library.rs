//! Profiles by name: what stands after `--profile`, or the name of an executable, in; profiles out.
//!
//! They are looked for in the user's folder, in that of the machine, and in the program itself, in
//! this order: the first of a name is taken. See the module `folders` for what is read and what is not.

mod folders;

use std::fmt;
use std::path::{Path, PathBuf};

use folders::Folder;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::nearest;
use reqtrace_profile::builtin::{BUILT_IN, BuiltIn, from_file, full_name};
use reqtrace_profile::{CHEAP, Origin, Profile};
#[cfg(feature = "capture")]
use reqtrace_resolve::{Target, resolve_in, settle};

/// A profile that has a name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is asked for by.
    pub name: String,
    /// Where it is.
    pub place: Place,
}

/// Where a profile is.
#[derive(Clone, Debug)]
pub enum Place {
    /// A file of a folder that others than root or the user may have written: it is not read.
    Untrusted(PathBuf, String),
    /// A file.
    File(PathBuf),
    /// In the program.
    BuiltIn(&'static BuiltIn),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untrusted(path, _) | Self::File(path) => path.display().fmt(f),
            Self::BuiltIn(_) => f.write_str("built in"),
        }
    }
}

impl Entry {
    /// Reads and checks it.
    ///
    /// # Errors
    ///
    /// Usage errors: not readable, not a valid profile, or a file that others may have written.
    pub fn parse(&self) -> Result<Profile> {
        match &self.place {
            Place::BuiltIn(profile) => profile.parse(),
            Place::File(path) => from_file(path),
            Place::Untrusted(path, why) => Err(Error::usage(format!(
                "the profile {} is not read: {why}",
                path.display()
            ))
            .next(format!(
                "look at it; then `chown root` and `chmod go-w` what is named here, or --profile {}",
                path.display()
            ))),
        }
    }

    /// Its text, word for word.
    ///
    /// # Errors
    ///
    /// As [`Entry::parse`].
    pub fn text(&self) -> Result<String> {
        match (&self.place, self.parse()?.origin) {
            (Place::BuiltIn(profile), _) => Ok(profile.text.to_owned()),
            (_, Origin::File(path)) => std::fs::read_to_string(&path).map_err(|error| {
                Error::failed(format!("{} cannot be read again", path.display())).because(error)
            }),
            (_, Origin::BuiltIn) => Ok(String::new()),
        }
    }
}

/// All profiles that have a name, those of the user first; of one name the first is the one that is
/// taken.
#[must_use]
pub fn all() -> Vec<Entry> {
    let mut entries: Vec<Entry> = folders::folders()
        .iter()
        .flat_map(Folder::entries)
        .collect();
    entries.extend(BUILT_IN.iter().map(|profile| Entry {
        name: profile.name.to_owned(),
        place: Place::BuiltIn(profile),
    }));
    entries
}

/// The profile of this name, with or without `.toml`.
///
/// # Errors
///
/// A usage error that names the nearest one and lists all.
pub fn by_name(name: &str) -> Result<Entry> {
    let bare = name.strip_suffix(".toml").unwrap_or(name);
    let mut all = all();
    // A profile of the user's own may have what is another name of a built-in one.
    for wanted in [bare, full_name(bare)] {
        if let Some(found) = all.iter().position(|entry| entry.name == wanted) {
            return Ok(all.swap_remove(found));
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for entry in &all {
        if !names.contains(&entry.name.as_str()) {
            names.push(&entry.name);
        }
    }
    let mut advice = format!("profiles: {}", names.join(", "));
    if Path::new(name).is_file() {
        advice = format!("a path has a slash: --profile ./{name}");
    } else if let Some(best) = nearest(bare, names.iter().copied(), 1).first() {
        advice = format!("did you mean `{best}`? {advice}");
    }
    Err(Error::usage(format!("there is no profile named `{name}`")).next(advice))
}

/// Loads what the user named: a file where the name has a slash, else a profile by its name; with `:cheap` behind it
/// with fewer probes. What lies in the working directory is never taken for a profile with a name: anybody may have put it there.
///
/// # Errors
///
/// Usage errors: no such file or profile, not readable, or not a valid profile.
pub fn load(name: &str) -> Result<Profile> {
    if let Some(whole) = name.strip_suffix(CHEAP) {
        return load(whole)?.cheap();
    }
    if name.contains('/') {
        return from_file(Path::new(name));
    }
    by_name(name)?.parse()
}

/// Profiles that are made for executables, parsed once. A file that is no valid profile is reported on
/// standard error and left out: it may have nothing to do with what is looked for.
pub struct Library {
    profiles: Vec<(Entry, Profile)>,
}

impl Library {
    /// Reads all profiles; of one name only the first.
    #[must_use]
    pub fn read() -> Self {
        let mut profiles: Vec<(Entry, Profile)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for entry in all() {
            if names.contains(&entry.name) {
                continue;
            }
            names.push(entry.name.clone());
            match entry.parse() {
                Ok(profile) => profiles.push((entry, profile)),
                Err(error) => reqtrace_base::say!("reqtrace: {error}"),
            }
        }
        Self { profiles }
    }

    /// Those made for an executable of this file name, the one to take first.
    #[must_use]
    pub fn made_for(&self, executable: &str) -> Vec<&(Entry, Profile)> {
        let all = self.profiles.iter();
        all.filter(|(_, profile)| profile.is_made_for(executable))
            .collect()
    }

    /// The first profile made for an executable; says which, and which others there are.
    #[cfg(feature = "capture")]
    pub fn first_for(&self, executable: &str, quiet: bool) -> Option<Profile> {
        let fitting = self.made_for(executable);
        let ((entry, profile), others) = fitting.split_first()?;
        if !quiet {
            let mut text = format!(
                "reqtrace: {executable} has the profile {} ({})",
                entry.name, entry.place
            );
            if !others.is_empty() {
                let others: Vec<&str> = others
                    .iter()
                    .map(|(entry, _)| entry.name.as_str())
                    .collect();
                text.push_str(&format!("; --profile takes another: {}", others.join(", ")));
            }
            reqtrace_base::say!("{text}");
        }
        Some(profile.clone())
    }

    /// Those made for no program by its name, but for what many are made with, such as Go's net/http, whose places are all in
    /// this one.
    #[cfg(feature = "capture")]
    pub fn suiting(&self, target: &Target<'_>) -> Vec<&str> {
        let resolves = |profile: &Profile| {
            let (settled, _) = settle(profile, std::slice::from_ref(target))?;
            resolve_in(&settled, target)
        };
        let all = self.profiles.iter();
        all.filter(|(_, profile)| profile.executables.is_empty() && resolves(profile).is_ok())
            .map(|(entry, _)| entry.name.as_str())
            .collect()
    }
}

/// No profile is made for a program: which ones suit it all the same.
#[cfg(feature = "capture")]
pub fn no_profile(library: &Library, target: &Target<'_>, shown: impl fmt::Display) -> Error {
    let executable = target.executable().file_name();
    let error = Error::usage(format!(
        "no profile given, and none is made for {executable}: {shown}"
    ));
    let object = target.look_at(target.executable());
    let has_units =
        object.is_ok_and(|object| object.is_go() || reqtrace_resolve::runs_tasks(&object));
    let begin = match has_units {
        true => "`reqtrace functions -p PID --as-profile`",
        false => "`reqtrace functions -p PID NAME --as-profile`",
    };
    match library.suiting(target).as_slice() {
        [] => error.next(format!(
            "--profile takes a path or a name (`reqtrace profiles` lists those); {begin} begins a profile of your own"
        )),
        [one] => error.next(format!(
            "the profile {one} fits this program: --profile {one}; or begin one of your own: {begin}"
        )),
        many => {
            let described = |name: &&str| {
                let own = library.profiles.iter().find(|(entry, _)| entry.name == *name);
                match own.map_or("", |(_, profile)| &profile.description) {
                    "" => (*name).to_owned(),
                    words => format!("{name} ({words})"),
                }
            };
            let each: Vec<String> = many.iter().map(described).collect();
            error.next(format!(
                "these profiles fit this program, take one by --profile: {}; or begin one of your own: {begin}",
                each.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_found_by_name_and_executable() {
        assert_eq!(load("mysql").unwrap(), load("mysql.toml").unwrap());
        assert_eq!(load("mariadb").unwrap(), load("mysql").unwrap());
        let error = load("mysqll").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let advice = error.advice().unwrap();
        assert!(advice.contains("did you mean `mysql`?"), "{advice}");
        assert!(advice.contains("postgresql-usdt"), "{advice}");
        let library = Library::read();
        let names = |executable| -> Vec<String> {
            let found = library.made_for(executable);
            found.iter().map(|(entry, _)| entry.name.clone()).collect()
        };
        assert!(names("nginx").contains(&"nginx".to_owned()));
        assert!(names("bash").is_empty());
    }
}
