//! Data directories that take seconds to make and are the same each time: made once, then copied.
//!
//! In: the program that makes one. Out: a copy of what it made, in a folder of the caller's.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context as _, Result};

use crate::process::run;
use crate::workspace;

/// Copies the data directory that `make` makes with `program` to `to`, which does not exist yet. The first call makes
/// it and keeps it in `target/tmp`, for as long as the program is the same file.
///
/// # Errors
///
/// When it cannot be made or copied.
pub fn copy(program: &Path, to: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let file = std::fs::metadata(program).with_context(|| program.display().to_string())?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let kept = workspace::target().join("tmp").join(format!(
        "prepared-{name}-{}-{}",
        file.mtime(),
        file.size()
    ));
    {
        let _first = ONE_AT_A_TIME.lock();
        if !kept.exists() {
            // Of its own, in `/tmp`: a server that does not run as root may not enter the workspace.
            let folder = tempfile::tempdir()?;
            if crate::process::is_root() {
                let parent = std::fs::metadata(to.parent().unwrap_or(to))?;
                std::os::unix::fs::chown(folder.path(), Some(parent.uid()), Some(parent.gid()))?;
            }
            let data = folder.path().join("data");
            make(&data)?;
            let partial = kept.with_extension(std::process::id().to_string());
            std::fs::create_dir_all(workspace::target().join("tmp"))?;
            copy_folder(&data, &partial)?;
            // Another process may have been faster: then its folder stays.
            if std::fs::rename(&partial, &kept).is_err() {
                std::fs::remove_dir_all(&partial)?;
            }
        }
    }
    copy_folder(&kept, to)
}

/// With owners and modes.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp")
        .args(["-a", "--reflink=auto", "-T"])
        .arg(from)
        .arg(to))
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_once_is_copied_each_time() {
        let folder = workspace::scratch().unwrap();
        let program = folder.path().join(format!("maker-{}", std::process::id()));
        std::fs::write(&program, "").unwrap();
        let mut made = 0;
        for name in ["a", "b"] {
            let to = folder.path().join(name);
            copy(&program, &to, |data| {
                made += 1;
                std::fs::create_dir(data)?;
                Ok(std::fs::write(data.join("file"), "text")?)
            })
            .unwrap();
            assert_eq!(std::fs::read_to_string(to.join("file")).unwrap(), "text");
        }
        assert_eq!(made, 1);
        for entry in std::fs::read_dir(workspace::target().join("tmp")).unwrap() {
            let path = entry.unwrap().path();
            if path
                .to_string_lossy()
                .contains(&format!("prepared-maker-{}-", std::process::id()))
            {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
}
