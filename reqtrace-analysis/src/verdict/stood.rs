//! Behind whom a request stood: the pieces and waits of one in; each thread behind whom it stood, and what that one did, out.

use std::cmp::Reverse;

use reqtrace_recording::RequestOf;
use rustc_hash::FxHashMap;

use super::patterns::{self, Family, PATTERNS};
use crate::blame::{Culprit, Parts, Piece, Reason, ThreadId, Timelines, Wait};
use crate::report::verdict::Class;

/// Entries of one request that are kept, the largest.
const MAX_BEHIND: usize = 24;

/// What a thread did that others waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Doing {
    /// A cause that is its own: the number of a pattern.
    Own(u8),
    /// It waited itself, in a class as in the names of blame.
    Waited(Option<u16>),
}

/// Behind whom a request stood, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    thread: ThreadId,
    pub(super) doing: Doing,
    /// Whether that thread was in a request, in none, or between two.
    pub(super) state: Class,
    /// Where the request waited, as in the names of blame.
    pub(super) class: Option<u16>,
    /// Whether that thread itself held it up: it ran or slept, or serves requests and waited for something that is no disk, no CPU
    /// and no peer.
    pub(super) held: bool,
    /// Whether the root cause is known.
    pub(super) is_known: bool,
}

/// A part of a slow request that it stood behind another thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    pub(super) key: Key,
    pub(super) ns: u64,
    /// `ns` times the threads between this one and the root.
    pub(super) depth: u64,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
}

/// Behind whom a request stood, the longest first: in each chain of waits, from its root on, helpers and clients, up to the first
/// thread that serves requests. Who waits for that one is its victim. A thread that runs many requests in turns holds nobody up.
pub(super) fn of(parts: &Parts<'_>, timelines: &Timelines) -> Vec<Behind> {
    let mut all: FxHashMap<Key, Behind> = FxHashMap::default();
    for piece in &parts.pieces {
        let pattern = patterns::of_piece(&piece.outcome);
        let root = PATTERNS[pattern].family;
        let mut waits = chain(parts, piece).peekable();
        if !is_followed(piece, waits.peek().copied()) {
            continue;
        }
        let is_known = root != Family::NotKnown;
        let own = is_known.then_some((Doing::Own(pattern as u8), piece.outcome.culprit));
        let waited = waits.map(|wait| (Doing::Waited(wait.kept.class), wait.whose));
        let mut helpers: Vec<ThreadId> = Vec::new();
        for (depth, (doing, whose)) in own.into_iter().chain(waited).enumerate() {
            let (thread, serves) = match whose {
                Culprit::Request(thread, request_type, begin_ns) => {
                    let of = RequestOf {
                        request_type,
                        begin_ns,
                    };
                    if timelines.is_keyed(of) {
                        break;
                    }
                    (thread, true)
                }
                Culprit::Thread(thread) => (thread, timelines.serves(thread)),
                Culprit::Itself => break,
                Culprit::OwnInterrupt | Culprit::Peer(_) | Culprit::Unknown => continue,
            };
            // Threads that wait for each other in a circle.
            if helpers.contains(&thread) {
                continue;
            }
            let key = Key {
                thread,
                doing,
                state: state(doing, whose),
                class: piece.class,
                held: match doing {
                    Doing::Own(_) => root == Family::Held,
                    Doing::Waited(_) => serves && matches!(root, Family::Held | Family::NotKnown),
                },
                is_known,
            };
            let one = all.entry(key).or_insert(Behind {
                key,
                ns: 0,
                depth: 0,
                from_ns: piece.from_ns,
                until_ns: 0,
            });
            one.ns += piece.ns;
            one.depth += piece.ns * depth as u64;
            one.from_ns = one.from_ns.min(piece.from_ns);
            one.until_ns = one.until_ns.max(piece.from_ns + piece.ns);
            if serves {
                break;
            }
            helpers.push(thread);
        }
    }
    let mut all: Vec<Behind> = all.into_values().collect();
    all.sort_by_key(|one| (Reverse(one.ns), one.key));
    all.truncate(MAX_BEHIND);
    all.shrink_to_fit();
    all
}

/// The waits in which a piece lies, the innermost first.
fn chain<'a>(parts: &'a Parts<'_>, piece: &Piece) -> impl Iterator<Item = &'a Wait<'a>> {
    let wait = |number: u32| parts.waits.get(number as usize);
    let innermost = piece.wait.and_then(wait);
    std::iter::successors(innermost, move |one| one.within.and_then(wait))
}

/// Whether those in the chain of a piece held the request up. Where its root is not known, the last of them waited for somebody
/// outside, such as its client; one that waits for a lock that nobody is known to have, as the request itself does, or for anything
/// at all, is no culprit.
fn is_followed(piece: &Piece, innermost: Option<&Wait<'_>>) -> bool {
    match piece.outcome.reason {
        None => true,
        Some(
            Reason::NoWakeup
            | Reason::InterruptNotNamed
            | Reason::WakerNotKnown
            | Reason::NotYetWatched
            | Reason::SenderNotSeen,
        ) => innermost.is_some_and(|wait| wait.kept.futex == 0 && wait.kept.class != piece.class),
        Some(_) => false,
    }
}

fn state(doing: Doing, whose: Culprit) -> Class {
    match (doing, whose) {
        (Doing::Own(pattern), _) if PATTERNS[usize::from(pattern)].family == Family::Held => {
            PATTERNS[usize::from(pattern)].class
        }
        (_, Culprit::Request(..)) => Class::HeldByRequest,
        _ => Class::HeldByThread,
    }
}

impl Behind {
    pub(super) fn thread(&self) -> ThreadId {
        self.key.thread
    }
}

impl Key {
    /// Of what it did itself.
    pub(super) fn family(&self) -> Option<Family> {
        match self.doing {
            Doing::Own(pattern) => Some(PATTERNS[usize::from(pattern)].family),
            Doing::Waited(_) => None,
        }
    }
}
