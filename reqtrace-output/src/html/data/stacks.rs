//! Stacks and chains of the page: frames in, a tree and numbers of names out.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use reqtrace_analysis::report::StackKind;
use reqtrace_analysis::report::blame::Chain;
use reqtrace_analysis::report::page::PageStack;

/// The tree of all stacks: each node behind its parent. The root is not in it; its children have parent -1.
#[derive(Default, Serialize)]
pub(super) struct Nodes {
    parent: Vec<i64>,
    frame: Vec<u32>,
}

/// Stacks by number.
#[derive(Default, Serialize)]
pub(super) struct Stacks {
    /// Innermost frame; -1 for none.
    node: Vec<i64>,
    kind: Vec<u32>,
    /// Wait class; -1 for none.
    class: Vec<i64>,
}

/// Puts stacks with the same callers together.
pub(super) fn tree(stacks: &[PageStack]) -> (Nodes, Stacks) {
    let mut nodes = Nodes::default();
    let mut known: HashMap<(i64, u32), i64> = HashMap::new();
    let mut all = Stacks::default();
    for stack in stacks {
        let mut at = -1;
        for frame in &stack.frames {
            at = *known.entry((at, *frame)).or_insert_with(|| {
                nodes.parent.push(at);
                nodes.frame.push(*frame);
                nodes.frame.len() as i64 - 1
            });
        }
        all.node.push(at);
        all.kind.push(match stack.kind {
            StackKind::Blocked => 0,
            StackKind::RunQueue => 1,
            StackKind::Preempted => 2,
            StackKind::OnCpu => 3,
            StackKind::Parked => 4,
            StackKind::Queued => 5,
        });
        all.class.push(stack.class.map_or(-1, i64::from));
    }
    (nodes, all)
}

/// Chains of waits of the whole trace.
#[derive(Default, Serialize)]
pub(super) struct Chains {
    /// Frames of each.
    frames: Vec<Vec<u32>>,
    ns: Vec<u64>,
}

/// Chains that the page has one by one.
const MAX_CHAINS: usize = 2_048;
/// The frame of all others, as in `chains.folded`.
const OTHER_CHAINS: &str = "[other chains]";

impl Chains {
    /// Chains, the most time first; names that are new are put behind the others.
    pub(super) fn of<'a>(chains: &'a [Chain], names: &mut Vec<&'a str>) -> Self {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for (at, name) in (0..).zip(names.iter()) {
            numbers.insert(name, at);
        }
        let mut number = |name: &'a str| {
            *numbers.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() as u32 - 1
            })
        };
        let (first, rest) = chains.split_at(chains.len().min(MAX_CHAINS));
        let mut all = Self::default();
        for chain in first {
            let frames = chain.frames.iter().map(|name| number(name)).collect();
            all.frames.push(frames);
            all.ns.push(chain.ns);
        }
        let mut others: BTreeMap<&str, u64> = BTreeMap::new();
        for chain in rest {
            *others
                .entry(chain.frames.first().map_or("", String::as_str))
                .or_default() += chain.ns;
        }
        for (request, ns) in others {
            all.frames.push(vec![number(request), number(OTHER_CHAINS)]);
            all.ns.push(ns);
        }
        all
    }
}
