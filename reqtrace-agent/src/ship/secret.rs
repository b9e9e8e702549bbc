//! Secrets: a path, or the name of a systemd credential, in; the text that lies there out, to nobody but the one who sends it.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use reqtrace_base::error::{Error, Result};

/// A password or key is some lines.
const MAX_BYTES: u64 = 64 << 10;

/// Where a secret lies. It is read each time that it is needed: a new one needs no restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Secret {
    path: PathBuf,
}

impl Secret {
    /// `name` is a whole path, or a credential that systemd has put into this service's folder.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        if name.starts_with('/') {
            return Ok(Self {
                path: PathBuf::from(name),
            });
        }
        if name.contains('/') || name.starts_with('.') {
            return Err("this is neither a whole path nor the name of a credential".to_owned());
        }
        match std::env::var_os("CREDENTIALS_DIRECTORY") {
            Some(folder) => Ok(Self {
                path: Path::new(&folder).join(name),
            }),
            None => Err("this is no whole path, and systemd has given no credentials".to_owned()),
        }
    }

    /// Its lines, without what is white at their ends.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is empty, or everybody may read it.
    pub(super) fn lines(&self) -> Result<Vec<String>> {
        let name = self.path.display();
        let cannot = |error: std::io::Error| {
            Error::usage(format!("the secret {name} cannot be read"))
                .because(error)
                .next("give a file that this user may read, or LoadCredential= in the unit")
        };
        let file = File::open(&self.path).map_err(cannot)?;
        let mode = file.metadata().map_err(cannot)?.permissions().mode();
        if mode & 0o007 != 0 {
            let what = format!(
                "the secret {name} has the mode {:04o}: everybody may read it",
                mode & 0o7777
            );
            return Err(Error::usage(what).next(format!("chmod o= {name}")));
        }
        let mut text = String::new();
        file.take(MAX_BYTES)
            .read_to_string(&mut text)
            .map_err(cannot)?;
        let lines = text.lines().map(|line| line.trim().to_owned());
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        match lines.is_empty() {
            true => Err(Error::usage(format!("the secret {name} is empty"))
                .next("write it into the file, or leave the key out of the configuration")),
            false => Ok(lines),
        }
    }
}
