//! A configuration and its profiles, which only root may be able to read: files in; texts, and what they say, out.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use reqtrace_base::error::{Error, Result};
use reqtrace_profile::{CHEAP, Origin, Profile};
use serde::{Deserialize, Serialize};

use crate::config::{Config, Profiles};

/// A configuration and its profiles, which are root's to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Texts {
    configuration: String,
    /// By the name that the configuration has for it, the path and the text of each that is a file.
    profiles: BTreeMap<String, (PathBuf, String)>,
}

impl Texts {
    /// Reads them.
    pub(super) fn read(path: &Path, profiles: Profiles<'_>) -> Result<(Config, Self)> {
        let texts = RefCell::new(Self {
            configuration: Config::text(path)?,
            profiles: BTreeMap::new(),
        });
        let load = |name: &str| {
            let profile = profiles(name)?;
            if let Origin::File(path) = &profile.origin {
                let text = fs::read_to_string(path).map_err(|error| {
                    Error::usage(format!("cannot read the profile {}", path.display()))
                        .because(error)
                })?;
                let file = (path.clone(), text);
                texts.borrow_mut().profiles.insert(name.to_owned(), file);
            }
            Ok(profile)
        };
        let text = texts.borrow().configuration.clone();
        let config = Config::parse(&text, &path.display().to_string(), &load)?;
        Ok((config, texts.into_inner()))
    }

    /// What they say.
    pub(super) fn parse(&self, path: &Path, profiles: Profiles<'_>) -> Result<Config> {
        let load = |name: &str| {
            let Some((path, text)) = self.profiles.get(name) else {
                return profiles(name);
            };
            let shown = path.display().to_string();
            let profile = Profile::parse(text, &shown, Origin::File(path.clone()))?;
            match name.ends_with(CHEAP) {
                true => profile.cheap(),
                false => Ok(profile),
            }
        };
        Config::parse(&self.configuration, &path.display().to_string(), &load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_comes_with_the_profiles_that_only_root_reads() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("a.toml"), folder.path().join("p.toml"));
        let text = "[profile]\nname = \"own\"\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\nend = { function = \"f\", at = \"return\" }\n";
        fs::write(&file, text).unwrap();
        let rule = |service: &str, profile: &str| {
            format!(
                "[[rule]]\nmatch = {{ exe = \"/x\" }}\nservice = \"{service}\"\nprofile = \"{profile}\"\n"
            )
        };
        let shown = file.display().to_string();
        fs::write(&path, rule("a", &shown) + &rule("b", "mysql")).unwrap();
        let load = |name: &str| match name.contains('/') {
            true => reqtrace_profile::builtin::from_file(Path::new(name)),
            false => reqtrace_profile::builtin::built_in(name).unwrap().parse(),
        };
        let (config, texts) = Texts::read(&path, &load).unwrap();
        assert_eq!(texts.profiles.keys().collect::<Vec<_>>(), [&shown]);
        fs::remove_file(&file).unwrap();
        assert_eq!(texts.parse(&path, &load).unwrap(), config);
        assert!(Texts::read(&path, &load).is_err());
    }
}
