//! One rule each: which root cause and which culprit.

use super::*;

/// Thread 1 is blocked in its request from 100 to 200 until thread 2 wakes it.
fn blocked(is: WakerIs) -> Recorded {
    let mut recorded = Recorded::new();
    recorded.interval(1, Some(50), [100, 200, 220], by(2, is));
    recorded
}

fn blame(recorded: &mut Recorded) -> Vec<(Outcome, u64)> {
    recorded.request(1, 50, 300);
    recorded.blame(1, 50, 300).into_iter().collect()
}

#[test]
fn an_interrupt_ends_the_own_block() {
    let mut recorded = Recorded::new();
    recorded.interval(
        1,
        Some(50),
        [100, 180, 220],
        Some(By::Interrupt(Cause::Disk)),
    );
    let wanted = outcome(Cause::Disk, Culprit::OwnInterrupt, 0);
    assert_eq!(blame(&mut recorded), [(wanted, 80)]);
}

#[test]
fn a_preemption_of_the_request_is_no_blocked_time() {
    let mut recorded = Recorded::new();
    recorded.interval(1, Some(50), [100, 100, 220], None);
    assert_eq!(blame(&mut recorded), []);
}

#[test]
fn the_window_is_split_by_what_the_waker_did_in_its_request() {
    let mut recorded = Recorded::new();
    recorded
        .interval(
            2,
            Some(20),
            [90, 110, 120],
            Some(By::Interrupt(Cause::Timer)),
        )
        .interval(2, Some(20), [140, 140, 150], None)
        .interval(
            2,
            Some(20),
            [160, 180, 185],
            Some(By::Interrupt(Cause::Disk)),
        )
        .interval(
            1,
            Some(50),
            [100, 200, 220],
            by(2, WakerIs::InRequest(began(20))),
        );
    let whose = request_of(2, 20);
    assert_eq!(
        blame(&mut recorded),
        [
            (outcome(Cause::OnCpu, whose, 1), 20 + 10 + 15),
            (outcome(Cause::RunQueue, whose, 1), 10 + 5),
            (outcome(Cause::Preempted, whose, 1), 10),
            (outcome(Cause::Disk, whose, 1), 20),
            (outcome(Cause::Timer, whose, 1), 10),
        ]
    );
}

#[test]
fn a_waker_that_was_blocked_passes_it_on() {
    let mut recorded = Recorded::new();
    recorded
        .interval(
            3,
            None,
            [130, 150, 160],
            Some(By::Interrupt(Cause::Network)),
        )
        .interval(2, Some(20), [80, 190, 195], by(3, WakerIs::Helper(110)))
        .interval(
            1,
            Some(50),
            [100, 200, 220],
            by(2, WakerIs::InRequest(began(20))),
        );
    let helper = Culprit::Thread(thread(3));
    assert_eq!(
        blame(&mut recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 20), 1), 5),
            (outcome(Cause::OnCpu, helper, 2), 20 + 30),
            (outcome(Cause::RunQueue, request_of(2, 20), 1), 5),
            (outcome(Cause::RunQueue, helper, 2), 10),
            (outcome(Cause::Network, helper, 2), 20),
            (unknown(Reason::NotYetWatched, 2), 10),
        ]
    );
}

/// Thread 2 helps; it sleeps until 150, and waits for what thread 3 has, which waits for a device from 120 on.
fn slept_before(had: By) -> Vec<(Outcome, u64)> {
    let mut recorded = Recorded::new();
    recorded
        .interval(3, Some(20), [120, 190, 191], Some(had))
        .interval(2, None, [90, 150, 152], Some(By::Interrupt(Cause::Timer)))
        .interval(
            2,
            None,
            [155, 192, 194],
            by(3, WakerIs::InRequest(began(20))),
        )
        .interval(1, Some(50), [100, 200, 220], by(2, WakerIs::Helper(10)));
    blame(&mut recorded)
}

#[test]
fn who_slept_and_then_waited_for_what_another_had_all_the_while_held_nobody_up() {
    let [helper, other] = [Culprit::Thread(thread(2)), request_of(3, 20)];
    assert_eq!(
        slept_before(By::Interrupt(Cause::Disk)),
        [
            (outcome(Cause::OnCpu, other, 2), 1),
            (outcome(Cause::OnCpu, helper, 1), 3 + 6),
            (outcome(Cause::RunQueue, other, 2), 1),
            (outcome(Cause::RunQueue, helper, 1), 2 + 2),
            (outcome(Cause::Disk, other, 2), 30 + 35),
            (outcome(Cause::Timer, helper, 1), 20),
        ]
    );
    // Whoever waits for the network may wait for an answer to what this thread sent.
    let network = slept_before(By::Interrupt(Cause::Network));
    assert!(
        network.contains(&(outcome(Cause::Timer, helper, 1), 50)),
        "{network:?}"
    );
}

#[test]
fn time_between_requests_is_that_whatever_the_thread_did() {
    let mut recorded = blocked(WakerIs::BetweenRequests);
    let between = outcome(Cause::BetweenRequests, Culprit::Thread(thread(2)), 1);
    assert_eq!(blame(&mut recorded), [(between, 100)]);
    // It served a request until 130, and the next one from 170 on, in which it woke thread 1.
    let mut recorded = blocked(WakerIs::InRequest(began(170)));
    recorded.request(2, 10, 130).request(2, 170, 400);
    assert_eq!(
        blame(&mut recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 10), 1), 30),
            (outcome(Cause::OnCpu, request_of(2, 170), 1), 30),
            (between, 40),
        ]
    );
}

#[test]
fn a_request_that_has_not_ended_is_known_by_its_wakeup() {
    let mut recorded = blocked(WakerIs::InRequest(began(120)));
    assert_eq!(
        blame(&mut recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 120), 1), 80),
            (
                outcome(Cause::BetweenRequests, Culprit::Thread(thread(2)), 1),
                20
            ),
        ]
    );
}

#[test]
fn a_helper_that_serves_its_first_request_was_a_helper_before() {
    let mut recorded = Recorded::new();
    recorded
        .interval(4, Some(5), [10, 120, 121], by(2, WakerIs::Helper(120)))
        .interval(2, None, [130, 140, 145], Some(By::Interrupt(Cause::Disk)))
        .interval(
            1,
            Some(50),
            [100, 200, 220],
            by(2, WakerIs::InRequest(began(170))),
        );
    let helper = Culprit::Thread(thread(2));
    assert_eq!(
        blame(&mut recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 170), 1), 30),
            (outcome(Cause::OnCpu, helper, 1), 10 + 25),
            (outcome(Cause::RunQueue, helper, 1), 5),
            (outcome(Cause::Disk, helper, 1), 10),
            (unknown(Reason::NotYetWatched, 1), 20),
        ]
    );
}

#[test]
fn who_waited_for_the_victim_leads_back_to_it() {
    // 2 holds 1 up; before that 2 had waited for 1, which computed until 100, when it blocked. The clocks
    // of CPUs differ a little, so that 2's wait reaches into 1's.
    let mut recorded = Recorded::new();
    recorded
        .interval(1, Some(50), [60, 65, 98], Some(By::Interrupt(Cause::Timer)))
        .interval(
            2,
            Some(20),
            [55, 103, 104],
            by(1, WakerIs::InRequest(began(50))),
        )
        .interval(
            1,
            Some(50),
            [105, 200, 220],
            by(2, WakerIs::InRequest(began(20))),
        )
        .interval(
            3,
            Some(7),
            [90, 210, 211],
            by(2, WakerIs::InRequest(began(20))),
        );
    let own = recorded.blame(1, 50, 300);
    assert_eq!(
        own.into_iter().collect::<Vec<_>>(),
        [
            (outcome(Cause::OnCpu, request_of(2, 20), 1), 95),
            (outcome(Cause::Timer, Culprit::OwnInterrupt, 0), 5),
        ]
    );
    // Of 3, the request of 1 is a culprit like any.
    let of_third: Vec<_> = recorded.blame(3, 7, 300).into_iter().collect();
    assert_eq!(
        of_third,
        [
            (outcome(Cause::OnCpu, request_of(1, 50), 2), 5),
            (outcome(Cause::OnCpu, request_of(2, 20), 1), 106),
            (outcome(Cause::RunQueue, request_of(1, 50), 2), 8),
            (outcome(Cause::RunQueue, request_of(2, 20), 1), 1),
        ]
    );
}

#[test]
fn the_own_time_of_the_victim_is_itself() {
    // 2 was woken by 1 at 150, so 1 ran then: of its block only the wakeup was seen late.
    let mut recorded = Recorded::new();
    recorded
        .interval(
            3,
            Some(5),
            [100, 160, 161],
            by(2, WakerIs::InRequest(began(20))),
        )
        .interval(
            2,
            Some(20),
            [90, 150, 152],
            by(3, WakerIs::InRequest(began(5))),
        );
    let own: Vec<_> = recorded.blame(3, 5, 300).into_iter().collect();
    // 3 waits for 2, which waits for 3, which waits for 2: until it is too deep.
    assert_eq!(
        own,
        [
            (outcome(Cause::OnCpu, request_of(2, 20), 1), 8),
            (outcome(Cause::RunQueue, request_of(2, 20), 1), 2),
            (unknown(Reason::TooDeep, MAX_DEPTH), 50),
        ]
    );
    let mut recorded = Recorded::new();
    recorded
        .interval(
            1,
            Some(5),
            [100, 160, 170],
            by(2, WakerIs::InRequest(began(20))),
        )
        .interval(3, None, [101, 101, 102], None)
        .interval(2, Some(20), [90, 158, 159], by(1, WakerIs::Helper(0)));
    // As the kernel would never tell it: 1's own run-queue time within the window of another block.
    recorded
        .interval(
            1,
            Some(5),
            [180, 220, 221],
            by(4, WakerIs::InRequest(began(30))),
        )
        .interval(
            4,
            Some(30),
            [110, 215, 216],
            by(1, WakerIs::InRequest(began(5))),
        );
    let own = recorded.blame(1, 5, 300);
    assert!(
        own.keys()
            .all(|outcome| outcome.culprit != request_of(1, 5)),
        "{own:?}"
    );
    assert_eq!(own.values().sum::<u64>(), 60 + 40);
}

/// Thread 1 waits in three pieces, of which a timer ends the first two, at the stacks given; thread 2 has run a request since before.
fn in_pieces(stacks: [StackId; 3], looks_ns: u64) -> Vec<(Outcome, u64)> {
    on_futexes(stacks, [0; 3], looks_ns)
}

fn on_futexes(stacks: [StackId; 3], futexes: [u64; 3], looks_ns: u64) -> Vec<(Outcome, u64)> {
    let timer = Some(By::Interrupt(Cause::Timer));
    let whole = by(2, WakerIs::InRequest(began(20)));
    let mut recorded = Recorded::new();
    let mut at_ns = 100;
    let places = stacks.into_iter().zip(futexes);
    for ((stack, futex), by) in places.zip([timer, timer, whole]) {
        (recorded.stack, recorded.futex) = (stack, futex);
        recorded.interval(1, Some(50), [at_ns, at_ns + 1_000, at_ns + 1_000], by);
        at_ns += 1_000 + looks_ns;
    }
    recorded.request(2, 20, at_ns);
    recorded.request(1, 50, at_ns);
    recorded.blame(1, 50, at_ns).into_iter().collect()
}

#[test]
fn a_wait_that_a_time_limit_cuts_is_that_of_who_ends_its_last_piece() {
    let held = outcome(Cause::OnCpu, request_of(2, 20), 1);
    let own = outcome(Cause::Timer, Culprit::OwnInterrupt, 0);
    assert_eq!(in_pieces([7, 7, 7], 50_000), [(held, 3_000)]);
    // At another place it waits for something else; also when the thread has computed for long, or nobody knows where it was.
    let own_then_held = [(held, 1_000), (own, 2_000)];
    assert_eq!(in_pieces([7, 7, 8], 50_000), own_then_held);
    assert_eq!(in_pieces([7, 7, 7], 2_000_000), own_then_held);
    assert_eq!(in_pieces([STACK_NONE; 3], 50_000), own_then_held);
    assert_eq!(in_pieces([8, 7, 7], 50_000), [(held, 2_000), (own, 1_000)]);
    // A condition variable has two futexes; a thread parks in many places at one of its own.
    assert_eq!(on_futexes([7; 3], [64, 68, 64], 50_000), [(held, 3_000)]);
    assert_eq!(on_futexes([7; 3], [64, 64, 640], 50_000), own_then_held);
    assert_eq!(on_futexes([7, 7, 8], [64; 3], 50_000), own_then_held);
    assert_eq!(
        on_futexes([STACK_NONE; 3], [64; 3], 50_000),
        [(held, 3_000)]
    );
}

/// Each signals the other one while it looks around: none of them is behind itself.
#[test]
fn threads_that_wake_each_other_within_their_time_limits_end_in_the_timer() {
    let timer = Some(By::Interrupt(Cause::Timer));
    let is = |begin_ns| WakerIs::InRequest(began(begin_ns));
    let mut recorded = Recorded::new();
    recorded.stack = 7;
    recorded
        .interval(1, Some(50), [100, 1_000, 1_000], timer)
        .interval(2, Some(20), [100, 900, 900], timer)
        .interval(2, Some(20), [950, 1_010, 1_010], by(1, is(50)))
        .interval(1, Some(50), [1_020, 1_100, 1_100], by(2, is(20)))
        .request(2, 20, 2_000)
        .request(1, 50, 2_000);
    let blame = recorded.blame(1, 50, 2_000);
    assert!(blame.keys().all(|one| one.depth < 4), "{blame:?}");
    assert_eq!(blame.values().sum::<u64>(), 980);
}
