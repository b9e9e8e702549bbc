//! What was added up in; the report's part out, with names.

use std::cmp::Reverse;

use reqtrace_base::plain::Plain;
use rustc_hash::FxHashMap;

use super::chains::{Chains, Link};
use super::locks::{self, LockKey};
use super::names::Naming;
use super::sums::Sums;
use super::table::{Holding as HoldingSum, Key, OfType, Whose};
use super::timeline::Timelines;
use super::{Cause, Reason};
use crate::bounded::in_order;
use crate::report::blame::{
    Blame, BlameRow, Chain, CulpritKind, CulpritName, Holder, Lock, TypeBlame,
};
use crate::report::page::Holding;

/// Futexes of one request type that a report names.
const MAX_LOCKS: usize = 100;
/// The frame of all other chains.
const OTHER_CHAINS: &str = "[other chains]";

impl Sums {
    /// What is known now. Stacks of other periods than this have no names any more.
    pub(super) fn report(
        &self,
        timelines: &Timelines,
        period: u32,
        naming: &mut impl Naming,
    ) -> Blame {
        let names = &self.names;
        let mut types: Vec<TypeBlame> = self
            .table
            .types
            .iter()
            .zip(&names.types)
            .zip(&self.slowest)
            .map(|((of_type, name), slowest)| TypeBlame {
                slowest: slowest.requests.clone(),
                ..self.of_type(timelines, of_type, name)
            })
            .collect();
        self.locks(&mut types, period, naming);
        let mut chains = self.chains.clone();
        self.name(&mut chains, naming);
        let mut rows: Vec<BlameRow> = self
            .table
            .rows
            .iter()
            .map(|(key, sum)| BlameRow {
                victim_request: names.request(key.victim),
                victim_label: Plain::of(self.texts.text(key.label)),
                wait_class: match key.whose {
                    Whose::Others => String::new(),
                    _ => names.class(key.class).to_owned(),
                },
                culprit: self.culprit(key.whose),
                thread: sum.thread.thread().map(|thread| (thread.tgid, thread.tid)),
                cause: key.cause,
                depth: key.depth,
                ns: sum.ns,
                requests: sum.requests,
            })
            .collect();
        rows.sort_by(|one, other| {
            let by_time = order(one).cmp(&order(other));
            by_time.then_with(|| one.thread.cmp(&other.thread))
        });
        let all = self.table.types.iter();
        Blame {
            types,
            rows,
            merged_rows: self.table.merged,
            merged_chains: chains.merged,
            forgotten_io_sums: timelines.disks().forgotten,
            left_out_disk_waits: all.map(|of_type| of_type.at_disks.left_out).sum(),
            chains: lines(&chains, naming),
            merged_locks: self.locks.merged,
        }
    }

    /// Names the chains so far: ids of stacks are about to mean something else, or there are too many.
    pub(super) fn settle(&mut self, naming: &mut impl Naming) {
        let mut chains = std::mem::take(&mut self.chains);
        self.name(&mut chains, naming);
        self.chains = chains;
    }

    fn name(&self, chains: &mut Chains, naming: &mut impl Naming) {
        let other = naming.number(OTHER_CHAINS);
        chains.name(
            |chain| self.frames(chain, naming),
            |frames| match frames {
                [first, .., last] => vec![*first, other, *last],
                _ => vec![other],
            },
        );
    }

    /// The frames of a chain.
    fn frames(&self, chain: &[Link], naming: &mut impl Naming) -> Vec<u32> {
        let mut frames = Vec::new();
        let mut is_victim = true;
        for link in chain {
            match *link {
                Link::Victim(index) => frames.push(naming.number(&self.names.request(index))),
                Link::Blocked {
                    space,
                    user,
                    kernel,
                } => {
                    let mut stack = naming.texts(Some(space), user);
                    stack.extend(naming.texts(None, kernel));
                    if !is_victim {
                        stack.reverse();
                    }
                    frames.extend(stack);
                }
                Link::Parked(class) => {
                    let words = format!("[{}]", self.names.class(Some(class)));
                    frames.push(naming.number(&words));
                }
                Link::WokenFrom { space, user } => {
                    let mut stack = naming.texts(Some(space), user);
                    stack.reverse();
                    frames.extend(stack);
                }
                Link::HeldUpBy(whose) => {
                    is_victim = false;
                    frames.push(naming.number(Chain::DELIMITER));
                    frames.push(naming.number(&format!("[{}]", self.culprit(whose).words())));
                }
                Link::End(cause, reason) => {
                    let words = match reason {
                        Some(reason) => format!("[{}: {}]", cause.words(), reason.words()),
                        None => format!("[{}]", cause.words()),
                    };
                    frames.push(naming.number(&words));
                }
            }
        }
        frames
    }

    fn locks(&self, types: &mut [TypeBlame], period: u32, naming: &mut impl Naming) {
        for (key, lock) in in_order(self.locks.locks.iter(), |lock| lock.ns) {
            if let Some(of_type) = types.get_mut(key.victim as usize)
                && of_type.locks.len() < MAX_LOCKS
            {
                of_type.locks.push(self.lock(key, lock, period, naming));
            }
        }
    }

    fn lock(
        &self,
        key: &LockKey,
        lock: &locks::Lock,
        period: u32,
        naming: &mut impl Naming,
    ) -> Lock {
        let (class, place) = lock.last.unzip();
        let named = place.filter(|place| key.address != 0 && place.period == period);
        let [user, _] = named.map(|place| naming.frames(&place)).unwrap_or_default();
        let by_name = |whose: &FxHashMap<Whose, u64>| {
            let named = whose.iter().map(|(whose, ns)| (self.culprit(*whose), *ns));
            let mut named: Vec<_> = named.collect();
            named.sort_by(|(one, one_ns), (two, two_ns)| {
                two_ns.cmp(one_ns).then_with(|| one.cmp(two))
            });
            named
        };
        Lock {
            pid: key.tgid,
            address: key.address,
            object: self.locks.object(key),
            waits: lock.waits,
            again: lock.again,
            ns: lock.ns,
            longest_ns: lock.longest_ns,
            class: self.names.class(class.flatten()).to_owned(),
            user,
            woken_by: by_name(&lock.wakers),
            held_by: by_name(&lock.holders),
        }
    }

    /// The names of a row.
    pub(super) fn holding(&self, key: &Key) -> Holding {
        Holding {
            victim: Plain::of(self.texts.text(key.label)),
            class: key.class.map(u32::from),
            culprit: self.culprit(key.whose),
            cause: key.cause,
        }
    }

    fn of_type(&self, timelines: &Timelines, of_type: &OfType, name: &str) -> TypeBlame {
        let names = &self.names;
        let holdings = of_type.holdings.iter();
        let mut holders: Vec<Holder> = holdings
            .map(|((cause, whose), holding)| Holder {
                cause: *cause,
                culprit: self.culprit(*whose),
                ns: holding.sum.ns,
                requests: holding.sum.requests,
                wait_class: names.class(most(holding)).to_owned(),
            })
            .collect();
        holders.sort_by(|one, other| {
            let key = |holder: &Holder| (Reverse(holder.ns), holder.cause);
            let by_time = key(one).cmp(&key(other));
            by_time.then_with(|| one.culprit.cmp(&other.culprit))
        });
        let reasons = Reason::ALL.map(|reason| (reason, of_type.unknown[reason as usize]));
        let mut unknown: Vec<_> = reasons.into_iter().filter(|(_, ns)| *ns > 0).collect();
        unknown.sort_by_key(|(_, ns)| Reverse(*ns));
        TypeBlame {
            request: name.to_owned(),
            requests: of_type.requests,
            causes: of_type.causes,
            holders,
            unknown,
            cpu_ns: of_type.cpu_ns,
            takers: of_type.takers.report(),
            queued_ns: of_type.queued_ns,
            queue: of_type.queue.report(|index| names.request(index)),
            disk: of_type
                .at_disks
                .report(timelines.disks(), timelines.servers()),
            ..TypeBlame::default()
        }
    }

    fn culprit(&self, whose: Whose) -> CulpritName {
        let kind = match whose {
            Whose::OwnInterrupt => CulpritKind::Interrupt,
            Whose::Itself => CulpritKind::Itself,
            Whose::Request(..) => CulpritKind::Request,
            Whose::Thread(..) => CulpritKind::Thread,
            Whose::Peer(_) => CulpritKind::Peer,
            Whose::Unknown => CulpritKind::Unknown,
            Whose::Others => CulpritKind::Others,
        };
        let mut culprit = CulpritName {
            kind,
            ..CulpritName::default()
        };
        match whose {
            Whose::Request(index, label) => {
                culprit.request = self.names.request(index);
                culprit.label = Plain::of(self.texts.text(label));
            }
            Whose::Peer(peer) => culprit.comm = Plain::of(&peer.to_string()),
            Whose::Thread(comm, label) => {
                culprit.comm = Plain::of(self.texts.text(comm));
                culprit.label = Plain::of(self.texts.text(label));
            }
            _ => {}
        }
        culprit
    }
}

/// Chains by name, the most time first.
fn lines(chains: &Chains, naming: &impl Naming) -> Vec<Chain> {
    let text = |number: &u32| naming.text(*number).to_owned();
    let mut lines: Vec<Chain> = chains
        .named()
        .map(|(frames, ns)| Chain {
            frames: frames.iter().map(text).collect(),
            ns,
        })
        .collect();
    lines.sort_by(|one, two| {
        two.ns
            .cmp(&one.ns)
            .then_with(|| one.frames.cmp(&two.frames))
    });
    lines
}

/// The wait class that most of the time was spent in.
fn most(holding: &HoldingSum) -> Option<u16> {
    let classes = holding.classes.iter();
    let most = classes.max_by_key(|(class, ns)| (**ns, Reverse(**class)));
    most.and_then(|(class, _)| *class)
}

/// The most time first, then whatever makes the order the same each time.
fn order(row: &BlameRow) -> (Reverse<u64>, &str, &str, &str, &CulpritName, Cause, u8) {
    (
        Reverse(row.ns),
        &row.victim_request,
        row.victim_label.as_str(),
        &row.wait_class,
        &row.culprit,
        row.cause,
        row.depth,
    )
}
