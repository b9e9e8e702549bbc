//! Panics that are recovered: where a goroutine goes on behind one, and the frames of its stack, in; whether functions are left
//! for good by that, out.
//!
//! What panicked, and all frames between, still lie on the stack then, below the stack pointer that the goroutine goes on with.

use crate::marker::ParkPlan;

/// What code is, as [`WaitCode::place`](crate::marker::WaitCode::place) of a plan says.
pub mod code {
    /// The request lives as long as a frame of this code.
    pub const OF_THE_REQUEST: u32 = 1;
    /// It has called the first function of the goroutine: all frames have been seen.
    pub const OUTERMOST: u32 = 2;
}

/// A walk by frame pointers over the stack that is left.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The frame pointer of the next frame: where that of its caller is, and behind that the return address.
    pub bp: u64,
    /// Frames below are gone. Before Go 1.21 the frame pointer that is stored is still that of the code that has panicked.
    sp: u64,
    /// The probed instruction.
    here: u64,
    /// The code that was found; 0: none yet.
    found: u32,
    pad: u32,
}

impl Walk {
    /// Begins where the goroutine goes on. `here` is the address of the probed instruction.
    #[must_use]
    #[inline(always)]
    pub fn new(plan: &ParkPlan, here: u64, [sp, pc, bp]: [u64; 3]) -> Self {
        let mut walk = Self {
            bp,
            sp,
            here,
            found: 0,
            pad: 0,
        };
        walk.look(plan, pc);
        walk
    }

    /// Goes on with what is at [`Walk::bp`]. Whether there is more to look at.
    #[inline(always)]
    pub fn step(&mut self, plan: &ParkPlan, [bp, returns_to]: [u64; 2]) -> bool {
        if self.bp >= self.sp {
            // A return address is behind its call.
            self.look(plan, returns_to.wrapping_sub(1));
        }
        if self.found != 0 || bp <= self.bp {
            return false;
        }
        self.bp = bp;
        true
    }

    /// Whether there is more to look at.
    #[must_use]
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.found == 0
    }

    /// Whether the whole stack was seen, and had no frame of the request.
    #[must_use]
    #[inline(always)]
    pub fn has_left(&self) -> bool {
        self.found == code::OUTERMOST
    }

    #[inline(always)]
    fn look(&mut self, plan: &ParkPlan, address: u64) {
        if let Some(code) = plan.wait(address.wrapping_sub(self.here) as i64) {
            self.found = code.place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marker::WaitCode;

    /// Where the probed instruction is, and functions of 0x100 bytes.
    const HERE: u64 = 0x40_1000;
    const GOEXIT: u64 = 0x40_0000;
    const SERVES: u64 = 0x40_2000;
    const HANDLES: u64 = 0x40_3000;
    const PANICS: u64 = 0x40_4000;

    fn plan() -> ParkPlan {
        let mut plan = ParkPlan::default();
        for (address, place) in [(GOEXIT, code::OUTERMOST), (HANDLES, code::OF_THE_REQUEST)] {
            plan.waits[plan.waits_used as usize] = WaitCode {
                from: address.wrapping_sub(HERE) as i32,
                size: 0x100,
                place,
                is_general: 0,
            };
            plan.waits_used += 1;
        }
        plan
    }

    /// Frames of a goroutine, the innermost first: each a frame pointer, and what it returns to. Whether the request is left by
    /// going on with this stack pointer, program counter and frame pointer.
    fn leaves(frames: &[(u64, u64)], [sp, pc, bp]: [u64; 3]) -> bool {
        let plan = plan();
        let mut walk = Walk::new(&plan, HERE, [sp, pc, bp]);
        let mut goes_on = walk.goes_on();
        while goes_on {
            let Some(at) = frames.iter().position(|(bp, _)| *bp == walk.bp) else {
                break;
            };
            let callers = frames.get(at + 1).map_or(0, |(bp, _)| *bp);
            goes_on = walk.step(&plan, [callers, frames[at].1]);
        }
        walk.has_left()
    }

    /// A function panics that is called by the request's, which is called by the one that serves.
    const STACK: [(u64, u64); 4] = [
        (0x1000, PANICS + 5),
        (0x1100, HANDLES + 5),
        (0x1200, SERVES + 5),
        (0x1300, GOEXIT + 1),
    ];

    #[test]
    fn a_request_is_left_where_none_of_its_frames_is() {
        // By whoever recovers: the one that serves, the request's function itself, and what that has called.
        for stale in [false, true] {
            let bp = |own: u64| if stale { 0x1000 } else { own };
            assert!(leaves(&STACK, [0x1210, SERVES + 0x80, bp(0x1300)]));
            assert!(!leaves(&STACK, [0x1110, HANDLES + 0x80, bp(0x1200)]));
            assert!(!leaves(&STACK, [0x1010, PANICS + 0x80, bp(0x1100)]));
        }
        // The last byte of its code is a call.
        let mut last = STACK;
        last[1].1 = HANDLES + 0x100;
        assert!(!leaves(&last, [0x1010, PANICS + 0x80, 0x1100]));
    }

    #[test]
    fn a_stack_that_is_not_seen_whole_says_nothing() {
        let goes_on = [0x1210, SERVES + 0x80, 0x1300];
        assert!(leaves(&STACK, goes_on));
        // It cannot be read, or does not go on outwards, or ends elsewhere.
        assert!(!leaves(&STACK[..3], goes_on));
        assert!(!leaves(&STACK, [0x1210, SERVES + 0x80, 0]));
        let mut turns = STACK.to_vec();
        turns.push((0x0800, GOEXIT + 1));
        turns[3].1 = SERVES + 5;
        assert!(!leaves(&turns, goes_on));
        let mut other = STACK;
        other[3].1 = PANICS + 5;
        assert!(!leaves(&other, goes_on));
    }
}
