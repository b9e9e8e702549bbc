//! Whose time: the parts of a slow request in; whom it waited for, and for how long, out.

use std::net::SocketAddr;

use reqtrace_recording::RequestOf;

use super::patterns::{Family, PATTERNS};
use crate::blame::ThreadId;

/// Whose time it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Who {
    Thread(ThreadId),
    /// Threads of another process, of which none has most of it.
    Threads(u32),
    /// Requests with keys, which any thread may run: their process and type.
    Requests(u32, u32),
    /// One of those.
    Request(u32, RequestOf),
    Peer(SocketAddr),
    /// That had a CPU.
    Process(u32),
    /// That has a CPU limit: the number of its path.
    Cgroup(u32),
    Nobody,
}

impl Who {
    /// Whether somebody's time is this one's, or has a part that is.
    pub(super) fn has(self, other: Self) -> bool {
        match (self, other) {
            (Self::Threads(pid), Self::Thread(thread)) => thread.tgid == pid,
            (Self::Threads(pid), Self::Requests(of, _) | Self::Request(of, _)) => of == pid,
            (Self::Requests(pid, of_type), Self::Request(its, of)) => {
                (its, of.request_type) == (pid, of_type)
            }
            _ => self == other,
        }
    }
}

/// A part of a slow request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) pattern: u8,
    pub(super) who: Who,
    /// Of [`Who::Requests`] the one that has most of it, and how much.
    pub(super) most: Option<(RequestOf, u64)>,
    /// Where the request waited, as in the names of blame.
    pub(super) class: Option<u16>,
    pub(super) ns: u64,
    /// From the first of its times until the last, `CLOCK_MONOTONIC` ns.
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    /// The longest of its times.
    pub(super) longest: (u64, u64),
}

impl Share {
    /// Whom it waited for most, if that was a thread or a request that held it up: by computing, sleeping, idling or waiting for
    /// a CPU. One that waits for a disk or a peer holds nobody up itself.
    pub(super) fn holder(&self) -> Option<Who> {
        let family = PATTERNS[usize::from(self.pattern)].family;
        if !matches!(family, Family::Held | Family::Cpu) {
            return None;
        }
        match self.who {
            Who::Thread(_) => Some(self.who),
            Who::Requests(pid, _) => self.most.map(|(of, _)| Who::Request(pid, of)),
            _ => None,
        }
    }

    /// How much of it is this one's, ns.
    pub(super) fn ns_of(&self, who: Who) -> u64 {
        match (who, self.who, self.most) {
            (Who::Request(pid, of), Who::Requests(its, _), Some((most, ns)))
                if (its, most) == (pid, of) =>
            {
                ns
            }
            (Who::Nobody, ..) => self.ns,
            _ if who.has(self.who) => self.ns,
            _ => 0,
        }
    }
}
