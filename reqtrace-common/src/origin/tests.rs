//! Senders, sockets and what requests go on with, step by step.

use super::*;
use crate::record::waker_is;

fn thread(tid: u32) -> Sender {
    Sender {
        who: sender_is::THREAD,
        tid,
        is: waker_is::IN_REQUEST,
        since_ns: 7,
        ..Sender::NONE
    }
}

fn parked(since_ns: u64, until_ns: u64) -> Origin {
    let mut origin = Origin::NONE;
    origin.goes_on(since_ns, until_ns, false);
    origin
}

#[test]
fn only_data_that_came_meanwhile_counts() {
    let mut origin = parked(100, 200);
    for arrived_ns in [0, 99, 201, NOT_KNOWN] {
        origin.read(1, arrived_ns, 0, &thread(5));
        assert_eq!(origin.found, found::NO_READ, "{arrived_ns}");
    }
    origin.read(1, 150, 0, &thread(5));
    origin.read(1, 160, 0, &thread(6));
    assert_eq!((origin.found, origin.arrived_ns), (found::ONE, 150));
    assert_eq!(origin.sender.tid, 5);
    origin.read(2, 99, 0, &thread(6));
    assert_eq!(origin.found, found::ONE);
    origin.read(2, 170, 0, &thread(6));
    assert_eq!(origin.found, found::SEVERAL);
}

#[test]
fn an_answer_that_came_before_it_was_parked_is_no_fault_of_the_sender() {
    let mut origin = parked(100, 200);
    origin.read(1, 90, 95, &thread(5));
    assert_eq!(origin.found, found::NO_READ, "it came before the question");
    origin.read(1, 90, 80, &thread(5));
    assert_eq!((origin.found, origin.arrived_ns), (found::ONE, 100));
    let mut runs = Origin::NONE;
    runs.read(1, 90, 80, &thread(5));
    assert_eq!(runs, Origin::NONE, "it was not parked");
}

#[test]
fn a_connection_counts_until_data_has_come_over_it() {
    let mut origin = parked(100, 200);
    origin.opened(1, 201, &thread(5));
    assert_eq!(origin.found, found::NO_READ, "it was connected later");
    origin.opened(1, 90, &thread(5));
    assert_eq!((origin.found, origin.arrived_ns), (found::OPENED, 100));
    origin.read(1, 150, 0, &thread(6));
    assert_eq!((origin.found, origin.arrived_ns), (found::ONE, 150));
    assert_eq!(origin.sender.tid, 6);
    let mut several = parked(100, 200);
    several.opened(1, 150, &thread(5));
    several.read(2, 160, 0, &thread(6));
    assert_eq!(several.found, found::SEVERAL);
    let mut socket = Socket::NONE;
    socket.opened(10, &thread(5));
    socket.used(20, &User::default());
    assert_eq!(socket.opened_ns, 0, "it has sent since");
    socket.opened(10, &thread(5));
    socket.read(20, false);
    assert_eq!(socket.opened_ns, 0, "it has read since");
}

#[test]
fn of_a_request_that_was_made_ready_no_read_is_no_news() {
    let mut ready = Origin::NONE;
    ready.goes_on(100, 200, true);
    assert!(!ready.is_news());
    ready.read(1, 150, 0, &thread(5));
    assert!(ready.is_news());
    assert!(parked(100, 200).is_news(), "of others it is");
}

#[test]
fn a_socket_remembers_who_sent_the_first_of_what_is_unread() {
    let mut socket = Socket::NONE;
    let first = Unread::with(socket.unread, 10, false, true);
    socket.came(first, &thread(1), 1_000, true);
    let second = Unread::with(socket.unread, 20, true, true);
    socket.came(second, &thread(2), 2_000, false);
    assert_eq!((socket.first, socket.is_certain), (1_000, 1));
    assert_eq!(socket.read(30, true), 10);
    assert_eq!(socket.read(31, false), NOT_KNOWN);
    // One call has read both.
    assert_eq!((socket.arrived_ns, socket.read_from), (10, thread(1)));
}

#[test]
fn a_connection_that_several_requests_wait_at_names_no_request() {
    let [one, two] = [10, 20].map(|begin_ns| User { begin_ns, tgid: 1 });
    let answer = |socket: &mut Socket, now| {
        socket.came(
            Unread::with(socket.unread, now, false, true),
            &thread(1),
            0,
            true,
        );
        socket.read(now, false);
        socket.read_from.is
    };
    let mut kept = Socket::NONE;
    kept.used(100, &one);
    assert_eq!(answer(&mut kept, 110), waker_is::IN_REQUEST);
    kept.used(120, &two);
    assert_eq!(answer(&mut kept, 130), waker_is::IN_REQUEST);
    let mut pipelined = Socket::NONE;
    pipelined.used(100, &one);
    pipelined.used(101, &two);
    assert_eq!(answer(&mut pipelined, 110), waker_is::BETWEEN_REQUESTS);
    // While reads are not looked at, nobody knows that one had no answer.
    let mut quiet = Socket::NONE;
    quiet.used(100, &one);
    quiet.used_quietly(101, &two);
    quiet.used_quietly(102, &one);
    quiet.used(103, &two);
    assert_eq!(answer(&mut quiet, 110), waker_is::IN_REQUEST);
    quiet.used(120, &one);
    quiet.used(121, &two);
    assert_eq!(answer(&mut quiet, 130), waker_is::BETWEEN_REQUESTS);
}

#[test]
fn what_came_while_no_request_used_a_socket_came_at_some_time() {
    let mut socket = Socket::NONE;
    assert!(!socket.release(), "nobody uses it");
    socket.users = 2;
    assert!(!socket.release() && socket.users == 1);
    let first = Unread::with(socket.unread, 10, false, true);
    socket.came(first, &thread(1), 0, true);
    // The last request is over, and what was there has not been read. Nobody sees what comes behind.
    assert!(socket.release());
    assert_eq!(socket.read(20, false), NOT_KNOWN);
    // Nor what is read.
    socket.users = 1;
    let again = Unread::with(socket.unread, 30, false, true);
    socket.came(again, &thread(1), 0, true);
    socket.users = 0;
    socket.read_unused(40);
    assert_eq!((socket.arrived_ns, socket.read_ns), (NOT_KNOWN, 40));
    assert_eq!(socket.read_from, Sender::NONE);
    let behind = Unread::with(socket.unread, 50, true, true);
    assert_eq!(behind.first_ns, NOT_KNOWN, "it came behind what nobody saw");
    let alone = Unread::with(socket.unread, 50, false, true);
    assert_eq!(alone.first_ns, 50);
}

#[test]
fn a_way_has_two_ends() {
    let way = Way {
        from: 1,
        to: 2,
        ports: 80 | 5_000 << 32,
        net: 3,
    };
    assert_eq!(way.back().back(), way);
    assert_eq!(way.back().ports, 5_000 | 80 << 32);
    let mut sent = Sent {
        end: 5,
        ..Sent::NONE
    };
    assert!(!sent.covers(4), "nobody is known");
    sent.sender = thread(1);
    assert!(sent.covers(4) && sent.covers(u32::MAX) && !sent.covers(5));
}
