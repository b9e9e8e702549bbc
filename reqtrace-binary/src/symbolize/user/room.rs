//! What is kept of mapped files: open files and copies of their names in, those that are let go first out.

use std::rc::Rc;

use super::{MAX_FILES, MAX_LEFT_OUT, Module, UserSymbols};

/// Bytes of disk that deleted files may take because they are kept open.
const MAX_PINNED: u64 = 64 << 20;
impl UserSymbols {
    /// Closes files that no process maps any more, and deleted ones when they take too much disk.
    pub(super) fn make_room(&mut self) {
        let in_use = |module: &Rc<Module>| Rc::strong_count(module) > 1;
        if self.modules.len() >= MAX_FILES {
            self.modules.retain(|_, module| in_use(module));
        }
        let mut pinned = 0;
        let left_out = &mut self.left_out;
        self.modules.retain(|key, module| {
            let bytes = module.pinned();
            let stays = bytes == 0 || pinned + bytes <= MAX_PINNED;
            if stays {
                pinned += bytes;
                return true;
            }
            if !module.is_named() && left_out.len() < MAX_LEFT_OUT {
                left_out.insert(key.clone());
            }
            // Another file may get its inode: it is not to be found by that any more.
            module.close();
            false
        });
    }

    /// Reads the names of a file, if they are not there; those of others that nobody needed lately go for it, least
    /// recently used first.
    pub(super) fn read_names(&mut self, module: &Rc<Module>) {
        let Some(bytes) = module.wants_names(self.idle) else {
            return;
        };
        let [all, without_debug] = bytes;
        let wanted = match all <= self.room.most() {
            true => all,
            false => without_debug,
        };
        self.take_names(module, wanted);
        if module.read_names(bytes, &mut self.room) {
            // Some addresses have other names now.
            self.cache.clear();
        }
        let id = module.build_id();
        let mut copies = self
            .modules
            .values()
            .filter(|other| !id.is_empty() && other.build_id() == id && !Rc::ptr_eq(other, module));
        copies.any(|other| module.share(other));
    }

    /// Takes names of other files away, until there is room for so many bytes.
    fn take_names(&self, module: &Rc<Module>, wanted: u64) {
        if self.room.left() >= wanted {
            return;
        }
        let others = self.modules.values().filter_map(|other| {
            let used = other.used().filter(|_| !Rc::ptr_eq(other, module))?;
            (used.elapsed() >= self.idle).then_some((used, other))
        });
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|(used, _)| *used);
        for (_, other) in others {
            if self.room.left() >= wanted {
                break;
            }
            other.forget_names();
        }
    }
}
