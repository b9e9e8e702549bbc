//! What requests were queued behind for their runtime: sums of a request type in, lines out.

use reqtrace_analysis::report::blame::TypeBlame;
use reqtrace_base::figures::cut;

use super::super::page::Page;
use super::shares::Shares;
use crate::words::{NAME, behind_words};

/// Lines; summary.json has more.
const LINES: usize = 5;

pub(super) fn draw(page: &mut Page, blame: &TypeBlame) {
    if blame.queue.is_empty() || blame.queued_ns == 0 {
        return;
    }
    let mut shares = Shares::new(page, blame.queued_ns);
    shares.head(
        &format!("What `{}` was queued behind", cut(&blame.request, NAME)),
        "of queued",
    );
    for behind in blame.queue.iter().take(LINES) {
        shares.line(
            &behind_words(behind),
            behind.ns,
            behind.requests,
            behind.longest_ns,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::shares::WHO;
    use super::*;
    use reqtrace_analysis::report::blame::{Busy, QueuedBehind};

    #[test]
    fn what_requests_were_queued_behind() {
        let behind = |with, ns| QueuedBehind {
            with,
            ns,
            requests: 16,
            longest_ns: 2_000_000,
        };
        let mut blame = TypeBlame {
            request: "job".to_owned(),
            requests: 100,
            queued_ns: 1_000_000,
            queue: vec![
                behind(Busy::Request("crunch".to_owned()), 800_000),
                behind(Busy::NoRequest, 150_000),
                behind(Busy::Asleep, 40_000),
                behind(Busy::NotKnown, 10_000),
            ],
            ..TypeBlame::default()
        };
        let mut page = Page::new(120);
        draw(&mut page, &blame);
        for (what, part) in [
            ("What `job` was queued behind", "of queued"),
            ("  its thread ran `crunch`", "80.0 %"),
            (
                "  its thread ran what is no request, or the runtime",
                "15.0 %",
            ),
            ("  its thread slept, until it was woken", "4.0 %"),
            ("  not known", "1.0 %"),
        ] {
            let line = format!("{what:<WHO$} {part:>10} ");
            assert!(page.text.contains(&line), "{line}\n{}", page.text);
        }
        blame.queue.clear();
        let mut page = Page::new(120);
        draw(&mut page, &blame);
        assert_eq!(page.text, "");
    }
}
