//! Names of files: what the kernel program sends of them in, those that are still in use out, when all names
//! are sent again.
//!
//! Who reads the stream keeps the names that were sent since [`Event::StacksAnew`], and those between
//! it and the one before. An open request may have blocked on a file before both: the name of such a file is
//! sent again.
//!
//! [`Event::StacksAnew`]: reqtrace_recording::Event::StacksAnew

use reqtrace_common::limits;
use reqtrace_common::record::FileId;
use reqtrace_recording::File;
use rustc_hash::FxHashMap;

/// Names since they were last sent again; beyond it they are sent again.
const MAX: usize = limits::MAX_FILES as usize;

/// What was sent since, and between then and the time before.
#[derive(Default)]
pub(super) struct FileNames {
    young: FxHashMap<FileId, File>,
    old: FxHashMap<FileId, File>,
}

impl FileNames {
    /// Takes a name that was sent.
    pub(super) fn add(&mut self, file: &File) {
        self.young.insert(file.file, file.clone());
    }

    /// Whether all are to be sent again.
    pub(super) fn is_full(&self) -> bool {
        self.young.len() >= MAX
    }

    /// Lets go of the older generation, but for the files in use. Returns those, to be sent again.
    pub(super) fn again(&mut self, in_use: &[FileId]) -> impl Iterator<Item = &File> {
        let mut kept = FxHashMap::default();
        for id in in_use {
            if let Some(file) = self.young.get(id).or_else(|| self.old.get(id)) {
                kept.insert(*id, file.clone());
            }
        }
        self.old = std::mem::replace(&mut self.young, kept);
        self.young.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: FileId) -> File {
        File {
            file: id,
            path: format!("/{id}"),
            device: 0,
            inode: 0,
        }
    }

    #[test]
    fn a_file_in_use_is_sent_again_each_time_and_no_other() {
        let mut names = FileNames::default();
        for id in 0..MAX as FileId {
            assert!(!names.is_full());
            names.add(&file(id));
        }
        assert!(names.is_full());
        for _ in 0..3 {
            let sent: Vec<_> = names
                .again(&[7, 7])
                .map(|file| file.path.as_str())
                .collect();
            assert_eq!(sent, ["/7"]);
            assert!(!names.is_full());
        }
        // It was in use until then.
        assert_eq!(names.again(&[]).count(), 0);
        assert_eq!(names.again(&[7]).count(), 1);
        assert_eq!(names.again(&[]).count(), 0);
        assert_eq!(names.again(&[]).count(), 0);
        assert_eq!(names.again(&[7]).count(), 0);
    }
}
