//! Open files: a mapping or a path in, the file out. While a trace begins, each is opened once for all who
//! want it: resolution, unwinding, naming.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lazy::LazyFile;
use crate::maps::{FileKey, Mapped};

/// Files that are kept at most: others are opened for each who asks.
const MAX_KEPT: usize = 256;

/// Files that are open. Clones are the same files.
///
/// They are read by offset only, so that nobody minds who else does.
#[derive(Clone, Debug, Default)]
pub struct Files(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<FileKey, Arc<File>>,
    /// From now on none is kept: a process that maps new files for ever would have them pinned.
    is_over: bool,
}

impl Files {
    /// The file of a mapping.
    ///
    /// # Errors
    ///
    /// As [`Mapped::open`].
    pub fn of_mapping(&self, mapped: &Mapped, pid: u32) -> io::Result<(Arc<File>, FileKey)> {
        self.get(mapped.key(pid), || {
            let (file, key) = mapped.open(pid)?;
            Ok((Arc::new(file), key))
        })
    }

    /// A file that may be open already.
    ///
    /// # Errors
    ///
    /// As [`LazyFile::open`].
    pub fn of(&self, file: &LazyFile) -> io::Result<(Arc<File>, FileKey)> {
        let key = file.key()?;
        self.get(Some(key), || Ok((file.open()?, key)))
    }

    /// Closes those that nobody else has, and keeps none from now on: each who asks has a file of its own.
    pub fn forget(&self) {
        *self.kept() = Kept {
            is_over: true,
            ..Kept::default()
        };
    }

    fn get(
        &self,
        key: Option<FileKey>,
        open: impl FnOnce() -> io::Result<(Arc<File>, FileKey)>,
    ) -> io::Result<(Arc<File>, FileKey)> {
        let mut kept = self.kept();
        if let Some(key) = key
            && let Some(file) = kept.files.get(&key)
        {
            return Ok((Arc::clone(file), key));
        }
        let (file, key) = open()?;
        // What it is was not known before it was open.
        if let Some(known) = kept.files.get(&key) {
            return Ok((Arc::clone(known), key));
        }
        if kept.files.len() < MAX_KEPT && !kept.is_over {
            kept.files.insert(key, Arc::clone(&file));
        }
        Ok((file, key))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::maps;

    #[test]
    fn a_file_is_opened_once_and_another_at_its_path_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library");
        fs::write(&path, "one").unwrap();
        let files = Files::default();
        let (first, key) = files.of(&LazyFile::at(&path)).unwrap();
        let (again, same) = files.clone().of(&LazyFile::at(&path)).unwrap();
        assert_eq!((first.as_raw_fd(), key), (again.as_raw_fd(), same));
        fs::rename(&path, folder.path().join("old")).unwrap();
        fs::write(&path, "two").unwrap();
        let (other, other_key) = files.of(&LazyFile::at(&path)).unwrap();
        assert_ne!(first.as_raw_fd(), other.as_raw_fd());
        assert_ne!(key, other_key);
        files.forget();
        drop((again, other));
        assert_eq!(Arc::strong_count(&first), 1);
        let (late, _) = files.of(&LazyFile::at(&path)).unwrap();
        assert_eq!(Arc::strong_count(&late), 1);
        assert!(files.of(&LazyFile::at(folder.path())).is_err());
    }

    #[test]
    fn mappings_of_this_program_have_its_file() {
        let (pid, files) = (std::process::id(), Files::default());
        let maps = maps::executable(pid).unwrap();
        let own = std::env::current_exe().unwrap();
        let map = maps.iter().find(|map| map.name == own).unwrap();
        let (by_mapping, _) = files.of_mapping(map, pid).unwrap();
        let (by_path, _) = files.of(&LazyFile::at(&own)).unwrap();
        assert_eq!(by_mapping.as_raw_fd(), by_path.as_raw_fd());
    }
}
