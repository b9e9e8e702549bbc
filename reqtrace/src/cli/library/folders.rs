//! The folders of named profiles: the environment in, files that may be read out.
//!
//! A trace runs as root. So a file counts only if nobody else can have written it, or put it there: it, its
//! folder and all folders above belong to root, to the user, or to the user who called `sudo`, and nobody
//! else may write to them.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Entry, Place};

/// Profiles for all users of a machine.
const OF_THE_MACHINE: &str = "/etc/reqtrace/profiles";
/// Below the folder of configuration of a user.
const OF_A_USER: &str = "reqtrace/profiles";

/// A folder of profiles, and who may have written them.
pub(super) struct Folder {
    path: PathBuf,
    trusted: Trusted,
}

/// Users and groups whose files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trusted {
    users: Vec<u32>,
    groups: Vec<u32>,
}

/// What of the environment decides where a user's profiles are.
#[derive(Clone, Debug, Default)]
struct Environment {
    user: u32,
    group: u32,
    config: Option<PathBuf>,
    home: Option<PathBuf>,
    sudo_user: Option<u32>,
    sudo_group: Option<u32>,
    sudo_home: Option<PathBuf>,
}

/// The user's folder, then the machine's.
pub(super) fn folders() -> Vec<Folder> {
    let environment = Environment::of_this_process();
    let trusted = environment.trusted();
    let machine = PathBuf::from(OF_THE_MACHINE);
    let mut paths: Vec<PathBuf> = environment.folder().into_iter().collect();
    paths.push(machine);
    let folder = |path| Folder {
        path,
        trusted: trusted.clone(),
    };
    paths.into_iter().map(folder).collect()
}

impl Environment {
    fn of_this_process() -> Self {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let number = |name| std::env::var(name).ok()?.parse().ok();
        // SAFETY: both have no precondition.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let sudo_user = number("SUDO_UID");
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self {
            user,
            group,
            config: path("XDG_CONFIG_HOME"),
            home: path("HOME"),
            sudo_user,
            sudo_group: number("SUDO_GID"),
            sudo_home: path("SUDO_HOME").or_else(|| home_of(sudo_user?, &passwd)),
        }
    }

    /// Whether root runs this for somebody else.
    fn is_sudo(&self) -> bool {
        self.user == 0 && self.sudo_user.is_some_and(|user| user != 0)
    }

    /// Under `sudo` it is the folder of the user who called it: that is where they put theirs.
    fn folder(&self) -> Option<PathBuf> {
        let below = |home: &PathBuf| home.join(".config");
        let home = if self.is_sudo() {
            &self.sudo_home
        } else {
            &self.home
        };
        let config = self.config.clone().filter(|path| path.is_absolute());
        let config = config.or_else(|| home.as_ref().map(below))?;
        config.is_absolute().then(|| config.join(OF_A_USER))
    }

    fn trusted(&self) -> Trusted {
        let mut trusted = Trusted {
            users: vec![0, self.user],
            groups: vec![0, self.group],
        };
        if self.is_sudo() {
            trusted.users.extend(self.sudo_user);
            trusted.groups.extend(self.sudo_group);
        }
        trusted
    }
}

/// The home of a user in the text of `/etc/passwd`. Users of another directory are not in there.
fn home_of(user: u32, passwd: &str) -> Option<PathBuf> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let id: u32 = fields.nth(2)?.parse().ok()?;
        (id == user).then(|| fields.nth(2).map(PathBuf::from))?
    })
}

impl Folder {
    /// Its profiles, by name; none when there is no such folder.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let Ok(files) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let of_folder = fs::metadata(&self.path).ok();
        let of_folder = of_folder
            .and_then(|data| self.trusted.objection(&self.path, &data))
            .or_else(|| self.trusted.objection_to_way(&self.path));
        let mut entries: Vec<Entry> = files
            .filter_map(|file| self.entry(&file.ok()?.path(), of_folder.as_deref()))
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    fn entry(&self, path: &Path, of_folder: Option<&str>) -> Option<Entry> {
        if path.extension()? != "toml" {
            return None;
        }
        let name = path.file_stem()?.to_str()?.to_owned();
        let data = fs::metadata(path).ok()?;
        // Opening a FIFO would hang.
        if !data.is_file() {
            return None;
        }
        let objection = of_folder
            .map(ToOwned::to_owned)
            .or_else(|| self.trusted.objection(path, &data))
            .or_else(|| self.trusted.objection_to_way(path));
        let place = match objection {
            Some(why) => Place::Untrusted(path.to_owned(), why),
            None => Place::File(path.to_owned()),
        };
        Some(Entry { name, place })
    }
}

impl Trusted {
    /// Why a file or folder may have been written by somebody else.
    fn objection(&self, path: &Path, data: &Metadata) -> Option<String> {
        self.objection_to(data.uid(), data.gid(), data.mode())
            .map(|why| format!("{} {why}", path.display()))
    }

    /// Why somebody else may have put it there: by a folder or a link on the way to it, or on the way to what
    /// a link names.
    fn objection_to_way(&self, path: &Path) -> Option<String> {
        let real = fs::canonicalize(path).ok()?;
        let mut steps = path.ancestors().chain(real.ancestors().skip(1));
        steps.find_map(|step| {
            let data = fs::symlink_metadata(step).ok()?;
            let mode = match data.mode() {
                // The mode of a link means nothing.
                _ if data.is_symlink() => 0,
                // What is in there belongs to its owner whoever may write: it is a step of its own.
                mode if mode & libc::S_ISVTX != 0 => 0,
                mode => mode,
            };
            self.objection_to(data.uid(), data.gid(), mode)
                .map(|why| format!("{} {why}", step.display()))
        })
    }

    fn objection_to(&self, user: u32, group: u32, mode: u32) -> Option<String> {
        if !self.users.contains(&user) {
            return Some(format!("belongs to user {user}"));
        }
        if mode & 0o002 != 0 {
            return Some(format!(
                "can be written by everybody (mode {:o})",
                mode & 0o7777
            ));
        }
        if mode & 0o020 != 0 && !self.groups.contains(&group) {
            return Some(format!(
                "can be written by group {group} (mode {:o})",
                mode & 0o7777
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_root() -> Environment {
        Environment {
            home: Some("/root".into()),
            ..Environment::default()
        }
    }

    #[test]
    fn under_sudo_the_folder_is_the_callers() {
        let mut environment = of_root();
        let folder = |environment: &Environment| environment.folder().unwrap();
        assert_eq!(
            folder(&environment),
            Path::new("/root/.config/reqtrace/profiles")
        );
        environment.sudo_user = Some(1000);
        environment.sudo_home = Some("/home/ada".into());
        assert_eq!(
            folder(&environment),
            Path::new("/home/ada/.config/reqtrace/profiles")
        );
        assert_eq!(environment.trusted().users, [0, 0, 1000]);
        environment.config = Some("/config".into());
        assert_eq!(folder(&environment), Path::new("/config/reqtrace/profiles"));
        // A relative path is none, says the standard.
        environment.config = Some("config".into());
        assert!(folder(&environment).starts_with("/home/ada"));
        // What a user who is not root has in the environment counts for nothing.
        environment.user = 1001;
        environment.home = Some("/home/eve".into());
        environment.config = None;
        assert!(folder(&environment).starts_with("/home/eve"));
        assert_eq!(environment.trusted().users, [0, 1001]);
    }

    #[test]
    fn files_that_others_can_write_are_objected_to() {
        let mut environment = of_root();
        environment.sudo_user = Some(1000);
        environment.sudo_group = Some(1000);
        let trusted = environment.trusted();
        for (user, group, mode) in [(0, 0, 0o644), (1000, 1000, 0o664), (1000, 7, 0o644)] {
            assert_eq!(trusted.objection_to(user, group, mode), None);
        }
        let objection = |user, group, mode| trusted.objection_to(user, group, mode).unwrap();
        assert_eq!(objection(1001, 0, 0o644), "belongs to user 1001");
        assert!(objection(0, 0, 0o100_666).contains("everybody (mode 666)"));
        assert!(objection(1000, 7, 0o664).contains("group 7"));
    }

    #[test]
    fn a_home_is_read_from_the_list_of_users() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000:Ada:/home/ada:/bin/sh\nbad\n";
        assert_eq!(home_of(1000, passwd), Some("/home/ada".into()));
        assert_eq!(home_of(7, passwd), None);
    }
}
