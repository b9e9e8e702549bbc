use proptest::prelude::*;

use super::*;

/// One wait: its stack (0: lost, 1: none), place, ns parked, ns queued behind that, and what a resume names it and 1.
type Wait = (StackId, u32, u64, u64, u32);

fn waits() -> impl Strategy<Value = Vec<Wait>> {
    let stack = (0_u64..12).prop_map(|stack| if stack < 2 { stack } else { stack << 1 });
    let named = prop_oneof![4 => Just(0_u32), 1 => 1_u32..4];
    let place = prop_oneof![4 => 0_u32..3, 1 => Just(PARKED)];
    let wait = (stack, place, 0_u64..1000, 0_u64..3, named);
    prop::collection::vec(wait, 0..60)
}

/// What is known of parked time, by an oracle that only adds up.
#[derive(Default)]
struct Oracle {
    /// By stack and place, those that found room, in the order in which they came: ns and how often.
    parks: Vec<((StackId, u32), (u64, u32))>,
    parked_ns: [u64; PLACES],
}

impl Oracle {
    fn wait(&mut self, (stack, place, parked_ns, queued_ns, named): Wait) {
        let is_named = named != 0 && queued_ns == 0;
        let at = if is_named { named - 1 } else { place };
        self.parked_ns[at as usize] += parked_ns;
        if stack == STACK_LOST || stack == STACK_NONE {
            return;
        }
        let Some(mut index) = self.index((stack, place)) else {
            return;
        };
        // One that is ready at once was not parked.
        if parked_ns == 0 && queued_ns > 0 {
            return;
        }
        if is_named {
            // Where it never was before, it was not now.
            let is_new = self.parks[index].1.1 == 0;
            if is_new && index + 1 == self.parks.len() {
                self.parks.pop();
            }
            let Some(named) = self.index((stack, at)) else {
                return;
            };
            index = named;
        }
        let sum = &mut self.parks[index].1;
        *sum = (sum.0 + parked_ns, sum.1 + 1);
    }

    fn index(&mut self, key: (StackId, u32)) -> Option<usize> {
        let known = self.parks.iter().position(|(known, _)| *known == key);
        if known.is_none() && self.parks.len() < MAX_PARKS {
            self.parks.push((key, (0, 0)));
            return Some(self.parks.len() - 1);
        }
        known
    }
}

proptest! {
    #[test]
    fn parked_time_is_at_its_stack_or_at_none(waits in waits()) {
        let mut keyed = KeyedState::NONE;
        // What an earlier request has left there means nothing.
        keyed.extra.parks = [ParkSlot { stack: 4, ns: 7, place: 1, count: 9 }; MAX_PARKS];
        keyed.extra.parks_used = 8;
        let mut oracle = Oracle::default();
        let mut now = 1000;
        for wait in waits {
            let (stack, place, parked_ns, queued_ns, named) = wait;
            keyed.parks_at(stack, place);
            keyed.leave(now, place);
            now += parked_ns;
            let ready = (queued_ns > 0).then_some(7);
            keyed.settle(ready, now, Job::NONE);
            now += queued_ns;
            let named = if keyed.queued == 0 { named } else { 0 };
            keyed.count_away(now, named);
            oracle.wait(wait);
        }
        let extra = *keyed.extra();
        let parks = &extra.parks[..extra.parks_used as usize];
        let parks: Vec<_> = parks
            .iter()
            .map(|park| ((park.stack, park.place), (park.ns, park.count)))
            .collect();
        prop_assert_eq!(parks, oracle.parks);
        // The queue has a place of its own.
        prop_assert_eq!(&extra.away_ns[..7], &oracle.parked_ns[..7]);
        for (place, ns) in (0..).zip(extra.away_ns) {
            let at = extra.parks.iter().take(extra.parks_used as usize);
            let with_stack: u64 = at.filter(|park| park.place == place).map(|park| park.ns).sum();
            prop_assert!(with_stack <= ns);
        }
    }
}

#[test]
fn a_park_without_a_stack_does_not_get_that_of_the_one_before() {
    let mut keyed = KeyedState::NONE;
    keyed.parks_at(8, PARKED);
    keyed.leave(10, PARKED);
    keyed.count_away(15, 0);
    // A thread turned to another request: no marker has parked this one.
    keyed.leave(20, PARKED);
    keyed.count_away(90, 0);
    assert_eq!(
        (keyed.extra.parks[0].ns, keyed.extra.parks[0].count),
        (5, 1)
    );
    assert_eq!(keyed.extra.away_ns[PARKED as usize], 75);
}

#[test]
fn a_park_is_where_it_was_noted_and_only_by_the_thread_that_ran_it() {
    let mut keyed = KeyedState::NONE;
    keyed.note(10, 2);
    let place = keyed.parks_as_noted();
    keyed.leave(10, place);
    keyed.count_away(15, 0);
    let slot = keyed.extra.parks[0];
    assert_eq!((place, slot.stack, slot.place, slot.ns), (2, 10, 2, 5));
    // Nothing is known of the next one.
    let place = keyed.parks_as_noted();
    keyed.leave(20, place);
    keyed.count_away(90, 0);
    assert_eq!((place, keyed.extra.parks_used), (PARKED, 1));
}

#[test]
fn of_two_places_where_it_may_wait_at_once_none_is_known() {
    let cases: [(&[u32], u32); 6] = [
        (&[2], 2),
        (&[2, 2], 2),
        (&[PARKED, 2], 2),
        (&[2, PARKED], PARKED),
        (&[1, 2], PARKED),
        (&[1, PARKED, 2, 2], PARKED),
    ];
    for (notes, known) in cases {
        let mut keyed = KeyedState::NONE;
        for place in notes {
            keyed.note(8, *place);
        }
        assert_eq!(keyed.parks_as_noted(), known, "{notes:?}");
        let slot = keyed.extra.parks[0];
        assert_eq!((slot.stack, slot.place), (8, known), "{notes:?}");
    }
}

#[test]
fn of_two_places_the_one_is_known_that_who_made_it_ready_tells() {
    const TIMER: u32 = 1;
    const SOCKET: u32 = 10;
    // In turn parked without a name, and at one that is known when it is ready.
    let mut keyed = KeyedState::NONE;
    for (since_ns, named) in [
        (100, Some(TIMER)),
        (200, Some(SOCKET)),
        (300, None),
        (400, Some(TIMER)),
    ] {
        keyed.note(4, TIMER);
        keyed.note(5, SOCKET);
        let place = keyed.parks_as_noted();
        assert_eq!(place, PARKED);
        keyed.leave(since_ns, place);
        assert_eq!(keyed.may_be_at(), 1 << TIMER | 1 << SOCKET);
        keyed.settle(
            Some(0),
            since_ns + 30,
            named.map_or(Job::NONE, Job::waits_at),
        );
        keyed.count_away(since_ns + 40, 0);
        assert_eq!(keyed.may_be_at(), 0);
    }
    let extra = *keyed.extra();
    let parks = extra.parks[..extra.parks_used as usize].iter();
    let parks: Vec<_> = parks
        .map(|park| (park.stack, park.place, park.ns, park.count))
        .collect();
    // Each at the stack where it looked at that; without a name at the last one.
    let wanted = [(4, TIMER, 60, 2), (5, SOCKET, 30, 1), (5, PARKED, 30, 1)];
    assert_eq!(parks, wanted);
    let away = [TIMER, SOCKET, PARKED, 0].map(|place| extra.away_ns[place as usize]);
    assert_eq!(away, [60, 30, 30, 40]);
}

#[test]
fn a_place_that_is_known_is_no_other_one() {
    let mut keyed = KeyedState::NONE;
    keyed.note(4, 2);
    let place = keyed.parks_as_noted();
    keyed.leave(100, place);
    assert_eq!((place, keyed.may_be_at()), (2, 0));
    keyed.settle(Some(0), 130, Job::waits_at(1));
    assert_eq!(keyed.extra.away_ns[2], 30);
}

#[test]
fn what_a_job_had_waited_for_a_thread_is_apart() {
    const JOB: u32 = 10;
    const POOL: u32 = 11;
    const JOIN: u32 = 12;
    const QUEUE: u32 = 0;
    const NOTIFY: u32 = 6;
    // Since when a thread had the job, of a request that is parked from 100 to 190: it has looked at these places.
    let parts_of = |notes: &[(StackId, u32)], since_ns| {
        let mut keyed = KeyedState::NONE;
        for (stack, place) in notes {
            keyed.note(*stack, *place);
        }
        let place = keyed.parks_as_noted();
        keyed.leave(100, place);
        keyed.settle(Some(QUEUE), 190, Job::new(since_ns, POOL));
        keyed.count_away(200, 0);
        let extra = *keyed.extra();
        let parks = extra.parks[..extra.parks_used as usize].iter();
        let parks: Vec<_> = parks.filter(|park| park.count != 0).collect();
        assert!(parks.iter().all(|park| (park.stack, park.count) == (4, 1)));
        assert_eq!(extra.away_ns[QUEUE as usize], 10);
        assert_eq!(parks.len(), extra.parks_used as usize);
        let of = |place: u32| extra.away_ns[place as usize];
        for park in &parks {
            assert_eq!(park.ns, of(park.place));
        }
        let with_stack: u64 = parks.iter().map(|park| park.ns).sum();
        assert_eq!(with_stack, 90);
        [of(POOL), of(JOB), of(JOIN)]
    };
    let parts = |since_ns| parts_of(&[(4, JOIN)], since_ns);
    // Whatever else it has looked at, before or after: the stack is that of the job.
    for notes in [
        [(4, JOIN), (9, NOTIFY)],
        [(9, NOTIFY), (4, JOIN)],
        [(4, JOB), (9, NOTIFY)],
        [(9, JOIN), (4, JOB)],
    ] {
        assert_eq!(parts_of(&notes, 150), [50, 40, 0], "{notes:?}");
    }
    assert_eq!(parts(150), [50, 40, 0]);
    // It ran before the request waited for it.
    for since_ns in [90, 100] {
        assert_eq!(parts(since_ns), [0, 90, 0]);
    }
    // It cannot have begun later.
    for since_ns in [190, 250] {
        assert_eq!(parts(since_ns), [0, 0, 90]);
    }
}

#[test]
fn a_request_holds_a_socket_once_and_releases_what_it_held() {
    let mut keyed = KeyedState::NONE;
    // While nobody waits none is held.
    assert_eq!(keyed.uses(1, false), (0, false));
    assert_eq!(keyed.uses(1, true), (0, true));
    assert_eq!(keyed.uses(1, true), (0, false));
    assert_eq!(keyed.uses(1, false), (0, false));
    assert_eq!(keyed.held, 1);
    assert_eq!(keyed.uses(2, false), (0, false));
    for socket in 3..=MAX_USED as u64 {
        assert_eq!(keyed.uses(socket, true), (0, true));
    }
    // The oldest gives way, and only what was held is released.
    assert_eq!(keyed.uses(5, false), (1, false));
    assert_eq!(keyed.uses(6, true), (0, true));
    assert_eq!(keyed.uses(7, true), (3, true));
    assert!(keyed.has_used(7) && !keyed.has_used(3));
    assert_eq!(keyed.held, 0b1110);
    keyed.forget_sockets();
    assert_eq!((keyed.used_count, keyed.held), (0, 0));
    assert!(!keyed.has_used(7));
}

#[test]
fn a_request_that_was_taken_is_known_whatever_tickets_there_were() {
    for ticket in [1, TICKETS / 2 - 1, TICKETS / 2, TICKETS - 1] {
        let mut keyed = KeyedState::NONE;
        keyed.holds(ticket);
        assert!(!keyed.is_taken(), "{ticket}");
        keyed.tell_taken(ticket);
        assert!(keyed.is_taken(), "{ticket}");
        // It goes on with the next one, which nobody has taken.
        let next = (ticket + 1) & (TICKETS - 1);
        keyed.holds(next);
        keyed.tell_taken(ticket);
        assert!(!keyed.is_taken(), "{ticket}");
        // Another thread may be faster than this one's note that it holds it, and slower than the one after it.
        let after = (ticket + 2) & (TICKETS - 1);
        keyed.tell_taken(after);
        keyed.tell_taken(next);
        keyed.holds(after);
        assert!(keyed.is_taken(), "{ticket}");
    }
}
