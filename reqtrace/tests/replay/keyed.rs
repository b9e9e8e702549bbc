//! The recorded scene of requests that change threads, and what is reported of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use reqtrace_analysis::aggregate::{FilterOptions, Options};
use reqtrace_analysis::report::Grouping;
use reqtrace_analysis::report::blame::{Cause, Reason};
use reqtrace_common::record::{FILE_NONE, STACK_NONE};
use reqtrace_output::folded::{FoldedOptions, Part, Shows};
use reqtrace_recording::{
    AddressSpace, Away, AwayInterval, BlockSite, Event, Holder, Interval, IntervalKind, NumberOf,
    Origin, PARKED, RequestOf, Sender, TextOf, Waker, WakerContext, WakerIs,
};

use crate::build::{Builder, Off, POOL_QUEUE, SPACE, START_NS};
use crate::replayed::{compare, run_with};
use crate::scenes::{MS, US};

/// A server with an event loop and workers: requests with keys, which change threads.
const KEYED: &str = r#"
[profile]
name = "web"

[[request]]
name = "http"
key = { arg = 0 }
begin = { function = "create_request" }
resume = { function = "on_event" }
park = [
    { function = "send", at = "return", as = "client" },
    { function = "ask", at = "return", as = "upstream" },
    { function = "pause", at = "return" },
]
ready = { function = "pool_push", as = "pool queue" }
end = { function = "free_request" }

[[request.attribute]]
name = "status"
arg = 0
deref = [8]
type = "unsigned"
on = "end"
names = { 200 = "OK", 404 = "not found" }

[[request.attribute]]
name = "path"
arg = 0
deref = [16]

[[request]]
name = "tick"
begin = { function = "tick" }
"#;

/// The event loop, and a worker.
const LOOP: u32 = 9600;
const WORKER: u32 = 9601;

/// A story of each request: the loop begins it, and parks it for the client; goes on with it, and parks it for
/// another service, whose answer comes to the loop; that hands it to a worker, which waits for the disk.
pub(crate) fn keyed() -> Vec<u8> {
    let mut builder = Builder::complete_trace(2, KEYED);
    let sites = keyed_sites(&mut builder);
    for index in 0..80_u64 {
        one_of_keys(&mut builder, &sites, index);
    }
    builder.complete(1, 9610, 6_000 * MS, 4 * MS, &[]);
    builder.misfits(40, 0);
    builder.parked_at_stop(LOOP, 9_000 * MS, 1, 9_000 * MS + 40 * US);
    builder.finish()
}

struct KeyedSites {
    disk: BlockSite,
    completion: u64,
    packet: u64,
    handle: BlockSite,
    render: BlockSite,
}

fn keyed_sites(builder: &mut Builder) -> KeyedSites {
    let read = [
        "__schedule",
        "schedule",
        "io_schedule",
        "folio_wait_bit_common",
        "filemap_read",
    ];
    let received = [
        "try_to_wake_up",
        "sock_def_readable",
        "tcp_data_queue",
        "napi_poll",
        "__irq_exit_rcu",
    ];
    let completed = ["try_to_wake_up", "blk_mq_end_request", "__irq_exit_rcu"];
    let mut user = |names: &[&str]| BlockSite {
        kernel_stack: STACK_NONE,
        ..builder.site(&[], names, -1, FILE_NONE)
    };
    let (handle, render) = (
        user(&["parse", "create_request", "main"]),
        user(&["render", "work"]),
    );
    KeyedSites {
        disk: builder.site(&read, &["pread64", "load", "work"], 17, FILE_NONE),
        completion: builder.site(&completed, &[], -1, FILE_NONE).kernel_stack,
        packet: builder.site(&received, &[], -1, FILE_NONE).kernel_stack,
        handle,
        render,
    }
}

/// An address for documentation.
const CLIENT: Sender = Sender::Peer(SocketAddr::new(
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
    40_000,
));

/// One request of [`keyed`].
fn one_of_keys(builder: &mut Builder, sites: &KeyedSites, index: u64) {
    let begin = 10 * MS + index * 50 * MS;
    let of = RequestOf {
        begin_ns: begin,
        request_type: 0,
    };
    let away = |place, since, until, by_tid| AwayInterval {
        space: AddressSpace::default(),
        request: of,
        from_tid: LOOP,
        place,
        is_queued: place == POOL_QUEUE,
        since_ns: begin + since,
        until_ns: begin + until,
        by_tid,
        by_request: None,
        is_ready: false,
        ..AwayInterval::default()
    };
    // For the client, for the other service, and for a worker; slow ones for the service.
    let service = if index % 20 == 7 { 30 * MS } else { 2 * MS };
    let client = (100 * US, 900 * US);
    let upstream = (950 * US, 950 * US + service);
    let queued = (upstream.1, upstream.1 + 30 * US + index * US);
    // The loop sleeps until packets come.
    for (number, (since, until)) in (0..).zip([client, upstream]) {
        builder.interval(&interval(
            (LOOP, 2 * index as u32 + number),
            None,
            [
                begin + since + 20 * US,
                begin + until - 40 * US,
                begin + until - 10 * US,
            ],
            packet(sites),
        ));
    }
    let parked = [
        away(0, client.0, client.1, LOOP),
        away(1, upstream.0, upstream.1, LOOP),
        away(POOL_QUEUE, queued.0, queued.1, WORKER),
    ];
    for one in &parked {
        builder.away(one);
    }
    // The client is another machine. The service is a thread of this one.
    let service = Sender::Thread {
        tgid: 8000,
        tid: 8001,
        is: WakerIs::Helper(START_NS),
    };
    for (away, sender) in parked.iter().zip([CLIENT, service]) {
        builder.origin(&Origin {
            space: AddressSpace::default(),
            request: of,
            until_ns: away.until_ns,
            arrived_ns: away.until_ns - 40 * US,
            sender,
            sent_ns: 0,
        });
    }
    let worker = queued.1;
    let block = (worker + 100 * US, 300 * US, 20 * US);
    builder.interval(&interval(
        (WORKER, index as u32),
        Some(of),
        [
            begin + block.0,
            begin + block.0 + block.1,
            begin + block.0 + block.1 + block.2,
        ],
        disk(sites),
    ));
    builder.sample(0, LOOP, begin, sites.handle);
    builder.sample(0, WORKER, begin, sites.render);
    builder.sample(0, WORKER, begin, sites.render);
    let pause = if index.is_multiple_of(4) { 10 * US } else { 0 };
    let latency = block.0 + block.1 + block.2 + 200 * US + pause;
    let mut places: Vec<Away> = parked
        .iter()
        .map(|one| Away {
            place: one.place,
            count: 1,
            ns: one.until_ns - one.since_ns,
        })
        .collect();
    if pause > 0 {
        // Its record of this was lost.
        let (place, count) = (PARKED, 1);
        places.push(Away {
            place,
            count,
            ns: pause,
        });
    }
    let off = [Off::Block(sites.disk, block.1, block.2)];
    let text = format!("/user/{}/cart?x=\n", index % 6);
    let status = if index.is_multiple_of(10) { 404 } else { 200 };
    let status = if index == 33 { 500 } else { status };
    builder.keyed(
        (WORKER, begin, latency),
        &off,
        &places,
        (status, text.as_bytes()),
    );
}

fn interval(
    (tid, sequence): (u32, u32),
    request: Option<RequestOf>,
    [out_ns, wake_ns, in_ns]: [u64; 3],
    (site, waker): (BlockSite, Waker),
) -> Interval {
    Interval {
        space: AddressSpace::default(),
        tid,
        sequence,
        request,
        site,
        out_ns,
        kind: IntervalKind::Blocked { wake_ns, waker },
        in_ns,
        futex: 0,
        holder: Holder::NoFutex,
        woken_from: None,
    }
}

/// A helper's wait, which has no stacks, until a packet came.
fn packet(sites: &KeyedSites) -> (BlockSite, Waker) {
    let waker = Waker {
        context: WakerContext::Unclear,
        stack: sites.packet,
        ..Waker::UNKNOWN
    };
    let site = BlockSite {
        syscall: 232,
        ..BlockSite::PREEMPTED
    };
    (site, waker)
}

/// A wait for the disk.
fn disk(sites: &KeyedSites) -> (BlockSite, Waker) {
    let waker = Waker {
        context: WakerContext::Unclear,
        stack: sites.completion,
        ..Waker::UNKNOWN
    };
    (sites.disk, waker)
}

impl Builder {
    /// A thread was off the CPU; times since the start.
    pub(crate) fn interval(&mut self, interval: &Interval) {
        let on = |ns| START_NS + ns;
        let kind = match interval.kind {
            IntervalKind::Preempted => IntervalKind::Preempted,
            IntervalKind::Blocked { wake_ns, waker } => IntervalKind::Blocked {
                wake_ns: on(wake_ns),
                waker,
            },
        };
        self.event(&Event::Interval(&Interval {
            space: SPACE,
            out_ns: on(interval.out_ns),
            in_ns: on(interval.in_ns),
            request: interval.request.map(since_start),
            kind,
            ..*interval
        }));
    }

    /// No thread ran a request; times since the start.
    pub(crate) fn away(&mut self, away: &AwayInterval) {
        self.event(&Event::Away(&AwayInterval {
            space: SPACE,
            request: since_start(away.request),
            since_ns: START_NS + away.since_ns,
            until_ns: START_NS + away.until_ns,
            by_request: away.by_request.map(since_start),
            ..*away
        }));
    }

    /// What a parked request went on with; times since the start.
    pub(crate) fn origin(&mut self, origin: &Origin) {
        self.event(&Event::Origin(&Origin {
            space: SPACE,
            request: since_start(origin.request),
            until_ns: START_NS + origin.until_ns,
            arrived_ns: START_NS + origin.arrived_ns,
            ..*origin
        }));
    }

    /// A complete request with a key: where it was parked and queued, how often it came to another thread,
    /// and its attributes, a number and a text.
    pub(crate) fn keyed(
        &mut self,
        (tid, begin, latency): (u32, u64, u64),
        off: &[Off],
        away: &[Away],
        (number, text): (u64, &[u8]),
    ) {
        let mut request = self.request(0, tid, begin, latency, off);
        request.away = away.to_vec();
        request.request.moves = 1;
        request.numbers = vec![NumberOf { index: 0, number }];
        request.texts = vec![TextOf {
            index: 1,
            bytes: text.to_vec(),
            is_cut: false,
        }];
        self.total(&request.request());
        self.sum(0, off);
        self.send(&request);
    }
}

fn since_start(of: RequestOf) -> RequestOf {
    RequestOf {
        begin_ns: START_NS + of.begin_ns,
        ..of
    }
}

#[test]
fn requests_that_change_threads() {
    let recording = keyed();
    let options = Options {
        group_by: Some(Grouping::FingerprintOf("path".to_owned())),
        ..Options::default()
    };
    let replayed = run_with(&recording, options);
    compare("keyed", &replayed);
    let report = &replayed.report;
    assert_eq!(report.places.parked, ["client", "upstream", ""]);
    assert_eq!(report.places.queued, ["pool queue", ""]);
    let request = &report.requests[0];
    assert_eq!((request.count, request.rows), (80, 80));
    let ledger = &request.ledger;
    assert_eq!(ledger.parked[0], 80 * 800_000);
    assert_eq!(ledger.parked[1], 76 * 2_000_000 + 4 * 30_000_000);
    assert_eq!(ledger.parked[2], 20 * 10_000);
    assert_eq!(ledger.queued[0], 80 * 30_000 + 1_000 * (0..80).sum::<u64>());
    // Root causes are those of blocked and parked time, and the rest of it is reported as lost.
    let blame = report.blame.as_ref().unwrap();
    let [of_http, _] = blame.types.as_slice() else {
        panic!("{:?}", blame.types)
    };
    assert_eq!(of_http.causes.sum(), ledger.held_up_ns());
    let lost = of_http
        .unknown
        .iter()
        .find(|(reason, _)| *reason == Reason::Lost);
    assert_eq!(lost.map(|(_, ns)| *ns), Some(ledger.parked[2]));
    assert_eq!(of_http.causes.get(Cause::Disk), 80 * 300_000);
    let chains: u64 = blame.chains.iter().map(|chain| chain.ns).sum();
    assert_eq!(chains, ledger.held_up_ns());
    // The whole latency is in the stacks, with a frame for each place.
    let sum = |part| -> u64 {
        let options = FoldedOptions {
            part,
            ..FoldedOptions::default()
        };
        let lines = Shows::Stacks(options).lines(report);
        lines.iter().map(|(_, micros)| micros * 1000).sum()
    };
    let latency: u64 = report.requests.iter().map(|of| of.ledger.latency_ns).sum();
    assert!(sum(Part::All).abs_diff(latency) <= 10_000);
    let folded = &replayed.files["stacks.folded"];
    for frame in [
        "[parked: client]",
        "[parked: upstream]",
        "[parked]",
        "[queued: pool queue]",
    ] {
        assert!(folded.contains(&format!("http;{frame} ")), "{frame}");
    }
    let groups: Vec<_> = report.labels[0]
        .shown
        .iter()
        .map(|group| &group.label)
        .collect();
    assert_eq!(groups, ["/user/?/cart?x=\\n"]);
    assert!(
        report.warnings[0].contains("have a key that no request has"),
        "{:?}",
        report.warnings
    );
    let open = report.open[0]
        .place
        .as_ref()
        .map(|(words, _)| words.as_str());
    assert_eq!(open, Some("parked: upstream"));
}

#[test]
fn groups_of_a_number_need_no_labels() {
    let by = |name: &str| Options {
        group_by: Some(Grouping::Attribute(name.to_owned())),
        ..Options::default()
    };
    let report = run_with(&keyed(), by("status")).report;
    let groups = &report.labels[0].shown;
    let counts: Vec<_> = groups
        .iter()
        .map(|group| (group.label.as_str(), group.count))
        .collect();
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 80);
    assert!(
        counts.contains(&("500", 1)) && counts.contains(&("not found", 8)),
        "{counts:?}"
    );
}

#[test]
fn attributes_choose_requests() {
    let recording = keyed();
    let kept = |attributes: &[(&str, &str)]| {
        let owned = |(name, glob): &(&str, &str)| ((*name).to_owned(), (*glob).to_owned());
        let filter = FilterOptions {
            attributes: attributes.iter().map(owned).collect(),
            ..FilterOptions::default()
        };
        let replayed = run_with(
            &recording,
            Options {
                filter,
                ..Options::default()
            },
        );
        let note = replayed.report.filtered.as_ref().unwrap();
        assert_eq!(note.kept, replayed.report.requests[0].count);
        (note.kept, note.which.clone(), replayed)
    };
    // As in requests.csv, by name and by number.
    let (count, which, replayed) = kept(&[("status", "not*")]);
    assert_eq!((count, which.as_str()), (8, "status not*"));
    let rows: Vec<_> = replayed.files["requests.csv"].lines().skip(1).collect();
    assert!(rows.len() == 8 && rows.iter().all(|row| row.contains(",not found,")));
    assert_eq!(kept(&[("status", "5??")]).0, 1);
    assert_eq!(kept(&[("status", "404")]).0, 0);
    // Both must match.
    let path = ("path", "/user/*");
    let (with_path, both) = (kept(&[path]).0, kept(&[path, ("status", "OK")]).0);
    assert!(0 < both && both < with_path && with_path <= 80);
}
