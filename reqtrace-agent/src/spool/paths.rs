//! Folders and files: what a file is about in; its path, made so that it outlasts a crash, out.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Makes a folder that its group may read, whatever the umask, and syncs those in which others are made.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make(parent)?;
    }
    match DirBuilder::new().mode(0o750).create(folder) {
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(0o750))?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    folder.parent().map_or(Ok(()), sync)
}

/// The same of a folder that files are handed over in: its group takes them away. Those above it are the agent's alone, so
/// that nobody can lead it elsewhere.
pub(crate) fn make_shared(folder: &Path) -> io::Result<()> {
    let is_new = !folder.is_dir();
    make(folder)?;
    match is_new {
        true => fs::set_permissions(folder, Permissions::from_mode(0o770)),
        false => Ok(()),
    }
}

pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A file that its group may read, whatever the umask.
pub(crate) fn file(path: &Path, is_new: bool) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(is_new)
        .mode(0o640)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o640))?;
    Ok(file)
}

pub(crate) fn folders(of: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let folders = named.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Hours since the Unix epoch.
pub(crate) fn hour(unix_ns: u64) -> u64 {
    unix_ns / 3_600_000_000_000
}

/// Date and hour, UTC.
pub(crate) fn partition(hour: u64) -> PathBuf {
    let seconds = i64::try_from(hour * 3_600).unwrap_or(0);
    let at = Timestamp::from_second(seconds).unwrap_or_default();
    let at = at.to_zoned(TimeZone::UTC);
    PathBuf::from(at.strftime("date=%Y-%m-%d/hour=%H").to_string())
}

/// As the name of a folder: what is no letter, digit, `.`, `_` or `-` is written as `%2F`, as HIVE does.
pub(crate) fn escaped(service: &str) -> String {
    let escape = |byte: u8| match byte {
        b'.' | b'_' | b'-' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    service.bytes().map(escape).collect()
}

/// As part of a file's name.
pub(crate) fn plain(host: &str) -> String {
    let plain = host.chars().take(100).map(|c| match c {
        '.' | '_' | '-' => c,
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    });
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_of_files_is_open_for_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("date=1/hour=2/service=a");
        make_shared(&shared).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let modes = shared.ancestors().take(3).map(mode);
        assert_eq!(modes.collect::<Vec<_>>(), [0o770, 0o750, 0o750]);
        // What somebody has given it stays.
        fs::set_permissions(&shared, Permissions::from_mode(0o700)).unwrap();
        make_shared(&shared).unwrap();
        assert_eq!(mode(&shared), 0o700);
    }
}
