//! Two selections of one trace against each other, in `report.html`: what it shows is what `reqtrace diff` says of the same.
//!
//! The recordings are made up, so that it is known what changed in them and what did not. Needs chromium and chromium-driver,
//! and no root. Pictures are written to `target/tmp/page`.

use std::fs;
use std::path::PathBuf;

use reqtrace_tests::{reqtrace, workspace};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::{Browser, Look};
use crate::made_up::{Service, TYPES};
use crate::page::pictures;

const SECOND_NS: u64 = 1_000_000_000;
/// The page of a service, and its recording.
fn page(service: Service) -> (TempDir, PathBuf, PathBuf) {
    let folder = workspace::scratch().unwrap();
    let [recording, page] = ["made-up.rec", "made-up.html"].map(|name| folder.path().join(name));
    service.record(&recording);
    let mut command = reqtrace::command(["report", "-q", "--html"]).unwrap();
    command.arg(&page).arg(&recording);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    (folder, page, recording)
}

/// A row of a waterfall.
#[derive(Clone, Debug, PartialEq)]
struct Bar {
    name: String,
    /// Of A, of B, and the change, as they are shown.
    shown: [f64; 3],
    change_ns: i64,
    mark: String,
    interval: Vec<f64>,
}

fn bars(browser: &Browser, rows: &str) -> Vec<Bar> {
    let script = format!(
        "return [...document.querySelectorAll('{rows}')].map((row) => [row.dataset.name, row.dataset.change, row.dataset.mark ?? '',
             row.dataset.interval ?? '', ...[1, 2, 3].map((at) => row.cells[at].textContent.replace('−', '-'))])"
    );
    let rows = browser.script(&script, &[]).unwrap();
    let bar = |row: &Value| {
        let text = |at: usize| row[at].as_str().unwrap();
        Bar {
            name: text(0).to_owned(),
            change_ns: text(1).parse().unwrap(),
            mark: text(2).to_owned(),
            interval: text(3)
                .split_whitespace()
                .map(|end| end.parse().unwrap())
                .collect(),
            shown: [4, 5, 6].map(|at| text(at).parse().unwrap()),
        }
    };
    rows.as_array().unwrap().iter().map(bar).collect()
}

/// All bars of a waterfall, those of noise one by one. Whether they are together or not, they add up, in nanoseconds and as
/// they are shown.
fn fall(browser: &Browser, which: u32) -> Vec<Bar> {
    let place = format!("[data-fall=\"{which}\"]");
    let closes = || {
        let bars = bars(browser, &format!("{place} tbody tr"));
        let all = self::bars(browser, &format!("{place} tfoot tr")).remove(0);
        assert!(!bars.is_empty());
        assert_eq!(
            bars.iter().map(|bar| bar.change_ns).sum::<i64>(),
            all.change_ns
        );
        for column in 0..3 {
            let sum: f64 = bars.iter().map(|bar| bar.shown[column]).sum();
            assert!((sum - all.shown[column]).abs() < 1e-6, "{bars:?} {all:?}");
        }
        bars
    };
    let before = closes();
    let script = format!(
        "const button = document.querySelector('{place} [data-noise][aria-expanded=false]'); button?.click(); return !!button"
    );
    let had_noise = browser.script(&script, &[]).unwrap();
    let bars = closes();
    assert_eq!(had_noise == json!(true), bars.len() > before.len());
    bars
}

/// Selects seconds, by a drag along the axis of time. The trace has columns of one second.
fn range(browser: &Browser, seconds: u64, from: u64, to: u64) {
    let place = browser
        .script(
            "scrollTo(0, 0); const box = document.querySelector('#heatmap-picture').getBoundingClientRect();
             return [box.x + 64, box.width - 64, box.bottom - 8]",
            &[],
        )
        .unwrap();
    let of = |which: usize| place[which].as_f64().unwrap();
    let at = |second: u64| {
        let x = of(0) + of(1) * (second as f64 + 0.5) / seconds as f64;
        (x as i64, of(2) as i64)
    };
    browser.drag(at(from), at(to - 1)).unwrap();
    for (name, second) in [("from", from), ("to", to)] {
        let script = format!("return Number(document.querySelector('#selection').dataset.{name})");
        assert_eq!(
            browser.number(&script).unwrap(),
            (second * SECOND_NS) as f64
        );
    }
}

/// Looks at what an address says.
fn look(browser: &Browser, hash: &str) {
    let script = "history.replaceState(null, '', `#${arguments[0]}`); dispatchEvent(new Event('hashchange'))";
    browser.script(script, &[json!(hash)]).unwrap();
}

fn hash(browser: &Browser) -> String {
    browser.text("return location.hash.slice(1)").unwrap()
}

fn text(browser: &Browser, id: &str) -> String {
    browser
        .text(&format!(
            "return document.querySelector('{id}')?.textContent ?? ''"
        ))
        .unwrap()
}

/// Pixels of the heatmap in the colour of A's outline.
fn outlined(browser: &Browser) -> f64 {
    let script = "const canvas = document.querySelector('#heatmap-picture');
         const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});
         copy.drawImage(canvas, 0, 0);
         const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
         const [r, g, b] = getComputedStyle(document.documentElement).getPropertyValue('--kept').trim().match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16));
         let count = 0;
         for (let at = 0; at < data.length; at += 4) { count += Number(data[at] === r && data[at + 1] === g && data[at + 2] === b); }
         return count";
    browser.number(script).unwrap()
}

/// The bars of a waterfall of the JSON.
fn wanted(waterfall: &Value) -> Vec<(String, i64, [f64; 2], bool)> {
    let bars = waterfall["bars"].as_array().unwrap().iter();
    bars.map(|bar| {
        let end = |at: usize| bar["estimate"]["interval"][at].as_f64().unwrap();
        (
            bar["name"].as_str().unwrap().to_owned(),
            bar["change_ns"].as_i64().unwrap(),
            [end(0), end(1)],
            bar["estimate"]["is_clear"].as_bool().unwrap(),
        )
    })
    .collect()
}

#[test]
fn two_ranges_of_a_trace_are_compared_as_by_diff() {
    let service = Service {
        seconds: 160,
        seed: 1,
        slower: (120, 1.3),
    };
    let (folder, page, recording) = page(service);
    let browser = Browser::start(Look::default()).unwrap();
    browser.resize(1400, 900).unwrap();
    browser.open(&page, "type=0").unwrap();
    assert_eq!(outlined(&browser), 0.0);

    range(&browser, service.seconds, 80, 120);
    browser.click("#keep").unwrap();
    assert!(text(&browser, "#kept").contains("Now select other requests"));
    range(&browser, service.seconds, 120, 160);
    assert!(outlined(&browser) > 50.0);
    browser.picture(&pictures().join("sides.png")).unwrap();

    // The same of the same recording by another program.
    let json = folder.path().join("diff.json");
    let mut command = reqtrace::command([
        "diff",
        "-q",
        "--from",
        "80s..120s",
        "--against",
        "120s..160s",
        "--select",
        "type=command",
        "--all",
        "--json",
    ])
    .unwrap();
    command.arg(&json).arg(&recording);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let json: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let of = json["types"]
        .as_array()
        .unwrap()
        .iter()
        .find(|of| of["name"] == TYPES[0])
        .unwrap();
    for (which, name, slower) in [(0, "parts", "network"), (1, "causes", "blocked: network")] {
        let bars = fall(&browser, which);
        let mut shown: Vec<(String, i64)> = bars
            .iter()
            .map(|bar| (bar.name.clone(), bar.change_ns))
            .collect();
        let wanted = wanted(&of[name]);
        let mut asked: Vec<(String, i64)> =
            wanted.iter().map(|bar| (bar.0.clone(), bar.1)).collect();
        shown.sort();
        asked.sort();
        assert_eq!(shown, asked);
        for (name, _, [low, high], is_clear) in &wanted {
            let bar = bars.iter().find(|bar| bar.name == *name).unwrap();
            // Of 1,000 draws an end has a standard deviation of 2 % of the interval's length: 10 % are five of one side's.
            let near = (high - low) * 0.1;
            let apart = [bar.interval[0] - low, bar.interval[1] - high];
            println!("{name}: {:?} against {:?}", bar.interval, [low, high]);
            assert!(
                apart.iter().all(|apart| apart.abs() <= near),
                "{name}: {bar:?} {low} {high}"
            );
            assert_eq!(bar.mark.is_empty(), *is_clear, "{name}");
        }
        // What got slower is on top, and nothing else did.
        assert_eq!(bars[0].name, slower);
        assert!(
            bars[0].mark.is_empty() && bars[0].change_ns > 150_000,
            "{bars:?}"
        );
        assert!(bars[1..].iter().all(|bar| bar.mark == "~"), "{bars:?}");
    }
    let change = browser.script("const {mark, interval} = document.querySelector('#change').dataset; return [mark, interval]", &[]).unwrap();
    assert_eq!(change[0], "");
    // Tables of holders and statements have changes, too.
    let first = text(&browser, "#held-changes tbody tr");
    assert!(
        first.starts_with('+') && first.contains("network"),
        "{first}"
    );
    assert_eq!(
        browser
            .number("return document.querySelectorAll('#statements-changes tbody tr').length")
            .unwrap(),
        3.0
    );
    // A difference of flame graphs is that to A.
    browser.click("[data-flame='diff']").unwrap();
    assert!(text(&browser, "#flame-words").contains("than in A:"));

    // It takes a tenth of a second on a calm machine; others may have the CPUs.
    let script = "const times = []; for (const type of ['1', '0', '1', '0']) {
             const start = performance.now(); document.querySelector(`[data-type='${type}']`).click(); times.push(performance.now() - start); }
         return Math.max(...times)";
    let address = hash(&browser);
    let worst_ms = browser.number(script).unwrap();
    println!("a comparison takes {worst_ms:.0} ms at most");
    assert!(worst_ms <= 500.0, "{worst_ms} ms");
    look(&browser, &address);

    // Both are in the address.
    let (before, address) = (fall(&browser, 0), hash(&browser));
    browser.open(&page, &address).unwrap();
    assert_eq!(fall(&browser, 0), before);
    assert!(outlined(&browser) > 50.0);
    // One that makes no sense is left out.
    look(&browser, "type=0&vs=kept&a=0.90.3.0.1");
    assert_eq!(outlined(&browser), 0.0);
    assert!(!hash(&browser).contains("a=") && hash(&browser).contains("vs=typical"));
    assert_eq!(text(&browser, "#change"), "");
    look(&browser, &address);

    // Escape clears the selection, then drops A.
    for (gone, stays) in [("box=", "a="), ("a=", "type=")] {
        browser.keys(&Browser::escape()).unwrap();
        let hash = hash(&browser);
        assert!(!hash.contains(gone) && hash.contains(stays), "{hash}");
    }
    assert_eq!(outlined(&browser), 0.0);
    assert!(hash(&browser).contains("vs=typical"));
    // So does its button.
    browser.click("#keep").unwrap();
    assert!(hash(&browser).contains("vs=kept"));
    browser.click("#drop").unwrap();
    assert!(hash(&browser).contains("vs=typical"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
    browser.close().unwrap();
}

#[test]
fn ranges_that_are_alike_differ_by_noise() {
    let service = Service {
        seconds: 240,
        seed: 2,
        slower: (240, 1.0),
    };
    let (_folder, page, _) = page(service);
    let browser = Browser::start(Look::default()).unwrap();
    browser.open(&page, "type=0").unwrap();
    range(&browser, service.seconds, 0, 30);
    let address = hash(&browser);
    let (_, latencies) = address.split_once("box=0.29.").unwrap();
    let latencies = latencies.split('&').next().unwrap();
    let (mut marked, mut rows) = (0, 0);
    let side = |at: u64| format!("{}.{}.{latencies}", at * 30, at * 30 + 29);
    for (a, b) in (0..8).flat_map(|a| (0..a).map(move |b| (b, a))) {
        look(
            &browser,
            &format!("type=0&vs=kept&a=0.{}&box={}", side(a), side(b)),
        );
        for which in [0, 1] {
            let bars = fall(&browser, which);
            rows += bars.len();
            marked += bars.iter().filter(|bar| bar.mark != "~").count();
        }
    }
    println!("{marked} of {rows} rows marked, of ranges that are alike");
    assert!(rows > 150 && marked * 20 <= rows, "{marked} of {rows}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    browser.close().unwrap();
}

#[test]
fn what_cannot_be_told_has_a_question_mark_and_what_is_at_one_time_is_drawn_together() {
    let service = Service {
        seconds: 160,
        seed: 3,
        slower: (160, 1.0),
    };
    let (_folder, page, _) = page(service);
    let browser = Browser::start(Look { dark: true }).unwrap();
    browser.open(&page, "type=0").unwrap();
    // Ten seconds say nothing of noise; A has enough.
    browser.click("#keep").unwrap();
    range(&browser, service.seconds, 5, 15);
    let bars = fall(&browser, 0);
    assert!(
        bars.iter()
            .all(|bar| bar.mark == "?" && bar.interval.is_empty()),
        "{bars:?}"
    );
    let noise = text(&browser, "#noise");
    assert_eq!(
        noise,
        "Whether a change is noise cannot be told: B has requests in 10 stretches of 1 s, and 30 are needed."
    );
    // Types are compared in the same seconds: a batch writes more.
    browser.keys(&Browser::escape()).unwrap();
    browser.click("[data-type='1']").unwrap();
    let bars = fall(&browser, 0);
    let mark = |name: &str| {
        bars.iter()
            .find(|bar| bar.name == name)
            .unwrap()
            .mark
            .clone()
    };
    assert_eq!(
        (
            bars[0].name.as_str(),
            mark("disk").as_str(),
            mark("network").as_str()
        ),
        ("disk", "", "~"),
        "{bars:?}"
    );
    assert!(text(&browser, "#noise").contains("of both sides together"));
    // The moods of seconds are the same for both: drawn by itself each side would make it 45 µs long.
    let network = bars.iter().find(|bar| bar.name == "network").unwrap();
    let length_ns = network.interval[1] - network.interval[0];
    println!("drawn together: {length_ns:.0} ns");
    assert!(length_ns < 27_000.0, "{network:?}");
    browser.picture(&pictures().join("sides-dark.png")).unwrap();
    // A narrow window has room for all of it.
    browser.resize(500, 900).unwrap();
    let beyond = "return document.documentElement.scrollWidth - innerWidth";
    assert!(browser.number(beyond).unwrap() <= 0.0);
    // The other comparisons have the same marks.
    for base in ["typical", "rest"] {
        browser.click(&format!("[data-base='{base}']")).unwrap();
        browser.click("[data-preset='Slowest 1 %']").unwrap();
        let mark = browser
            .text("return document.querySelector('#ledger-table tbody tr .mark').textContent")
            .unwrap();
        let noise = text(&browser, "#noise");
        println!("{base}: {mark} {noise}");
        assert_eq!(
            mark == "?",
            noise.contains("cannot be told"),
            "{base}: {mark}, {noise}"
        );
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    browser.close().unwrap();
}
