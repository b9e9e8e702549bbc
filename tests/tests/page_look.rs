//! How `report.html` looks, by a recording that is kept: colours, times of day, who held whom up, no scroll bar within.
//!
//! Needs chromium and chromium-driver.

use std::fs;
use std::path::PathBuf;

use crate::browser::{Browser, Look};
use crate::page::pictures;
use reqtrace_tests::{reqtrace, workspace};
use serde_json::json;
use tempfile::TempDir;

/// The page of a recording of eight request types, with blame; `cut` bytes of its end are missing.
fn page(cut: usize) -> (TempDir, PathBuf) {
    let folder = workspace::scratch().unwrap();
    let bytes = fs::read(workspace::root().join("reqtrace/tests/data/locks.rec")).unwrap();
    let (recording, page) = (
        folder.path().join("one.rec"),
        folder.path().join("one.html"),
    );
    fs::write(&recording, &bytes[..bytes.len() - cut]).unwrap();
    let mut command = reqtrace::command(["report", "-q", "--html"]).unwrap();
    command.arg(&page).arg(&recording);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    (folder, page)
}

fn text(browser: &Browser, place: &str) -> String {
    let script = format!("return document.querySelector(\"{place}\").textContent");
    browser.text(&script).unwrap()
}

/// How many pixels across the second row of the flame graph, the one below `all`, are grey.
fn grey(browser: &Browser) -> f64 {
    let script = "const canvas = document.querySelector('#flame-picture');
         const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
         copy.drawImage(canvas, 0, 0);
         const { data } = copy.getImageData(0, 20, canvas.width, 1);
         let count = 0;
         for (let at = 0; at < data.length; at += 4) {
             const [r, g, b, seen] = data.subarray(at, at + 4);
             count += Number(seen > 0 && Math.max(r, g, b) - Math.min(r, g, b) < 12); }
         return count / canvas.width";
    browser.number(script).unwrap()
}

/// Elements that scroll by themselves, or stand out of the page.
fn scrolled(browser: &Browser) -> serde_json::Value {
    let script = "return [...document.querySelectorAll('#page *')].filter((node) => {
             const { overflowX, overflowY } = getComputedStyle(node);
             const can = (way) => way === 'auto' || way === 'scroll';
             return (can(overflowY) && node.scrollHeight > node.clientHeight + 1) || (can(overflowX) && node.scrollWidth > node.clientWidth + 1);
         }).map((node) => node.outerHTML.slice(0, 60)).concat(document.documentElement.scrollWidth > innerWidth ? ['page'] : [])";
    browser.script(script, &[]).unwrap()
}

#[test]
fn the_page_is_finished_when_it_is_loaded() {
    let (_folder, page) = page(0);
    let browser = Browser::start(Look::default()).unwrap();
    browser.open(&page, "").unwrap();
    // What `--screenshot` and `--dump-dom` of a headless browser wait for.
    let script = "const [{ loadEventStart }] = performance.getEntriesByType('navigation');
         return loadEventStart - performance.getEntriesByName('shown')[0].startTime";
    let after_ms = browser.number(script).unwrap();
    assert!(after_ms >= 0.0, "{after_ms}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    browser.close().unwrap();
}

#[test]
fn causes_have_colours_and_culprits_their_threads() {
    let (_folder, page) = page(0);
    for (look, width) in [(Look::default(), 1400), (Look { dark: true }, 900)] {
        let browser = Browser::start(look).unwrap();
        browser.resize(width, 900).unwrap();
        browser.open(&page, "").unwrap();
        assert_eq!(scrolled(&browser), json!([]), "{width}");
        // Several types have no mean together; one has.
        let head = "#ledger-table thead th";
        assert_eq!(text(&browser, head), "share of the time of all types");
        let share = text(&browser, "#ledger-table tbody .strong");
        assert!(share.ends_with(" %"), "{share}");
        // Times of day.
        let row = text(&browser, "#requests-table tbody tr");
        assert!(row.contains("03:26:03.376"), "{row}");
        // Who, with thread and program, and when.
        let held = text(&browser, "#held-table tbody tr");
        for words in ["on CPU", "thread c-caster", "10057 of locks"] {
            assert!(held.contains(words), "{held}");
        }
        let lane = text(&browser, "#holds text");
        assert!(
            lane.starts_with("Held up by thread c-caster (on CPU), "),
            "{lane}"
        );
        let marks = "return document.querySelectorAll('#holds .hold').length";
        assert!(browser.number(marks).unwrap() >= 2.0);
        // Colours from the outermost frame on, which stands for those above it.
        assert!(grey(&browser) < 0.01, "{}", grey(&browser));
        let tip = browser
            .text(
                "const canvas = document.querySelector('#flame-picture');
                 canvas.scrollIntoView();
                 const { left, top, width } = canvas.getBoundingClientRect();
                 canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: left + width / 2, clientY: top + 27 }));
                 return document.querySelector('.tip').textContent",
            )
            .unwrap();
        assert!(
            tip.contains("it stands for ") && tip.contains("% lock"),
            "{tip}"
        );
        browser
            .picture(&pictures().join(format!("look-{width}.png")))
            .unwrap();
        browser.click("[data-flame='chains']").unwrap();
        let legend = text(&browser, "#flame .legend");
        assert!(legend.contains("on CPU 46.8 %"), "{legend}");
        assert!(grey(&browser) < 0.2, "{}", grey(&browser));
        browser.script("scrollTo(0, 0)", &[]).unwrap();
        browser.click("[data-type='1']").unwrap();
        assert_eq!(text(&browser, head), "mean per request");
        assert_eq!(browser.complaints(), Vec::<String>::new());
        browser.close().unwrap();
    }
}

#[test]
fn losses_are_sentences() {
    let (_folder, page) = page(100);
    let browser = Browser::start(Look::default()).unwrap();
    browser.open(&page, "").unwrap();
    let losses = text(&browser, "#losses");
    assert!(losses.starts_with("Not all was kept: "), "{losses}");
    assert!(
        losses.contains("bytes at the end of the recording") && !losses.contains('_'),
        "{losses}"
    );
    // Of its own text a list shows a dozen, and all when it is asked.
    browser.click("#requests-all").unwrap();
    let hidden = "return document.querySelectorAll('#requests-table tr[hidden]').length";
    assert_eq!(browser.number(hidden).unwrap(), 0.0);
    browser.close().unwrap();
}
