//! Taking probes out: links in, nothing left in the kernel.

use std::thread;

use super::programs::Link;

/// How many threads take probes out: each removal waits for a grace period of the kernel, which
/// they share when they wait at the same time.
const THREADS: usize = 16;

/// Takes all of them out, many at a time.
pub(crate) fn all(mut links: Vec<Link>) {
    if links.len() < 2 {
        return;
    }
    let share = links.len().div_ceil(THREADS).max(1);
    thread::scope(|scope| {
        while !links.is_empty() {
            let rest = links.split_off(links.len().min(share));
            let mine = std::mem::replace(&mut links, rest);
            scope.spawn(move || drop(mine));
        }
    });
}
