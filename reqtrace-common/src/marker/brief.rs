//! What it takes to see that a hit is of no request: a [`MarkerPlan`] in; so much of it as fits into two lines of a CPU's
//! cache, of which one is looked at most of the time, out. The whole plan fills some seventy.

use super::{Condition, MAX_CONDITIONS, MarkerPlan, condition_kind, marker_flag, op, park_kind};
use crate::label::{NO_REGISTER, Reading};

/// Reads of memory for a condition.
pub const BRIEF_READS: usize = 2;

/// Kinds of a [`BriefPlan`].
pub mod brief_kind {
    /// The whole plan has to be looked at, if the conditions hold.
    pub const WHOLE: u8 = 0;
    /// Of a key that no request has, nothing comes but which unit the thread runs.
    pub const KEYED: u8 = 1;
    /// Nothing comes of it where the thread runs no request.
    pub const NOTE: u8 = 2;
}

/// A condition on a number, in brief.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BriefCondition {
    /// What it compares with: see [`condition_kind`]. A single number stands here twice.
    pub numbers: [i64; 2],
    /// Bytes from the register, and from what was read there, to where it is read.
    pub offsets: [i32; BRIEF_READS],
    /// One of [`condition_kind`]: none, up to two numbers, bits or code.
    pub kind: u32,
    /// Used entries of `offsets`.
    pub reads: u16,
    /// Not 0: it holds where it would not.
    pub negate: u16,
}

/// A [`MarkerPlan`] in brief: all that matters of one whose key is a register, and whose conditions are on numbers that are
/// read from one register. Of another it has the conditions that are such: where these do not hold, it does not.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BriefPlan {
    /// Always 0: see [`crate::layout`].
    pub before: u64,
    /// The first condition.
    pub first: BriefCondition,
    /// Bits of [`marker_flag`].
    pub flags: u32,
    /// Index of the plan to try when a condition does not hold, 0 for none.
    pub next: u32,
    /// As in [`MarkerPlan::place`].
    pub place: u32,
    /// One of [`brief_kind`].
    pub kind: u8,
    /// Index of the key's register in `pt_regs`, or [`NO_REGISTER`].
    pub key: u8,
    /// The same for the conditions.
    pub base: u8,
    /// Not 0: there is a second condition. It lies in the second line.
    pub more: u8,
    /// Not 0: the next one is all that is left of the chain, is [`brief_kind::KEYED`] and has no condition. It need not be looked
    /// at then.
    pub is_next_last: u32,
    /// Its flags.
    pub next_flags: u32,
    /// Its place.
    pub next_place: u32,
    /// Not 0: whichever of this plan and those behind it holds, the thread leaves a unit that is no request. No condition need be
    /// looked at.
    pub is_any: u16,
    /// Not 0: its conditions look at the first and at the third word that the register points to.
    pub is_wide: u16,
    /// The second condition.
    pub second: BriefCondition,
    /// Always 0.
    pub room: [u64; 3],
}

impl BriefCondition {
    const NONE: Self = Self {
        numbers: [0; 2],
        offsets: [0; BRIEF_READS],
        kind: condition_kind::NONE,
        reads: 0,
        negate: 0,
    };

    /// Whether it holds of what was read. `code` is the address of the probed instruction.
    #[must_use]
    #[inline(always)]
    pub fn holds(&self, value: u64, code: u64) -> bool {
        let value = value as i64;
        let [first, second] = self.numbers;
        let fits = match self.kind {
            condition_kind::BITS => value & first == second,
            condition_kind::CODE => {
                let distance = value.wrapping_sub(code as i64);
                distance == first || distance == second
            }
            _ => value == first || value == second,
        };
        fits != (self.negate != 0)
    }

    /// Of a whole one, with its register; `None` when it is another kind.
    fn of(condition: &Condition) -> Option<(Self, u8)> {
        let [first, second, ..] = condition.numbers;
        let numbers = match (condition.kind, condition.used) {
            (condition_kind::NONE, _) => return Some((Self::NONE, NO_REGISTER)),
            (condition_kind::BITS, _) | (condition_kind::ONE_OF | condition_kind::CODE, 2) => {
                [first, second]
            }
            (condition_kind::ONE_OF | condition_kind::CODE, 1) => [first, first],
            _ => return None,
        };
        let value = &condition.value;
        let mut brief = Self {
            numbers,
            kind: condition.kind,
            reads: value.reads.into(),
            negate: u16::from(condition.negate != 0),
            ..Self::NONE
        };
        brief.offsets.copy_from_slice(&value.offsets[..BRIEF_READS]);
        Some((brief, register(value, BRIEF_READS)?))
    }
}

impl BriefPlan {
    /// Looked at as a whole.
    pub const WHOLE: Self = Self {
        before: 0,
        first: BriefCondition::NONE,
        flags: 0,
        next: 0,
        place: 0,
        kind: brief_kind::WHOLE,
        key: NO_REGISTER,
        base: NO_REGISTER,
        more: 0,
        is_next_last: 0,
        next_flags: 0,
        next_place: 0,
        is_any: 0,
        is_wide: 0,
        second: BriefCondition::NONE,
        room: [0; 3],
    };

    /// Those of all plans, in their order, in which those of a chain lie one behind the other; `into` has room for as many. All of
    /// a chain look at the same registers: one that does not is to be looked at as a whole, whatever holds.
    pub fn all<'a>(plans: impl IntoIterator<Item = &'a MarkerPlan>, into: &mut [Self]) {
        let mut before = Self::WHOLE;
        for (brief, plan) in into.iter_mut().zip(plans) {
            *brief = Self::of(plan);
            if before.next != 0 {
                *brief = brief.behind(&before);
            }
            before = *brief;
        }
        for index in (0..into.len()).rev() {
            if let Some((brief, behind)) = into[index..].split_first_mut() {
                let of = |other: u32| behind.get((other as usize).checked_sub(index + 1)?);
                brief.is_any = u16::from(brief.is_any(of(brief.next)));
                *brief = brief.before(of);
            }
        }
    }

    /// Whether it and all behind it are where a thread leaves a unit. If none of them holds it does so a little later.
    fn is_any(&self, next: Option<&Self>) -> bool {
        let same = |next: &Self| (next.is_any, next.key, next.flags) == (1, self.key, self.flags);
        let leaves = self.flags & (marker_flag::LEAVES | marker_flag::JOB) == marker_flag::LEAVES;
        self.kind == brief_kind::KEYED && leaves && (self.next == 0 || next.is_some_and(same))
    }

    /// With what is known of those behind it. They have it already.
    fn before<'a>(self, behind: impl Fn(u32) -> Option<&'a Self>) -> Self {
        let Some(next) = behind(self.next) else {
            return self;
        };
        // Of a thread in a request only.
        if next.flags & marker_flag::CHILD != 0 && next.next != 0 {
            return Self {
                next: next.next,
                is_next_last: next.is_next_last,
                next_flags: next.next_flags,
                next_place: next.next_place,
                ..self
            };
        }
        let is_last = next.next == 0
            && next.kind == brief_kind::KEYED
            && next.first.kind == condition_kind::NONE
            && next.more == 0;
        if !is_last {
            return self;
        }
        Self {
            is_next_last: 1,
            next_flags: next.flags,
            next_place: next.place,
            ..self
        }
    }

    fn of(plan: &MarkerPlan) -> Self {
        let mut brief = Self {
            flags: plan.flags
                | if plan.op == op::RESUME {
                    marker_flag::RESUMES
                } else {
                    0
                },
            next: plan.next,
            place: plan.place,
            kind: kind_of(plan),
            ..Self::WHOLE
        };
        match register(&plan.key[0], 0) {
            Some(key) if plan.key_parts == 1 && plan.to_parts == 0 => brief.key = key,
            _ if brief.kind == brief_kind::KEYED => brief.kind = brief_kind::WHOLE,
            _ => {}
        }
        let room = [&mut brief.first, &mut brief.second];
        const { assert!(MAX_CONDITIONS == 2) };
        for (into, condition) in room.into_iter().zip(&plan.when) {
            match BriefCondition::of(condition) {
                Some((condition, base))
                    if [base, brief.base].contains(&NO_REGISTER) || base == brief.base =>
                {
                    *into = condition;
                    brief.base = brief.base.min(base);
                }
                _ => brief.kind = brief_kind::WHOLE,
            }
        }
        brief.more = u8::from(brief.second.kind != condition_kind::NONE);
        let looks_at = [brief.first, brief.second].map(|one| (one.reads > 0, one.offsets[0]));
        brief.is_wide = u16::from(looks_at == [(true, 0), (true, 16)]);
        if plan.flags & marker_flag::CHILD != 0 {
            // It has none, and what comes behind it in the chain may have.
            brief.key = brief.base;
        }
        brief
    }

    fn behind(self, before: &Self) -> Self {
        let fits = |own: u8, other: u8| own == other || own == NO_REGISTER;
        if !fits(self.key, before.key) || !fits(self.base, before.base) {
            return Self {
                next: self.next,
                ..Self::WHOLE
            };
        }
        Self {
            key: before.key,
            base: before.base,
            ..self
        }
    }
}

fn kind_of(plan: &MarkerPlan) -> u8 {
    let is_job = plan.flags & marker_flag::JOB != 0 && plan.park.kind == park_kind::NONE;
    let names = plan.flags & (marker_flag::TOUCH | marker_flag::CURRENT | marker_flag::UNIT);
    match plan.op {
        _ if plan.is_of_request() => brief_kind::NOTE,
        op::RESUME | op::PARK | op::READY | op::END if names == marker_flag::TOUCH => {
            brief_kind::KEYED
        }
        op::NOTE if names == marker_flag::TOUCH && is_job => brief_kind::KEYED,
        _ => brief_kind::WHOLE,
    }
}

/// The register of a reading of eight bytes that begins with one, and reads memory so often at most.
fn register(reading: &Reading, reads: usize) -> Option<u8> {
    let is_plain = reading.constant == 0
        && reading.index == NO_REGISTER
        && (reading.shift, reading.size) == (0, 8)
        && usize::from(reading.reads) <= reads;
    (is_plain && reading.base != NO_REGISTER).then_some(reading.base)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RDI: u8 = 14;
    const RSI: u8 = 13;

    fn at(base: u8, offsets: &[i32]) -> Reading {
        let mut reading = Reading {
            base,
            index: NO_REGISTER,
            reads: offsets.len() as u8,
            size: 8,
            ..Reading::default()
        };
        reading.offsets[..offsets.len()].copy_from_slice(offsets);
        reading
    }

    fn condition(kind: u32, value: Reading, numbers: &[i64]) -> Condition {
        let mut condition = Condition {
            kind,
            value,
            used: numbers.len() as u32,
            ..Condition::default()
        };
        condition.numbers[..numbers.len()].copy_from_slice(numbers);
        condition
    }

    /// A marker that is hit with any key.
    fn keyed(op: u32, key: Reading, when: &[Condition]) -> MarkerPlan {
        let mut plan = MarkerPlan {
            op,
            flags: marker_flag::TOUCH,
            key: [key; 2],
            key_parts: 1,
            ..MarkerPlan::default()
        };
        plan.when[..when.len()].copy_from_slice(when);
        plan
    }

    fn brief<const N: usize>(plans: [MarkerPlan; N]) -> Vec<BriefPlan> {
        let chained = plans.into_iter().zip(1..).map(|(plan, index)| MarkerPlan {
            next: if index == N as u32 { 0 } else { index },
            ..plan
        });
        let mut all = vec![BriefPlan::WHOLE; N];
        BriefPlan::all(&chained.collect::<Vec<_>>(), &mut all);
        all
    }

    #[test]
    fn conditions_hold_as_they_do_in_the_whole_plan() {
        let state = at(RDI, &[0]);
        let bits = condition(condition_kind::BITS, state, &[0b11, 0b01]);
        let not = Condition { negate: 1, ..bits };
        let numbers = condition(condition_kind::ONE_OF, state, &[3, 7]);
        let code = condition(condition_kind::CODE, at(RDI, &[16, 8]), &[-0x100]);
        let [bits, not, numbers, code] = [bits, not, numbers, code]
            .map(|one| brief([keyed(op::RESUME, at(RDI, &[]), &[one])])[0]);
        for plan in [bits, not, numbers, code] {
            assert_eq!(
                (plan.kind, plan.key, plan.base, plan.more),
                (brief_kind::KEYED, RDI, RDI, 0)
            );
        }
        assert!(bits.first.holds(0b101, 0) && !bits.first.holds(0b111, 0));
        assert!(!not.first.holds(0b101, 0) && not.first.holds(0b111, 0));
        assert_eq!(
            [3, 5, 7].map(|value| numbers.first.holds(value, 0)),
            [true, false, true]
        );
        assert!(code.first.holds(0x1000, 0x1100) && !code.first.holds(0x1100, 0x1000));
        assert_eq!((code.first.reads, code.first.offsets), (2, [16, 8]));
        assert!(bits.second.kind == condition_kind::NONE);
        let both = [bits.first, numbers.first];
        let two = brief([keyed(
            op::RESUME,
            at(RDI, &[]),
            &[
                condition(condition_kind::BITS, state, &[0b11, 0b01]),
                condition(condition_kind::ONE_OF, state, &[3, 7]),
            ],
        )])[0];
        assert_eq!(([two.first, two.second], two.more), (both, 1));
    }

    #[test]
    fn what_is_no_register_or_number_is_looked_at_as_a_whole() {
        let value = at(RDI, &[]);
        let text = condition(condition_kind::TEXT, value, &[]);
        let number = condition(condition_kind::ONE_OF, value, &[1]);
        let three = condition(condition_kind::ONE_OF, value, &[1, 2, 3]);
        let elsewhere = condition(condition_kind::ONE_OF, at(RSI, &[]), &[1]);
        let far = condition(condition_kind::ONE_OF, at(RDI, &[0, 0, 0]), &[1]);
        let half = Reading { size: 4, ..value };
        let two_parts = MarkerPlan {
            key_parts: 2,
            ..keyed(op::RESUME, value, &[])
        };
        for (plan, first) in [
            (keyed(op::RESUME, value, &[text]), condition_kind::NONE),
            (keyed(op::RESUME, value, &[three]), condition_kind::NONE),
            (keyed(op::RESUME, value, &[far]), condition_kind::NONE),
            (
                keyed(op::RESUME, value, &[number, text]),
                condition_kind::ONE_OF,
            ),
            (
                keyed(op::RESUME, value, &[number, elsewhere]),
                condition_kind::ONE_OF,
            ),
            (keyed(op::RESUME, half, &[number]), condition_kind::ONE_OF),
            (keyed(op::RESUME, at(RDI, &[8]), &[]), condition_kind::NONE),
            (keyed(op::BEGIN, value, &[number]), condition_kind::ONE_OF),
            (two_parts, condition_kind::NONE),
        ] {
            let brief = brief([plan])[0];
            assert_eq!(
                (brief.kind, brief.first.kind),
                (brief_kind::WHOLE, first),
                "{plan:?}"
            );
        }
    }

    #[test]
    fn notes_need_no_key_and_jobs_of_pools_are_keyed() {
        let note = MarkerPlan {
            op: op::NOTE,
            flags: marker_flag::TOUCH | marker_flag::UNIT,
            ..MarkerPlan::default()
        };
        let job = MarkerPlan {
            flags: marker_flag::TOUCH | marker_flag::LEAVES | marker_flag::JOB,
            place: 3,
            ..keyed(op::NOTE, at(RDI, &[]), &[])
        };
        let named = MarkerPlan {
            flags: 0,
            ..keyed(op::END, at(RDI, &[]), &[])
        };
        let kinds = [note, job, named].map(|plan| brief([plan])[0].kind);
        assert_eq!(
            kinds,
            [brief_kind::NOTE, brief_kind::KEYED, brief_kind::WHOLE]
        );
        assert_eq!(brief([job])[0].place, 3);
    }

    #[test]
    fn the_last_of_a_chain_is_known_before_it() {
        let when = |number| condition(condition_kind::ONE_OF, at(RSI, &[0]), &[number]);
        let begin = keyed(op::BEGIN, at(RSI, &[]), &[when(204)]);
        let last = MarkerPlan {
            flags: marker_flag::TOUCH | marker_flag::LEAVES,
            place: 7,
            ..keyed(op::PARK, at(RSI, &[]), &[])
        };
        let known = |plan: &BriefPlan| {
            let is_last = plan.is_next_last != 0;
            is_last.then_some((plan.next, plan.next_flags, plan.next_place))
        };
        let [begins, leaves] = brief([begin, last])[..] else {
            panic!("two plans");
        };
        assert_eq!(known(&begins), Some((1, last.flags, 7)));
        assert_eq!((known(&leaves), leaves.next), (None, 0));
        // What only threads in a request look at is passed over.
        let mut child = keyed(op::NOTE, Reading::default(), &[when(204)]);
        (child.flags, child.key_parts) = (marker_flag::CURRENT | marker_flag::CHILD, 0);
        let passed = brief([begin, child, last]);
        assert_eq!(known(&passed[0]), Some((2, last.flags, 7)));
        // Others have to be looked at themselves.
        let more = brief([begin, keyed(op::PARK, at(RSI, &[]), &[when(3)]), last]);
        assert_eq!((known(&more[0]), more[0].next), (None, 1));
        assert_eq!(known(&more[1]), Some((2, last.flags, 7)));
        let elsewhere = keyed(op::PARK, at(RDI, &[]), &[]);
        assert_eq!(known(&brief([begin, elsewhere])[0]), None);
    }

    #[test]
    fn where_a_unit_is_left_anyhow_nothing_is_asked() {
        let state = |bits| condition(condition_kind::BITS, at(RDI, &[0]), &[0b100, bits]);
        let leaves = |op, bits| MarkerPlan {
            flags: marker_flag::TOUCH | marker_flag::LEAVES,
            ..keyed(op, at(RDI, &[]), &[state(bits)])
        };
        let are_any = |plans: &[BriefPlan]| plans.iter().map(|one| one.is_any).collect::<Vec<_>>();
        let (park, ready) = (leaves(op::PARK, 0), leaves(op::READY, 0b100));
        assert_eq!(are_any(&brief([park, ready])), [1, 1]);
        // A thread that takes a task up may not do so, and which job is done has to be known.
        let enters = MarkerPlan {
            flags: marker_flag::TOUCH | marker_flag::ENTERS,
            ..keyed(op::RESUME, at(RDI, &[]), &[state(0)])
        };
        assert_eq!(are_any(&brief([enters])), [0]);
        let job = MarkerPlan {
            flags: park.flags | marker_flag::JOB,
            ..park
        };
        assert_eq!(are_any(&brief([job, ready])), [0, 1]);
        assert_eq!(are_any(&brief([park, enters])), [0, 0]);
        let begin = keyed(op::BEGIN, at(RDI, &[]), &[state(0)]);
        assert_eq!(are_any(&brief([begin, park])), [0, 1]);
    }

    #[test]
    fn words_beside_each_other_are_read_at_once() {
        let of = |first: &[i32], second: &[i32]| {
            let when = [first, second]
                .map(|at_offsets| condition(condition_kind::ONE_OF, at(RDI, at_offsets), &[1]));
            brief([keyed(op::BEGIN, at(RDI, &[]), &when)])[0].is_wide
        };
        assert_eq!([of(&[0], &[16]), of(&[0], &[16, 0])], [1, 1]);
        assert_eq!(
            [
                of(&[0], &[]),
                of(&[], &[16]),
                of(&[0], &[8]),
                of(&[16], &[0])
            ],
            [0; 4]
        );
    }

    #[test]
    fn a_chain_looks_at_the_registers_of_its_first_plan() {
        let is_new = condition(condition_kind::ONE_OF, at(RSI, &[0]), &[204]);
        let begin = keyed(op::BEGIN, at(RSI, &[]), &[is_new]);
        let chain = brief([begin, keyed(op::READY, at(RDI, &[]), &[])]);
        assert_eq!(chain[0].kind, brief_kind::WHOLE);
        assert_eq!(
            (chain[1].kind, chain[1].key),
            (brief_kind::WHOLE, NO_REGISTER)
        );
        let ready = keyed(op::READY, at(RSI, &[]), &[]);
        // A child has no key.
        let mut child = keyed(op::NOTE, Reading::default(), &[is_new]);
        (child.flags, child.key_parts) = (marker_flag::CURRENT | marker_flag::CHILD, 0);
        for first in [begin, child] {
            let chain = brief([first, ready]);
            assert_eq!(
                (chain[1].kind, chain[1].key, chain[1].base),
                (brief_kind::KEYED, RSI, RSI)
            );
        }
    }
}
