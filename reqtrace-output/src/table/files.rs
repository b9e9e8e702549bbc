//! Files that requests were blocked on: sums in, lines out.

use super::page::Page;
use reqtrace_analysis::report::TypeReport;
use reqtrace_base::figures::{cut, duration, number, share, size};
use reqtrace_base::names::clean;

/// Lines; summary.json has more.
const FILES: usize = 5;
/// A file below this share of the latency is not drawn, percent.
const LEAST: u64 = 1;
/// Columns of a line beside the path.
const BESIDE: usize = 70;

pub(super) fn draw(page: &mut Page, request: &TypeReport) {
    let all_ns = request.ledger.latency_ns;
    let is_much = |ns: u64| ns > 0 && ns >= all_ns / 100 * LEAST;
    let files = request.files.iter().filter(|file| is_much(file.ns));
    let files: Vec<_> = files.take(FILES).collect();
    if files.is_empty() || page.is_narrow() {
        return;
    }
    let width = page.width - BESIDE;
    page.line(&format!(
        "  {:<width$} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "files", "share", "blocks", "mean", "longest", "run queue", "asked for"
    ));
    let known = |of: Option<String>| of.unwrap_or_else(|| "?".to_owned());
    for file in files {
        let mean = |blocks: u64| duration(file.ns.checked_div(blocks).unwrap_or(0));
        let path = match file.path.as_str() {
            "" => "all others".to_owned(),
            path => end(&clean(path), width - 3),
        };
        page.line(&format!(
            "     {path:<rest$} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            share(file.ns, all_ns),
            known(file.blocks.map(number)),
            known(file.blocks.map(mean)),
            known(file.longest_ns.map(duration)),
            known(file.longest_run_queue_ns.map(duration)),
            match file.bytes {
                0 => "-".to_owned(),
                bytes => size(bytes),
            },
            rest = width - 3,
        ));
    }
}

/// The end of a path says more than its beginning.
fn end(path: &str, width: usize) -> String {
    let length = path.chars().count();
    if length <= width {
        return path.to_owned();
    }
    let rest: String = path.chars().skip(length - width + 1).collect();
    cut(&format!("…{rest}"), width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_analysis::report::{FileLine, Ledger};

    #[test]
    fn long_paths_keep_their_end_and_small_files_are_left_out() {
        let file = |path: &str, ns| FileLine {
            path: path.to_owned(),
            blocks: Some(2),
            ns,
            run_queue_ns: Some(2 * ns),
            longest_ns: Some(ns),
            longest_run_queue_ns: (ns != 20_000).then_some(66_000_000),
            bytes: 3 << 20,
        };
        let request = TypeReport {
            ledger: Ledger {
                latency_ns: 1_000_000,
                ..Ledger::default()
            },
            files: vec![
                file(&format!("/{}/ib_logfile0", "deep/".repeat(30)), 500_000),
                file("", 20_000),
                file("/tmp/little", 9_999),
            ],
            ..TypeReport::default()
        };
        let mut page = Page::new(100);
        draw(&mut page, &request);
        assert!(page.text.contains("/deep//ib_logfile0 "), "{}", page.text);
        assert!(page.text.contains("50.0 %") && page.text.contains("all others"));
        assert!(page.text.contains("3.00 MiB"), "{}", page.text);
        assert!(!page.text.contains("little"));
        let line = |of: &str| page.text.lines().find(|line| line.contains(of));
        assert!(line("ib_logfile0").is_some_and(|line| line.contains("500 µs    66.0 ms")));
        assert!(line("all others").is_some_and(|line| line.contains("20.0 µs          ?")));
        assert!(page.text.lines().all(|line| line.chars().count() <= 100));
        // Of requests' records there is time alone.
        let request = TypeReport {
            files: vec![FileLine {
                blocks: None,
                run_queue_ns: None,
                longest_ns: None,
                longest_run_queue_ns: None,
                bytes: 0,
                ..file("/data/a", 500_000)
            }],
            ..request
        };
        let mut page = Page::new(100);
        draw(&mut page, &request);
        let fields = "50.0 % ? ? ? ? -";
        let line = page.text.lines().nth(1).unwrap_or_default();
        let line: Vec<&str> = line.split_whitespace().collect();
        assert!(line.join(" ").ends_with(fields), "{}", page.text);
    }
}
