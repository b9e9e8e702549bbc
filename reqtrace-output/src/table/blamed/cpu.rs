//! Who had the CPUs that requests waited for: takers of a request type in, lines out.

use reqtrace_analysis::report::blame::TypeBlame;
use reqtrace_base::figures::{cut, number};

use super::super::page::Page;
use super::shares::Shares;
use crate::words::{NAME, taken_words};

/// Lines; summary.json has more.
const TAKERS: usize = 5;

pub(super) fn draw(page: &mut Page, blame: &TypeBlame) {
    if blame.takers.is_empty() || blame.cpu_ns == 0 {
        return;
    }
    let mut shares = Shares::new(page, blame.cpu_ns);
    shares.head(
        &format!("Who had the CPU of `{}`", cut(&blame.request, NAME)),
        "of waiting",
    );
    for taken in blame.takers.iter().take(TAKERS) {
        shares.line(
            &taken_words(taken),
            taken.ns,
            taken.requests,
            taken.longest_ns,
        );
    }
    let rest = blame.takers.get(TAKERS..).unwrap_or_default();
    if !rest.is_empty() {
        let ns = rest.iter().map(|taken| taken.ns).sum();
        shares.rest(&format!("{} more", number(rest.len() as u64)), ns);
    }
    let known_ns: u64 = blame.takers.iter().map(|taken| taken.ns).sum();
    let unknown_ns = blame.cpu_ns.saturating_sub(known_ns);
    if unknown_ns > 0 {
        shares.rest(
            "not known: waits below 0.2 ms, and who ran unseen",
            unknown_ns,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_analysis::report::blame::{Cause, CpuTaken, TakerKind, TakerName};
    use reqtrace_base::plain::Plain;

    fn taken(kind: TakerKind, comm: &str, cpu: Option<u32>, ns: u64) -> CpuTaken {
        CpuTaken {
            cause: Cause::Preempted,
            by: TakerName {
                kind,
                pid: 991,
                tid: 992,
                comm: Plain::of(comm),
                policy: 1,
                priority: 89,
            },
            cpu,
            ns,
            requests: 16,
            longest_ns: 60_000_000,
        }
    }

    fn drawn(width: usize, takers: Vec<CpuTaken>) -> String {
        let blame = TypeBlame {
            request: "command".to_owned(),
            requests: 1_000,
            cpu_ns: 1_000_000_000,
            takers,
            ..TypeBlame::default()
        };
        let mut page = Page::new(width);
        draw(&mut page, &blame);
        page.text
    }

    #[test]
    fn who_had_the_cpu_and_what_is_not_known() {
        let mut takers = vec![
            taken(TakerKind::Process, "reindexd", Some(1), 800_000_000),
            taken(TakerKind::Limit, "/shop", Some(0), 50_000_000),
            taken(TakerKind::Idle, "", Some(0), 10_000_000),
        ];
        let text = drawn(120, takers.clone());
        for line in [
            "  preempted: by \"reindexd\" (pid 991, SCHED_FIFO 10), CPU 1         80.0 %         16    60.0 ms",
            "  preempted: by CPU limit of cgroup /shop, CPU 0                    5.0 %",
            "  preempted: by idle CPU that had to wake up, CPU 0                 1.0 %",
            "  not known: waits below 0.2 ms, and who ran unseen                14.0 %",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        takers.extend((0..4).map(|_| taken(TakerKind::Process, "x", None, 1_000_000)));
        assert!(
            drawn(80, takers).contains("  2 more "),
            "the rest is one line"
        );
        assert_eq!(drawn(120, Vec::new()), "");
    }
}
