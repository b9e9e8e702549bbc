//! A request that is not recorded, in half a cache line: a begin in, what an end means out; and the random numbers by which a
//! thread's requests are drawn.

use crate::cookie::Frame;
use crate::thread::EndAction;

/// Places, one for a thread: a power of two. A thread whose place another one has keeps its request in its state.
pub const PLACES: u32 = 1 << PLACE_BITS;

const PLACE_BITS: u32 = 15;

/// Where a thread's is. Threads with numbers that follow each other run at the same time: their places are far apart, so that
/// they share no cache line.
#[must_use]
#[inline]
pub const fn place(tid: u32) -> u32 {
    // 2^32 divided by the golden ratio.
    tid.wrapping_mul(0x9e37_79b1) >> (u32::BITS - PLACE_BITS)
}

/// The open or last request of a thread that was not recorded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The thread, and in the upper half the request type; 0: the place is free.
    pub owner: u64,
    /// As [`crate::thread::RequestState::begin_sp`].
    pub begin_sp: u64,
    /// State of the thread's random numbers.
    pub random: u64,
    /// Always 0.
    pub pad: u64,
}

impl Passed {
    /// What [`Self::owner`] is for a thread in a request of this type.
    #[must_use]
    #[inline]
    pub const fn word(tid: u32, request_type: u32) -> u64 {
        (request_type as u64) << 32 | tid as u64
    }

    /// Whether a place is this thread's.
    #[must_use]
    #[inline]
    pub const fn is_of(owner: u64, tid: u32) -> bool {
        owner as u32 == tid
    }

    /// The type of the request.
    #[must_use]
    #[inline]
    pub const fn request_type(&self) -> u32 {
        (self.owner >> 32) as u32
    }

    /// The state of random numbers after this one, and a number: the upper half of Knuth's MMIX generator, of which each bit has a period of
    /// 2^33 at least. With the kernel's own a begin takes half as long again.
    #[must_use]
    #[inline]
    pub const fn draw(state: u64) -> (u64, u32) {
        let next = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (next, (next >> 32) as u32)
    }

    /// Decides about an end, as [`crate::thread::RequestState::on_end`] does of a request that has seen one begin.
    #[must_use]
    #[inline]
    pub const fn on_end(&self, request_type: u32, frame: Frame, sp: u64) -> EndAction {
        if self.request_type() != request_type {
            return EndAction::NoRequest;
        }
        let tied = !matches!(frame, Frame::Unrelated) && self.begin_sp != 0;
        if tied && sp != self.begin_sp {
            return EndAction::Inner;
        }
        EndAction::Close
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cookie::Reentry;
    use crate::thread::{Begin, Thread};

    #[test]
    fn an_end_means_what_it_means_to_the_thread_s_state() {
        for begin_sp in [0, 0x7000] {
            for frame in [Frame::Unrelated, Frame::Same, Frame::Popped] {
                for (request_type, sp) in [(3, 0x7000), (3, 0x6ff0), (3, 0x7010), (4, 0x7000)] {
                    let mut thread = Thread::ZERO;
                    thread.open_unsampled(&Begin {
                        now: 0,
                        request_type: 3,
                        reentry: Reentry::Nest,
                        sp: begin_sp,
                        return_address: 0,
                        weight: 0,
                    });
                    let passed = Passed {
                        owner: Passed::word(77, 3),
                        begin_sp,
                        ..Passed::default()
                    };
                    assert_eq!(
                        passed.on_end(request_type, frame, sp),
                        thread.request.on_end(request_type, frame, sp),
                        "{begin_sp:#x} {frame:?} {request_type} {sp:#x}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_place_is_its_thread_s() {
        let word = Passed::word(4_000_000, 15);
        assert!(Passed::is_of(word, 4_000_000));
        assert!(!Passed::is_of(word, 4_000_001));
        assert!(!Passed::is_of(0, 1));
        assert_eq!(
            Passed {
                owner: word,
                ..Passed::default()
            }
            .request_type(),
            15
        );
    }

    #[test]
    fn one_in_n_is_drawn_and_no_rhythm_is_in_step_with_it() {
        const DRAWS: u64 = 200_000;
        for every in [2, 8, 64] {
            for rhythm in [1, 2, 3, 64] {
                let (mut state, mut drawn) = (every << 32 | rhythm, 0_u64);
                for draw in 0..DRAWS * rhythm {
                    let (next, number) = Passed::draw(state);
                    state = next;
                    drawn +=
                        u64::from(draw % rhythm == 0 && (u64::from(number) * every) >> 32 == 0);
                }
                let expected = DRAWS as f64 / every as f64;
                let deviation = (expected * (1.0 - 1.0 / every as f64)).sqrt();
                let off = (drawn as f64 - expected).abs() / deviation;
                assert!(
                    off < 5.0,
                    "1/{every}, each {rhythm}: {drawn}, {off} deviations off"
                );
            }
        }
    }

    #[test]
    fn threads_in_a_row_share_no_line() {
        for first in [1, 1000, 123_456, 4_194_000] {
            let mut places: Vec<u32> = (first..first + 64).map(place).collect();
            places.sort_unstable();
            assert!(places.iter().all(|place| *place < PLACES));
            assert!(
                places.windows(2).all(|pair| pair[1] - pair[0] >= 2),
                "{places:?}"
            );
        }
    }
}
