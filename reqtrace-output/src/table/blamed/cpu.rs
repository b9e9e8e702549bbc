//! Who had the CPUs that requests waited for: takers of a request type in, lines out.

use reqtrace_analysis::report::blame::{CpuTaken, TypeBlame};
use reqtrace_base::figures::{cut, duration, number, share};

use super::super::NAME;
use super::super::page::Page;
use crate::verdict::taker;

/// Lines; summary.json has more.
const TAKERS: usize = 5;
/// Columns of a line before its numbers.
const WHO: usize = 62;
/// The same where lines are short.
const WHO_NARROW: usize = 46;

pub(super) fn draw(page: &mut Page, blame: &TypeBlame) {
    if blame.takers.is_empty() || blame.cpu_ns == 0 {
        return;
    }
    let narrow = page.is_narrow();
    let who = if narrow { WHO_NARROW } else { WHO };
    let mut line = |name: &str, part: &str, requests: &str, longest: &str| {
        let name = cut(name, who);
        match narrow {
            true => page.line(&format!("{name:<who$} {part:>10}")),
            false => page.line(&format!(
                "{name:<who$} {part:>10} {requests:>10} {longest:>10}"
            )),
        }
    };
    line("", "", "", "");
    line(
        &format!("Who had the CPU of `{}`", cut(&blame.request, NAME)),
        "of waiting",
        "requests",
        "longest",
    );
    for taken in blame.takers.iter().take(TAKERS) {
        line(
            &format!("  {}", words(taken)),
            &share(taken.ns, blame.cpu_ns),
            &number(taken.requests),
            &duration(taken.longest_ns),
        );
    }
    let rest = blame.takers.get(TAKERS..).unwrap_or_default();
    if !rest.is_empty() {
        let ns = rest.iter().map(|taken| taken.ns).sum();
        let name = format!("  {} more", number(rest.len() as u64));
        line(&name, &share(ns, blame.cpu_ns), "", "");
    }
    let known_ns: u64 = blame.takers.iter().map(|taken| taken.ns).sum();
    let unknown_ns = blame.cpu_ns.saturating_sub(known_ns);
    if unknown_ns > 0 {
        line(
            "  not known: waits below 0.2 ms, and who ran unseen",
            &share(unknown_ns, blame.cpu_ns),
            "",
            "",
        );
    }
}

/// `preempted: by "reindexd" (pid 991, SCHED_FIFO 10), CPU 1`.
pub(crate) fn words(taken: &CpuTaken) -> String {
    let cpu = taken
        .cpu
        .map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
    format!("{}: by {}{cpu}", taken.cause.words(), taker(&taken.by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_analysis::report::blame::{Cause, TakerKind, TakerName};
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
