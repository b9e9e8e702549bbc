//! Taking probes out: links in, nothing left in the kernel.

use std::fmt;
use std::thread::{self, JoinHandle};

/// Something that is attached until this is dropped, which waits until the kernel has taken it out.
pub(crate) struct Link(#[expect(dead_code, reason = "it is dropped")] Box<dyn Send>);

impl Link {
    pub(crate) fn of(link: impl Send + 'static) -> Self {
        Self(Box::new(link))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

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
            // Without a thread for it this drops them here.
            let _ = thread::Builder::new().spawn_scoped(scope, move || drop(mine));
        }
    });
}

/// The same in a thread of its own. Where there is none to be had, it is done when this returns.
pub(crate) fn in_background(links: Vec<Link>) -> Option<JoinHandle<()>> {
    let name = thread::Builder::new().name("reqtrace-detach".to_owned());
    name.spawn(move || all(links)).ok()
}
