//! Stacks by id: those in the kernel's table, and copies of those that were taken out of it.
//!
//! The table has room for those of some windows only, and what refers to a stack may come much later: a
//! thread blocks, and is woken after an hour. So the copies that an open request still refers to are
//! kept, and of the others those that came last. They are in two generations: when the younger one is
//! full it becomes the older one, and what was in that goes.

use aya::maps::{HashMap, Map, MapData};
use reqtrace_common::record::StackId;
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::Stop;
use rustc_hash::FxHashMap;

use super::batch;
use reqtrace_base::error::{Error, Result};

/// Addresses of a generation: 8 MiB, some 30,000 stacks.
const MAX_ADDRESSES: usize = 1 << 20;

/// Stored stacks by id.
pub struct StackTable {
    map: Map,
    young: FxHashMap<StackId, RawStack>,
    old: FxHashMap<StackId, RawStack>,
    /// Addresses in `young`.
    addresses: usize,
}

/// A stack as the kernel stored it.
#[derive(Clone, Debug)]
pub(crate) struct RawStack {
    /// Addresses, innermost first.
    pub(crate) addresses: Box<[u64]>,
    /// Why the walk stopped.
    pub(crate) stop: Stop,
    check: u64,
}

impl StackTable {
    pub(super) fn new(map: Map) -> Result<Self> {
        if !matches!(map, Map::HashMap(_)) {
            return Err(Error::failed("the table of stacks is no hash map"));
        }
        Ok(Self {
            map,
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            addresses: 0,
        })
    }

    /// The addresses of a stack; `None` when it is not known.
    pub(crate) fn stack(&self, id: StackId) -> Option<RawStack> {
        let copy = self.young.get(&id).or_else(|| self.old.get(&id));
        copy.cloned().or_else(|| {
            let table: HashMap<&MapData, u64, StoredStack> = HashMap::try_from(&self.map).ok()?;
            let stored = [id, id | 1]
                .into_iter()
                .find_map(|key| table.get(&key, 0).ok());
            stored.as_ref().map(RawStack::of)
        })
    }

    /// Takes the stacks of a window that is over out of the kernel's table. Returns how many have the id
    /// of another one.
    ///
    /// # Errors
    ///
    /// When the kernel's table cannot be read or written.
    pub(crate) fn take(&mut self, window: u64) -> Result<u64> {
        let mut keys = Vec::new();
        let mut collisions = 0;
        batch::entries(&self.map, |key: &u64, stored: &StoredStack| {
            if key & 1 != window {
                return;
            }
            keys.push(*key);
            let stack = RawStack::of(stored);
            let known = self
                .young
                .get(&(key & !1))
                .or_else(|| self.old.get(&(key & !1)));
            collisions += u64::from(known.is_some_and(|known| known.check != stack.check));
            Self::keep(&mut self.young, &mut self.addresses, key & !1, stack);
        })?;
        batch::delete::<u64, StoredStack>(&self.map, &keys)?;
        Ok(collisions)
    }

    /// Whether copies have to go soon: then those that are still referred to are wanted.
    pub(crate) fn is_full(&self) -> bool {
        self.addresses >= MAX_ADDRESSES
    }

    /// Keeps these copies longer.
    pub(crate) fn keep_on(&mut self, ids: impl Iterator<Item = StackId>) {
        for id in ids {
            if let Some(stack) = self.old.remove(&id) {
                Self::keep(&mut self.young, &mut self.addresses, id, stack);
            }
        }
    }

    /// Lets go of the copies of the older generation. All that refers to them and came before
    /// [`StackTable::keep_on`] was called has been seen.
    pub(crate) fn let_go(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.addresses = 0;
    }

    fn keep(
        young: &mut FxHashMap<StackId, RawStack>,
        addresses: &mut usize,
        id: StackId,
        stack: RawStack,
    ) {
        *addresses += stack.addresses.len();
        if let Some(before) = young.insert(id, stack) {
            *addresses -= before.addresses.len();
        }
    }
}

impl RawStack {
    fn of(stored: &StoredStack) -> Self {
        let len = (stored.len as usize).min(stored.frames.len());
        Self {
            addresses: stored.frames[..len].into(),
            stop: Stop::of(stored.stop),
            check: stored.check,
        }
    }
}
