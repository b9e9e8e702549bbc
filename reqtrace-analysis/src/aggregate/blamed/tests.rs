//! Blame from events to the report.

use std::cell::RefCell;
use std::rc::Rc;

use reqtrace_common::record::{STACK_LOST, STACK_NONE};
use reqtrace_recording::{
    Address, AddressSpace, BlockSite, End, Ending, Event, Header, Holder, Incomplete, Interval,
    IntervalKind, KERNEL, Name, Options as Recorded, Request, RequestOf, Slot, Stack, Thread,
    Waker, WakerContext, WakerIs, WokenFrom,
};

use crate::aggregate::{Aggregator, FilterOptions, Options};
use crate::error::Result;
use crate::profile::Profiles;
use crate::report::blame::{Blame, Cause, CulpritKind, Reason, TypeBlame};
use crate::report::{Exporter, Grouping, Report, RequestKey, RequestRow};

mod shown;

const PROFILE: &str = "
[profile]
name = \"db\"
[[request]]
name = \"query\"
begin = { function = \"a\" }
end = { function = \"b\" }
[[request]]
name = \"login\"
begin = { function = \"c\" }
end = { function = \"d\" }
";
const SPACE: AddressSpace = AddressSpace {
    tgid: 1,
    exec_generation: 0,
};
/// Blocked in `futex_wait`; woken in the completion of a disk.
const FUTEX: u64 = 100;
const DISK: u64 = 101;
/// User stack of who gives a mutex back.
const UNLOCK: u64 = 102;

/// Rows as they are written: id, nanoseconds by cause.
type Rows = Rc<RefCell<Vec<(u64, Vec<u64>)>>>;

struct Sees(Rows);

impl Exporter for Sees {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        let causes = row
            .causes
            .map(|causes| Cause::ALL.map(|cause| causes.get(cause)));
        let causes = causes.map(Vec::from).unwrap_or_default();
        let blocked = row.ledger.blocked_ns() + row.ledger.unattributed_ns;
        assert!(causes.is_empty() || causes.iter().sum::<u64>() == blocked);
        self.0.borrow_mut().push((row.id, causes));
        Ok(())
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

struct Trace {
    analysis: Aggregator,
    outputs: Vec<Box<dyn Exporter>>,
    rows: Rows,
    requests: u64,
    /// Where the waker of the next intervals is.
    woken_from: Option<WokenFrom>,
}

impl Trace {
    fn new(blame: bool, options: Options, writes_rows: bool) -> Self {
        let profile = Profiles::parse([PROFILE], "db").unwrap();
        let header = Header {
            blame,
            options: Recorded {
                labels: true,
                ..Recorded::default()
            },
            ..Header::default()
        };
        let rows = Rows::default();
        let mut trace = Self {
            analysis: Aggregator::new(&profile, &header, options).unwrap(),
            outputs: Vec::new(),
            rows: Rc::clone(&rows),
            requests: 0,
            woken_from: None,
        };
        if writes_rows {
            trace.outputs.push(Box::new(Sees(rows)));
        }
        trace.stack(None, FUTEX, &["futex_wait", "do_futex"]);
        trace.stack(
            None,
            DISK,
            &["try_to_wake_up", "blk_mq_end_request", "__irq_exit_rcu"],
        );
        trace.stack(Some(SPACE), UNLOCK, &["pthread_mutex_unlock", "login"]);
        trace
    }

    fn event(&mut self, event: &Event<'_>) {
        self.analysis.event(event, &mut self.outputs).unwrap();
    }

    fn stack(&mut self, space: Option<AddressSpace>, id: u64, frames: &[&str]) {
        let mut addresses = Vec::new();
        for (depth, frame) in frames.iter().enumerate() {
            let address = Address {
                object: if space.is_none() { KERNEL } else { 2 },
                offset: id * 100 + depth as u64,
            };
            addresses.push(address);
            self.event(&Event::Name(&Name {
                address,
                is_return: depth > 0,
                frames: vec![(*frame).to_owned()],
            }));
        }
        self.event(&Event::Stack(&Stack {
            space,
            id,
            stop: 0,
            addresses,
        }));
    }

    fn blocked(&mut self, tid: u32, request: Option<RequestOf>, times: [u64; 3], waker: Waker) {
        // Each thread has one interval, its first.
        self.on_futex(tid, request, times, waker, 0, (0, Holder::NoFutex));
    }

    fn on_futex(
        &mut self,
        tid: u32,
        request: Option<RequestOf>,
        times: [u64; 3],
        waker: Waker,
        sequence: u32,
        (futex, holder): (u64, Holder),
    ) {
        self.event(&Event::Interval(&Interval {
            space: SPACE,
            tid,
            sequence,
            request,
            site: BlockSite {
                kernel_stack: FUTEX,
                ..BlockSite::default()
            },
            out_ns: times[0],
            kind: IntervalKind::Blocked {
                wake_ns: times[1],
                waker,
            },
            in_ns: times[2],
            futex,
            holder,
            woken_from: self.woken_from,
        }));
    }

    fn request(&mut self, tid: u32, of: RequestOf, end_ns: u64, label: &str, blocked_ns: u64) {
        self.requests += 1;
        let slot = Slot {
            site: BlockSite {
                kernel_stack: FUTEX,
                ..BlockSite::default()
            },
            blocked_ns,
        };
        self.event(&Event::Request(Request {
            id: self.requests,
            request_type: of.request_type,
            space: SPACE,
            tid,
            label: label.as_bytes(),
            begin_ns: of.begin_ns,
            end_ns,
            blocked_ns,
            weight: 1,
            slots: &[slot],
            ..Request::default()
        }));
    }

    fn finish(mut self) -> Report {
        self.event(&Event::End(&End::default()));
        self.analysis
            .finish(&Ending::default(), &mut self.outputs)
            .unwrap()
    }
}

const fn began(begin_ns: u64, request_type: u32) -> RequestOf {
    RequestOf {
        begin_ns,
        request_type,
    }
}

fn task(tid: u32, is: WakerIs) -> Waker {
    Waker {
        context: WakerContext::Task,
        is,
        tid,
        tgid: 1,
        stack: STACK_NONE,
    }
}

fn interrupt(stack: u64) -> Waker {
    Waker {
        context: WakerContext::Unclear,
        stack,
        ..Waker::UNKNOWN
    }
}

/// Thread 1 waits 1000 ns in an UPDATE: for thread 2 in its COMMIT, which waits 600 of them for the disk, and
/// for 200 was between its requests.
fn group_commit(trace: &mut Trace) {
    let commit = began(1_200, 0);
    trace.blocked(2, Some(commit), [1_300, 1_900, 1_950], interrupt(DISK));
    let waker = task(2, WakerIs::InRequest(commit));
    trace.blocked(1, Some(began(900, 0)), [1_000, 2_000, 2_010], waker);
    trace.request(2, began(100, 1), 400, "login", 0);
    trace.request(1, began(900, 0), 2_500, "UPDATE t SET a = 5", 1_000);
    trace.request(2, commit, 2_600, "COMMIT /* 17 */", 600);
}

fn rows_of(blame: &Blame) -> Vec<(String, String, String, Cause, u8, u64, u64)> {
    let row = |row: &crate::report::blame::BlameRow| {
        let culprit = &row.culprit;
        let names = [
            culprit.request.as_str(),
            culprit.label.as_str(),
            culprit.comm.as_str(),
        ];
        (
            format!("{} {}", row.victim_request, row.victim_label.as_str()),
            row.wait_class.clone(),
            format!("{} {}", culprit.kind.name(), names.join(" ").trim()),
            row.cause,
            row.depth,
            row.ns,
            row.requests,
        )
    };
    blame.rows.iter().map(row).collect()
}

#[test]
fn a_group_commit_is_blamed_on_the_disk_of_its_leader() {
    let mut trace = Trace::new(true, Options::default(), true);
    trace.event(&Event::Thread(&Thread {
        tgid: 1,
        tid: 2,
        name: "leader".to_owned(),
    }));
    group_commit(&mut trace);
    let rows = Rc::clone(&trace.rows);
    let blame = trace.finish().blame.unwrap();
    let text = str::to_owned;
    let update = || text("query UPDATE t SET a = ?");
    let commit = || text("request query COMMIT /* ? */");
    assert_eq!(
        rows_of(&blame),
        [
            (
                text("query COMMIT /* ? */"),
                text("lock"),
                text("interrupt "),
                Cause::Disk,
                0,
                600,
                1
            ),
            (update(), text("lock"), commit(), Cause::Disk, 1, 600, 1),
            (
                update(),
                text("lock"),
                text("thread login leader"),
                Cause::BetweenRequests,
                1,
                200,
                1
            ),
            (update(), text("lock"), commit(), Cause::OnCpu, 1, 150, 1),
            (update(), text("lock"), commit(), Cause::RunQueue, 1, 50, 1),
        ]
    );
    let query = &blame.types[0];
    assert_eq!((query.requests, query.causes.sum()), (2, 1_600));
    assert_eq!(query.causes.get(Cause::Disk), 1_200);
    let holders: Vec<_> = query
        .holders
        .iter()
        .map(|holder| {
            (
                holder.cause,
                holder.culprit.kind,
                holder.ns,
                holder.requests,
            )
        })
        .collect();
    assert_eq!(
        holders,
        [
            (Cause::Disk, CulpritKind::Interrupt, 600, 1),
            (Cause::Disk, CulpritKind::Request, 600, 1),
            (Cause::BetweenRequests, CulpritKind::Thread, 200, 1),
            (Cause::OnCpu, CulpritKind::Request, 150, 1),
            (Cause::RunQueue, CulpritKind::Request, 50, 1),
        ]
    );
    assert!(
        query
            .holders
            .iter()
            .all(|holder| holder.culprit.label.is_empty())
    );
    assert_eq!(
        *rows.borrow(),
        [
            (1, vec![0; 9]),
            (2, vec![150, 50, 0, 600, 0, 0, 0, 200, 0]),
            (3, vec![0, 0, 0, 600, 0, 0, 0, 0, 0]),
        ]
    );
}

/// Rows as they are written: id, and whom they blame.
type Blaming = Vec<(u64, Vec<RequestKey>)>;

struct Blames(Rc<RefCell<Blaming>>, u64);

impl Exporter for Blames {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        self.0.borrow_mut().push((row.id, row.blames.to_vec()));
        Ok(())
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn wants_blames_of(&self, latency_ns: u64, _is_complete: bool) -> bool {
        latency_ns >= self.1
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

fn blames_of(from_ns: u64, scene: impl FnOnce(&mut Trace)) -> Blaming {
    let rows = Rc::default();
    let mut trace = Trace::new(true, Options::default(), false);
    trace
        .outputs
        .push(Box::new(Blames(Rc::clone(&rows), from_ns)));
    scene(&mut trace);
    trace.finish();
    rows.take()
}

const fn key(tid: u32, begin_ns: i64) -> RequestKey {
    RequestKey {
        pid: 1,
        tid,
        since_start_ns: begin_ns,
    }
}

/// The leader's request ends later; its login before held nobody up by itself.
#[test]
fn a_row_names_the_requests_that_held_it_up() {
    let rows = blames_of(0, group_commit);
    let wanted = [(1, vec![]), (2, vec![key(2, 1_200)]), (3, vec![])];
    assert_eq!(rows, wanted);
    // 1,600 ns; the others took less.
    let rows = blames_of(1_601, group_commit);
    assert!(rows.iter().all(|(_, blames)| blames.is_empty()), "{rows:?}");
}

/// Thread 3 wakes who waits, in a request that waited for another one; thread 2 had the lock when the wait began.
#[test]
fn all_in_the_chain_and_the_holder_of_the_lock_are_named() {
    let rows = blames_of(0, |trace| {
        let (held, handed, behind) = (began(100, 0), began(150, 1), began(160, 0));
        trace.request(2, held, 230, "held", 0);
        let waker = task(4, WakerIs::InRequest(behind));
        trace.blocked(3, Some(handed), [250, 350, 360], waker);
        let waker = task(3, WakerIs::InRequest(handed));
        trace.on_futex(
            1,
            Some(began(110, 0)),
            [200, 400, 410],
            waker,
            0,
            (0x7000, Holder::Thread(2)),
        );
        trace.request(4, behind, 380, "behind", 0);
        trace.request(3, handed, 450, "handed", 100);
        trace.request(1, began(110, 0), 500, "select 1", 200);
    });
    let (_, of_victim) = rows.last().unwrap();
    assert_eq!(*of_victim, [key(2, 100), key(3, 150), key(4, 160)]);
}

#[test]
fn blame_needs_no_output_of_rows_and_a_view_takes_nothing() {
    let report = |writes_rows: bool, looking: bool| {
        let mut trace = Trace::new(true, Options::default(), writes_rows);
        group_commit(&mut trace);
        // All of this is more than 200 ms ago.
        trace.event(&Event::Tick(1_000_000_000));
        if looking {
            let blame = trace.analysis.view(&Ending::default()).blame.unwrap();
            assert_eq!(blame.types[0].requests, 2);
        }
        trace.finish().blame.unwrap()
    };
    let blame = report(true, false);
    assert_eq!(blame, report(false, false));
    assert_eq!(blame, report(false, true));
}

#[test]
fn without_intervals_there_is_no_blame() {
    let mut trace = Trace::new(false, Options::default(), true);
    group_commit(&mut trace);
    let rows = Rc::clone(&trace.rows);
    assert_eq!(trace.finish().blame, None);
    assert!(rows.borrow().iter().all(|(_, causes)| causes.is_empty()));
}

#[test]
fn culprits_may_be_requests_that_the_report_is_not_about() {
    let options = Options {
        filter: FilterOptions {
            label: Some("UPDATE*".to_owned()),
            ..FilterOptions::default()
        },
        group_by: Some(Grouping::Label),
        ..Options::default()
    };
    let mut trace = Trace::new(true, options, false);
    group_commit(&mut trace);
    let blame = trace.finish().blame.unwrap();
    assert_eq!(blame.types[0].requests, 1);
    let commit = blame.types[0]
        .holders
        .iter()
        .find(|holder| holder.cause == Cause::Disk);
    let culprit = &commit.unwrap().culprit;
    assert_eq!(
        (culprit.request.as_str(), culprit.label.as_str()),
        ("query", "COMMIT /* 17 */")
    );
    let victims = blame.rows.iter().map(|row| row.victim_label.as_str());
    assert!(
        victims
            .into_iter()
            .all(|label| label == "UPDATE t SET a = 5")
    );
}

#[test]
fn what_the_record_has_more_than_its_intervals_is_lost() {
    let mut trace = Trace::new(true, Options::default(), true);
    trace.blocked(
        1,
        Some(began(900, 0)),
        [1_000, 1_300, 1_310],
        interrupt(DISK),
    );
    trace.request(1, began(900, 0), 2_500, "", 1_000);
    // Incomplete ones are in no sum, and in a row of their own.
    trace.event(&Event::Request(Request {
        id: 9,
        space: SPACE,
        tid: 4,
        end_ns: 3_000,
        incomplete: Some(Incomplete::RunningAtStart),
        weight: 1,
        ..Request::default()
    }));
    let rows = Rc::clone(&trace.rows);
    let blame = trace.finish().blame.unwrap();
    assert_eq!(blame.types[0].unknown, [(Reason::Lost, 700)]);
    assert_eq!(blame.types[0].causes.sum(), 1_000);
    assert_eq!(
        *rows.borrow(),
        [
            (1, vec![0, 0, 0, 300, 0, 0, 0, 0, 700]),
            (9, vec![0, 0, 0, 0, 0, 0, 0, 0, 3_000]),
        ]
    );
}

#[test]
fn an_interrupt_without_names_is_unknown() {
    for stack in [STACK_LOST, STACK_NONE] {
        let mut trace = Trace::new(true, Options::default(), true);
        let waker = Waker {
            context: WakerContext::Unclear,
            stack,
            ..task(7, WakerIs::Unknown)
        };
        trace.blocked(1, Some(began(900, 0)), [1_000, 1_300, 1_310], waker);
        trace.request(1, began(900, 0), 2_500, "", 300);
        let blame = trace.finish().blame.unwrap();
        assert_eq!(blame.types[0].unknown, [(Reason::InterruptNotNamed, 300)]);
    }
}

/// What request 1 waited for, if a thread that sends wakes it through these functions.
fn woken_in_a_softirq(context: WakerContext, receiver: &[&str]) -> TypeBlame {
    const SENDS: u64 = 102;
    let sender = [
        "process_backlog",
        "net_rx_action",
        "handle_softirqs",
        "do_softirq.part.0",
        "__local_bh_enable_ip",
        "__dev_queue_xmit",
        "tcp_sendmsg",
    ];
    let mut trace = Trace::new(true, Options::default(), true);
    trace.stack(None, SENDS, &[receiver, &sender].concat());
    let waker = Waker {
        context,
        stack: SENDS,
        ..task(2, WakerIs::Helper(1_100))
    };
    trace.blocked(1, Some(began(900, 0)), [1_000, 1_300, 1_310], waker);
    trace.request(1, began(900, 0), 2_500, "", 300);
    trace.finish().blame.unwrap().types.remove(0)
}

const TCP: &[&str] = &["sock_def_readable", "tcp_rcv_established", "tcp_v4_rcv"];
const UDP: &[&str] = &["sock_def_readable", "udp_queue_rcv_skb", "udp_rcv"];

#[test]
fn who_sends_in_a_softirq_is_the_waker() {
    // Of other packets than segments nobody knows whose they are.
    for (context, receiver) in [
        (WakerContext::Unclear, TCP),
        (WakerContext::Unclear, UDP),
        (WakerContext::Delivers, UDP),
    ] {
        let query = woken_in_a_softirq(context, receiver);
        assert_eq!(query.causes.get(Cause::OnCpu), 200);
        assert_eq!(query.unknown, [(Reason::NotYetWatched, 100)]);
    }
}

#[test]
fn who_takes_the_segment_of_another_out_of_a_queue_is_not() {
    let query = woken_in_a_softirq(WakerContext::Delivers, TCP);
    assert_eq!(query.causes.get(Cause::Network), 300);
    assert_eq!(query.unknown, []);
}
