use reqtrace_common::label::Reading;

use super::*;

/// A condition that the number at `constant` is 1.
fn when(constant: i64) -> [Condition; 2] {
    let condition = Condition {
        value: Reading {
            constant,
            ..Reading::default()
        },
        kind: condition_kind::ONE_OF,
        numbers: [1, 0, 0, 0],
        used: 1,
        ..Condition::default()
    };
    [condition, Condition::default()]
}

const ALWAYS: Option<i64> = None;

fn plan(role: Role, condition: Option<i64>) -> Plan {
    let op = match role {
        Role::Begin => op::BEGIN,
        Role::Resume => op::RESUME,
        Role::End => op::END,
        Role::Child => op::NOTE,
        _ => op::PARK,
    };
    Plan {
        role,
        name: MarkerName::default(),
        marker: MarkerPlan {
            op,
            when: condition.map(when).unwrap_or_default(),
            ..MarkerPlan::default()
        },
        labels: Vec::new(),
        attributes: Vec::new(),
    }
}

fn in_place(mut plan: Plan, place: u32) -> Plan {
    plan.marker.place = place;
    plan
}

fn attribute(index: u32) -> AttributePlan {
    AttributePlan {
        index,
        ..AttributePlan::default()
    }
}

/// What is tried in which order: what is done, whether a parked one goes on, and under which condition.
fn order(plans: Vec<Plan>) -> Vec<(u32, bool, Option<i64>)> {
    let all = of_place(plans, &[], MarkerName::default()).unwrap();
    all.iter()
        .map(|plan| {
            let marker = &plan.marker;
            let condition = (!plan.always_holds()).then(|| marker.when[0].value.constant);
            let goes_on = marker.flags & marker_flag::OR_RESUME != 0;
            (marker.op, goes_on, condition)
        })
        .collect()
}

#[test]
fn a_unit_that_is_a_request_begins_and_another_one_is_a_child() {
    let found = order(vec![
        plan(Role::Child, Some(1)),
        plan(Role::Ready, ALWAYS),
        plan(Role::Begin, Some(2)),
    ]);
    let ops: Vec<u32> = found.into_iter().map(|(op, ..)| op).collect();
    assert_eq!(ops, [op::BEGIN, op::NOTE, op::PARK]);
}

#[test]
fn conditions_are_tried_before_what_always_holds() {
    let found = order(vec![
        plan(Role::End, ALWAYS),
        plan(Role::Resume, Some(1)),
        plan(Role::Park, Some(2)),
    ]);
    assert_eq!(
        found,
        [
            (op::PARK, false, Some(2)),
            (op::RESUME, false, Some(1)),
            (op::END, false, None)
        ]
    );
}

#[test]
fn a_request_that_waits_goes_on_where_it_could_begin() {
    let both = |begin, resume| order(vec![plan(Role::Begin, begin), plan(Role::Resume, resume)]);
    assert_eq!(both(ALWAYS, ALWAYS), [(op::BEGIN, true, None)]);
    assert_eq!(both(Some(1), Some(1)), [(op::BEGIN, true, Some(1))]);
    assert_eq!(
        both(Some(1), ALWAYS),
        [(op::BEGIN, true, Some(1)), (op::RESUME, false, None)]
    );
    assert_eq!(
        both(ALWAYS, Some(1)),
        [(op::BEGIN, true, Some(1)), (op::BEGIN, false, None)]
    );
    // Of two conditions nothing tells whether both hold.
    assert_eq!(
        both(Some(1), Some(2)),
        [(op::RESUME, false, Some(2)), (op::BEGIN, false, Some(1))]
    );
    // What the resume says of the time before is true of the begin that goes on.
    let plans = vec![
        plan(Role::Begin, ALWAYS),
        in_place(plan(Role::Resume, ALWAYS), 3),
    ];
    assert_eq!(
        of_place(plans, &[], MarkerName::default()).unwrap()[0]
            .marker
            .place,
        3
    );
    // Another key is another request.
    let mut resume = plan(Role::Resume, Some(1));
    resume.marker.key[0].constant = 7;
    let found = order(vec![plan(Role::Begin, ALWAYS), resume]);
    assert_eq!(
        found,
        [(op::RESUME, false, Some(1)), (op::BEGIN, false, None)]
    );
}

#[test]
fn markers_that_nothing_tells_apart_are_refused() {
    let refused = |plans| {
        let error = of_place(plans, &[], MarkerName::default()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    let text = refused(vec![plan(Role::Park, ALWAYS), plan(Role::End, ALWAYS)]);
    assert!(text.contains("`end` and `park` are at one place"), "{text}");
    let text = refused(vec![plan(Role::Park, Some(1)), plan(Role::End, Some(1))]);
    assert!(text.contains("nothing tells which"), "{text}");
    let mut other_key = plan(Role::Resume, ALWAYS);
    other_key.marker.key[0].constant = 7;
    refused(vec![plan(Role::Begin, ALWAYS), other_key]);
    // The same twice is once.
    let twice = order(vec![plan(Role::Park, ALWAYS), plan(Role::Park, ALWAYS)]);
    assert_eq!(twice.len(), 1);
    let nine = (0..9).map(|constant| plan(Role::Park, Some(constant)));
    let text = refused(nine.collect());
    assert!(text.contains("9 markers, but at most 8"), "{text}");
}

#[test]
fn attributes_of_a_place_are_read_whatever_is_done() {
    let mut begin = plan(Role::Begin, Some(1));
    begin.attributes = vec![attribute(0)];
    let plans = of_place(
        vec![begin, plan(Role::End, Some(2))],
        &[attribute(0), attribute(3)],
        MarkerName::default(),
    );
    let found: Vec<(u32, Vec<u32>)> = plans
        .unwrap()
        .iter()
        .map(|plan| {
            let indices = plan.attributes.iter().map(|one| one.index).collect();
            (plan.marker.op, indices)
        })
        .collect();
    assert_eq!(
        found,
        [
            (op::END, vec![0, 3]),
            (op::BEGIN, vec![0, 3]),
            (op::NONE, vec![0, 3])
        ]
    );
    // Nothing is left to read where something is always done.
    let plans = of_place(
        vec![plan(Role::End, ALWAYS)],
        &[attribute(1)],
        MarkerName::default(),
    )
    .unwrap();
    assert_eq!(plans.len(), 1);
    let many: Vec<AttributePlan> = (0..9).map(attribute).collect();
    let error = of_place(Vec::new(), &many, MarkerName::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("9 ways to read attributes"), "{error}");
}

#[test]
fn a_chain_names_its_label_and_its_attributes() {
    let label = LabelPlan {
        kind: 2,
        ..LabelPlan::default()
    };
    let mut begin = plan(Role::Begin, Some(1));
    begin.labels = vec![label];
    begin.attributes = vec![attribute(4)];
    let plans = of_place(
        vec![begin, plan(Role::End, ALWAYS)],
        &[],
        MarkerName::default(),
    )
    .unwrap();
    let mut tables = PlanTables::new(true);
    assert_eq!(index_of(&plans, &mut tables).unwrap(), 1);
    let [_, (begin, _), (end, _)] = tables.marker_plans() else {
        panic!("{:?}", tables.marker_plans());
    };
    assert_eq!(
        (begin.op, begin.label, begin.attributes, begin.next),
        (op::BEGIN, 1, 1, 2)
    );
    assert_eq!(
        (end.op, end.label, end.attributes, end.next),
        (op::END, 0, 0, 0)
    );
    assert_eq!(tables.attribute_plans()[1].index, 4);
    // Without labels there are none.
    let mut tables = PlanTables::new(false);
    index_of(&plans, &mut tables).unwrap();
    assert_eq!(tables.marker_plans()[1].0.label, 0);
}
