use super::super::tests::{CURRENT, plain, program};
use super::super::{Shapes, edge};
use super::*;
use reqtrace_profile::Edge;

/// Functions that wait, in both manglings, and others of the same types.
const WAITS: [(&str, Option<&str>); 8] = [
    (
        "_ZN86_$LT$tokio..sync..batch_semaphore..Acquire$u20$as$u20$core..future..future..Future$GT$4poll17h16c3c96c22697c3dE",
        Some("tokio lock, semaphore or channel"),
    ),
    (
        "_ZN5tokio4sync5mutex14Mutex$LT$T$GT$4lock28_$u7b$$u7b$closure$u7d$$u7d$17h16c3c96c22697c3dE",
        Some("tokio lock"),
    ),
    (
        "_ZN5tokio4sync4mpsc4chan15Rx$LT$T$C$S$GT$4recv17h16c3c96c22697c3dE",
        Some("tokio channel"),
    ),
    (
        "_ZN5tokio7runtime2io12scheduled_io11ScheduledIo14poll_readiness17h16c3c96c22697c3dE",
        Some("tokio socket"),
    ),
    (
        "_RNvXs0_NtNtCs1KriNgkQyL9_5tokio4time5sleepNtB5_5SleepNtNtNtCs7oO6Z13ToBr_4core6future6future6Future4poll",
        Some("tokio timer"),
    ),
    (
        "_RINvNtNtNtCs1KriNgkQyL9_5tokio7runtime4task3raw15try_read_outputINtNtNtB6_8blocking4task12BlockingTaskuEuEB6_",
        Some("tokio spawn_blocking"),
    ),
    (
        "_ZN5tokio4sync5mutex14Mutex$LT$T$GT$3new17h16c3c96c22697c3dE",
        None,
    ),
    (
        "_ZN4mine4sync5mutex14Mutex$LT$T$GT$4poll17h16c3c96c22697c3dE",
        None,
    ),
];

#[test]
fn code_that_waits_is_known_by_its_path_in_both_manglings() {
    let names: Vec<&str> = WAITS.iter().map(|(name, _)| *name).collect();
    let fixture = program(&plain(&names));
    let object = fixture.object();
    let here = 0x10_0000;
    let code = waits(&object, &Shapes::default(), here);
    assert_eq!(code.len(), 6, "{code:?}");
    // Neither the body of an asynchronous function nor what reads a result.
    assert_eq!(
        edge(&object, &Shapes::default(), Edge::Wait)
            .unwrap()
            .functions
            .len(),
        4
    );
    assert!(code.is_sorted_by_key(|wait| wait.from));
    for (name, place) in WAITS {
        let symbol = object.symbols().iter().find(|one| object.name(one) == name);
        let from = symbol.unwrap().address as i64 - here as i64;
        let found = code.iter().find(|wait| i64::from(wait.from) == from);
        let wanted = place.map(|place| {
            let mut all = WAITS_OF_TOKIO.iter().filter(|wait| wait.name == place);
            place_number(all.next().unwrap().place()) + 1
        });
        assert_eq!(found.map(|wait| wait.place), wanted, "{name}");
    }
}

/// A server's own look for its end is none of a request's: its code is known by the path, in both manglings.
#[test]
fn code_that_looks_beside_requests_is_known() {
    const BESIDE_CODE: [(&str, Option<u32>); 7] = [
        // What accepts connections waits for itself.
        (
            "_ZN4axum5serve17Serve$LT$L$C$M$C$S$GT$3run28_$u7b$$u7b$closure$u7d$$u7d$17h16c3c96c22697c3dE",
            None,
        ),
        (
            "_ZN4axum5serve17handle_connection28_$u7b$$u7b$closure$u7d$$u7d$28_$u7b$$u7b$closure$u7d$$u7d$17h16c3c96c22697c3dE",
            Some(SERVES),
        ),
        (
            "_RNCNCNvNtCs1KriNgkQyL9_4axum5serve17handle_connection00Csabc_3app",
            Some(SERVES),
        ),
        (
            "_ZN2h25proto7streams4send4Send10poll_reset17h16c3c96c22697c3dE",
            Some(BESIDE),
        ),
        (
            "_ZN2h25share19SendStream$LT$B$GT$13poll_capacity17h16c3c96c22697c3dE",
            None,
        ),
        (
            "_ZN4axum5serve8listener19is_connection_error17h16c3c96c22697c3dE",
            None,
        ),
        (
            "_ZN4axum7routing6Router4call28_$u7b$$u7b$closure$u7d$$u7d$17h16c3c96c22697c3dE",
            None,
        ),
    ];
    let names: Vec<&str> = BESIDE_CODE.iter().map(|(name, _)| *name).collect();
    let fixture = program(&plain(&[&names[..], &[WAITS[0].0]].concat()));
    let object = fixture.object();
    let here = 0x10_0000;
    let code = waits(&object, &Shapes::default(), here);
    for (name, place) in BESIDE_CODE {
        let symbol = object.symbols().iter().find(|one| object.name(one) == name);
        let from = symbol.unwrap().address as i64 - here as i64;
        let found = code.iter().find(|wait| i64::from(wait.from) == from);
        assert_eq!(found.map(|wait| wait.place), place, "{name}");
    }
    assert_eq!(code.len(), 4, "{code:?}");
}

/// Of more than a plan has room for, what is asked for most stays, and the rest is no secret.
#[test]
fn of_too_much_code_that_waits_the_usual_stays() {
    let many: Vec<String> = (0..MAX_WAITS)
        .map(|at| format!("_ZN5tokio4sync4mpsc4chan15Rx$LT$T$C$S$GT$4recv17h{at:016x}E"))
        .collect();
    let waker = "_ZN5tokio7runtime4task5waker11clone_waker17h16c3c96c22697c3dE";
    let mut names: Vec<&str> = many.iter().map(String::as_str).collect();
    // The last one by its address.
    names.extend(CURRENT);
    names.extend([waker, WAITS[4].0]);
    let fixture = program(&plain(&names));
    let object = fixture.object();
    let here = 0x10_0000;
    let code = waits(&object, &Shapes::default(), here);
    assert_eq!(code.len(), MAX_WAITS);
    assert!(code.is_sorted_by_key(|wait| wait.from));
    let timer = WAITS_OF_TOKIO
        .iter()
        .find(|wait| wait.name == "tokio timer");
    let timer = place_number(timer.unwrap().place()) + 1;
    assert_eq!(code.iter().filter(|wait| wait.place == timer).count(), 1);
    let found = edge(&object, &Shapes::default(), Edge::Waker).unwrap();
    let printed = without_reasons(&object, &Shapes::default(), &found).unwrap();
    let all = format!("{} functions of tokio", MAX_WAITS + 1);
    assert!(printed.contains(&all), "{printed}");
}

#[test]
fn without_the_edge_of_waiting_parked_time_has_no_reason_and_that_is_reported() {
    let fixture = program(&plain(&CURRENT));
    let object = fixture.object();
    let none = edge(&object, &Shapes::default(), Edge::Waker).unwrap();
    assert_eq!(none, EdgeCode::default());
    let printed = without_reasons(&object, &Shapes::default(), &none).unwrap();
    assert!(
        printed.contains("has no stack and no reason") && printed.contains("waker::clone_waker"),
        "{printed}"
    );
    let waker = "_ZN5tokio7runtime4task5waker11clone_waker17h16c3c96c22697c3dE";
    let printed = |more: &[&str]| {
        let fixture = program(&plain(&[&CURRENT[..], more].concat()));
        let object = fixture.object();
        let found = edge(&object, &Shapes::default(), Edge::Waker).unwrap();
        assert_eq!(found.functions.len(), 1);
        without_reasons(&object, &Shapes::default(), &found)
    };
    assert_eq!(printed(&[waker, WAITS[0].0]), None);
    let printed = printed(&[waker]).unwrap();
    assert!(printed.contains("has its stack and no reason"), "{printed}");
}

const TIMER: &str = "_ZN5tokio7runtime4time6Handle15process_at_time17h16c3c96c22697c3dE";
const TURN: &str = "_ZN5tokio7runtime2io6driver6Driver4turn17h16c3c96c22697c3dE";
const WAKE: &str = "_ZN5tokio7runtime2io12scheduled_io11ScheduledIo4wake17h16c3c96c22697c3dE";
const PARK: &str = "_ZN5tokio7runtime4time6Driver13park_internal17h16c3c96c22697c3dE";
const RUN_TASK: &str =
    "_ZN5tokio7runtime9scheduler12multi_thread6worker7Context8run_task17h16c3c96c22697c3dE";

/// What the code of drivers in a program is known to wake.
fn driven(functions: &[(&str, &str)]) -> (Vec<(String, u32)>, u32) {
    let fixture = program(functions);
    let object = fixture.object();
    let here = 0x10_0000;
    let (code, places) = wakes(&object, &Shapes::default(), here);
    assert!(code.is_sorted_by_key(|code| code.from));
    let named = code.iter().map(|code| {
        let at = (i64::from(code.from) + here as i64) as u64;
        let mut symbols = object.symbols().iter();
        let symbol = symbols.find(|symbol| symbol.address == at).unwrap();
        (object.name(symbol).to_owned(), code.place)
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    (named, places)
}

#[test]
fn drivers_are_known_where_what_parks_calls_them() {
    let calls = format!("call \"{TIMER}\"\ncall \"{TURN}\"");
    let all = [
        (TIMER, "nop"),
        (TURN, "nop"),
        (WAKE, "nop"),
        (RUN_TASK, "nop"),
        (PARK, &*calls),
    ];
    let [timer, socket] = DRIVERS_OF_TOKIO.map(|driver| place_number(driver.place()));
    let (code, places) = driven(&all);
    let mut wanted = [
        (TIMER, 1 << timer),
        (TURN, 1 << socket),
        (WAKE, 1 << socket),
        (RUN_TASK, BY_TASK),
    ]
    .map(|(name, is)| (name.to_owned(), is));
    wanted.sort();
    assert_eq!(code, wanted);
    assert_eq!(places, 1 << timer | 1 << socket);
    // What parks has their code in itself, or one of them is not there.
    let only_one = format!("call \"{TURN}\"");
    let inlined = [&all[..4], &[(PARK, &*only_one)]].concat();
    let missing = [&all[..1], &all[2..4], &[(PARK, "nop")]].concat();
    for functions in [inlined, missing, plain(&CURRENT)] {
        assert_eq!(driven(&functions), (Vec::new(), 0));
    }
}

const RELEASE: &str =
    "_ZN5tokio4sync15batch_semaphore9Semaphore18add_permits_locked17h16c3c96c22697c3dE";
const NOTIFY: &str = "_RNvMs3_NtNtCs1KriNgkQyL9_5tokio4sync6notifyNtB5_6Notify14notify_waiters";
const IS_NONE: &str =
    "_ZN5tokio4sync15batch_semaphore9Semaphore17available_permits17h16c3c96c22697c3dE";

#[test]
fn who_lets_a_lock_go_or_notifies_is_known_with_and_without_drivers() {
    let places = |names: &[&str]| {
        let mut all = WAITS_OF_TOKIO.iter();
        let mut places = 0;
        for name in names {
            let wait = all.by_ref().find(|wait| wait.name == *name);
            places |= 1 << place_number(wait.unwrap().place());
        }
        places
    };
    let released = places(&[
        "tokio lock",
        "tokio semaphore",
        "tokio lock, semaphore or channel",
        "tokio channel",
    ]);
    let notified = places(&["tokio channel", "tokio notify"]);
    let (code, drivers) = driven(&plain(&[RELEASE, NOTIFY, IS_NONE]));
    let mut wanted =
        [(RELEASE, released), (NOTIFY, notified)].map(|(name, is)| (name.to_owned(), is));
    wanted.sort();
    assert_eq!((code.as_slice(), drivers), (&wanted[..], 0));
    let calls = format!("call \"{TIMER}\"\ncall \"{TURN}\"");
    let all = [
        (TIMER, "nop"),
        (TURN, "nop"),
        (PARK, &*calls),
        (RELEASE, "nop"),
    ];
    let (code, drivers) = driven(&all);
    assert!(code.contains(&(RELEASE.to_owned(), released)) && drivers != 0);
}
