//! Folders: a path in, the folder out, reached through nothing that another user could change.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fstat, mkdirat, open, openat,
    readlinkat,
};
use rustix::io::Errno;

use super::Refused;

/// Symbolic links that are followed on the way, as the kernel does.
const MAX_LINKS: u32 = 40;
/// Whose machine it is.
const ROOT: u32 = 0;

/// A folder that was reached safely.
pub(in crate::outputs) struct Folder {
    pub(super) file: OwnedFd,
    /// What is not there yet below it.
    missing: PathBuf,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Folder").field(&self.missing).finish()
    }
}

impl Folder {
    /// Goes to a folder, as far as it is there; with `make` what is missing is made.
    pub(in crate::outputs) fn reach(path: &Path, make: bool) -> Result<Self, Refused> {
        let trusted = trusted();
        let root = |path| open(path, path_flags() | OFlags::DIRECTORY, Mode::empty());
        let mut here = root(if path.is_absolute() { "/" } else { "." })?;
        let mut shown = PathBuf::from(if path.is_absolute() { "/" } else { "." });
        check(&fstat(&here)?, &shown, &trusted)?;
        let mut rest: VecDeque<OsString> = parts(path);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let next = match openat(&here, &name, path_flags(), Mode::empty()) {
                Err(Errno::NOENT) if make => {
                    match mkdirat(&here, &name, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    openat(&here, &name, path_flags(), Mode::empty())
                }
                other => other,
            };
            let next = match next {
                Ok(next) => next,
                Err(Errno::NOENT) => {
                    let missing = std::iter::once(name).chain(rest).collect();
                    return Ok(Self {
                        file: here,
                        missing,
                    });
                }
                Err(error) => return Err(error.into()),
            };
            let status = fstat(&next)?;
            let place = shown.join(&name);
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory => {
                    check(&status, &place, &trusted)?;
                    (here, shown) = (next, place);
                }
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    if !trusted.contains(&status.st_uid) {
                        let place = place.display().to_string();
                        return Err(Refused::Foreign(place, status.st_uid));
                    }
                    let target = readlinkat(&next, "", Vec::new())?.into_bytes();
                    let target = PathBuf::from(OsString::from_vec(target));
                    if target.is_absolute() {
                        (here, shown) = (root("/")?, PathBuf::from("/"));
                    }
                    for part in parts(&target).into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        Ok(Self {
            file: here,
            missing: PathBuf::new(),
        })
    }

    /// Whether something can be made in it now.
    pub(in crate::outputs) fn is_writable(&self) -> io::Result<()> {
        Ok(accessat(
            &self.file,
            ".",
            Access::WRITE_OK,
            AtFlags::EACCESS,
        )?)
    }

    /// Whether it is there at all.
    pub(in crate::outputs) fn is_there(&self) -> bool {
        self.missing.as_os_str().is_empty()
    }
}

fn path_flags() -> OFlags {
    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

/// Root, the user that runs this, and the one that has become root by sudo.
pub(super) fn trusted() -> Vec<u32> {
    let own = rustix::process::geteuid().as_raw();
    let mut trusted = vec![ROOT, own];
    if own == ROOT {
        let user = std::env::var("SUDO_UID").ok();
        trusted.extend(user.and_then(|user| user.parse::<u32>().ok()));
    }
    trusted
}

fn check(status: &Stat, place: &Path, trusted: &[u32]) -> Result<(), Refused> {
    const WRITABLE_BY_ALL: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let shown = || place.display().to_string();
    if !trusted.contains(&status.st_uid) {
        return Err(Refused::Foreign(shown(), status.st_uid));
    }
    if status.st_mode & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL {
        return Err(Refused::Open(shown()));
    }
    Ok(())
}
