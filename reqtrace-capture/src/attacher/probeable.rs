//! Files in which probes may be set: those that were handed over, as programs or as mappings of traced processes, in; whether this is
//! one of them out.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;

/// Files that probes may be set in; those that were not used for longest are forgotten first.
const MOST_FILES: usize = 1 << 14;
/// Files that were handed over as programs or mappings, by device and inode.
#[derive(Default)]
pub(super) struct Files {
    known: HashMap<(u64, u64), Known>,
    order: BTreeMap<u64, (u64, u64)>,
    /// Of the one that is used next.
    next: u64,
}

struct Known {
    /// Its place in the order of use.
    used: u64,
    /// A program is held open: its number is not given to another file. Probes for all that run it may be set.
    program: Option<File>,
}

impl Files {
    /// A file is handed over.
    pub(super) fn add(&mut self, inode: (u64, u64), program: Option<File>) {
        let before = self.known.remove(&inode);
        if let Some(before) = &before {
            self.order.remove(&before.used);
        }
        let program = program.or(before.and_then(|before| before.program));
        self.next += 1;
        let used = self.next;
        self.known.insert(inode, Known { used, program });
        self.order.insert(used, inode);
        if self.order.len() > MOST_FILES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether probes may be set in a file, for all that run it or for some processes. It is used once more.
    pub(super) fn may_be_probed(&mut self, inode: (u64, u64), for_all: bool) -> bool {
        let known = self.known.get(&inode);
        let may = known.is_some_and(|known| known.program.is_some() || !for_all);
        if may {
            self.add(inode, None);
        }
        may
    }
}
