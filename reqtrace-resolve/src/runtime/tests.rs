use super::*;
use crate::fixtures::Fixture;

/// An edge by names only.
pub(super) fn edge_in(object: &Object, which: Edge) -> Result<Vec<Range<u64>>> {
    Ok(edge(object, &Shapes::default(), which)?.functions)
}

/// What a program with the current-thread scheduler has, in the legacy mangling.
pub(super) const CURRENT: [&str; 5] = [
    "_ZN5tokio7runtime9scheduler14current_thread7Context8run_task17h16c3c96c22697c3dE",
    "_ZN5tokio7runtime9scheduler14current_thread134_$LT$impl$u20$tokio..runtime..task..Schedule$u20$for$u20$alloc..sync..\
     Arc$LT$tokio..runtime..scheduler..current_thread..Handle$GT$$GT$8schedule17h0c4c7537549184a4E",
    "_ZN5tokio7runtime4task5state5State18transition_to_idle17h16c3c96c22697c3dE",
    "_ZN5tokio7runtime4task5state5State21transition_to_running17h16c3c96c22697c3dE",
    "_ZN5tokio7runtime4task5state5State22transition_to_complete17h16c3c96c22697c3dE",
];

/// The multi-thread scheduler, in the mangling of today.
const MULTI: [&str; 3] = [
    "_RNvMs_NtNtNtNtCs1KriNgkQyL9_5tokio7runtime9scheduler12multi_thread6workerNtB4_7Context8run_task",
    "_RNvXs_NtNtNtNtCs1KriNgkQyL9_5tokio7runtime9scheduler12multi_thread6handleINtNtCslNYArtu3iFV_5alloc4sync3ArcNtB4_6HandleENtNtBa_4task8Schedule8schedule",
    "_RNvMs2_NtNtNtNtCs1KriNgkQyL9_5tokio7runtime9scheduler12multi_thread6workerNtNtB7_6handle6Handle34schedule_option_task_without_yield",
];

const SLEEPS: &str = "_RINvNtNtNtCs1KriNgkQyL9_5tokio7runtime4task3raw4pollINtNtCs7oO6Z13ToBr_5tasks8measured8MeasuredNCNvNtBT_4jobs6sleeps0EINtNtCslNYArtu3iFV_5alloc4sync3ArcNtNtNtB6_9scheduler14current_thread6HandleEEBT_";
const ASKS: &str = "_RINvNtNtNtCs1KriNgkQyL9_5tokio7runtime4task3raw4pollINtNtCs7oO6Z13ToBr_5tasks8measured8MeasuredNCNvNtBT_4jobs4asks0EINtNtCslNYArtu3iFV_5alloc4sync3ArcNtNtNtB6_9scheduler14current_thread6HandleEEBT_";

/// A function of each name, at a place of its own; one that begins with `=` is at that of the one before.
pub(super) fn program(functions: &[(&str, &str)]) -> Fixture {
    let mut source = ".text\n".to_owned();
    for (name, code) in functions {
        let (name, is_alias) = name
            .strip_prefix('=')
            .map_or((*name, false), |name| (name, true));
        source += &format!(".globl \"{name}\"\n.hidden \"{name}\"\n.type \"{name}\", @function\n");
        if is_alias {
            source += &format!(".set \"{name}\", last\n");
            continue;
        }
        source +=
            &format!(".balign 16\n\"{name}\":\n{code}\nret\n.size \"{name}\", . - \"{name}\"\n");
        source += &format!(".set last, \"{name}\"\n");
    }
    Fixture::assembly(&source)
}

pub(super) fn plain<'a>(names: &[&'a str]) -> Vec<(&'a str, &'static str)> {
    names.iter().map(|name| (*name, "nop")).collect()
}

#[test]
fn the_edges_are_found_in_both_manglings() {
    let fixture = program(&plain(&[&CURRENT[..], &MULTI].concat()));
    let object = fixture.object();
    for (which, count) in [
        (Edge::Queue, 3),
        (Edge::Resume, 1),
        (Edge::Leave, 1),
        (Edge::Done, 1),
    ] {
        assert_eq!(edge_in(&object, which).unwrap().len(), count, "{which:?}");
    }
}

#[test]
fn an_older_tokio_beside_it_is_reported() {
    const OLDER: &str =
        "_ZN5tokio7runtime11thread_pool6worker7Context8run_task17h16c3c96c22697c3dE";
    let alone = program(&plain(&CURRENT));
    assert_eq!(older(&alone.object(), &Shapes::default()), None);
    let both = program(&plain(&[&CURRENT[..], &[OLDER]].concat()));
    let printed = older(&both.object(), &Shapes::default()).unwrap();
    assert!(
        printed.contains("thread_pool::worker::Context::run_task"),
        "{printed}"
    );
}

#[test]
fn a_scheduler_is_known_although_what_runs_its_tasks_is_inlined() {
    // As in the releases before 1.54.
    let fixture = program(&plain(&[&CURRENT[1..], &MULTI].concat()));
    let object = fixture.object();
    assert_eq!(edge_in(&object, Edge::Queue).unwrap().len(), 3);
}

#[test]
fn a_scheduler_without_its_queue_is_an_error_that_names_it() {
    let fixture = program(&plain(&[&CURRENT[..], &MULTI[..2]].concat()));
    let error = edge_in(&fixture.object(), Edge::Queue).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("multi_thread::Handle::schedule_task, or Schedule::schedule with"),
        "{text}"
    );
    assert!(
        text.contains("of the multi-thread scheduler in program"),
        "{text}"
    );
    assert!(error.advice().unwrap().contains("fat"), "{error:?}");
    let fixture = program(&plain(&CURRENT[..4]));
    let text = edge_in(&fixture.object(), Edge::Done)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("state::State::transition_to_complete` in program"),
        "{text}"
    );
}

#[test]
fn a_task_that_goes_through_two_functions_is_queued_once() {
    const INNER: &str = "_RNvMs2_NtNtNtNtCs1KriNgkQyL9_5tokio7runtime9scheduler12multi_thread6workerNtNtB7_6handle6Handle13schedule_task";
    let jump = format!("jmp \"{INNER}\"");
    let outer = [
        (MULTI[0], "nop"),
        (INNER, "nop"),
        (MULTI[1], jump.as_str()),
        (MULTI[2], "nop"),
    ];
    let fixture = program(&outer);
    let object = fixture.object();
    let found = edge_in(&object, Edge::Queue).unwrap();
    // What is jumped from is none; what the compiler has inlined it into is.
    assert_eq!(found.len(), 2, "{found:x?}");
}

#[test]
fn types_are_those_of_the_names() {
    let fixture = program(&plain(&[SLEEPS, ASKS]));
    let object = fixture.object();
    assert_eq!(
        polls(&object, &Shapes::default(), "*jobs::sleeps*")
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        polls(&object, &Shapes::default(), "*Measured<*")
            .unwrap()
            .len(),
        2
    );
    let error = polls(&object, &Shapes::default(), "*nothing*").unwrap_err();
    assert!(
        error
            .advice()
            .unwrap()
            .contains("`tasks::measured::Measured<tasks::jobs::asks::{closure#0}>`"),
        "{error:?}"
    );
    let units = [("a", "*sleeps*"), ("b", "*jobs*")];
    let text = told_apart(&object, &Shapes::default(), &units)
        .unwrap_err()
        .to_string();
    assert!(text.contains("requests of `a` and of `b`"), "{text}");
    told_apart(
        &object,
        &Shapes::default(),
        &[("a", "*sleeps*"), ("b", "*::asks*")],
    )
    .unwrap();
    let units = [("a", "*"), ("b", "*nothing*")];
    let text = told_apart(&object, &Shapes::default(), &units)
        .unwrap_err()
        .to_string();
    assert!(text.contains("all tasks are requests of `a`"), "{text}");
}

#[test]
fn code_that_the_linker_has_folded_is_reported() {
    let folded = format!("={ASKS}");
    let fixture = program(&plain(&[SLEEPS, &folded]));
    let object = fixture.object();
    let text = polls(&object, &Shapes::default(), "*sleeps*")
        .unwrap_err()
        .to_string();
    assert!(text.contains("put what is equal together"), "{text}");
    assert_eq!(
        polls(&object, &Shapes::default(), "*jobs*").unwrap().len(),
        1
    );
}

#[test]
fn a_legacy_name_has_the_type_that_its_code_drops() {
    const POLL: &str = "_ZN5tokio7runtime4task3raw4poll17h0000000000000001E";
    const OTHER: &str = "_ZN5tokio7runtime4task3raw4poll17h0000000000000002E";
    const HARNESS: &str =
        "_ZN5tokio7runtime4task7harness20Harness$LT$T$C$S$GT$4poll17h4ddade44fa90c670E";
    const STAGE: &str = "_ZN4core3ptr108drop_in_place$LT$tokio..runtime..task..core..Stage$LT$app..jobs..sleeps..$u7b$$u7b$closure$u7d$$u7d$$GT$$GT$17h1ce3ed8222b2b7a9E";
    let jump = format!("jmp \"{HARNESS}\"");
    let source = format!(
        ".text\n\"{STAGE}\": ret\n.type \"{STAGE}\", @function\n.size \"{STAGE}\", 1\n.balign 16\n\
         \"{HARNESS}\": call \"{STAGE}\"\nret\n.type \"{HARNESS}\", @function\n.size \"{HARNESS}\", 6\n.balign 16\n\
         \"{POLL}\": {jump}\n.type \"{POLL}\", @function\n.size \"{POLL}\", . - \"{POLL}\"\n.balign 16\n\
         \"{OTHER}\": ret\n.type \"{OTHER}\", @function\n.size \"{OTHER}\", 1\n"
    );
    let fixture = Fixture::assembly(&source);
    let object = fixture.object();
    let all = types::polls(&object, std::iter::empty());
    let names: Vec<Vec<&str>> = all
        .iter()
        .map(|poll| poll.names.iter().map(String::as_str).collect())
        .collect();
    let address = format!("{:#x}", all[1].address);
    let known = vec!["app::jobs::sleeps::{{closure}}"];
    assert_eq!(names, [known, vec![address.as_str()]]);
    assert_eq!(
        polls(&object, &Shapes::default(), "*jobs::sleeps*")
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_task_has_the_names_of_all_types_that_its_function_polls() {
    const LEGACY: &str = "_ZN5tokio7runtime4task3raw4poll17h0000000000000001E";
    let folded = format!("={ASKS}");
    let fixture = program(&plain(&[SLEEPS, &folded, LEGACY]));
    let object = fixture.object();
    let all: Vec<(u64, String)> = types(&object, &Shapes::default()).into_iter().collect();
    let [(_, named), (address, unnamed)] = all.as_slice() else {
        panic!("{all:?}");
    };
    let of = |job| format!("tasks::measured::Measured<tasks::jobs::{job}::{{closure#0}}>");
    assert_eq!(*named, format!("{} or {}", of("asks"), of("sleeps")));
    // As `unit` takes it.
    assert_eq!(*unnamed, format!("{address:#x}"));
    let fitting = polls(&object, &Shapes::default(), unnamed).unwrap();
    assert_eq!(fitting, [*address]);
}

#[test]
fn both_manglings_have_one_short_name() {
    let legacy = "tokio::runtime::scheduler::multi_thread::handle::<impl tokio::runtime::task::Schedule for \
                  alloc::sync::Arc<tokio::runtime::scheduler::multi_thread::handle::Handle>>::schedule";
    let today = "<alloc::sync::Arc<tokio::runtime::scheduler::multi_thread::handle::Handle> as \
                 tokio::runtime::task::Schedule>::schedule";
    let inherent = "tokio::runtime::scheduler::multi_thread::worker::<impl \
                    tokio::runtime::scheduler::multi_thread::handle::Handle>::schedule_task";
    for (path, wanted) in [
        (legacy, "Schedule::schedule"),
        (today, "Schedule::schedule"),
        (inherent, "Handle::schedule_task"),
        (
            "<tokio::runtime::scheduler::multi_thread::handle::Handle>::schedule_task",
            "Handle::schedule_task",
        ),
        (
            "tokio::runtime::task::state::State::transition_to_idle",
            "State::transition_to_idle",
        ),
        (
            "<tokio::runtime::task::state::State>::transition_to_idle",
            "State::transition_to_idle",
        ),
        ("<tokio::task::local::LocalSet>::tick", "LocalSet::tick"),
        ("tokio::task::local::Shared::schedule", "Shared::schedule"),
        ("main", "main"),
    ] {
        assert_eq!(named::short(path), wanted, "{path}");
    }
}
