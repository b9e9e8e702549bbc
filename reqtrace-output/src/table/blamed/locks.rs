//! Futexes that requests waited on: sums in, lines out.

use super::super::page::Page;
use reqtrace_analysis::report::blame::{CulpritName, Lock, TypeBlame};
use reqtrace_base::figures::{cut, duration, number, share};

/// Lines; summary.json has more.
const LOCKS: usize = 5;
/// A futex below this share of the blocked time is not drawn, percent.
const LEAST: u64 = 1;

pub(super) fn draw(page: &mut Page, blame: &TypeBlame) {
    let all_ns = blame.causes.sum();
    let is_much = |lock: &&Lock| lock.address != 0 && lock.ns >= all_ns * LEAST / 100;
    let locks: Vec<&Lock> = blame.locks.iter().filter(is_much).take(LOCKS).collect();
    if locks.is_empty() || page.is_narrow() {
        return;
    }
    let heading = format!(
        "  {:<26} {:>10} {:>9} {:>10}  {:<18} {}",
        "Locks (futexes)", "of blocked", "waits", "longest", "mostly woken by", "held by"
    );
    page.line(&heading);
    for lock in locks {
        let first = |whose: &[(CulpritName, u64)]| {
            whose
                .first()
                .map_or("-".to_owned(), |(culprit, _)| culprit.words())
        };
        let line = format!(
            "    {:<24} {:>10} {:>9} {:>10}  {:<18} {}",
            cut(&format!("{:#x} {}", lock.address, lock.class), 24),
            share(lock.ns, all_ns),
            number(lock.waits),
            duration(lock.longest_ns),
            cut(&first(&lock.woken_by), 18),
            cut(&first(&lock.held_by), 18),
        );
        page.line(&line);
    }
}
