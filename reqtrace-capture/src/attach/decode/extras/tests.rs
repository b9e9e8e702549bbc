//! Extras, texts and requests as the kernel sends them.

use reqtrace_common::keyed::{PARKED, QUEUED};
use reqtrace_common::record::{TextHead, TextRecord, kind, reason};
use reqtrace_common::thread::{RequestState, Thread};

use reqtrace_recording::WakerIs;

use super::*;
use crate::attach::decode::{still_open, still_parked};
use reqtrace_recording::AwayIn;

/// The bytes of a record.
fn bytes<T>(record: &T) -> &[u8] {
    // SAFETY: records are made of integers, without padding.
    unsafe { std::slice::from_raw_parts((&raw const *record).cast(), size_of::<T>()) }
}

fn extra() -> ExtraRecord {
    let mut extra = ExtraRecord {
        kind: kind::EXTRA,
        tgid: 7,
        tid: 8,
        moves: 2,
        begin_ns: 1000,
        stamp_ns: 990,
        numbers_set: 0b101,
        texts_set: 0b10,
        ..ExtraRecord::ZERO
    };
    extra.away_ns[1] = 30;
    extra.aways[1] = 2;
    extra.away_ns[QUEUED as usize] = 5;
    extra.aways[QUEUED as usize] = 1;
    extra.numbers[0] = 42;
    extra.numbers[2] = u64::MAX;
    extra.parks_used = 2;
    extra.parks[0] = ParkSlot {
        stack: 0x40,
        ns: 20,
        place: 1,
        count: 1,
    };
    // Room that was made for a wait that has not ended, and an entry that means nothing.
    extra.parks[1] = ParkSlot {
        stack: 0x60,
        ..ParkSlot::default()
    };
    extra.parks[2].count = 9;
    extra
}

fn text(index: u32, of: &str, is_cut: bool) -> TextRecord {
    let mut record = TextRecord {
        head: TextHead {
            kind: kind::TEXT,
            tgid: 7,
            stamp_ns: 990,
            request_type: 0,
            index,
            len: of.len() as u32,
            is_cut: u32::from(is_cut),
        },
        text: [b'x'; MAX_TEXT],
    };
    record.text[..of.len()].copy_from_slice(of.as_bytes());
    record
}

fn request() -> Request<'static> {
    Request {
        tid: 8,
        begin_ns: 1000,
        end_ns: 1100,
        weight: 1,
        ..Request::default()
    }
}

#[test]
fn a_request_gets_its_places_numbers_and_texts() {
    let mut extras = Extras::default();
    extras.text(bytes(&text(1, "select 1", true))).unwrap();
    // The kernel sends what is used of it.
    let whole = extra();
    let used = offset_of!(ExtraRecord, parks) + 2 * size_of::<ParkSlot>();
    assert!(extras.extra(&bytes(&whole)[..used - 1]).is_err());
    extras.extra(&bytes(&whole)[..used]).unwrap();
    assert_eq!(
        extras.take(&Request {
            tid: 9,
            ..request()
        }),
        Ok(None)
    );
    let taken = extras.take(&request()).unwrap().unwrap();
    let away = |place, count, ns| Away { place, count, ns };
    assert_eq!(taken.away, [away(1, 2, 30), away(QUEUED, 1, 5)]);
    assert_eq!(taken.moves, 2);
    let park = Park {
        stack: 0x40,
        place: 1,
        count: 1,
        ns: 20,
    };
    assert_eq!(taken.parks, [park]);
    let attribute = |index, value| Attribute { index, value };
    assert_eq!(
        taken.attributes(),
        [
            attribute(0, Value::Number(42)),
            attribute(
                1,
                Value::Text {
                    bytes: b"select 1",
                    is_cut: true
                }
            ),
            attribute(2, Value::Number(u64::MAX)),
        ]
    );
    assert_eq!(extras.take(&request()), Ok(None), "it was taken");
    assert!(extras.texts.is_empty());
}

#[test]
fn of_a_request_that_is_not_sent_nothing_stays() {
    let mut extras = Extras::default();
    extras.text(bytes(&text(1, "select 1", false))).unwrap();
    let withheld = ExtraRecord {
        is_withheld: 1,
        ..extra()
    };
    extras.extra(bytes(&withheld)).unwrap();
    assert_eq!(extras.texts_of((7, 990)), []);
    assert_eq!(extras.take(&request()), Ok(None));
}

#[test]
fn a_text_ends_where_the_profile_says() {
    let mut extras = Extras::new(vec![vec![None, Some(b' ')]]);
    for (sent, is_cut, wanted) in [
        ("GET / HTTP/1.1", true, ("GET", false)),
        ("OPTIONS", true, ("OPTIONS", true)),
    ] {
        extras.text(bytes(&text(1, sent, is_cut))).unwrap();
        extras.text(bytes(&text(0, "a b", false))).unwrap();
        extras.extra(bytes(&extra())).unwrap();
        let taken = extras.take(&request()).unwrap().unwrap();
        let of = |index| taken.texts.iter().find(|text| text.index == index).unwrap();
        assert_eq!(of(0).bytes, b"a b");
        assert_eq!(
            (of(1).bytes.as_slice(), of(1).is_cut),
            (wanted.0.as_bytes(), wanted.1)
        );
    }
}

#[test]
fn the_last_text_of_an_attribute_counts() {
    let mut extras = Extras::default();
    for sent in ["first", "second"] {
        extras.text(bytes(&text(1, sent, false))).unwrap();
    }
    extras.extra(bytes(&extra())).unwrap();
    let taken = extras.take(&request()).unwrap().unwrap();
    assert_eq!(taken.texts.len(), 1);
    assert_eq!(taken.texts[0].bytes, b"second");
}

#[test]
fn a_ledger_that_does_not_close_is_malformed() {
    let mut extras = Extras::default();
    let mut record = extra();
    record.away_ns[0] = 1000;
    record.aways[0] = 1;
    extras.extra(bytes(&record)).unwrap();
    assert_eq!(extras.take(&request()), Err(Malformed::Ledger));
}

#[test]
fn records_that_are_too_short_are_malformed() {
    let mut extras = Extras::default();
    let whole = extra();
    let short = &bytes(&whole)[..100];
    assert!(matches!(extras.extra(short), Err(Malformed::Short { .. })));
    let record = text(1, "select 1", false);
    let short = &bytes(&record)[..33];
    assert!(matches!(extras.text(short), Err(Malformed::Short { .. })));
    let mut long = record;
    long.head.len = MAX_TEXT as u32 + 1;
    assert!(matches!(
        extras.text(bytes(&long)),
        Err(Malformed::Count(_))
    ));
}

#[test]
fn texts_that_nobody_fetches_are_let_go_and_counted() {
    let mut extras = Extras::default();
    let mut lost = 0;
    for stamp in 0..MOST as u64 + 10 {
        let mut record = text(1, "select 1", false);
        record.head.stamp_ns = stamp;
        lost += extras.text(bytes(&record)).unwrap();
    }
    assert_eq!(lost, MOST as u64 / 2);
    assert!(extras.texts.contains_key(&(7, MOST as u64 + 9)));
    assert!(!extras.texts.contains_key(&(7, 0)));
}

#[test]
fn a_parked_request_is_told_as_if_it_ended_now() {
    let mut thread = Thread::ZERO;
    thread.state.tgid = 7;
    thread.state.tid = 8;
    let request: &mut RequestState = &mut thread.request;
    request.record.tgid = 7;
    request.record.tid = 8;
    request.record.weight = 1;
    request.record.begin_ns = 1000;
    request.keyed.is_keyed = 1;
    request.keyed.leave(1010, PARKED);
    let still = still_parked(request, 1100, reason::PARKED_AT_STOP);
    let still = still.unwrap().unwrap();
    assert_eq!(
        still.open.away_in,
        Some(AwayIn {
            place: PARKED,
            since_ns: 1010
        })
    );
    assert_eq!(still.open.request().away_ns(), 90);
    assert_eq!(still.open.request().on_cpu_ns(), 10);
    // It is in no thread meanwhile.
    assert_eq!(still_open(&thread, 1100), Ok(None));
}

#[test]
fn away_records_are_checked() {
    let record = AwayRecord {
        kind: kind::AWAY,
        tgid: 7,
        from_tid: 8,
        by_tid: 9,
        place: 1,
        request_begin_ns: 1000,
        since_ns: 1010,
        until_ns: 1020,
        by_is: waker_is::IN_REQUEST,
        by_begin_ns: 900,
        is_ready: 1,
        ..AwayRecord::default()
    };
    let (before, decoded) = away(bytes(&record)).unwrap();
    assert_eq!(before, None);
    assert_eq!((decoded.from_tid, decoded.by_tid), (8, 9));
    assert_eq!(decoded.by_request.unwrap().begin_ns, 900);
    assert!(decoded.is_ready);
    let backwards = AwayRecord {
        until_ns: 1000,
        ..record
    };
    assert_eq!(away(bytes(&backwards)), Err(Malformed::Interval));
    let nowhere = AwayRecord {
        place: 99,
        ..record
    };
    assert_eq!(away(bytes(&nowhere)), Err(Malformed::Count(99)));
}

#[test]
fn what_a_job_waited_for_a_thread_comes_before_it() {
    let record = AwayRecord {
        kind: kind::AWAY,
        tgid: 7,
        from_tid: 8,
        by_tid: 9,
        place: 2,
        is_ready: 1,
        since_ns: 100,
        until_ns: 190,
        by_stack: 44,
        ..AwayRecord::default()
    };
    let decoded = |since_ns| {
        let job = Job::new(since_ns, 11);
        away(bytes(&AwayRecord { job, ..record })).unwrap()
    };
    let part = |away: AwayInterval| (away.place, away.since_ns, away.until_ns, away.woken_from);
    let from = Some(WokenFrom {
        space: decoded(150).1.space,
        user_stack: 44,
    });
    let (before, own) = decoded(150);
    assert_eq!(part(before.unwrap()), (11, 100, 150, None));
    assert_eq!(part(own), (10, 150, 190, from));
    let (before, own) = decoded(90);
    assert_eq!((before, part(own)), (None, (10, 100, 190, from)));
    let (before, own) = decoded(0);
    assert_eq!((before, part(own)), (None, (2, 100, 190, from)));
}

#[test]
fn origin_records_are_checked() {
    let record = OriginRecord {
        kind: kind::ORIGIN,
        tgid: 7,
        request_begin_ns: 1000,
        until_ns: 1020,
        arrived_ns: 1015,
        found: found::ONE,
        sender: reqtrace_common::origin::Sender {
            who: sender_is::THREAD,
            tgid: 8,
            tid: 9,
            is: waker_is::BETWEEN_REQUESTS,
            sent_ns: 1012,
            ..Default::default()
        },
        ..OriginRecord::default()
    };
    let decoded = origin(bytes(&record)).unwrap();
    let thread = Sender::Thread {
        tgid: 8,
        tid: 9,
        is: WakerIs::BetweenRequests,
    };
    assert_eq!((decoded.arrived_ns, decoded.sender), (1015, thread));
    assert_eq!(decoded.sent_ns, 1012);
    let peer = |address: [u64; 2]| {
        let mut record = record;
        record.sender.who = sender_is::PEER;
        (record.sender.port, record.sender.address) = (443, address);
        origin(bytes(&record)).unwrap().sender
    };
    let octets = u64::from(u32::from_le_bytes([192, 0, 2, 1]));
    let mapped = [0, octets << 32 | 0xffff_0000];
    assert_eq!(peer(mapped), Sender::Peer(([192, 0, 2, 1], 443).into()));
    let v6 = "2001:db8::1".parse::<Ipv6Addr>().unwrap();
    let halves = v6.octets();
    let half = |at: usize| u64::from_le_bytes(halves[at..at + 8].try_into().unwrap());
    let wanted = Sender::Peer((v6, 443).into());
    assert_eq!(peer([half(0), half(8)]), wanted);
    for (found, wanted) in [
        (found::NO_READ, Sender::NoRead),
        (found::SEVERAL, Sender::SeveralReads),
        (found::LAYERED, Sender::LayeredSocket),
    ] {
        let record = OriginRecord { found, ..record };
        assert_eq!(origin(bytes(&record)).unwrap().sender, wanted);
    }
    let strange = OriginRecord {
        found: 99,
        ..record
    };
    assert_eq!(origin(bytes(&strange)), Err(Malformed::Waker(99)));
}
