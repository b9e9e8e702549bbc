use reqtrace_common::call::RETURNS;

use super::*;

mod kinds;

const START: usize = 0;
const STEP: usize = 1;
const DONE: usize = 2;

/// A heap address.
fn object(number: u64) -> u64 {
    0x5555_0000_0000 + number * 0x10000
}

/// Calls as the kernel program notes them.
#[derive(Default)]
struct Model {
    calls: Vec<CallRecord>,
}

impl Model {
    fn note(&mut self, tgid: u32, tid: u32, function: usize, depth: u32, values: [u64; 4]) {
        self.calls.push(CallRecord {
            tgid,
            tid,
            function: function as u32,
            depth,
            values,
        });
    }

    /// A call of `function` on thread `tid` of process 1.
    fn call(&mut self, tid: u32, function: usize, value: u64) {
        self.call_in(1, tid, function, value);
    }

    fn call_in(&mut self, tgid: u32, tid: u32, function: usize, value: u64) {
        self.note(tgid, tid, function, 0, [value, 0, 0, 0]);
    }

    /// A call while the one before runs.
    fn inside(&mut self, tid: u32, function: usize, value: u64) {
        self.note(1, tid, function, 1, [value, 0, 0, 0]);
    }

    /// The function of the thread that runs returns.
    fn returns(&mut self, tid: u32, function: usize, result: u64) {
        self.note(1, tid, function, 0, [result, 0, 0, 0]);
        self.calls.last_mut().unwrap().function |= RETURNS;
    }

    fn proposals(&self) -> Vec<Proposal> {
        proposals(&self.calls).proposals
    }

    #[track_caller]
    fn one(&self) -> Proposal {
        let proposals = self.proposals();
        assert_eq!(proposals.len(), 1, "{proposals:?}");
        proposals.into_iter().next().unwrap()
    }

    /// Four requests at once take turns on one thread; `number` tells the first one's address.
    fn turns(&mut self, number: u64) {
        let four = [0, 1, 2, 3].map(|index| object(number + index));
        for function in [START, STEP, STEP, DONE] {
            for value in four {
                self.call(7, function, value);
            }
        }
    }
}

#[track_caller]
fn is_from_start_to_done(proposal: &Proposal) {
    let function = |index: usize| proposal.parts[index].source.function;
    let (begin, end) = proposal.ends().unwrap();
    assert_eq!(
        (function(begin), function(end)),
        (START, DONE),
        "{proposal:?}"
    );
}

#[test]
fn requests_that_take_turns_in_an_event_loop() {
    let mut model = Model::default();
    for round in 0..10 {
        model.turns(round * 4);
    }
    let proposal = model.one();
    is_from_start_to_done(&proposal);
    assert_eq!((proposal.values, proposal.calls), (40, 160));
    // In each round all but the four calls that begin one, and twice the last one: the function before has had
    // no other since.
    assert_eq!((proposal.turns, proposal.moves), (100, 0));
    let first: Vec<u64> = proposal.parts.iter().map(|part| part.first).collect();
    assert_eq!(first, [40, 0, 0]);
}

#[test]
fn the_end_is_clear_too_where_addresses_are_used_again() {
    let mut model = Model::default();
    for _ in 0..10 {
        model.turns(0);
    }
    let proposal = model.one();
    is_from_start_to_done(&proposal);
    // From the end to the next begin is no request that comes back.
    assert_eq!((proposal.values, proposal.turns), (4, 100));
}

#[test]
fn requests_that_change_threads_in_a_pool() {
    let mut model = Model::default();
    for number in 0..50 {
        let value = object(number % 5);
        model.call(1, START, value);
        model.call(2, STEP, value);
        model.call(3, STEP, value);
        model.call(3, DONE, value);
    }
    let proposal = model.one();
    is_from_start_to_done(&proposal);
    assert_eq!((proposal.turns, proposal.moves), (0, 100));
}

#[test]
fn memory_that_is_used_again_on_one_thread_is_no_key() {
    let mut model = Model::default();
    for number in 0..90 {
        // The allocator gives three pieces by turns.
        for function in [START, STEP, STEP, DONE] {
            model.call(1, function, object(number % 3));
        }
    }
    assert_eq!(model.proposals(), []);
    // Nor is it when another thread gets it next.
    for number in 0..90 {
        for function in [START, STEP, STEP, DONE] {
            model.call(1 + number as u32 % 4, function, object(number % 3));
        }
    }
    assert_eq!(model.proposals(), []);
}

#[test]
fn memory_of_one_function_is_no_clear_key() {
    let mut model = Model::default();
    for number in 0..90 {
        model.call(number as u32 % 4, START, object(number % 3));
        model.returns(number as u32 % 4, START, 0);
    }
    let proposal = model.one();
    assert!(!proposal.is_clear(), "{proposal:?}");
    let alone = proposal.alone.unwrap();
    assert_eq!(
        (alone.results.as_slice(), alone.end),
        (&[(0, 90, 3)][..], None)
    );
}

#[test]
fn one_object_for_all_is_no_key_nor_is_one_for_each_process() {
    let mut model = Model::default();
    for number in 0..100 {
        for tgid in [10, 20] {
            model.call_in(tgid, tgid + number % 3, START, object(1));
            model.call_in(tgid, tgid + number % 2, STEP, object(1));
        }
    }
    assert_eq!(model.proposals(), []);
}

#[test]
fn an_object_for_each_thread_is_no_key() {
    let mut model = Model::default();
    for number in 0..100 {
        let tid = number % 4;
        model.call(tid, START, object(u64::from(tid)));
        model.call(tid, STEP, object(u64::from(tid)));
    }
    assert_eq!(model.proposals(), []);
}

#[test]
fn numbers_are_no_key() {
    let mut model = Model::default();
    for round in 0..10 {
        let numbers = [1, 2, 3, 4].map(|number| round * 4 + number);
        for function in [START, STEP, DONE] {
            for number in numbers {
                model.call(7, function, number);
            }
        }
    }
    assert_eq!(model.proposals(), []);
    // Nor is a function that has a pointer now and then part of a proposal.
    let mut model = Model::default();
    for round in 0..10 {
        model.turns(round * 4);
        model.call(7, 3, object(round * 4));
        model.call(7, 3, round);
    }
    let proposal = model.one();
    let functions: Vec<usize> = proposal
        .parts
        .iter()
        .map(|part| part.source.function)
        .collect();
    assert_eq!(functions, [START, STEP, DONE]);
}

#[test]
fn others_in_between_are_no_turns() {
    let mut model = Model::default();
    for number in 0..50 {
        for function in [START, STEP, DONE] {
            model.call(1, function, object(number));
            // Another thing's function, and one for all.
            model.call(
                1,
                3,
                object(1000 + number * 2 + u64::from(function == STEP)),
            );
            model.call(1, 4, object(5000));
        }
    }
    // What the other function has comes back, and may be anything.
    let proposal = model.one();
    assert!(!proposal.is_clear() && proposal.alone.is_some());
    assert_eq!(proposal.parts[0].source.function, 3);
}

#[test]
fn a_begin_that_is_not_watched_is_not_guessed() {
    let mut model = Model::default();
    for round in 0..10 {
        let four = [0, 1, 2, 3].map(|index| object(round * 4 + index));
        // Half of them are first seen at a step, half at their end.
        for value in &four[..2] {
            model.call(7, STEP, *value);
        }
        for value in four {
            model.call(7, DONE, value);
        }
        for value in four {
            model.call(7, STEP, value);
        }
    }
    let proposal = model.one();
    assert_eq!((proposal.begin, proposal.end), (None, None), "{proposal:?}");
}

#[test]
fn requests_that_ran_before_the_count_do_not_hide_the_begin() {
    let mut model = Model::default();
    for number in 0..20 {
        model.call(7, STEP, object(number));
    }
    for number in 0..20 {
        model.call(7, DONE, object(number));
    }
    for round in 5..9 {
        model.turns(round * 4);
    }
    let proposal = model.one();
    is_from_start_to_done(&proposal);
    assert_eq!(proposal.parts[STEP].first, 20);
}

#[test]
fn an_end_that_is_not_watched_is_not_guessed() {
    // A request has two steps at least, so that a step is not the last one.
    let mut model = Model::default();
    for round in 0..10 {
        let four = [0, 1, 2, 3].map(|index| object(round * 4 + index));
        for function in [START, STEP, STEP] {
            for value in four {
                model.call(7, function, value);
            }
        }
    }
    let proposal = model.one();
    assert_eq!((proposal.begin, proposal.end), (Some(START), None));
}

#[test]
fn a_function_that_others_call_is_told_apart() {
    let (sometimes, mostly) = (3, 4);
    let mut model = Model::default();
    for round in 0..10 {
        let four = [0, 1, 2, 3].map(|index| object(round * 4 + index));
        for function in [START, STEP, DONE] {
            for (index, value) in four.into_iter().enumerate() {
                model.call(7, function, value);
                model.inside(7, mostly, value);
                if function == STEP && index % 2 == 0 {
                    model.inside(7, sometimes, value);
                } else if function == STEP {
                    model.call(7, sometimes, value);
                }
            }
        }
    }
    let proposal = model.one();
    let inside: Vec<Inside> = proposal.parts.iter().map(|part| part.inside).collect();
    use Inside::{Mostly, Never, Sometimes};
    assert_eq!(inside, [Never, Never, Never, Sometimes, Mostly]);
    // The end calls one of them, and is the end all the same.
    is_from_start_to_done(&proposal);
}

#[test]
fn a_function_that_has_all_kinds_of_things_is_left_out() {
    let release = 3;
    let mut model = Model::default();
    for round in 0..10 {
        model.turns(round * 4);
        for index in 0..4 {
            model.call(7, release, object(round * 4 + index));
        }
        for number in 0..50 {
            model.call(7, release, object(10_000 + round * 50 + number));
        }
    }
    let proposal = model.one();
    assert_eq!(proposal.strangers, [release]);
    assert_eq!(proposal.parts.len(), 3);
}

#[test]
fn two_kinds_of_requests_are_two_proposals() {
    let mut model = Model::default();
    for round in 0..10 {
        model.turns(round * 4);
        for function in [3, 4, 4, 4, 5] {
            for index in 0..4 {
                model.call(8, function, object(10_000 + round * 4 + index));
            }
        }
    }
    let proposals = model.proposals();
    assert_eq!(proposals.len(), 2);
    // That with most calls comes first.
    assert_eq!(proposals[0].parts[0].source.function, 3);
    is_from_start_to_done(&proposals[1]);
}
