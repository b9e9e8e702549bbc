//! The page of `reqtrace diff` in a browser: what it shows is what the JSON says.
//!
//! Needs chromium and chromium-driver. A picture is written to `target/tmp/page`.

use std::fs;

use reqtrace_tests::{reqtrace, workspace};
use serde_json::Value;

use crate::browser::{Browser, Look};

/// What the rows of a table have in an attribute.
fn attributes(browser: &Browser, rows: &str, name: &str) -> Vec<String> {
    let script = format!(
        "return [...document.querySelectorAll('{rows}')].map((row) => row.dataset.{name} ?? row.textContent)"
    );
    let Value::Array(values) = browser.script(&script, &[]).unwrap() else {
        panic!("{script}")
    };
    values
        .iter()
        .map(|value| value.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_page_of_a_comparison_shows_what_its_json_says() {
    let scratch = workspace::scratch().unwrap();
    let [page, json] = ["diff.html", "diff.json"].map(|name| scratch.path().join(name));
    let recording = workspace::root().join("reqtrace/tests/data/shop.rec");
    let mut command = reqtrace::command([
        "diff",
        "-q",
        "--from",
        "..70ms",
        "--against",
        "70ms..",
        "--all",
    ])
    .unwrap();
    command
        .arg(recording)
        .arg("--html")
        .arg(&page)
        .arg("--json")
        .arg(&json);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let json: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();

    let browser = Browser::start(Look::default()).unwrap();
    browser.open(&page, "").unwrap();
    let types = json["types"].as_array().unwrap();
    assert!(!types.is_empty());
    for (at, of) in types.iter().enumerate() {
        browser
            .script(
                &format!("document.querySelectorAll('[data-type]')[{at}].click()"),
                &[],
            )
            .unwrap();
        // Bars are those of the JSON, in its order, and add up.
        let waterfalls = [
            &of["parts"],
            &of["causes"],
            &of["tail"]["parts"],
            &of["tail"]["causes"],
        ];
        for (fall, waterfall) in waterfalls
            .into_iter()
            .enumerate()
            .filter(|(_, waterfall)| waterfall.is_object())
        {
            let rows = format!("[data-fall=\"{fall}\"] tbody tr");
            let names = attributes(&browser, &rows, "name");
            let bars = waterfall["bars"].as_array().unwrap();
            let wanted: Vec<&str> = bars
                .iter()
                .map(|bar| bar["name"].as_str().unwrap())
                .collect();
            assert_eq!(names, wanted, "{}: {fall}", of["name"]);
            let changes = attributes(&browser, &rows, "change");
            let sum: i64 = changes.iter().map(|ns| ns.parse::<i64>().unwrap()).sum();
            assert_eq!(sum, waterfall["change_ns"].as_i64().unwrap());
        }
        let measures = attributes(&browser, "#metrics tbody tr", "measure");
        assert_eq!(measures.len(), of["metrics"].as_array().unwrap().len());
    }
    // Both heatmaps are drawn.
    let is_drawn = |id: &str| {
        let script = format!(
            "const canvas = document.querySelector('{id}'); const {{data}} = \
             canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); \
             return new Set(new Uint32Array(data.buffer)).size"
        );
        browser.number(&script).unwrap() > 3.0
    };
    assert!(is_drawn("#heat-A") && is_drawn("#heat-B") && is_drawn("#flame-picture"));
    // What is gone is a picture of its own; a search marks frames.
    let frames = || {
        browser
            .number("return Number(document.querySelector('#flame-picture').dataset.frames)")
            .unwrap()
    };
    let search = |id: &str, text: &str| {
        let script = format!(
            "const field = document.querySelector('{id}'); field.value = {}; field.dispatchEvent(new Event('input'))",
            serde_json::json!(text)
        );
        browser.script(&script, &[]).unwrap();
    };
    assert!(frames() > 5.0);
    search("#flame-search", "sleep");
    assert!(
        browser
            .number("return Number(document.querySelector('#flame-picture').dataset.found)")
            .unwrap()
            >= 1.0
    );
    let gone = "document.querySelector('[data-flame=gone]').click(); \
                const {a, b} = document.querySelector('#flame-words').dataset; return [Number(a), Number(b)]";
    let gone = browser.script(gone, &[]).unwrap();
    assert_eq!(gone[1], 0);
    // Tables sort by a click on a heading, and keep what a search matches.
    let stacks = || attributes(&browser, "#stacks tbody td:last-child", "none");
    let all = stacks();
    assert!(all.len() > 1, "{all:?}");
    let sort = "document.querySelector('#stacks thead th:last-child button').click()";
    browser.script(sort, &[]).unwrap();
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(stacks(), sorted);
    browser.script(sort, &[]).unwrap();
    sorted.reverse();
    assert_eq!(stacks(), sorted);
    let word = &all[0];
    search("input[aria-label=\"Search stacks\"]", word);
    assert!(stacks().iter().all(|name| name.contains(word.as_str())) && !stacks().is_empty());
    // Nothing was asked of anybody, and nothing went wrong.
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let asked = browser
        .number("return performance.getEntriesByType('resource').length")
        .unwrap();
    assert!(asked == 0.0);
}
