//! A million threads, each with two requests, that are gone again: what the analysis holds does not grow.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use reqtrace_analysis::aggregate::{Aggregator, Options};
use reqtrace_common::record::{FILE_NONE, STACK_NONE};
use reqtrace_profile::Profiles;
use reqtrace_recording::{
    AddressSpace, Away, AwayInterval, BlockSite, Comm, Event, Header, Holder, Interval,
    IntervalKind, PARKED, Request, RequestOf, Slot, Thread, Waker, WakerContext, WakerIs,
};

/// Counts the bytes that are held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does it all; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const PROFILE: &str = r#"
[profile]
name = "short"

[[request]]
name = "handle"
begin = { function = "handle" }

[[request]]
name = "keyed"
key = { arg = 0 }
begin = { function = "begin" }
park = { function = "park" }
resume = { function = "resume" }
end = { function = "end" }
"#;
const THREADS: u32 = 1_000_000;
/// From then on nothing may grow.
const FILLED: u32 = 600_000;
/// Bytes that may be held: 64 MiB of threads, as much of requests with a key, sums and rows, and 8 MiB of slow requests
/// with their statements, which here are 1 KB each.
const MOST: usize = 184 << 20;

fn space() -> AddressSpace {
    AddressSpace {
        tgid: 1,
        exec_generation: 0,
    }
}

const SITE: BlockSite = BlockSite {
    user_stack: STACK_NONE,
    kernel_stack: STACK_NONE,
    syscall: 0,
    file: FILE_NONE,
};

/// One thread: a request that is blocked once. Every other block is ended by the thread before it, in a request that
/// was never seen; the rest by helpers, of which each is another thread. Every fourth has a request with a key too,
/// which is parked once, with a long label.
fn thread(number: u32, mut event: impl FnMut(&Event<'_>)) {
    let tid = number + 2;
    event(&Event::Thread(&Thread {
        tgid: 1,
        tid,
        name: format!("thread{}", number % 977),
    }));
    let begin_ns = (10 + u64::from(number)) * 20_000;
    let of = |begin_ns| RequestOf {
        begin_ns,
        request_type: 0,
    };
    let keyed = RequestOf {
        begin_ns: begin_ns - 2,
        request_type: 1,
    };
    let (waker, is) = if number.is_multiple_of(2) {
        (tid - 1, WakerIs::InRequest(of(begin_ns - 30_000)))
    } else {
        (1 << 22 | number, WakerIs::Helper(begin_ns))
    };
    event(&Event::Interval(&Interval {
        space: space(),
        tid,
        sequence: 0,
        request: Some(of(begin_ns)),
        site: SITE,
        out_ns: begin_ns + 100,
        kind: IntervalKind::Blocked {
            wake_ns: begin_ns + 200,
            waker: Waker {
                tgid: 1,
                tid: waker,
                context: WakerContext::Task,
                is,
                ..Waker::default()
            },
        },
        in_ns: begin_ns + 250,
        futex: 0,
        holder: Holder::NoFutex,
        woken_from: None,
    }));
    let slots = [Slot {
        site: SITE,
        blocked_ns: 100,
    }];
    event(&Event::Request(Request {
        id: 2 * u64::from(number) + 1,
        space: space(),
        tid,
        comm: Comm::from("worker"),
        begin_ns,
        end_ns: begin_ns + 400,
        blocked_ns: 100,
        run_queue_ns: 50,
        blocks: 1,
        weight: 1,
        slots: &slots,
        label: format!("SELECT {}", number % 1000).as_bytes(),
        ..Request::default()
    }));
    if !number.is_multiple_of(4) {
        return;
    }
    event(&Event::Away(&AwayInterval {
        space: space(),
        request: keyed,
        from_tid: tid,
        place: PARKED,
        is_queued: false,
        since_ns: begin_ns + 450,
        until_ns: begin_ns + 500,
        by_tid: tid,
        by_request: None,
        is_ready: false,
        ..AwayInterval::default()
    }));
    let away = [Away {
        place: PARKED,
        count: 1,
        ns: 50,
    }];
    event(&Event::Request(Request {
        id: 2 * u64::from(number) + 2,
        request_type: 1,
        space: space(),
        tid,
        begin_ns: keyed.begin_ns,
        end_ns: begin_ns + 600,
        weight: 1,
        away: &away,
        label: format!("{:1000}", number % 1000).as_bytes(),
        ..Request::default()
    }));
}

#[test]
fn threads_that_are_gone_hold_no_memory() {
    let profile = Profiles::parse([PROFILE], "short").unwrap();
    let header = Header {
        blame: true,
        ..Header::default()
    };
    let mut aggregator = Aggregator::new(&profile, &header, Options::default()).unwrap();
    let before = HELD.load(Ordering::Relaxed);
    let mut most = [0; 2];
    for number in 0..THREADS {
        thread(number, |event| {
            aggregator.event(event, &mut []).unwrap();
        });
        let held = HELD.load(Ordering::Relaxed) - before;
        let since = &mut most[usize::from(number >= (FILLED + THREADS) / 2)];
        if number >= FILLED {
            *since = held.max(*since);
        }
    }
    let [first, second] = most;
    assert!(first <= MOST, "{first} bytes");
    assert!(second <= first + first / 50, "{first} bytes, then {second}");
    assert_eq!(aggregator.requests().0, u64::from(THREADS + THREADS / 4));
}
