//! Kinds of keys: results, later arguments, parts of objects, requests of one function or of many calls.

use super::*;

#[test]
fn requests_with_many_calls() {
    let mut model = Model::default();
    for round in 0..20 {
        let four = [0, 1, 2, 3].map(|index| object(round * 4 + index));
        for value in four {
            model.call(7, START, value);
            (0..100).for_each(|_| model.call(7, STEP, value));
        }
        for value in four {
            model.call(7, STEP, value);
            model.call(7, DONE, value);
        }
    }
    let proposal = model.one();
    is_from_start_to_done(&proposal);
    // Not one call in a hundred comes back, but of each request one does.
    assert_eq!((proposal.turns, proposal.calls), (60 + 20, 80 * 103));
}

#[test]
fn requests_of_one_function_that_says_when_they_end() {
    let mut model = Model::default();
    for round in 0..20_u64 {
        for turn in 0..4 {
            for index in 0..4 {
                // Memory is used again now and then.
                model.call(7, START, object(round % 15 * 4 + index));
                model.returns(7, START, if turn == 3 { 9 } else { 2 });
            }
        }
    }
    let proposal = model.one();
    assert!(proposal.is_clear(), "{proposal:?}");
    assert_eq!((proposal.begin, proposal.end), (Some(0), None));
    let alone = proposal.alone.unwrap();
    assert_eq!(alone.results, [(2, 240, 0), (9, 80, 60)]);
    assert_eq!(alone.end, Some(9));
    // What comes back behind the end is another request.
    assert_eq!(proposal.turns, 240);
}

#[test]
fn a_key_that_the_begin_returns_and_one_that_is_a_later_argument() {
    let mut model = Model::default();
    let context = object(9000);
    for round in 0..10 {
        let four = [0, 1, 2, 3].map(|index| object(round * 4 + index));
        for value in four {
            model.note(1, 7, START, 0, [context, 0, 0, 0]);
            model.returns(7, START, value);
        }
        for value in four {
            model.note(1, 7, STEP, 0, [context, 3, value, 0]);
        }
        for value in four {
            model.note(1, 7, DONE, 0, [context, value, 0, 0]);
        }
    }
    let proposal = model.one();
    is_from_start_to_done(&proposal);
    let slots: Vec<Slot> = proposal.parts.iter().map(|part| part.source.slot).collect();
    assert_eq!(slots, [Slot::Result, Slot::Argument(2), Slot::Argument(1)]);
}

#[test]
fn an_object_in_another_one() {
    // Once from the heap, and once in an array, where the next object is as far from the part before.
    for size in [0x10000, 0x100] {
        let mut model = Model::default();
        for round in 0..10 {
            let four = [0, 1, 2, 3].map(|index| 0x5555_0000_0000 + (round * 4 + index) * size);
            for value in four {
                model.call(7, START, value);
            }
            for value in four {
                model.call(7, STEP, value + 0x20);
            }
            for value in four {
                model.call(7, DONE, value + 0x20);
            }
            for value in four {
                model.call(7, 3, value);
            }
        }
        let proposal = model.one();
        let (begin, end) = proposal.ends().unwrap();
        assert_eq!((begin, end), (START, 3), "{proposal:?}");
        let offsets: Vec<u64> = proposal.parts.iter().map(|part| part.offset).collect();
        assert_eq!(offsets, [0, 0x20, 0x20, 0], "{size:#x}");
    }
}

#[test]
fn what_a_function_has_by_chance_is_no_other_key() {
    let mut model = Model::default();
    for round in 0..10 {
        model.turns(round * 4);
    }
    for (at, call) in model.calls.iter_mut().enumerate() {
        if call.function as usize == STEP {
            call.values[3] = object(100 + at as u64 % 7);
        }
    }
    is_from_start_to_done(&model.one());
}

#[test]
fn what_is_in_no_proposal_is_there_as_evidence() {
    let mut model = Model::default();
    for number in 0..90 {
        for function in [START, STEP, DONE] {
            model.call(1, function, object(number % 3));
        }
    }
    let found = proposals(&model.calls);
    assert_eq!(found.proposals, []);
    let calls: Vec<(usize, u64, u64)> = found
        .others
        .iter()
        .map(|(part, values)| (part.source.function, part.calls, *values))
        .collect();
    assert_eq!(calls, [(START, 90, 3), (STEP, 90, 3), (DONE, 90, 3)]);
}
