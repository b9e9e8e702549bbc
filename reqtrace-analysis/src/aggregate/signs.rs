//! Warning signs that need more than the report: the kernel's sums in, what is suspicious out.
//!
//! Everything is judged by the kernel's sums, so that no option that leaves stacks out hides a sign.

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_common::record::StackId;
use reqtrace_recording::{AddressSpace, Open, StackSum, StackSumKey};

use super::names::Text;
use super::sites::{Sites, site_of, space_of};
use crate::classify::class::WaitClass;
use crate::classify::table;
use crate::classify::{Block, syscalls};
use crate::symbolize::names::{clean, plain};
use rustc_hash::FxHashSet;

/// System calls in which a thread waits for something to read.
const READS: &[&str] = &[
    "read",
    "readv",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
];

/// Functions below which a thread pool runs requests, that it may park and let another thread
/// resume.
const POOLS: &[&str] = &["tp_callback", "threadpool_process_request"];

/// What one request type shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// The one place of reading from the network with most time, and that time in ns.
    pub(super) network_read: Option<(String, u64)>,
    /// Functions of a thread pool on its stacks.
    pub(super) pools: BTreeSet<String>,
    /// Begins inside requests that are still open.
    pub(super) open_nested: u64,
}

/// What was seen so far, by name.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Time of reading from the network, by request type and place. A server with many processes waits in
    /// one function, at many addresses.
    reads: BTreeMap<(usize, String), u64>,
    /// Functions of a thread pool, by request type.
    pools: Vec<BTreeSet<String>>,
    /// Frames by request type.
    looked_at: FxHashSet<(usize, Text)>,
}

impl Places {
    pub(super) fn new(types: usize) -> Self {
        Self {
            reads: BTreeMap::new(),
            pools: vec![BTreeSet::new(); types],
            looked_at: FxHashSet::default(),
        }
    }

    /// Looks at sums.
    pub(super) fn add(&mut self, sites: &mut Sites, sums: &[(StackSumKey, StackSum)]) {
        let mut reads: BTreeMap<(usize, AddressSpace, StackId), u64> = BTreeMap::new();
        let mut stacks: BTreeSet<(usize, AddressSpace, StackId)> = BTreeSet::new();
        for (key, sum) in sums {
            let place = (key.request_type as usize, space_of(key), key.user_stack);
            if place.0 >= self.pools.len() {
                continue;
            }
            stacks.insert(place);
            if key.is_block() && is_network_read(sites, key) {
                *reads.entry(place).or_default() += sum.off_ns;
            }
        }
        for ((request_type, space, stack), ns) in reads {
            let name = innermost(sites, space, stack);
            *self.reads.entry((request_type, name)).or_default() += ns;
        }
        for (request_type, space, stack) in stacks {
            for text in sites.texts(Some(space), stack) {
                // Nearly all have been looked at before.
                if self.looked_at.insert((request_type, text)) {
                    let name = plain(sites.text(text));
                    if POOLS.contains(&name.as_str()) {
                        self.pools[request_type].insert(name);
                    }
                }
            }
        }
    }

    /// The signs of each request type, with the requests that are open.
    pub(super) fn signs(&self, open: &[Open]) -> Vec<Signs> {
        let of_type = |pools: &BTreeSet<String>| Signs {
            pools: pools.clone(),
            ..Signs::default()
        };
        let mut signs: Vec<Signs> = self.pools.iter().map(of_type).collect();
        for ((request_type, name), ns) in &self.reads {
            let most = &mut signs[*request_type].network_read;
            if most.as_ref().is_none_or(|(_, known)| known < ns) {
                *most = Some((name.clone(), *ns));
            }
        }
        for request in open.iter().map(Open::request) {
            if let Some(of_type) = signs.get_mut(request.request_type as usize) {
                of_type.open_nested += u64::from(request.max_depth.saturating_sub(1));
            }
        }
        signs
    }
}

/// Whether a block waits for something to read from the network, whatever a profile calls it.
fn is_network_read(sites: &mut Sites, key: &StackSumKey) -> bool {
    let site = site_of(key);
    if !syscalls::name(site.syscall).is_some_and(|name| READS.contains(&name)) {
        return false;
    }
    let kernel = sites.kernel_side(site.kernel_stack);
    let class = table::class(&Block {
        kernel: kernel.frames(),
        user: &[],
        file: sites.file_of(&site),
        syscall: site.syscall,
    });
    matches!(class, WaitClass::Network | WaitClass::Poll)
}

/// The innermost functions of a stack that have names, at most three.
fn innermost(sites: &mut Sites, space: AddressSpace, stack: StackId) -> String {
    let side = sites.user_side(space, stack);
    let named = side.frames().iter().filter(|frame| frame.is_named());
    let names: Vec<String> = named
        .take(3)
        .map(|frame| clean(&plain(&frame.name)))
        .collect();
    names.join(" ← ")
}

#[cfg(test)]
mod tests {
    use reqtrace_common::record::FILE_NONE;
    use reqtrace_recording::{Address, KERNEL, Name, Stack};

    use super::*;
    use crate::classify::of_waits;

    /// Apache's processes each wait in one function for the next request of a connection.
    #[test]
    fn idle_time_in_poll_adds_up_over_processes() {
        const POLL: i32 = 7;
        let mut sites = Sites::new(of_waits(&[]).unwrap());
        let mut stack = |space: Option<AddressSpace>, id: StackId, name: &str| {
            let address = Address {
                object: if space.is_none() { KERNEL } else { 2 },
                offset: id,
            };
            sites.name(&Name {
                address,
                is_return: false,
                frames: vec![name.to_owned()],
            });
            sites.stack(&Stack {
                space,
                id,
                stop: 0,
                addresses: vec![address],
            });
        };
        stack(None, 100, "do_poll");
        let mut sums = Vec::new();
        for process in 0..10_u32 {
            let (tgid, exec_generation) = (1000 + process, 0);
            let id = 200 + u64::from(process);
            let space = AddressSpace {
                tgid,
                exec_generation,
            };
            stack(Some(space), id, "apr_wait_for_io_or_timeout");
            let key = StackSumKey {
                user_stack: id,
                kernel_stack: 100,
                tgid,
                syscall: POLL,
                file: FILE_NONE,
                ..StackSumKey::default()
            };
            let sum = StackSum {
                off_ns: 5,
                ..StackSum::default()
            };
            sums.push((key, sum));
        }
        let mut places = Places::new(1);
        // A window may end anywhere.
        let (first, second) = sums.split_at(3);
        places.add(&mut sites, first);
        places.add(&mut sites, second);
        let signs = places.signs(&[]);
        let wanted = ("apr_wait_for_io_or_timeout".to_owned(), 50);
        assert_eq!(signs[0].network_read, Some(wanted));
    }
}
