//! What a parked request goes on with: data that came to sockets, reads of it, and connections that were made, in; who
//! sent the data, or what was connected to, out.
//!
//! A read counts if its data came while the request was parked: one that the request makes when it has gone on, or one
//! that was made before, of a socket that the request has sent on. If these are of several sockets, it is not known
//! which of them it waited for.

use crate::before::{NOT_KNOWN, Unread};

/// Sockets that are remembered of a request: those that it has sent on or read from last.
pub const MAX_USED: usize = 4;

/// For so many ticks of the kernel after a request was parked that used sockets others may be: 2.5 to 25 s, by its `CONFIG_HZ`.
pub const LATELY_PARKED: u64 = 2_500;

/// Recorded requests that no thread runs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ParkedCount {
    /// How many.
    pub count: u32,
    /// Zero.
    pub pad: u32,
    /// When one came last that used sockets: ticks of the kernel.
    pub at: u64,
}

/// Who sent data.
pub mod sender_is {
    /// Nobody saw it.
    pub const NOT_SEEN: u32 = 0;
    /// A thread of this machine.
    pub const THREAD: u32 = 1;
    /// Another machine.
    pub const PEER: u32 = 2;
}

/// Who sent data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// One of [`sender_is`].
    pub who: u32,
    /// Process of a thread.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// What the thread did: one of [`crate::record::waker_is`].
    pub is: u32,
    /// Begin of its request, or since when it is a helper, `CLOCK_MONOTONIC` nanoseconds; otherwise 0.
    pub since_ns: u64,
    /// Index of the type of its request.
    pub request_type: u32,
    /// Port of another machine.
    pub port: u32,
    /// Its address, IPv6 or mapped, as it is sent.
    pub address: [u64; 2],
    /// When the call ended that had sent the data, before it came, `CLOCK_MONOTONIC` nanoseconds; 0: it came meanwhile.
    pub sent_ns: u64,
}

impl Sender {
    /// Nobody is known.
    pub const NONE: Self = Self {
        who: sender_is::NOT_SEEN,
        tgid: 0,
        tid: 0,
        is: 0,
        since_ns: 0,
        request_type: 0,
        port: 0,
        address: [0; 2],
        sent_ns: 0,
    };

    /// Whether anybody is known.
    #[must_use]
    #[inline]
    pub const fn is_known(&self) -> bool {
        self.who != sender_is::NOT_SEEN
    }

    /// The same thread without its request.
    #[inline]
    pub const fn forget_request(&mut self) {
        if self.who == sender_is::THREAD && self.is == crate::record::waker_is::IN_REQUEST {
            self.is = crate::record::waker_is::BETWEEN_REQUESTS;
            self.since_ns = 0;
            self.request_type = 0;
        }
    }
}

/// One direction of a TCP connection, the same at both of its ends.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Address of who sends, or a hash of it.
    pub from: u64,
    /// Address of who receives.
    pub to: u64,
    /// Port of who sends, and of who receives in the upper half.
    pub ports: u64,
    /// The network namespace, of addresses that are each namespace's own.
    pub net: u64,
}

impl Way {
    /// The other direction.
    #[must_use]
    #[inline]
    pub const fn back(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ports: self.ports.rotate_left(32),
            net: self.net,
        }
    }

    /// Whether both are one. Comparing them whole calls a function, which kernel programs do not have.
    #[must_use]
    #[inline]
    pub const fn is(&self, other: &Self) -> bool {
        self.from == other.from
            && self.to == other.to
            && self.ports == other.ports
            && self.net == other.net
    }
}

/// Who has sent on a way last, where somebody wants to know.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Who.
    pub sender: Sender,
    /// Number of the byte after the last that is known to be theirs.
    pub end: u32,
    /// 1 as long as a request that is under way uses the socket that this leads to.
    pub is_wanted: u32,
}

impl Sent {
    /// Nobody yet.
    pub const NONE: Self = Self {
        sender: Sender::NONE,
        end: 0,
        is_wanted: 0,
    };

    /// Whether the byte of this number was sent by then.
    #[must_use]
    #[inline]
    pub const fn covers(&self, sequence: u32) -> bool {
        self.sender.is_known() && self.end.wrapping_sub(sequence) as i32 > 0
    }
}

/// A socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// When its unread data came.
    pub unread: Unread,
    /// Who sent the first of that.
    pub sender: Sender,
    /// Number of the first unread byte, of TCP.
    pub first: u32,
    /// 1 when the sender is certain.
    pub is_certain: u32,
    /// Requests that are under way and have sent on it or read from it. What comes to one without matters only while some request
    /// is parked.
    pub users: u32,
    /// 1 once requests have sent on it of which one had no answer yet: which of them an answer is for, nobody knows.
    pub is_shared: u32,
    /// 1 once a traced thread has sent to it, of Unix sockets.
    pub is_asked: u32,
    /// 1 once a traced thread has read from it or sent on it.
    pub is_ours: u32,
    /// Begin of the request that has sent on it last, and of its process.
    pub user: User,
    /// When that was, `CLOCK_MONOTONIC` nanoseconds.
    pub sent_ns: u64,
    /// When it was read last, `CLOCK_MONOTONIC` nanoseconds.
    pub read_ns: u64,
    /// When the data had come that was read then; 0 or [`NOT_KNOWN`]: it is not known.
    pub arrived_ns: u64,
    /// Who had sent it.
    pub read_from: Sender,
    /// When it was connected, `CLOCK_MONOTONIC` nanoseconds, to `read_from`; 0 once a request has gone on with that or sent
    /// on it.
    pub opened_ns: u64,
    /// The way to it, of TCP; without ports: it is not known yet.
    pub way: Way,
}

/// A request, of those with a key.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Its begin, `CLOCK_MONOTONIC` nanoseconds.
    pub begin_ns: u64,
    /// Its process.
    pub tgid: u64,
}

impl Socket {
    /// One of which nothing is known.
    pub const NONE: Self = Self {
        unread: Unread {
            first_ns: 0,
            last_ns: 0,
        },
        sender: Sender::NONE,
        first: 0,
        is_certain: 0,
        users: 0,
        is_shared: 0,
        is_asked: 0,
        is_ours: 0,
        user: User {
            begin_ns: 0,
            tgid: 0,
        },
        sent_ns: 0,
        read_ns: 0,
        arrived_ns: 0,
        read_from: Sender::NONE,
        opened_ns: 0,
        way: Way {
            from: 0,
            to: 0,
            ports: 0,
            net: 0,
        },
    };

    /// A request is done with it. Whether it was the last one.
    #[inline]
    pub const fn release(&mut self) -> bool {
        if self.users == 0 {
            return false;
        }
        self.users -= 1;
        if self.users == 0 && self.unread.first_ns != 0 {
            // More may come behind that, and nobody will look.
            self.unread.first_ns = NOT_KNOWN;
        }
        self.users == 0
    }

    /// A thread has read while no request used it: what was read then came at some time.
    #[inline]
    pub const fn read_unused(&mut self, now: u64) {
        self.unread.first_ns = 0;
        self.unread.last_ns = 0;
        self.arrived_ns = NOT_KNOWN;
        self.read_from = Sender::NONE;
        self.read_ns = now;
        self.opened_ns = 0;
    }

    /// Data has come behind or after what was known. `sequence` is the number of its first byte.
    #[inline]
    pub const fn came(&mut self, unread: Unread, sender: &Sender, sequence: u32, is_certain: bool) {
        let is_first = unread.first_ns == unread.last_ns;
        self.unread = unread;
        if is_first {
            self.sender = *sender;
            self.first = sequence;
            self.is_certain = is_certain as u32;
        }
    }

    /// A thread has read; `is_rest` says whether there is more. Returns since when the data had been there.
    #[inline]
    pub const fn read(&mut self, now: u64, is_rest: bool) -> u64 {
        // Of several pieces that one call reads, the first is what it was for.
        let goes_on = self.unread.first_ns == NOT_KNOWN && self.read_ns != 0;
        let since_ns = self.unread.read(is_rest);
        if !goes_on {
            self.arrived_ns = since_ns;
            self.read_from = self.sender;
            if self.is_shared != 0 {
                self.read_from.forget_request();
            }
        }
        self.read_ns = now;
        self.opened_ns = 0;
        since_ns
    }

    /// A request sends on it.
    #[inline]
    pub const fn used(&mut self, now: u64, user: &User) {
        let is_other = self.user.begin_ns != user.begin_ns || self.user.tgid != user.tgid;
        if is_other && self.user.begin_ns != 0 && self.read_ns <= self.sent_ns {
            self.is_shared = 1;
        }
        self.user = *user;
        self.sent_ns = now;
        self.opened_ns = 0;
    }

    /// The same while reads are not looked at: whoever has sent before is taken to have its answer.
    #[inline]
    pub const fn used_quietly(&mut self, now: u64, user: &User) {
        self.read_ns = self.sent_ns + 1;
        self.used(now, user);
        self.read_ns = now + 1;
    }

    /// It is connected now.
    #[inline]
    pub const fn opened(&mut self, now: u64, peer: &Sender) {
        self.opened_ns = now;
        self.read_from = *peer;
    }
}

/// What is known of what a request went on with.
pub mod found {
    /// No read.
    pub const NO_READ: u32 = 0;
    /// One socket.
    pub const ONE: u32 = 1;
    /// Several sockets.
    pub const SEVERAL: u32 = 2;
    /// A socket with a layer of its own: TLS in the kernel.
    pub const LAYERED: u32 = 3;
    /// No read, and one socket that was connected; [`ONE`] to user space.
    pub const OPENED: u32 = 4;
}

/// What a request went on with that was parked, while it runs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Since when it had been parked, `CLOCK_MONOTONIC` nanoseconds.
    pub since_ns: u64,
    /// Until when; 0: it was not parked, or all that is known has been sent.
    pub until_ns: u64,
    /// The socket: its cookie.
    pub socket: u64,
    /// When its data came.
    pub arrived_ns: u64,
    /// One of [`found`].
    pub found: u32,
    /// What of this user space knows, and 1; 0: nothing.
    pub known: u32,
    /// Who sent it.
    pub sender: Sender,
}

impl Origin {
    /// Nothing is asked.
    pub const NONE: Self = Self {
        since_ns: 0,
        until_ns: 0,
        socket: 0,
        arrived_ns: 0,
        found: found::NO_READ,
        known: 0,
        sender: Sender::NONE,
    };

    /// The request goes on that was parked from then until then. If it was made ready, user space knows who did that, and no
    /// read is no news.
    #[inline]
    pub const fn goes_on(&mut self, since_ns: u64, until_ns: u64, is_ready: bool) {
        self.since_ns = since_ns;
        self.until_ns = until_ns;
        self.found = found::NO_READ;
        self.known = if is_ready { found::NO_READ + 1 } else { 0 };
    }

    /// Whether there is something to tell that was not.
    #[must_use]
    #[inline]
    pub const fn is_news(&self) -> bool {
        self.until_ns != 0 && self.known != self.found + 1
    }

    /// Data was read that had come then. `sent_ns`: when the request itself had sent on this socket last, or 0: then data
    /// may be what it waited for that came before it was parked.
    #[inline]
    pub const fn read(&mut self, socket: u64, arrived_ns: u64, sent_ns: u64, sender: &Sender) {
        let is_answer = sent_ns != 0 && arrived_ns >= sent_ns && arrived_ns < self.since_ns;
        let is_within = arrived_ns >= self.since_ns && arrived_ns <= self.until_ns;
        if self.until_ns == 0 || !(is_answer || is_within) {
            return;
        }
        let was_opened = self.found == found::OPENED && self.socket == socket;
        if self.found == found::NO_READ || was_opened {
            self.found = found::ONE;
            self.socket = socket;
            self.arrived_ns = if is_answer { self.since_ns } else { arrived_ns };
            self.sender = *sender;
        } else {
            self.and(socket);
        }
    }

    /// A socket was connected then that the request uses.
    #[inline]
    pub const fn opened(&mut self, socket: u64, opened_ns: u64, peer: &Sender) {
        if self.until_ns == 0 || opened_ns > self.until_ns {
            return;
        }
        if self.found == found::NO_READ {
            self.found = found::OPENED;
            self.socket = socket;
            self.arrived_ns = if opened_ns < self.since_ns {
                self.since_ns
            } else {
                opened_ns
            };
            self.sender = *peer;
        } else {
            self.and(socket);
        }
    }

    /// Whether it went on with one socket, by a read or a connection.
    #[must_use]
    #[inline]
    pub const fn is_one(&self) -> bool {
        self.found == found::ONE || self.found == found::OPENED
    }

    /// It may have gone on with this socket too.
    #[inline]
    const fn and(&mut self, socket: u64) {
        if self.is_one() && self.socket != socket {
            self.found = found::SEVERAL;
        }
    }

    /// A socket was read of which no arrivals are known.
    #[inline]
    pub const fn read_layered(&mut self) {
        if self.found == found::NO_READ {
            self.found = found::LAYERED;
        }
    }
}

#[cfg(test)]
mod tests;
