//! `reqtrace ship` where something fails: an engine that is away, breaks off and refuses, a shipper that is killed, an agent
//! that removes files. Each file is taken at least once, by one token and with one content, and none is lost.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::scraped::Scrape;

use crate::fleet_rows::{Of, write};
use crate::ship::{Place, files, left};

fn failures(seen: &Scrape, cause: &str) -> f64 {
    seen[&format!("reqtrace_ship_failures_total{{cause=\"{cause}\"}}")]
}

/// 500, too busy, and broken off after it has taken a file, in no order: each file arrives.
#[test]
fn an_engine_that_fails_in_turns_gets_each_file() {
    let engine = Engine::start(|number, _| match number * 7919 % 101 % 6 {
        0 => Reply::Refuse(500, "Code: 241. DB::Exception: Memory limit exceeded"),
        2 => Reply::CommitAndDrop,
        4 => Reply::Refuse(429, "slow down"),
        _ => Reply::Accept,
    })
    .unwrap();
    let place = Place::to("timeout = \"1s\"", &engine, "");
    let files = files(&place.rows, 60);
    let shipper = place.start();
    let seen = shipper.wait_for("reqtrace_ship_files_total", 60.0);
    assert_eq!(engine.taken().unwrap(), files);
    let of = |reply| {
        engine
            .sent()
            .iter()
            .filter(|sent| sent.reply == reply)
            .count() as f64
    };
    assert_eq!(
        failures(&seen, "server"),
        of(Reply::Refuse(
            500,
            "Code: 241. DB::Exception: Memory limit exceeded"
        ))
    );
    assert_eq!(failures(&seen, "busy"), of(Reply::Refuse(429, "slow down")));
    assert_eq!(failures(&seen, "unreachable"), of(Reply::CommitAndDrop));
    assert!(of(Reply::CommitAndDrop) >= 10.0);
    assert_eq!(seen["reqtrace_ship_refused_files_total"], 0.0);
    assert_eq!(seen["reqtrace_ship_files_total"], 60.0);
    shipper.end();
    assert_eq!(left(&place.rows), Vec::<String>::new());
}

#[test]
fn an_engine_that_never_answers_is_asked_again() {
    let engine = Engine::start(|number, _| {
        if number == 0 {
            Reply::Hang
        } else {
            Reply::Accept
        }
    })
    .unwrap();
    let place = Place::to("timeout = \"500ms\"", &engine, "");
    let files = files(&place.rows, 2);
    let shipper = place.start();
    let seen = shipper.wait_for("reqtrace_ship_files_total", 2.0);
    assert_eq!(failures(&seen, "timeout"), 1.0);
    assert_eq!(engine.taken().unwrap(), files);
    shipper.end();
}

/// What is refused for ever goes out of the others' way, is kept with the answer, and is not sent again; a password that is
/// wrong is no matter of a file.
#[test]
fn a_file_that_is_refused_is_set_aside_and_named() {
    let bad = "rows-web-1-0123456789ab-00000002.parquet";
    let engine = Engine::start(move |number, token| match token {
        _ if number < 2 => Reply::Refuse(403, "Code: 516. DB::Exception: Authentication failed"),
        token if token == bad => {
            Reply::Refuse(400, "Code: 33. DB::Exception: Cannot read all data")
        }
        _ => Reply::Accept,
    })
    .unwrap();
    let place = Place::to("", &engine, "");
    let mut files = files(&place.rows, 4);
    // One that nobody can read as rows.
    let broken = place
        .rows
        .join("date=2026-11-24/hour=15/service=shop/rows-web-1-0123456789ab-00000009.parquet");
    fs::write(&broken, "PAR1").unwrap();
    let shipper = place.start();
    let seen = shipper.wait_for("reqtrace_ship_refused_files_total", 2.0);
    let seen = if seen["reqtrace_ship_files_total"] < 3.0 {
        shipper.wait_for("reqtrace_ship_files_total", 3.0)
    } else {
        seen
    };
    assert_eq!(failures(&seen, "denied"), 2.0);
    assert_eq!(failures(&seen, "refused"), 2.0);
    let printed = shipper.end();
    assert!(
        printed.contains(bad) && printed.contains("Cannot read all data"),
        "{printed}"
    );
    let content = files.remove(bad).unwrap();
    assert_eq!(engine.taken().unwrap(), files);
    assert_eq!(left(&place.rows), Vec::<String>::new());
    assert_eq!(fs::read(place.refused().join(bad)).unwrap(), content);
    let why = fs::read_to_string(place.refused().join(format!("{bad}.why"))).unwrap();
    assert!(
        why.contains("400") && why.contains("Cannot read all data"),
        "{why}"
    );
    assert!(
        place
            .refused()
            .join("rows-web-1-0123456789ab-00000009.parquet")
            .exists()
    );
}

/// A file that fails each time while others are accepted is the file's own fault.
#[test]
fn a_file_that_fails_for_ever_does_not_hold_up_the_others() {
    let bad = "rows-web-1-0123456789ab-00000001.parquet";
    let engine = Engine::start(move |_, token| match token == bad {
        true => Reply::Refuse(500, "Code: 8. DB::Exception: There is no column"),
        false => Reply::Accept,
    })
    .unwrap();
    let place = Place::to("", &engine, "");
    files(&place.rows, 40);
    let shipper = place.start();
    let seen = shipper.wait_for("reqtrace_ship_files_total", 39.0);
    assert!(failures(&seen, "server") >= 1.0);
    // It is given up with the next ones that come.
    let of = Of {
        host: "web-2",
        service: "shop",
        build_id: "aa",
        classes: &[],
        number: 0,
    };
    for number in 0..40 {
        write(&place.rows, &Of { number, ..of }, &[]);
        sleep(Duration::from_millis(60));
    }
    let seen = shipper.wait_for("reqtrace_ship_refused_files_total", 1.0);
    assert_eq!(seen["reqtrace_ship_refused_files_total"], 1.0);
    shipper.wait_for("reqtrace_ship_files_total", 79.0);
    shipper.end();
    assert!(place.refused().join(bad).exists());
}

/// Killed at any moment: each file is taken at least once, by one token and with one content, and none is lost.
#[test]
fn a_shipper_that_is_killed_loses_nothing() {
    for keep in [false, true] {
        // It takes a moment with each, and breaks off now and then.
        let engine = Engine::start(|number, _| {
            sleep(Duration::from_millis(5));
            match number % 7 {
                3 => Reply::CommitAndDrop,
                5 => Reply::Refuse(503, "busy"),
                _ => Reply::Accept,
            }
        })
        .unwrap();
        let place = Place::to(&format!("keep = {keep}"), &engine, "");
        let files = files(&place.rows, 100);
        let mut kills = 0;
        for round in 0_u64.. {
            let shipper = place.start();
            // 0 to 97 ms, in no order.
            sleep(Duration::from_millis(round * 37 % 98));
            shipper.kill();
            kills += 1;
            if engine.taken().unwrap().len() == files.len() {
                break;
            }
        }
        // What was taken before it was known is sent once more.
        let (code, printed) = place.run(&["--once"]);
        let (code, printed) = if code == Some(0) {
            (code, printed)
        } else {
            place.run(&["--once"])
        };
        assert_eq!(code, Some(0), "{printed}");
        assert_eq!(engine.taken().unwrap(), files);
        assert!(kills >= 3, "{kills}");
        let known: Vec<String> = if keep {
            files.keys().cloned().collect()
        } else {
            Vec::new()
        };
        assert_eq!(left(&place.rows), known);
        let sent = engine.sent().len();
        let (code, printed) = place.run(&["--once"]);
        assert_eq!((code, engine.sent().len()), (Some(0), sent), "{printed}");
    }
}

/// The agent removes its oldest files above `max`, also while they wait.
#[test]
fn a_file_that_goes_meanwhile_is_counted() {
    let place_of_rows = Arc::new(Mutex::new(PathBuf::new()));
    let known = Arc::clone(&place_of_rows);
    let engine = Engine::start(move |number, _| {
        if number == 0 {
            let folder = known
                .lock()
                .unwrap()
                .join("date=2026-11-24/hour=15/service=shop");
            // That which is being sent, and the next one.
            for gone in [1, 2] {
                fs::remove_file(folder.join(format!("rows-web-1-0123456789ab-{gone:08}.parquet")))
                    .unwrap();
            }
        }
        Reply::Accept
    })
    .unwrap();
    let place = Place::to("every = \"10s\"", &engine, "");
    fs::write(
        &place.config,
        fs::read_to_string(&place.config)
            .unwrap()
            .replacen("every = \"100ms\"\n", "", 1),
    )
    .unwrap();
    (*place_of_rows.lock().unwrap()).clone_from(&place.rows);
    files(&place.rows, 4);
    let shipper = place.start();
    let seen = shipper.wait_for("reqtrace_ship_files_total", 3.0);
    assert_eq!(seen["reqtrace_ship_gone_files_total"], 1.0);
    assert_eq!(seen["reqtrace_ship_oldest_waiting_seconds"], 0.0);
    shipper.end();
}
