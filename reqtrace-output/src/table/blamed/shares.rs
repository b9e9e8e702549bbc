//! Lines of who or what had how much of a time: names and numbers in, columns out.

use reqtrace_base::figures::{cut, duration, number, share};

use super::super::page::Page;

/// Columns of a line before its numbers.
pub(super) const WHO: usize = 62;
/// The same where lines are short.
const WHO_NARROW: usize = 46;

/// The lines of one table.
pub(super) struct Shares<'a> {
    page: &'a mut Page,
    all_ns: u64,
}

impl<'a> Shares<'a> {
    /// Of a time of so long.
    pub(super) fn new(page: &'a mut Page, all_ns: u64) -> Self {
        Self { page, all_ns }
    }

    /// What they are about.
    pub(super) fn head(&mut self, title: &str, of: &str) {
        self.columns("", ["", "", ""]);
        self.columns(title, [of, "requests", "longest"]);
    }

    /// What one had, of how many requests, and the longest of it.
    pub(super) fn line(&mut self, who: &str, ns: u64, requests: u64, longest_ns: u64) {
        let (requests, longest) = (number(requests), duration(longest_ns));
        let part = share(ns, self.all_ns);
        self.columns(&format!("  {who}"), [&part, &requests, &longest]);
    }

    /// What several had.
    pub(super) fn rest(&mut self, who: &str, ns: u64) {
        let part = share(ns, self.all_ns);
        self.columns(&format!("  {who}"), [&part, "", ""]);
    }

    fn columns(&mut self, name: &str, [part, requests, longest]: [&str; 3]) {
        let narrow = self.page.is_narrow();
        let who = if narrow { WHO_NARROW } else { WHO };
        let name = cut(name, who);
        let line = match narrow {
            true => format!("{name:<who$} {part:>10}"),
            false => format!("{name:<who$} {part:>10} {requests:>10} {longest:>10}"),
        };
        self.page.line(&line);
    }
}
