//! Stacks of the page: places in, each stack once and by number, out.

use std::sync::Arc;

use reqtrace_common::record::{STACK_LOST, StackId};
use reqtrace_recording::{AddressSpace, BlockSite};
use rustc_hash::FxHashMap;

use super::OwnStacks;
use crate::blame::Naming;
use crate::report::page::PageStack;
use crate::report::{Ledger, NOT_SAMPLED, StackKind};

/// Stacks that are distinguished.
const MAX_STACKS: usize = 1 << 14;
/// Places whose stack is remembered.
const MAX_PLACES: usize = 1 << 16;
/// The frame of all others.
const OTHER_STACKS: &str = "[other stacks]";
/// The frame of a stack that is lost, or that found no room in its request.
const LOST: &str = "[stack lost]";

/// The number of a stack.
pub(crate) type StackNumber = u32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Named {
    /// Numbers of texts, outermost first.
    frames: Arc<[u32]>,
    kind: StackKind,
    class: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PlaceKey {
    space: AddressSpace,
    user: StackId,
    kernel: StackId,
    kind: StackKind,
    class: Option<u32>,
}

/// Stacks so far.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    places: FxHashMap<PlaceKey, StackNumber>,
    numbers: FxHashMap<Named, StackNumber>,
    stacks: Vec<Named>,
    /// Of those, stacks of one frame at most.
    plain: FxHashMap<(Option<u32>, StackKind, Option<u32>), StackNumber>,
    /// Places whose stack found no room.
    pub(super) merged: u64,
    /// The texts of [`OTHER_STACKS`] and [`LOST`].
    texts: Option<[u32; 2]>,
}

impl Stacks {
    /// The number of the stack of a place.
    pub(super) fn number(
        &mut self,
        naming: &mut impl Naming,
        space: AddressSpace,
        site: &BlockSite,
        kind: StackKind,
        class: Option<u32>,
    ) -> StackNumber {
        let key = PlaceKey {
            space,
            user: site.user_stack,
            kernel: site.kernel_stack,
            kind,
            class,
        };
        if let Some(number) = self.places.get(&key) {
            return *number;
        }
        let mut frames = naming.texts(Some(space), key.user);
        if !(key.user == STACK_LOST && key.kernel == STACK_LOST) {
            frames.extend(naming.texts(None, key.kernel));
        }
        let has_room = self.stacks.len() < MAX_STACKS;
        let named = Named {
            frames: frames.into(),
            kind,
            class,
        };
        let number = if has_room || self.numbers.contains_key(&named) {
            self.insert(named)
        } else {
            self.merged += 1;
            let [other, _] = self.texts(naming);
            self.plain(Some(other), kind, class)
        };
        if self.places.len() >= MAX_PLACES {
            self.places.clear();
        }
        self.places.insert(key, number);
        number
    }

    /// Ids get another meaning.
    pub(super) fn forget(&mut self) {
        self.places.clear();
    }

    /// Completes the off-CPU time of a request: where it was blocked, and what its ledger has more than
    /// `off` says.
    pub(super) fn complete(
        &mut self,
        off: &mut Vec<(StackNumber, u64)>,
        own: &OwnStacks,
        ledger: &Ledger,
        naming: &mut impl Naming,
    ) {
        let blocked = &*own.blocked;
        let [_, lost] = self.texts(naming);
        for (kind, all_ns) in [
            (StackKind::RunQueue, ledger.run_queue_ns),
            (StackKind::Preempted, ledger.preempted_ns),
        ] {
            let mut left_ns = all_ns;
            for (stack, ns) in off.iter_mut() {
                if self.stacks[*stack as usize].kind == kind {
                    *ns = left_ns.min(*ns);
                    left_ns -= *ns;
                }
            }
            if left_ns > 0 {
                off.push((self.plain(None, kind, None), left_ns));
            }
        }
        off.extend_from_slice(blocked);
        let known: u64 = blocked.iter().map(|(_, ns)| ns).sum();
        let all = ledger.blocked_ns() + ledger.unattributed_ns;
        if all > known {
            off.push((
                self.plain(Some(lost), StackKind::Blocked, None),
                all - known,
            ));
        }
        let away = [
            (StackKind::Parked, &ledger.parked),
            (StackKind::Queued, &ledger.queued),
        ];
        for (kind, places) in away {
            for (place, ns) in (0..).zip(places).filter(|(_, ns)| **ns > 0) {
                let mut left_ns = *ns;
                if kind == StackKind::Parked {
                    let parks = own.parks.iter().filter(|(_, at, _)| *at == place as usize);
                    for (stack, _, ns) in parks {
                        let ns = left_ns.min(*ns);
                        left_ns -= ns;
                        off.push((*stack, ns));
                    }
                }
                off.push((self.plain(None, kind, Some(place)), left_ns));
            }
        }
        off.retain(|(_, ns)| *ns > 0);
    }

    /// The number of all others of the same kind; `None` for one of them.
    pub(super) fn other(&mut self, stack: StackNumber) -> Option<StackNumber> {
        let Named { kind, class, .. } = self.stacks[stack as usize];
        let [other, _] = self.texts?;
        let merged = self.plain(Some(other), kind, class);
        (merged != stack).then_some(merged)
    }

    /// The number of the stack of on-CPU time that no sample has met.
    pub(super) fn not_sampled(&mut self, naming: &mut impl Naming) -> StackNumber {
        let text = naming.number(NOT_SAMPLED);
        self.plain(Some(text), StackKind::OnCpu, None)
    }

    /// Names of frames, and the stacks.
    pub(super) fn named(&self, naming: &mut impl Naming) -> (Vec<String>, Vec<PageStack>) {
        let mut frames: Vec<String> = Vec::new();
        let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
        let mut stacks = Vec::with_capacity(self.stacks.len());
        for stack in &self.stacks {
            let texts = stack.frames.iter().map(|text| {
                *numbers.entry(*text).or_insert_with(|| {
                    frames.push(naming.text(*text).to_owned());
                    frames.len() as u32 - 1
                })
            });
            stacks.push(PageStack {
                frames: texts.collect(),
                kind: stack.kind,
                class: stack.class,
            });
        }
        (frames, stacks)
    }

    fn texts(&mut self, naming: &mut impl Naming) -> [u32; 2] {
        *self
            .texts
            .get_or_insert_with(|| [OTHER_STACKS, LOST].map(|text| naming.number(text)))
    }

    fn plain(&mut self, frame: Option<u32>, kind: StackKind, class: Option<u32>) -> StackNumber {
        if let Some(number) = self.plain.get(&(frame, kind, class)) {
            return *number;
        }
        let number = self.insert(Named {
            frames: frame.into_iter().collect(),
            kind,
            class,
        });
        self.plain.insert((frame, kind, class), number);
        number
    }

    fn insert(&mut self, named: Named) -> StackNumber {
        let next = self.stacks.len() as StackNumber;
        match self.numbers.get(&named) {
            Some(number) => *number,
            None => {
                self.stacks.push(named.clone());
                self.numbers.insert(named, next);
                next
            }
        }
    }
}
