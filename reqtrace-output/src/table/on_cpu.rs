//! What requests did on their CPUs: samples in, the hottest functions out.

use super::page::Page;
use reqtrace_analysis::report::Report;
use reqtrace_base::figures::{cut, number, share};
use reqtrace_base::names::{clean, plain};

/// Lines; summary.json has more.
const FUNCTIONS: usize = 3;
/// Types that compute less than this share of their latency have none, percent.
const LEAST: u64 = 1;
/// Columns before the callers.
const BEFORE_CALLERS: usize = 52;
/// Widest name.
const NAME: usize = 25;

/// The functions of the request type with this index that ran most.
pub(super) fn draw(page: &mut Page, report: &Report, index: usize) {
    let (Some(on_cpu), Some(request)) = (&report.on_cpu, report.requests.get(index)) else {
        return;
    };
    let Some(of_type) = on_cpu.types.get(index) else {
        return;
    };
    let all_ns = request.ledger.latency_ns;
    let hottest: Vec<_> = of_type.hottest.iter().take(FUNCTIONS).collect();
    let is_little = request.ledger.on_cpu_ns < all_ns / 100 * LEAST;
    if hottest.is_empty() || is_little || page.is_narrow() {
        return;
    }
    page.line(&format!(
        "  {:<27} {:>7} {:>11}  {} Hz, {}",
        "hottest on CPU", "share", "samples", on_cpu.rate_hz, on_cpu.engine
    ));
    for hot in hottest {
        let callers: String = hot
            .callers
            .iter()
            .map(|name| format!("← {} ", clean(name)))
            .collect();
        let line = format!(
            "     {:<24} {:>7} {:>11}  {}",
            cut(&clean(&plain(&hot.name)), NAME - 1),
            share(hot.ns, all_ns),
            number(hot.samples),
            cut(callers.trim_end(), page.width - BEFORE_CALLERS),
        );
        page.line(line.trim_end());
    }
}
