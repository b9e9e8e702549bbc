//! Time before requests begin: segments, messages and connections that come to sockets, and reads of them, in;
//! since when the data had been there that a thread read last, out. Only with `--before`, or with blame of requests
//! with a key: see [`crate::origin`].
//!
//! The programs for TCP run with the socket's lock held, or own it. Those for Unix sockets do not.

use core::mem::size_of;

use aya_ebpf::Global;
use aya_ebpf::helpers::generated::{bpf_get_socket_cookie, bpf_probe_read_kernel};
use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::BtfTracePointContext;
use reqtrace_common::before::{LastRead, Unread};
use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::origin::{Socket, Way};
use reqtrace_common::thread::RequestState;

use crate::globals::{
    BEFORE_WANTED, ICSK_ULP_OPS, SK_FAMILY, SK_PROTOCOL, SK_QUEUE_LEN, SK_SOCKET, SKB_END,
    SKB_FLAGS, SKB_SEQUENCE, TCP_COPIED, TCP_RECEIVED,
};
use crate::maps::{stopped, tid_flag};
use crate::origin::{self, Segment};
use crate::request::{bpf_now, traced};
use crate::task::current_ids;
use crate::way::way_from;
use crate::{blame, delivery};

/// Unread data by the cookie of the socket; sized by user space before loading.
#[map]
pub(crate) static SOCKETS: LruHashMap<u64, Socket> = LruHashMap::with_max_entries(1, 0);

/// What threads of traced processes have read outside of requests; sized in the same way.
#[map]
static READS: LruHashMap<u32, LastRead> = LruHashMap::with_max_entries(1, 0);

/// A `struct sock` or `struct sk_buff` of the kernel.
pub(crate) type Object = *const u8;

const AF_UNIX: u16 = 1;
const TCP: u16 = 6;
/// States of `enum tcp_state`.
const ESTABLISHED: i32 = 1;
const SYN_SENT: i32 = 2;
const SYN_RECV: i32 = 3;
const CLOSE: i32 = 7;

/// In the flags of a segment: nothing comes after it.
const FIN: u8 = 1;

/// Whether `--before` was given. A constant to the verifier.
#[inline(always)]
pub(crate) fn wanted() -> bool {
    BEFORE_WANTED.load() != 0
}

/// Whether nobody waits for what comes to sockets.
#[inline(always)]
fn is_quiet() -> bool {
    !wanted() && !origin::may_wait()
}

/// `tcp_probe(sk, skb)`: a segment came to a connection that is established.
#[inline(always)]
pub(crate) fn segment(ctx: &BtfTracePointContext) -> i32 {
    if stopped() {
        return 0;
    }
    let sk: Object = ctx.arg(0);
    let skb: Object = ctx.arg(1);
    // SAFETY: loads of fields from BTF pointers; a fault yields 0.
    let (sequence, end, accepted) = unsafe {
        let end = field::<u32>(skb, &SKB_END);
        let flags = field::<u8>(skb, &SKB_FLAGS);
        (
            field::<u32>(skb, &SKB_SEQUENCE),
            end.wrapping_sub(u32::from(flags & FIN)),
            field::<u64>(sk, &SK_SOCKET) != 0,
        )
    };
    let has_data = end != sequence;
    let mut way = Way::default();
    if origin::wanted() {
        way = way_from(sk).back();
        delivery::comes(&way, has_data);
    }
    if !has_data {
        return 0;
    }
    if is_quiet() {
        return 0;
    }
    if origin::wanted() {
        origin::may_be_asked(&way);
        if !wanted() && !origin::is_wanted(&way) {
            return 0;
        }
    }
    let Some((received, copied)) = sequences(sk) else {
        return 0;
    };
    // Data that was sent twice is not new.
    if (end.wrapping_sub(received) as i32) <= 0 {
        return 0;
    }
    let segment = if origin::wanted() {
        origin::segment(&way, sequence, end)
    } else {
        Segment::NONE
    };
    let socket = cookie(sk);
    let has_more = received != copied;
    let unread = Unread::with(known(socket), bpf_now(), has_more, accepted);
    origin::came(socket, unread, &segment, sequence);
    0
}

/// `tcp_rcv_space_adjust(sk)`: the current thread has read from a connection.
#[inline(always)]
pub(crate) fn tcp_read(ctx: &BtfTracePointContext) -> i32 {
    let sk: Object = ctx.arg(0);
    if is_quiet() {
        origin::reads_quietly(sk, false);
        return 0;
    }
    let Some((tid, in_request)) = reader() else {
        origin::asked(sk);
        return 0;
    };
    // With TLS in the kernel an interrupt reads, and the current thread has nothing to do with it.
    let ulp = read::<u64>(at(sk, &ICSK_ULP_OPS));
    if ulp != Some(0) {
        return 0;
    }
    has_read(sk, false, tid, in_request);
    0
}

/// `inet_sock_set_state(sk, old, new)`: a connection is there, or is no more.
#[inline(always)]
pub(crate) fn state(ctx: &BtfTracePointContext) -> i32 {
    let sk: Object = ctx.arg(0);
    let old: i32 = ctx.arg(1);
    let new: i32 = ctx.arg(2);
    if new == CLOSE {
        origin::closed(cookie(sk));
    } else if old == SYN_RECV && new == ESTABLISHED && !stopped() {
        // SAFETY: a load of a field from a BTF pointer.
        let owner = unsafe { field::<u64>(sk, &SK_SOCKET) };
        // With TCP Fast Open it may have been accepted before.
        if owner == 0 && wanted() {
            let unread = Unread::connected(bpf_now());
            origin::came(cookie(sk), unread, &Segment::NONE, 0);
        }
    } else if old == SYN_SENT && new == ESTABLISHED && origin::wanted() {
        origin::connected(sk);
    } else if new == SYN_SENT && origin::wanted() {
        origin::connects(sk);
    }
    0
}

/// `sk_data_ready(sk)`: something came to a socket.
#[inline(always)]
pub(crate) fn message(ctx: &BtfTracePointContext) -> i32 {
    let sk: Object = ctx.arg(0);
    if !is_unix(sk) || stopped() {
        return 0;
    }
    let queued = queued(sk);
    if queued == 0 {
        return 0;
    }
    let socket = cookie(sk);
    let mut segment = Segment::NONE;
    if origin::wanted() {
        origin::asks(socket);
        segment.is_ours = origin::is_looked_at(socket);
        if segment.is_ours {
            // Who sends hands it over by itself.
            segment.sender = blame::sender(bpf_now());
            segment.is_certain = true;
        } else if !wanted() {
            return 0;
        }
    }
    let unread = Unread::with_queued(known(socket), bpf_now(), queued);
    origin::came(socket, unread, &segment, 0);
    0
}

/// `sock_recv_length(sk, length, flags)`: the current thread has received.
#[inline(always)]
pub(crate) fn unix_read(ctx: &BtfTracePointContext) -> i32 {
    let sk: Object = ctx.arg(0);
    let length: i32 = ctx.arg(1);
    if length <= 0 {
        return 0;
    }
    let is_unix = is_unix(sk);
    if is_quiet() {
        if is_unix {
            origin::reads_quietly(sk, true);
        }
        return 0;
    }
    match reader() {
        Some((tid, in_request)) if is_unix => has_read(sk, true, tid, in_request),
        Some((tid, true)) if origin::wanted() => origin::has_read_layered(sk, tid),
        None if is_unix => origin::unix_asked(sk),
        _ => {}
    }
    0
}

/// A request begins on the current thread: when its data came goes into what is sent beside its record.
#[inline(always)]
pub(crate) fn begins(tid: u32, request: &mut RequestState) {
    if !wanted() {
        return;
    }
    let since_ns = take(tid);
    if since_ns != 0 {
        request.keyed.extra().arrived_ns = since_ns;
    }
}

/// What the thread has read is of no request that begins later.
#[inline(always)]
pub(crate) fn pass(tid: u32) {
    if wanted() {
        take(tid);
    }
}

/// A thread gets this id.
#[inline(always)]
pub(crate) fn born(tid: u32) {
    if wanted() {
        let _ = READS.remove(tid);
    }
}

#[inline(always)]
fn take(tid: u32) -> u64 {
    match READS.get_ptr_mut(tid) {
        // SAFETY: the entry of the current thread; an entry of another that takes its place costs a time.
        Some(last) => unsafe { (*last).take() },
        None => 0,
    }
}

/// The current thread, if its process is traced, and whether it is in a request.
#[inline(always)]
fn reader() -> Option<(u32, bool)> {
    if stopped() {
        return None;
    }
    let (tgid, tid) = current_ids();
    match tid_flag(tid) {
        flag::IN_REQUEST | flag::UNSAMPLED | flag::PASSED => Some((tid, true)),
        flag::KNOWN | flag::LEFT | flag::BORN => Some((tid, false)),
        _ => traced(tgid).map(|_| (tid, false)),
    }
}

/// A thread has read from a socket.
#[inline(always)]
fn has_read(sk: Object, is_unix: bool, tid: u32, in_request: bool) {
    let socket = cookie(sk);
    let request = if origin::wanted() && in_request {
        origin::request_of(tid)
    } else {
        None
    };
    let is_looked_at = wanted() || origin::looks_at(request.is_some());
    let entry = if is_looked_at {
        origin::entry_or_new(socket)
    } else {
        SOCKETS.get_ptr_mut(socket)
    };
    let Some(entry) = entry else { return };
    // SAFETY: points into the map. Of Unix sockets it may change meanwhile: see `with_queued`.
    let entry = unsafe { &mut *entry };
    entry.is_ours = 1;
    if !is_looked_at && entry.users == 0 {
        entry.read_unused(bpf_now());
        return;
    }
    let is_rest = if is_unix {
        queued(sk) != 0
    } else {
        match sequences(sk) {
            Some((received, copied)) => received != copied,
            None => return,
        }
    };
    if origin::wanted() && !is_unix {
        origin::find_sender(sk, entry);
    }
    let since_ns = entry.read(bpf_now(), is_rest);
    if in_request {
        if let Some(request) = request {
            origin::has_read(socket, entry, request);
        }
        return;
    }
    if !wanted() {
        return;
    }
    if let Some(last) = READS.get_ptr_mut(tid) {
        // SAFETY: the entry of the current thread.
        unsafe { (*last).read(socket, since_ns, is_rest) }
        return;
    }
    let mut last = LastRead {
        socket: 0,
        since_ns: 0,
        is_rest: 0,
    };
    last.read(socket, since_ns, is_rest);
    let _ = READS.insert(tid, last, 0);
}

/// A number that no other socket has, as long as the machine runs. An address is used again, and the kernel does
/// not say when a Unix socket is closed.
#[inline(always)]
pub(crate) fn cookie(sk: Object) -> u64 {
    // SAFETY: a BTF pointer to a socket.
    unsafe { bpf_get_socket_cookie(sk.cast_mut().cast()) }
}

#[inline(always)]
fn known(socket: u64) -> Unread {
    match SOCKETS.get_ptr(socket) {
        // SAFETY: copied at once.
        Some(entry) => unsafe { (*entry).unread },
        None => Unread {
            first_ns: 0,
            last_ns: 0,
        },
    }
}

/// With TLS in the kernel, or the like, something else reads.
#[inline(always)]
pub(crate) fn is_layered(sk: Object) -> bool {
    is_tcp(sk) && read::<u64>(at(sk, &ICSK_ULP_OPS)).is_some_and(|ulp| ulp != 0)
}

#[inline(always)]
pub(crate) fn is_tcp(sk: Object) -> bool {
    // SAFETY: a load of a field from a BTF pointer.
    unsafe { field::<u16>(sk, &SK_PROTOCOL) == TCP }
}

/// How far a connection has received, and how far of that was read.
#[inline(always)]
fn sequences(sk: Object) -> Option<(u32, u32)> {
    let received = read(at(sk, &TCP_RECEIVED))?;
    Some((received, read(at(sk, &TCP_COPIED))?))
}

#[inline(always)]
pub(crate) fn is_unix(sk: Object) -> bool {
    // SAFETY: a load of a field from a BTF pointer.
    unsafe { field::<u16>(sk, &SK_FAMILY) == AF_UNIX }
}

/// Messages that wait at a socket.
#[inline(always)]
fn queued(sk: Object) -> u32 {
    // SAFETY: a load of a field from a BTF pointer.
    unsafe { field::<u32>(sk, &SK_QUEUE_LEN) }
}

#[inline(always)]
pub(crate) fn at(object: Object, offset: &Global<u32>) -> Object {
    object.wrapping_add(offset.load() as usize)
}

/// A field of what a BTF pointer points to.
#[inline(always)]
pub(crate) unsafe fn field<T>(object: Object, offset: &Global<u32>) -> T {
    // SAFETY: by the caller; the offset comes from the kernel's own types.
    unsafe {
        object
            .add(offset.load() as usize)
            .cast::<T>()
            .read_volatile()
    }
}

/// A value behind an address that has no type of its own.
#[inline(always)]
pub(crate) fn read<T: Default + Copy>(address: Object) -> Option<T> {
    let mut value = T::default();
    // SAFETY: the helper writes the size of the value, into it.
    let failed = unsafe {
        bpf_probe_read_kernel(
            (&raw mut value).cast(),
            size_of::<T>() as u32,
            address.cast(),
        )
    };
    (failed == 0).then_some(value)
}
