//! `report.html` in a browser: what it shows is what the other outputs say.
//!
//! Needs root, a kernel with BPF, mariadb-server, sysbench, chromium and chromium-driver. Pictures are written
//! to `target/tmp/page`; with `REQTRACE_BLESS=1` three of them are those of the manual, `docs/look`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::browser::{Browser, Key, Look};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::until;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;
use serde_json::{Value, json};

/// Where pictures go.
pub(crate) fn pictures() -> PathBuf {
    let folder = workspace::target().join("tmp/page");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A trace of MariaDB under load, with everything that the page shows.
fn traced(server: &MariaDb, seconds: u32, during: impl FnOnce() + Send) -> Outcome {
    let sysbench = Sysbench::prepare(server, 2, 10_000).unwrap();
    let trace = Trace::start(Path::new("mysql"), server.pid(), &["--blame", "--labels"]).unwrap();
    thread::scope(|scope| {
        scope.spawn(during);
        sysbench.run_seconds("oltp_read_write", 4, seconds).unwrap();
    });
    trace.finish().unwrap()
}

/// Nanoseconds by name of what a script lists as pairs.
fn sums(browser: &Browser, script: &str) -> BTreeMap<String, u64> {
    let Value::Array(pairs) = browser.script(script, &[]).unwrap() else {
        panic!("{script}");
    };
    let pair = |pair: &Value| {
        let ns = pair[1].as_f64().unwrap();
        (pair[0].as_str().unwrap().to_owned(), ns as u64)
    };
    pairs.iter().map(pair).collect()
}

/// The ledger's table: nanoseconds of the selection by state.
fn ledger(browser: &Browser) -> BTreeMap<String, u64> {
    sums(
        browser,
        "return [...document.querySelectorAll('#ledger-table tbody tr')].map(
             (row) => [row.dataset.key, Number(row.dataset.ns)])",
    )
}

/// The states of rows added up, by the names that the page has for them.
fn states<'a>(rows: impl Iterator<Item = &'a Row>) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        let own = [
            ("on CPU", row.on_cpu_ns),
            ("run queue", row.run_queue_ns),
            ("preempted", row.preempted_ns),
            ("unattributed", row.unattributed_ns),
        ];
        for (state, ns) in own {
            *all.entry(state.to_owned()).or_default() += ns;
        }
        for (class, ns) in &row.classes {
            *all.entry(class.replace('_', " ")).or_default() += ns;
        }
    }
    all
}

/// Checks that a table of states has the sums of rows; small ones are in one line.
fn check_states(shown: &BTreeMap<String, u64>, wanted: &BTreeMap<String, u64>) {
    let mut rest: u64 = wanted.values().sum();
    for (state, ns) in shown.iter().filter(|(state, _)| *state != "all else") {
        assert_eq!(wanted.get(state), Some(ns), "{state}");
        rest -= ns;
    }
    assert_eq!(shown.get("all else").copied().unwrap_or(0), rest);
}

/// Numbers that the selection's line has.
fn selected(browser: &Browser, name: &str) -> f64 {
    browser
        .number(&format!(
            "return Number(document.querySelector('#selection').dataset.{name})"
        ))
        .unwrap()
}

/// Presses on the heatmap: shares of its width and height, from the lower left.
fn drag_over(browser: &Browser, from: (f64, f64), to: (f64, f64)) {
    let place = browser
        .script(
            "scrollTo(0, 0); const box = document.querySelector('#heatmap-picture').getBoundingClientRect();
             return [box.x + 64, box.y + 6, box.width - 64, box.height - 30]",
            &[],
        )
        .unwrap();
    let of = |which: usize| place[which].as_f64().unwrap();
    let at = |(x, y): (f64, f64)| {
        let x = of(0) + of(2) * x;
        (x as i64, (of(1) + of(3) * (1.0 - y)) as i64)
    };
    browser.drag(at(from), at(to)).unwrap();
}

/// The page asked nobody, and nothing went wrong in it.
fn check_quiet(browser: &Browser) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let asked = browser
        .number("return performance.getEntriesByType('resource').length")
        .unwrap();
    assert_eq!(asked, 0.0);
}

#[test]
fn a_selection_shows_what_a_query_on_the_rows_says() {
    let server = MariaDb::open().unwrap();
    let outcome = traced(&server, 4, || {});
    server.close().unwrap();
    let summary = outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let complete: Vec<&Row> = rows.iter().filter(|row| row.complete).collect();
    let browser = Browser::start(Look::default()).unwrap();
    browser.open(&outcome.path("report.html"), "").unwrap();
    browser.picture(&pictures().join("all.png")).unwrap();
    // No two elements have one name.
    let named_twice = browser
        .script(
            "const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
             return ids.filter((id, at) => ids.indexOf(id) !== at)",
            &[],
        )
        .unwrap();
    assert_eq!(named_twice, json!([]));

    // Page, table, JSON and CSV agree.
    let count = complete.len() as u64;
    assert_eq!(summary.requests[0].count, count);
    assert_eq!(selected(&browser, "count"), count as f64);
    let head = browser
        .text("return document.querySelector('.what strong').textContent")
        .unwrap();
    assert_eq!(head.replace(',', ""), count.to_string());
    assert!(outcome.stdout.contains(&head), "{}", outcome.stdout);
    let all = states(complete.iter().copied());
    check_states(&ledger(&browser), &all);
    let json: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let own = &json["requests"][0]["ledger"];
    assert_eq!(own["on_cpu_ns"], json!(all["on CPU"]));
    for (state, ns) in own["classes_ns"].as_object().unwrap() {
        assert_eq!(json!(all[state]), *ns, "{state}");
    }

    // A drag over the upper part of the middle.
    drag_over(&browser, (0.3, 0.45), (0.7, 0.95));
    let [from, to, least, most] =
        ["from", "to", "least", "most"].map(|name| selected(&browser, name) as u64);
    assert!(from < to && least < most && least > 0);
    let start = summary.trace.start_unix_ns;
    let is_in = |row: &&&Row| {
        let begin = row.start_unix_ns - start;
        (from..to).contains(&begin) && (least..most).contains(&row.latency_ns)
    };
    let inside: Vec<&Row> = complete.iter().filter(is_in).copied().collect();
    assert!(inside.len() > 100 && inside.len() < complete.len() / 2);
    assert_eq!(selected(&browser, "count"), inside.len() as f64);
    let latency: u64 = inside.iter().map(|row| row.latency_ns).sum();
    assert_eq!(selected(&browser, "latency"), latency as f64);
    let wanted = states(inside.iter().copied());
    check_states(&ledger(&browser), &wanted);
    browser.picture(&pictures().join("selection.png")).unwrap();

    // The flame graph has the same sums: off the CPU, on it, and all together.
    check_flame(&browser, &wanted);
    // Root causes, and who held them up.
    let blocked: u64 = inside
        .iter()
        .map(|row| row.blocked_ns + row.unattributed_ns)
        .sum();
    for table in ["causes-table", "held-table"] {
        let all = browser
            .number(&format!(
                "return Number(document.querySelector('#{table}').dataset.allNs)"
            ))
            .unwrap();
        assert_eq!(all, blocked as f64, "{table}");
    }
    // A search says how much of it there is.
    let redo = wanted["redo log"];
    browser.click("#flame-picture").unwrap();
    browser.keys("/").unwrap();
    browser.keys(r"^\[redo log\]$").unwrap();
    let found = browser
        .number("return Number(document.querySelector('#found').dataset.ns)")
        .unwrap();
    assert_eq!(found, redo as f64);
    browser.keys(&Browser::escape()).unwrap();

    // Most of what they did on their CPUs was in threads that have a beginning, by samples.
    browser.click("[data-time='on']").unwrap();
    browser.keys("/").unwrap();
    browser.keys("^start_thread$").unwrap();
    let found = browser
        .number("return Number(document.querySelector('#found').dataset.ns)")
        .unwrap();
    let on_cpu = wanted["on CPU"] as f64;
    assert!(
        found > on_cpu * 0.5 && found <= on_cpu,
        "{found} of {on_cpu}"
    );
    browser.picture(&pictures().join("on-cpu.png")).unwrap();
    browser.keys(&Browser::escape()).unwrap();
    browser.click("[data-time='off']").unwrap();

    // Innermost first it is the same time; against others it has other words.
    let title = || browser.text("return document.querySelector('#flame-words').textContent");
    let outermost = title().unwrap();
    browser.click("#reversed").unwrap();
    assert_eq!(title().unwrap(), outermost);
    browser.click("[data-base='rest']").unwrap();
    browser.click("[data-flame='diff']").unwrap();
    assert!(title().unwrap().contains("than in all others"));
    browser.picture(&pictures().join("difference.png")).unwrap();
    browser.click("[data-flame='chains']").unwrap();
    assert!(title().unwrap().contains("who held them up"));
    browser.click("[data-flame='stacks']").unwrap();

    // The slowest request's timeline adds up to its row.
    browser.click("#requests-table tbody tr").unwrap();
    check_timeline(&browser, &rows);
    browser.picture(&pictures().join("timeline.png")).unwrap();
    // The view is in the address.
    let hash = browser.text("return location.hash.slice(1)").unwrap();
    let before = ledger(&browser);
    browser.open(&outcome.path("report.html"), &hash).unwrap();
    assert_eq!(ledger(&browser), before);
    check_timeline(&browser, &rows);
    // Escape closes the timeline, then clears the selection; arrows and Enter do without a mouse.
    for wanted in ["request=", "box="] {
        assert!(
            browser
                .text("return location.hash")
                .unwrap()
                .contains(wanted)
        );
        browser.keys(&Browser::escape()).unwrap();
        assert!(
            !browser
                .text("return location.hash")
                .unwrap()
                .contains(wanted)
        );
    }
    assert_eq!(selected(&browser, "count"), count as f64);
    browser
        .script("document.querySelector('#heatmap-picture').focus()", &[])
        .unwrap();
    let keys = [Key::Right, Key::Down, Key::Down].map(char::from);
    browser.keys(&keys.iter().collect::<String>()).unwrap();
    assert!(
        browser
            .text("return location.hash")
            .unwrap()
            .contains("box=1.1.")
    );
    check_quiet(&browser);
    browser.close().unwrap();
}

/// The flame graph of the selection has the nanoseconds of its states: those off the CPU, those on it, and all.
fn check_flame(browser: &Browser, wanted: &BTreeMap<String, u64>) {
    let all: u64 = wanted.values().sum();
    let on_cpu = wanted["on CPU"];
    assert!(on_cpu > 0);
    let shown = |time: &str, most: u64| {
        let hash = browser.text("return location.hash").unwrap();
        assert!(hash.contains(&format!("time={time}")), "{hash}");
        let whole = browser
            .number("return Number(document.querySelector('#flame-words').dataset.ns)")
            .unwrap();
        assert_eq!(whole, most as f64, "{time}");
        let legend = sums(
            browser,
            "return [...document.querySelectorAll('#flame button.key')].map(
                 (key) => [key.dataset.state, Number(key.dataset.ns)])",
        );
        for (state, ns) in &legend {
            assert_eq!(wanted[state], *ns, "{time}: {state}");
        }
        legend
    };
    // `o` goes through them.
    let off = shown("off", all - on_cpu);
    assert!(off.len() > 2 && !off.contains_key("on CPU"), "{off:?}");
    browser.keys("o").unwrap();
    assert_eq!(shown("on", on_cpu).len(), 1);
    let words = browser
        .text("return document.querySelector('#flame-words').textContent")
        .unwrap();
    assert!(
        words.starts_with("On-CPU time") && words.contains(" samples."),
        "{words}"
    );
    browser.keys("o").unwrap();
    assert!(shown("all", all).contains_key("on CPU"));
    browser.click("[data-time='off']").unwrap();
    assert_eq!(shown("off", all - on_cpu), off);
}

/// The intervals of the timeline that is shown add up to the ledger of its row.
fn check_timeline(browser: &Browser, rows: &[Row]) {
    let hash = browser.text("return location.hash").unwrap();
    let id = hash
        .split('&')
        .find_map(|word| word.strip_prefix("request="))
        .unwrap();
    let row = rows
        .iter()
        .find(|row| row.id.to_string() == id)
        .unwrap_or_else(|| panic!("no row {id}"));
    let own = sums(
        browser,
        "const sums = {}; for (const part of document.querySelectorAll('#timeline-picture [data-lane=\"0\"]')) {
             sums[part.dataset.did] = (sums[part.dataset.did] ?? 0) + Number(part.dataset.ns); }
         return Object.entries(sums)",
    );
    let of = |did: &str| own.get(did).copied().unwrap_or(0);
    assert_eq!(of("0"), row.on_cpu_ns);
    assert_eq!(of("1"), row.run_queue_ns);
    assert_eq!(of("2"), row.preempted_ns);
    assert_eq!(of("3"), row.blocked_ns + row.unattributed_ns);
}

#[test]
fn who_holds_a_row_is_seen_in_three_clicks() {
    let server = MariaDb::open().unwrap();
    // Every five seconds.
    let outcome = traced(&server, 9, || {
        let hold = "begin; update sbtest1 set k = k + 1 where id between 4900 and 5100; \
                    do sleep(0.2); commit";
        for pause_ms in [2_000, 4_800] {
            thread::sleep(Duration::from_millis(pause_ms));
            let mut client = server.client(&format!("use sbtest; {hold}")).unwrap();
            assert!(client.status().unwrap().success());
        }
    });
    server.close().unwrap();
    outcome.checked().unwrap();
    check_held_twice(&outcome.rows().unwrap());
    let bless = std::env::var("REQTRACE_BLESS").is_ok_and(|value| value == "1");
    let folder = match bless {
        true => workspace::root().join("docs/look"),
        false => pictures(),
    };
    fs::create_dir_all(&folder).unwrap();
    let browser = Browser::start(Look::default()).unwrap();
    browser.open(&outcome.path("report.html"), "").unwrap();
    browser.resize(1180, 780).unwrap();
    // First click: the slowest. Second: a request that waited for a row. Third: who held it.
    browser.click("[data-preset='Slowest 1 %']").unwrap();
    browser.script("scrollTo(0, 0)", &[]).unwrap();
    browser.picture(&folder.join("1-slowest.png")).unwrap();
    browser
        .script("document.querySelector('#requests-all')?.click()", &[])
        .unwrap();
    let waits = browser
        .script(
            "const rows = [...document.querySelectorAll('#requests-table tbody tr')];
             const row = rows.find((row) => row.cells[2].textContent === 'row lock' && !row.cells[6].textContent.includes('5100'));
             row.id = 'waits'; return row.dataset.id",
            &[],
        )
        .unwrap();
    assert!(waits.is_string());
    browser.click("#waits").unwrap();
    browser
        .script("document.querySelector('#timeline').scrollIntoView()", &[])
        .unwrap();
    browser.picture(&folder.join("2-waits.png")).unwrap();
    // From where the holder gave the row back.
    let tip = browser
        .text(
            "const waits = [...document.querySelectorAll('#timeline-picture [data-lane=\"0\"][data-did=\"3\"]')];
             const longest = waits.reduce((one, two) => (Number(two.dataset.ns) > Number(one.dataset.ns) ? two : one));
             longest.dispatchEvent(new PointerEvent('pointermove', { clientX: 400, clientY: 200 }));
             const tip = document.querySelector('.tip').textContent;
             longest.dispatchEvent(new PointerEvent('pointerleave'));
             return tip",
        )
        .unwrap();
    let (_, woken) = tip
        .split_once("ended by thread ")
        .unwrap_or_else(|| panic!("{tip}"));
    assert!(
        woken.contains("which was in← ") && woken.contains("← pthread_cond_"),
        "{tip}"
    );
    let first = browser
        .text("return document.querySelector('#held-up li').textContent")
        .unwrap();
    assert!(
        first.contains("do sleep(0.2)") && first.contains("until the timer"),
        "{first}"
    );
    browser.click("#held-up li button").unwrap();
    let lead = browser
        .text("return document.querySelector('#timeline .statement').textContent")
        .unwrap();
    assert_eq!(lead, "do sleep(0.2)");
    browser
        .script("document.querySelector('#timeline').scrollIntoView()", &[])
        .unwrap();
    browser.picture(&folder.join("3-holder.png")).unwrap();
    check_machine(&browser, &outcome);
    check_quiet(&browser);
    browser.close().unwrap();
}

/// The card of the machine says who had CPUs and what disks did, as `summary.json` does.
fn check_machine(browser: &Browser, outcome: &Outcome) {
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let blame = summary["blame"].as_array().unwrap();
    let had = blame.iter().flat_map(|of| {
        let had_by = of["cpu"]["had_by"].as_array();
        had_by.into_iter().flatten().take(5)
    });
    let disks = blame.iter().map(|of| &of["disk"]["text"]);
    let disks = disks.filter(|text| text.is_string());
    let wanted: Vec<&str> = had
        .map(|by| &by["text"])
        .chain(disks)
        .map(|text| text.as_str().unwrap())
        .collect();
    // Two CPUs for a server and its clients, and a log that is flushed: there is something of both.
    assert!(wanted.len() >= 2, "{blame:#?}");
    let shown = browser
        .text("return document.querySelector('#machine').textContent")
        .unwrap();
    for text in wanted {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

/// Two requests held rows for 200 ms, five seconds apart, and others waited in each.
fn check_held_twice(rows: &[Row]) {
    let held: Vec<&Row> = rows
        .iter()
        .filter(|row| row.attributes["sql"] == "do sleep(0.2)")
        .collect();
    let [first, second] = held[..] else {
        panic!("{held:?}");
    };
    let apart = second.start_unix_ns - first.start_unix_ns;
    assert!((5_000_000_000..7_000_000_000).contains(&apart), "{apart}");
    for held in [first, second] {
        let end = held.start_unix_ns + held.latency_ns;
        let waited = rows.iter().any(|row| {
            let is_then = row.start_unix_ns < end && row.start_unix_ns + row.latency_ns > end;
            is_then && row.classes["row_lock"] > 10_000_000
        });
        assert!(waited, "nobody waited at {}", held.start_unix_ns);
    }
}

#[test]
fn names_of_strangers_are_only_text() {
    let server = MariaDb::open().unwrap();
    let hostile = "select '</script><script>window.owned=1</script>\"<img src=x onerror=window.owned=1>\u{1b}[2J', sleep(0.05)";
    let trace = Trace::start(Path::new("mysql"), server.pid(), &["--blame", "--labels"]).unwrap();
    for _ in 0..3 {
        server.sql(hostile).unwrap();
    }
    let outcome = trace.finish().unwrap();
    server.close().unwrap();
    outcome.checked().unwrap();
    let text = fs::read_to_string(outcome.path("report.html")).unwrap();
    assert!(!text.contains("window.owned"));
    assert!(text.contains("default-src 'none'"));
    let browser = Browser::start(Look { dark: true }).unwrap();
    browser.open(&outcome.path("report.html"), "").unwrap();
    browser.click("#requests-table tbody tr").unwrap();
    let shown = browser
        .text("return document.querySelector('#timeline .statement').textContent")
        .unwrap();
    assert!(shown.contains("</script><script>window.owned=1"), "{shown}");
    assert!(shown.contains("\\u{1b}[2J"), "{shown}");
    let owned = browser.script("return window.owned ?? 'no'", &[]).unwrap();
    assert_eq!(owned, json!("no"));
    browser.picture(&pictures().join("dark.png")).unwrap();
    check_quiet(&browser);
    browser.close().unwrap();
}

#[test]
fn a_recording_without_blame_says_what_its_page_lacks() {
    let recording = workspace::root().join("reqtrace/tests/data/shop.rec");
    let folder = workspace::scratch().unwrap();
    let page = folder.path().join("shop.html");
    let arguments = [
        "report".into(),
        recording.into_os_string(),
        "-q".into(),
        "--html".into(),
        page.clone().into_os_string(),
    ];
    let outcome = reqtrace::run(reqtrace::command(arguments).unwrap()).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let browser = Browser::start(Look::default()).unwrap();
    browser.open(&page, "").unwrap();
    let note = browser
        .text("return document.querySelector('.note').textContent")
        .unwrap();
    assert!(note.contains("no intervals"), "{note}");
    assert!(selected(&browser, "count") > 0.0);
    // Nor has it on-CPU stacks, whatever the address asks for.
    browser.open(&page, "time=all").unwrap();
    browser.keys("o").unwrap();
    let hint = browser
        .text("return document.querySelector('#flame .controls').textContent")
        .unwrap();
    assert!(hint.contains("the trace took no samples"), "{hint}");
    let words = browser
        .text("return document.querySelector('#flame-words').textContent")
        .unwrap();
    assert!(words.starts_with("Off-CPU time"), "{words}");
    // One without any request has a page, too: there were none in the first nanosecond.
    let arguments = [
        "report".into(),
        workspace::root()
            .join("reqtrace/tests/data/shop.rec")
            .into_os_string(),
        "-q".into(),
        "--to".into(),
        "1ns".into(),
        "--html".into(),
        page.clone().into_os_string(),
    ];
    let outcome = reqtrace::run(reqtrace::command(arguments).unwrap()).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    browser.open(&page, "").unwrap();
    assert_eq!(selected(&browser, "count"), 0.0);
    browser.click("[data-preset='Slowest 1 %']").unwrap();
    let empty = browser
        .text("return document.querySelector('#where .empty').textContent")
        .unwrap();
    assert_eq!(empty, "No request is selected.");
    check_quiet(&browser);
    // That nothing was complained of means something: an error is heard, and a host is refused.
    let wrong = "setTimeout(() => { throw new Error('heard') }); new Image().src = 'http://127.0.0.1:9/'; return 1";
    browser.script(wrong, &[]).unwrap();
    for word in ["heard", "Content Security Policy"] {
        until(Duration::from_secs(10), word, || {
            let heard = browser.complaints();
            Ok(heard.iter().any(|line| line.contains(word)).then_some(()))
        })
        .unwrap();
    }
    browser.close().unwrap();
}
