//! Variants of one constructor or destructor: their code in, those that together are entered once for each
//! object out.
//!
//! A compiler makes a constructor for whole objects and one for parts of others, and a destructor that
//! frees the memory besides. One of them may do its work by calling another, and a probe on both is hit twice.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction};

use super::instructions::{MAX_FUNCTION, decoder, direct_target};
use reqtrace_binary::elf::Object;

/// Leaves out each variant that always calls, or jumps to, one that stays: that is entered in its place.
pub(super) fn once_each(object: &Object, variants: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut kept = variants;
    while let Some(caller) = kept.iter().position(|one| {
        let mut others = kept.iter().filter(|other| *other != one);
        others.any(|other| always_goes_to(object, one, other.start))
    }) {
        kept.remove(caller);
    }
    kept
}

/// Whether a function always goes to another, once: in the straight line from its entry, and nowhere else.
fn always_goes_to(object: &Object, body: &Range<u64>, goal: u64) -> bool {
    if body.end - body.start > MAX_FUNCTION {
        return false;
    }
    let goes = |code: &Instruction| goal_of(object, code) == Some(goal);
    let whole = || decoder(object, body.clone()).take_while(|code| !code.is_invalid());
    let line = whole().find(|code| {
        let goes_on = matches!(
            code.flow_control(),
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
        );
        goes(code) || !goes_on
    });
    // What jumps to the entry enters twice.
    let jumps_to = |wanted| move |code: &Instruction| direct_target(code) == Some(wanted);
    let to_goal = whole().filter(|code| goes(code) || jumps_to(goal)(code));
    line.is_some_and(|code| goes(&code))
        && to_goal.count() == 1
        && !whole().any(|code| jumps_to(body.start)(&code))
}

/// Where a call or jump always goes, be it through a stub of the procedure linkage table, or a slot.
fn goal_of(object: &Object, code: &Instruction) -> Option<u64> {
    match code.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch => {
            let target = code.near_branch_target();
            Some(object.through_stub(target).unwrap_or(target))
        }
        FlowControl::IndirectCall | FlowControl::IndirectBranch => {
            let is_slot = code.is_ip_rel_memory_operand();
            is_slot.then(|| object.in_slot(code.ip_rel_memory_address()))?
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
