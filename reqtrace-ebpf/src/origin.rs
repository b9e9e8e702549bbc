//! What a parked request goes on with: segments, messages, sends and reads of sockets in; for each parked time who
//! sent the data out. Only with blame of requests with a key.
//!
//! Data comes in the context of whoever runs just then. So a thread is its sender only if it is in a sending call on
//! the other end, or has ended one that covers the data.
//!
//! Most of what comes to sockets is of no request that could wait for it. So as long as no request is parked, only sockets are
//! looked at that requests use which are under way, and only ways to these; and if none was parked for a while that used
//! sockets, none at all. What comes between a send and the first park after such a while is not seen.

use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::BtfTracePointContext;
use reqtrace_common::before::Unread;
use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::origin::{MAX_USED, Sender, Sent, Socket, User, Way, found, sender_is};
use reqtrace_common::record::{OriginRecord, kind};
use reqtrace_common::thread::{RequestState, Thread, status};

use crate::before::{self, Object, SOCKETS, at, cookie, is_unix, read};
use crate::delivery::Current;
use crate::globals::{ORIGIN_WANTED, SENDS_SEEN, TCP_WRITTEN};
use crate::maps::{THREADS, is_any_parked, stopped, tid_flag, was_any_parked};
use crate::request::{bpf_now, traced};
use crate::task::current_ids;
use crate::way::{remote, way_from};
use crate::{blame, emit};

/// Who has sent last, by the way to a socket that a traced thread has read from or sent on; sized by user space before
/// loading.
#[map]
static SENDS: LruHashMap<Way, Sent> = LruHashMap::with_max_entries(1, 0);

/// Where new entries are copied from: they are large for the stack.
static NEW_SOCKET: Socket = Socket::NONE;
static NEW_SENT: Sent = Sent::NONE;

/// Whether this is wanted. A constant to the verifier.
#[inline(always)]
pub(crate) fn wanted() -> bool {
    ORIGIN_WANTED.load() != 0
}

/// Who sent a segment, as far as is known when it comes.
pub(crate) struct Segment {
    pub(crate) sender: Sender,
    pub(crate) is_certain: bool,
    /// Somebody wants to know.
    pub(crate) is_ours: bool,
}

impl Segment {
    /// Nobody wants to know.
    pub(crate) const NONE: Self = Self {
        sender: Sender::NONE,
        is_certain: false,
        is_ours: false,
    };
}

/// Whether the end of a request is when its sockets are forgotten: where nothing says who has sent, a request cannot say in time
/// that it uses one, and each stays in use.
#[inline(always)]
fn forgets() -> bool {
    SENDS_SEEN.load() != 0
}

/// Whether it is to be noted who sends on a way.
#[inline(always)]
pub(crate) fn is_wanted(way: &Way) -> bool {
    wanted_sent(way).is_some()
}

#[inline(always)]
fn wanted_sent(way: &Way) -> Option<*mut Sent> {
    // SAFETY: points into the map.
    SENDS
        .get_ptr_mut(way)
        .filter(|sent| unsafe { (**sent).is_wanted } != 0 || is_any_parked())
}

/// A segment with data has come on a way. If the current thread runs a request, it has sent that, mostly, and may wait for an answer
/// that comes before its call ends.
#[inline(always)]
pub(crate) fn may_be_asked(way: &Way) {
    if let Some(request) = request_of(current_ids().1) {
        want(&way.back());
        sends(request);
    }
}

/// New data has come on a way, from this byte to before that one.
#[inline(always)]
pub(crate) fn segment(way: &Way, sequence: u32, end: u32) -> Segment {
    let mut segment = Segment::NONE;
    let Some(sent) = wanted_sent(way) else {
        return segment;
    };
    segment.is_ours = true;
    if Current::look().sends_on(way) {
        segment.sender = blame::sender(bpf_now());
        segment.is_certain = true;
        // SAFETY: points into the map; of two that send at once the later stays.
        unsafe {
            (*sent).sender = segment.sender;
            (*sent).end = end;
        }
    } else {
        // SAFETY: as above.
        unsafe {
            segment.sender = (*sent).sender;
            segment.is_certain = (*sent).covers(sequence);
        }
        if !segment.is_certain {
            // That was when it sent something before.
            segment.sender.sent_ns = 0;
        }
    }
    segment
}

/// `sock_send_length(sk, length, flags)`: the current thread has sent.
#[inline(always)]
pub(crate) fn sent(ctx: &BtfTracePointContext) -> i32 {
    let sk: Object = ctx.arg(0);
    let length: i32 = ctx.arg(1);
    if length <= 0 || stopped() {
        return 0;
    }
    let is_unix = is_unix(sk);
    if !is_unix && !before::is_tcp(sk) {
        return 0;
    }
    let (tgid, tid) = current_ids();
    if let Some(request) = request_of(tid) {
        use_of(sk, is_unix, request);
    } else if is_any_parked()
        && traced(tgid).is_some()
        && let Some(entry) = entry_or_new(cookie(sk))
    {
        // SAFETY: points into the map.
        let entry = unsafe { &mut *entry };
        entry.is_ours = 1;
        if !is_unix {
            leads_to(sk, entry);
        }
    }
    if !is_unix
        && may_wait()
        && let Some(sent) = wanted_sent(&way_from(sk))
    {
        let mut sender = blame::sender(bpf_now());
        sender.sent_ns = bpf_now();
        let end = read(at(sk, &TCP_WRITTEN)).unwrap_or(0);
        // SAFETY: as in `segment`.
        unsafe {
            (*sent).sender = sender;
            (*sent).end = end;
        }
    }
    0
}

/// The request of the current thread sends on a socket.
#[inline(always)]
fn use_of(sk: Object, is_unix: bool, request: &mut RequestState) {
    let socket = cookie(sk);
    if !may_wait() && request.keyed.has_used(socket) {
        return;
    }
    let Some(entry) = entry_or_new(socket) else {
        return;
    };
    // SAFETY: points into the map.
    let entry = unsafe { &mut *entry };
    entry.is_ours = 1;
    if !is_unix {
        leads_to(sk, entry);
    }
    let user = User {
        begin_ns: request.record.begin_ns,
        tgid: u64::from(request.record.tgid),
    };
    if may_wait() {
        entry.used(bpf_now(), &user);
    } else {
        entry.used_quietly(bpf_now(), &user);
    }
    uses(request, socket, entry);
}

/// Notes the way to a socket, once.
#[inline(always)]
fn leads_to(sk: Object, entry: &mut Socket) {
    if entry.way.ports == 0 {
        let way = way_from(sk);
        // One that connects has no port of its own yet.
        if way.ports as u32 != 0 {
            entry.way = way.back();
            sent_or_new(&entry.way);
        }
    }
}

/// A request uses a socket until it ends, or has used some others since.
#[inline(always)]
fn uses(request: &mut RequestState, socket: u64, entry: &mut Socket) {
    let (released, is_new) = request.keyed.uses(socket, may_wait());
    if is_new {
        hold(entry);
    }
    release(released);
}

#[inline(always)]
fn hold(entry: &mut Socket) {
    entry.users += 1;
    if entry.way.ports != 0 {
        want(&entry.way);
    }
}

/// A request uses a socket no more; 0: there is none.
#[inline(always)]
fn release(socket: u64) {
    if !forgets() || socket == 0 {
        return;
    }
    let Some(entry) = SOCKETS.get_ptr_mut(socket) else {
        return;
    };
    // SAFETY: points into the map.
    let entry = unsafe { &mut *entry };
    let is_last = entry.release();
    let way = &entry.way;
    if is_last
        && way.ports != 0
        && let Some(sent) = SENDS.get_ptr_mut(way)
    {
        // SAFETY: points into the map.
        unsafe { (*sent).is_wanted = 0 }
    }
}

/// A request is over, and uses no socket any more.
#[inline(always)]
pub(crate) fn over(request: &mut RequestState) {
    let keyed = &mut request.keyed;
    if !forgets() || keyed.held == 0 {
        return;
    }
    let mut index = 0;
    while index < MAX_USED {
        if keyed.held >> index & 1 != 0 {
            release(keyed.used[index]);
        }
        index += 1;
    }
}

/// A connection is closed.
#[inline(always)]
pub(crate) fn closed(socket: u64) {
    if let Some(entry) = SOCKETS.get_ptr(socket) {
        // SAFETY: points into the map.
        let way = unsafe { &(*entry).way };
        if wanted() && way.ports != 0 {
            let _ = SENDS.remove(way);
        }
        let _ = SOCKETS.remove(socket);
    }
}

/// Whether a request with a key may come to wait for what comes to a socket, as some do lately.
#[inline(always)]
pub(crate) fn may_wait() -> bool {
    was_any_parked() || !forgets()
}

/// Whether it matters what the current thread has read, whatever the socket. It may run a request with a key.
#[inline(always)]
pub(crate) fn looks_at(runs_one: bool) -> bool {
    wanted() && (is_any_parked() || !forgets() || runs_one)
}

/// Whether it matters what comes to a Unix socket.
#[inline(always)]
pub(crate) fn is_looked_at(socket: u64) -> bool {
    let Some(entry) = SOCKETS.get_ptr(socket) else {
        return false;
    };
    // SAFETY: points into the map.
    unsafe { (*entry).users != 0 || (*entry).is_ours != 0 && is_any_parked() }
}

/// The request with a key that the current thread runs, if it is recorded.
#[inline(always)]
pub(crate) fn request_of<'a>(tid: u32) -> Option<&'a mut RequestState> {
    if tid_flag(tid) != flag::IN_REQUEST {
        return None;
    }
    // SAFETY: the entry of the current thread, which is in a system call.
    let request = unsafe { &mut (*THREADS.get_ptr_mut(tid)?).request };
    (request.status == status::OPEN && request.keyed.is_keyed != 0).then_some(request)
}

/// A traced thread has read from a connection: who sent it may be known now. `entry` is that of the socket.
#[inline(always)]
pub(crate) fn find_sender(sk: Object, entry: &mut Socket) {
    leads_to(sk, entry);
    let way = entry.way;
    if entry.is_certain == 0
        && let Some(sent) = SENDS.get_ptr(way)
    {
        // SAFETY: points into the map.
        unsafe {
            if (*sent).covers(entry.first) {
                entry.sender = (*sent).sender;
                entry.is_certain = 1;
            }
        }
    }
    if !forgets() {
        want(&way);
    }
    if !entry.sender.is_known() && way.net == 0 && way.from != way.to {
        entry.sender = peer(sk, &way);
    }
}

/// Who sends on this way to a socket.
#[inline(always)]
fn peer(sk: Object, way: &Way) -> Sender {
    Sender {
        who: sender_is::PEER,
        port: way.ports as u32,
        address: remote(sk),
        ..Sender::NONE
    }
}

/// A thread of no traced process has read from a connection. It is watched from now on if a request waits for what it sends.
#[inline(always)]
pub(crate) fn asked(sk: Object) {
    if wanted() && !stopped() && is_wanted(&way_from(sk)) {
        blame::sender(bpf_now());
    }
}

/// The same of a Unix socket.
#[inline(always)]
pub(crate) fn unix_asked(sk: Object) {
    if wanted()
        && !stopped()
        && let Some(entry) = SOCKETS.get_ptr(cookie(sk))
        // SAFETY: points into the map.
        && unsafe { (*entry).is_asked } != 0
    {
        blame::sender(bpf_now());
    }
}

/// Something was sent to a Unix socket: by a request, if the current thread runs one.
#[inline(always)]
pub(crate) fn asks(socket: u64) {
    let (tgid, tid) = current_ids();
    let request = request_of(tid);
    if request.is_none() && !(is_any_parked() && traced(tgid).is_some()) {
        return;
    }
    if let Some(request) = request {
        sends(request);
    }
    if let Some(entry) = entry_or_new(socket) {
        // SAFETY: points into the map.
        unsafe { (*entry).is_asked = 1 }
    }
}

/// The current thread has read from a socket, in a request or before one goes on.
#[inline(always)]
pub(crate) fn has_read(socket: u64, entry: &mut Socket, request: &mut RequestState) {
    note(request, socket, entry);
    uses(request, socket, entry);
}

/// A thread has read from a socket while no request waits: if it runs one, that may do so later.
#[inline(always)]
pub(crate) fn reads_quietly(sk: Object, is_unix: bool) {
    if stopped() {
        return;
    }
    let Some(request) = request_of(current_ids().1) else {
        return;
    };
    // With TLS in the kernel the current thread has nothing to do with it.
    if !is_unix && before::is_layered(sk) {
        return;
    }
    let socket = cookie(sk);
    let Some(entry) = entry_or_new(socket) else {
        return;
    };
    // SAFETY: points into the map.
    let entry = unsafe { &mut *entry };
    entry.is_ours = 1;
    if !is_unix {
        leads_to(sk, entry);
    }
    entry.read_unused(bpf_now());
    uses(request, socket, entry);
}

#[inline(always)]
fn note(request: &mut RequestState, socket: u64, entry: &Socket) {
    let is_user = entry.user.begin_ns == request.record.begin_ns
        && entry.user.tgid == u64::from(request.record.tgid);
    // Of one that was made ready for data that data is new.
    let is_answer = is_user && request.keyed.queued == 0;
    let sent_ns = if is_answer { entry.sent_ns } else { 0 };
    let origin = &mut request.keyed.origin;
    origin.read(socket, entry.arrived_ns, sent_ns, &entry.read_from);
}

/// The current thread has read from a socket, which may have a layer of its own.
#[inline(always)]
pub(crate) fn has_read_layered(sk: Object, tid: u32) {
    if let Some(request) = request_of(tid)
        && before::is_layered(sk)
    {
        request.keyed.origin.read_layered();
    }
}

/// A request goes on that was parked since then until then: what has its sockets given meanwhile?
#[inline(always)]
pub(crate) fn goes_on(thread: &mut Thread, since_ns: u64, until_ns: u64) {
    let request = &mut thread.request;
    let is_ready = request.keyed.queued != 0;
    request.keyed.origin.goes_on(since_ns, until_ns, is_ready);
    for index in 0..MAX_USED {
        let socket = request.keyed.used[index];
        if let Some(entry) = SOCKETS.get_ptr_mut(socket) {
            // SAFETY: points into the map.
            let entry = unsafe { &mut *entry };
            if entry.read_ns >= since_ns {
                note(request, socket, entry);
            } else if entry.opened_ns != 0 {
                let origin = &mut request.keyed.origin;
                origin.opened(socket, entry.opened_ns, &entry.read_from);
                entry.opened_ns = 0;
            }
        }
    }
}

/// The thread runs its request no more: what it went on with is known by now.
#[inline(always)]
pub(crate) fn leaves(thread: &mut Thread) {
    let request = &mut thread.request;
    if request.keyed.origin.is_news() {
        tell(request);
    }
    request.keyed.origin.until_ns = 0;
}

/// A traced thread sends: who gets that may be at its end before this request leaves its thread, and waited for it.
#[inline(always)]
fn sends(request: &mut RequestState) {
    if request.keyed.origin.is_one() && request.keyed.origin.is_news() {
        tell(request);
    }
}

#[inline(always)]
fn tell(request: &mut RequestState) {
    let origin = &mut request.keyed.origin;
    origin.known = origin.found + 1;
    let record = &request.record;
    emit::origin(OriginRecord {
        kind: kind::ORIGIN,
        tgid: record.tgid,
        exec_generation: record.exec_generation,
        request_type: record.request_type,
        request_begin_ns: record.begin_ns,
        until_ns: origin.until_ns,
        arrived_ns: origin.arrived_ns,
        found: if origin.is_one() {
            found::ONE
        } else {
            origin.found
        },
        pad: 0,
        sender: origin.sender,
    });
}

/// Data has come to a socket: what is known of it, if somebody wants to know.
#[inline(always)]
pub(crate) fn came(socket: u64, unread: Unread, segment: &Segment, sequence: u32) {
    let entry = if before::wanted() || segment.is_ours {
        entry_or_new(socket)
    } else {
        SOCKETS.get_ptr_mut(socket)
    };
    if let Some(entry) = entry {
        // SAFETY: points into the map.
        unsafe { (*entry).came(unread, &segment.sender, sequence, segment.is_certain) }
    }
}

/// The current thread connects: a request may send later, when it runs no more.
#[inline(always)]
pub(crate) fn connects(sk: Object) {
    if let Some(request) = request_of(current_ids().1) {
        use_of(sk, false, request);
    }
}

/// A connection was made from here: who has sent on another with its addresses and ports means nothing.
#[inline(always)]
pub(crate) fn connected(sk: Object) {
    let way = way_from(sk);
    let back = way.back();
    let _ = SENDS.remove(back);
    let _ = SENDS.remove(way);
    if let Some(entry) = SOCKETS.get_ptr_mut(cookie(sk)) {
        // SAFETY: points into the map.
        let entry = unsafe { &mut *entry };
        entry.way = back;
        if entry.users != 0 {
            want(&back);
        }
        entry.opened(bpf_now(), &peer(sk, &back));
    }
}

/// The entry of a socket, made if there is none.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which has 512 bytes"
)]
pub(crate) fn entry_or_new(socket: u64) -> Option<*mut Socket> {
    if let Some(entry) = SOCKETS.get_ptr_mut(socket) {
        return Some(entry);
    }
    let _ = SOCKETS.insert(socket, &NEW_SOCKET, 0);
    SOCKETS.get_ptr_mut(socket)
}

/// Whoever sends on this way is noted from now on.
#[inline(always)]
fn want(way: &Way) {
    if let Some(sent) = sent_or_new(way) {
        // SAFETY: points into the map.
        unsafe { (*sent).is_wanted = 1 }
    }
}

/// The entry of a way, made if there is none.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which has 512 bytes"
)]
fn sent_or_new(way: &Way) -> Option<*mut Sent> {
    if let Some(sent) = SENDS.get_ptr_mut(way) {
        return Some(sent);
    }
    let _ = SENDS.insert(way, &NEW_SENT, 0);
    SENDS.get_ptr_mut(way)
}
