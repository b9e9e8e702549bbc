//! Chains: where a request waited, who held it up, where that one waited, and so on in; nanoseconds by
//! chain out.
//!
//! By ids while these mean something, then by name. The number of chains is bounded: the smallest are
//! put together, so that sums hold.

use reqtrace_common::record::StackId;
use reqtrace_recording::AddressSpace;
use rustc_hash::FxHashMap;

use super::table::Whose;
use super::{Cause, Kept, Reason};
use crate::bounded::take_smallest;

/// Chains by id before they are to be named.
const MAX_UNNAMED: usize = 1 << 14;
/// Chains by name.
const MAX_NAMED: usize = 1 << 15;

/// A link of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Link {
    /// A request of this type waits: the first link.
    Victim(u32),
    /// The stacks that somebody was blocked in.
    Blocked {
        space: AddressSpace,
        user: StackId,
        kernel: StackId,
    },
    /// No thread ran the request: where it was parked, as its wait class.
    Parked(u16),
    /// Who held the one before up.
    HeldUpBy(Whose),
    /// From where that one ended the wait.
    WokenFrom { space: AddressSpace, user: StackId },
    /// What it ended in: the last link.
    End(Cause, Option<Reason>),
}

impl Link {
    /// A block, or a parked time; stacks have names if they are of this period.
    pub(super) fn blocked(kept: &Kept, period: u32) -> Self {
        if let (Some(_), Some(class)) = (kept.away, kept.class) {
            return Self::Parked(class);
        }
        let site = kept.place.site;
        Self::Blocked {
            space: kept.place.space,
            user: kept.stack(site.user_stack, period),
            kernel: kept.stack(site.kernel_stack, period),
        }
    }

    /// From where a wait was ended, if a thread of a traced process has ended it.
    pub(super) fn woken_from(kept: &Kept, period: u32) -> Option<Self> {
        let from = kept.woken_from?;
        Some(Self::WokenFrom {
            space: from.space,
            user: kept.stack(from.user_stack, period),
        })
    }
}

/// The number of a frame's name.
type Text = u32;

/// Chains so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    unnamed: FxHashMap<Box<[Link]>, u64>,
    named: FxHashMap<Box<[Text]>, u64>,
    /// Chains whose frames were given up.
    pub(super) merged: u64,
}

impl Chains {
    /// Adds nanoseconds to a chain.
    pub(super) fn add(&mut self, chain: &[Link], ns: u64) {
        match self.unnamed.get_mut(chain) {
            Some(sum) => *sum += ns,
            None => {
                self.unnamed.insert(chain.into(), ns);
            }
        }
    }

    /// Whether so many have no name that they are to be named.
    pub(super) fn is_full(&self) -> bool {
        self.unnamed.len() >= MAX_UNNAMED
    }

    /// Names all chains. `named` is given a chain, and `other` the frames of one that is merged.
    pub(super) fn name(
        &mut self,
        mut named: impl FnMut(&[Link]) -> Vec<Text>,
        other: impl Fn(&[Text]) -> Vec<Text>,
    ) {
        for (chain, ns) in std::mem::take(&mut self.unnamed) {
            *self.named.entry(named(&chain).into()).or_default() += ns;
        }
        if self.named.len() <= MAX_NAMED {
            return;
        }
        let small = take_smallest(&mut self.named, MAX_NAMED / 2, |ns| *ns);
        self.merged += small.len() as u64;
        for (chain, ns) in small {
            *self.named.entry(other(&chain).into()).or_default() += ns;
        }
    }

    /// Chains by name, and nanoseconds.
    pub(super) fn named(&self) -> impl Iterator<Item = (&[Text], u64)> {
        self.named.iter().map(|(chain, ns)| (&**chain, *ns))
    }
}

#[cfg(test)]
mod tests {
    use reqtrace_common::record::STACK_NONE;

    use super::*;

    #[test]
    fn too_many_chains_lose_frames_and_no_time() {
        let mut chains = Chains::default();
        let mut all = 0;
        for number in 0..3 * MAX_NAMED as u64 {
            let blocked = Link::Blocked {
                space: AddressSpace::default(),
                user: number,
                kernel: STACK_NONE,
            };
            chains.add(&[Link::Victim(0), blocked], number + 1);
            all += number + 1;
            if chains.is_full() {
                chains.name(
                    |chain| match chain[1] {
                        Link::Blocked { user, .. } => vec![7, user as Text],
                        _ => Vec::new(),
                    },
                    |_| vec![8],
                );
            }
        }
        let named: Vec<_> = chains.named().collect();
        assert!(named.len() <= 2 * MAX_NAMED && chains.merged > 0);
        let sum: u64 = named.iter().map(|(_, ns)| ns).sum();
        let unnamed: u64 = chains.unnamed.values().sum();
        assert_eq!(sum + unnamed, all);
        assert!(named.iter().any(|(chain, _)| *chain == [8]));
    }
}
