use proptest::prelude::*;
use reqtrace_common::cookie::Reentry;
use reqtrace_common::futex::holder_is;
use reqtrace_common::record::{
    BlockSite as KernelSite, IntervalRecord, WakerRecord, waker_context, waker_is,
};
use reqtrace_common::thread::Begin;

use reqtrace_recording::{Holder, IntervalKind, WakerContext, WakerIs};

use super::*;

const SITE: KernelSite = KernelSite {
    kernel_stack: 7,
    user_stack: 8,
    syscall: 75,
    file: 4,
};

/// The bytes of a record, as the kernel sends them.
fn encode_request(record: &RequestRecord) -> Vec<u8> {
    let start = std::ptr::from_ref(record).cast::<u8>();
    // SAFETY: a record is plain numbers without padding, and as long as its size says.
    unsafe { std::slice::from_raw_parts(start, size_of::<RequestRecord>()) }.to_vec()
}

/// A request with memory of its own.
fn request(bytes: &[u8]) -> Result<Open, Malformed> {
    let mut decoder = Decoder::default();
    let Record::Request(bytes) = record(bytes)? else {
        panic!("not a request");
    };
    let request = decoder.request(bytes)?;
    Ok(Open {
        label: request.label.to_vec(),
        slots: request.slots.to_vec(),
        longest: request.longest.to_vec(),
        request: Request {
            label: &[],
            slots: &[],
            longest: &[],
            away: &[],
            parks: &[],
            attributes: &[],
            ..request
        },
        ..Open::default()
    })
}

fn sample() -> RequestRecord {
    let mut record = RequestRecord::ZERO;
    record.kind = kind::REQUEST;
    record.tgid = 10;
    record.tid = 11;
    record.begin_ns = 1_000;
    record.end_ns = 2_000;
    record.blocked_ns = 300;
    record.unattributed_ns = 20;
    record.blocks = 2;
    record.weight = 1;
    record.slots_used = 2;
    record.slots[0] = KernelSlot {
        site: SITE,
        blocked_ns: 100,
    };
    record.slots[1] = KernelSlot {
        site: SITE,
        blocked_ns: 200,
    };
    record.longest_used = 2;
    record.longest[0].blocked_ns = 100;
    record.longest[1].blocked_ns = 200;
    record.comm[..5].copy_from_slice(b"mysql");
    record
}

#[test]
fn a_prefix_and_a_whole_record_decode_alike() {
    let record = sample();
    let bytes = encode_request(&record);
    let prefix_len = offset_of!(RequestRecord, slots) + 2 * size_of::<KernelSlot>();
    for bytes in [&bytes[..], &bytes[..prefix_len]] {
        let open = request(bytes).unwrap();
        assert_eq!(open, from_record(&record).unwrap());
        let request = open.request();
        assert_eq!(request.comm.text(), "mysql");
        assert_eq!(request.on_cpu_ns(), 680);
        assert_eq!(request.longest[0].blocked_ns, 200);
    }
    assert_eq!(
        request(&bytes[..prefix_len - 1]),
        Err(Malformed::Short {
            needed: prefix_len,
            got: prefix_len - 1
        })
    );
}

#[test]
fn counts_reasons_and_sums_are_checked() {
    let broken = |change: fn(&mut RequestRecord)| {
        let mut record = sample();
        change(&mut record);
        let decoded = request(&encode_request(&record)).unwrap_err();
        assert_eq!(from_record(&record).unwrap_err(), decoded);
        decoded
    };
    assert_eq!(broken(|r| r.slots_used = 33), Malformed::Count(33));
    assert_eq!(
        broken(|r| r.longest_used = u32::MAX),
        Malformed::Count(u32::MAX)
    );
    assert_eq!(broken(|r| r.label_len = 129), Malformed::Count(129));
    assert_eq!(broken(|r| r.reason = 9), Malformed::Reason(9));
    assert_eq!(broken(|r| r.request_type = 16), Malformed::RequestType(16));
    assert_eq!(broken(|r| r.blocked_ns = 301), Malformed::Ledger);
    assert_eq!(broken(|r| r.run_queue_ns = 681), Malformed::Ledger);
    assert_eq!(broken(|r| r.end_ns = 1), Malformed::Ledger);
    assert_eq!(broken(|r| r.preempted_ns = u64::MAX), Malformed::Ledger);
    assert_eq!(request(&[99, 0, 0, 0]), Err(Malformed::Kind(99)));
    assert!(matches!(request(&[]), Err(Malformed::Short { .. })));
}

fn open_state(blocked_at: Option<u64>, woken_at: u64) -> thread::Thread {
    let mut thread = thread::Thread::ZERO;
    let begin = Begin {
        now: 1_000,
        request_type: 0,
        reentry: Reentry::Nest,
        sp: 0,
        return_address: 0,
        weight: 1,
    };
    (thread.state.tgid, thread.state.tid) = (10, 11);
    thread.request.record.comm[0] = b'x';
    thread.open(&begin);
    if let Some(at) = blocked_at {
        thread.state.switch_out(at, false, 1, SITE);
    }
    thread.state.wake_ns = woken_at;
    thread
}

#[test]
fn an_open_request_is_closed_at_the_stop() {
    assert_eq!(still_open(&thread::Thread::ZERO, 5_000), Ok(None));

    let closed = |thread: &thread::Thread, stop_ns| {
        let open = still_open(thread, stop_ns).unwrap().unwrap().open;
        (open.request, open.blocked_in)
    };
    let (running, _) = closed(&open_state(None, 0), 5_000);
    assert_eq!(running.incomplete, Some(Incomplete::RunningAtStop));
    assert_eq!((running.latency_ns(), running.on_cpu_ns()), (4_000, 4_000));
    assert_eq!(running.comm.text(), "x");

    let (blocked, blocked_in) = closed(&open_state(Some(2_000), 0), 5_000);
    assert_eq!(blocked.incomplete, Some(Incomplete::BlockedAtStop));
    assert_eq!((blocked.blocked_ns, blocked.on_cpu_ns()), (3_000, 1_000));
    let since_ns = 2_000;
    let site = own::site(&SITE);
    assert_eq!(blocked_in, Some(BlockedIn { site, since_ns }));

    let (woken, _) = closed(&open_state(Some(2_000), 4_500), 5_000);
    assert_eq!(woken.incomplete, Some(Incomplete::RunningAtStop));
    assert_eq!((woken.blocked_ns, woken.run_queue_ns), (2_500, 500));
}

#[test]
fn what_was_seen_after_the_stop_closes_its_ledger_all_the_same() {
    // Begun after it.
    let closed = |thread: &thread::Thread, stop_ns| {
        let still = still_open(thread, stop_ns).unwrap().unwrap();
        still.open.request
    };
    let begun = closed(&open_state(None, 0), 900);
    assert_eq!((begun.latency_ns(), begun.on_cpu_ns()), (0, 0));

    // Left its CPU after it.
    let left = closed(&open_state(Some(2_000), 0), 1_500);
    assert_eq!((left.latency_ns(), left.on_cpu_ns()), (1_000, 1_000));
    assert_eq!(left.incomplete, Some(Incomplete::BlockedAtStop));

    // Came back after it: that it ended no earlier than its blocks add up to is all that is known.
    let mut thread = open_state(Some(2_000), 0);
    thread.state.waking(4_000, &WakerRecord::default());
    thread.switch_in(4_500);
    let back = closed(&thread, 3_000);
    assert_eq!((back.latency_ns(), back.on_cpu_ns()), (2_500, 0));
    assert_eq!((back.blocked_ns, back.run_queue_ns), (2_000, 500));
}

fn interval_bytes(record: &IntervalRecord) -> Vec<u8> {
    let size = size_of::<IntervalRecord>();
    // SAFETY: the record has no padding, and lives until the copy is made.
    unsafe { std::slice::from_raw_parts((&raw const *record).cast::<u8>(), size).to_vec() }
}

#[test]
fn an_interval_has_its_waker_and_its_times_in_order() {
    let sample = IntervalRecord {
        kind: kind::INTERVAL,
        tgid: 10,
        tid: 11,
        sequence: 5,
        request_type: 2,
        request_begin_ns: 900,
        out_ns: 1_000,
        wake_ns: 1_500,
        in_ns: 1_600,
        futex: 0x7000,
        holder_is: holder_is::THREAD,
        holder: 13,
        waker: WakerRecord {
            tid: 12,
            tgid: 10,
            context: waker_context::UNCLEAR,
            is: waker_is::HELPER,
            since_ns: 700,
            stack: 88,
            ..WakerRecord::default()
        },
        ..IntervalRecord::default()
    };
    let decoded = interval(&interval_bytes(&sample)).unwrap();
    assert_eq!(
        (decoded.tid, decoded.sequence, decoded.futex),
        (11, 5, 0x7000)
    );
    assert_eq!(decoded.holder, Holder::Thread(13));
    let request = decoded.request.unwrap();
    assert_eq!((request.begin_ns, request.request_type), (900, 2));
    let IntervalKind::Blocked { wake_ns, waker } = decoded.kind else {
        panic!("{decoded:?}");
    };
    assert_eq!((wake_ns, decoded.blocked_ns()), (1_500, 500));
    assert_eq!((waker.tid, waker.stack), (12, 88));
    assert_eq!(waker.is, WakerIs::Helper(700));
    assert_eq!(waker.context, WakerContext::Unclear);

    let broken = |change: fn(&mut IntervalRecord)| {
        let mut record = sample;
        change(&mut record);
        interval(&interval_bytes(&record)).unwrap_err()
    };
    assert_eq!(broken(|r| r.wake_ns = 999), Malformed::Interval);
    assert_eq!(broken(|r| r.in_ns = 1_499), Malformed::Interval);
    assert_eq!(broken(|r| r.waker.context = 9), Malformed::Waker(9));
    assert_eq!(broken(|r| r.waker.is = 7), Malformed::Waker(7));
    assert_eq!(broken(|r| r.holder_is = 5), Malformed::Holder(5));
    assert_eq!(broken(|r| r.request_type = 16), Malformed::RequestType(16));
    assert!(matches!(
        interval(&interval_bytes(&sample)[..100]),
        Err(Malformed::Short { .. })
    ));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..1200), kind in 0_u8..7) {
        let mut bytes = bytes;
        if bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        }
        match record(&bytes) {
            Ok(Record::Request(bytes)) => drop(Decoder::default().request(bytes)),
            Ok(Record::Interval(bytes)) => drop(interval(bytes)),
            _ => {}
        }
    }

    #[test]
    fn a_changed_byte_never_breaks_the_ledger(at in 0..size_of::<RequestRecord>(), value in any::<u8>()) {
        let mut bytes = encode_request(&sample());
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        let mut decoder = Decoder::default();
        if let Ok(Record::Request(bytes)) = record(&bytes)
            && let Ok(request) = decoder.request(bytes)
        {
            prop_assert_eq!(
                request.latency_ns(),
                request.on_cpu_ns() + request.off_cpu_ns()
            );
        }
    }
}
