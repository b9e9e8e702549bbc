//! Futexes that requests waited on: sums in, lines out.

use super::super::page::{Page, frames};
use reqtrace_analysis::report::blame::{CulpritName, Lock, TypeBlame};
use reqtrace_base::figures::{cut, duration, number, share};
use reqtrace_base::names::clean;

/// Lines; summary.json has more.
const LOCKS: usize = 5;
/// A futex below this share of the blocked time is not drawn, percent.
const LEAST: u64 = 1;
/// Columns of a line before what the futex lies in, and of that.
const BEFORE_OBJECT: usize = 100;
const OBJECT: usize = 26;
/// Columns of a line before its frames.
const BEFORE_FRAMES: usize = BEFORE_OBJECT + OBJECT + 1;
/// Fewer columns than this say nothing.
const SHORTEST_FRAME: usize = 12;

pub(super) fn draw(page: &mut Page, blame: &TypeBlame) {
    let all_ns = blame.causes.sum();
    let is_much = |lock: &&Lock| lock.address != 0 && lock.ns >= all_ns * LEAST / 100;
    let locks: Vec<&Lock> = blame.locks.iter().filter(is_much).take(LOCKS).collect();
    if locks.is_empty() || page.is_narrow() {
        return;
    }
    let has_room = page.width >= BEFORE_OBJECT + OBJECT;
    let lies_in = if has_room { "lies in" } else { "" };
    let heading = format!(
        "  {:<26} {:>10} {:>9} {:>10}  {:<18} {:<18} {lies_in}",
        "Locks (futexes)", "of blocked", "waits", "longest", "mostly woken by", "held by"
    );
    page.line(heading.trim_end());
    for lock in locks {
        let first = |whose: &[(CulpritName, u64)]| {
            whose
                .first()
                .map_or("-".to_owned(), |(culprit, _)| culprit.words())
        };
        let mut line = format!(
            "    {:<24} {:>10} {:>9} {:>10}  {:<18} {}",
            cut(&format!("{:#x} {}", lock.address, lock.class), 24),
            share(lock.ns, all_ns),
            number(lock.waits),
            duration(lock.longest_ns),
            cut(&first(&lock.woken_by), 18),
            cut(&first(&lock.held_by), 18),
        );
        if has_room {
            let object = cut(&clean(&lock.object), OBJECT);
            line = format!("{line:<BEFORE_OBJECT$}{object}");
        }
        if page.width >= BEFORE_FRAMES + SHORTEST_FRAME {
            let user = lock.user.iter().map(String::as_str);
            let stack = frames(user, std::iter::empty(), page.width - BEFORE_FRAMES);
            line = format!("{line:<BEFORE_FRAMES$}{stack}");
        }
        page.line(&line);
    }
}
