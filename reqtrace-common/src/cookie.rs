//! The attach cookie of a probe: which marker of which request type was hit, and how to judge it.

/// What a marker does when it is hit again inside its own request.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reentry {
    /// The outermost begin and end are the request.
    #[default]
    Nest = 0,
    /// The first begin stays, others are ignored; the first matching end closes.
    Ignore = 1,
    /// The open request is closed as incomplete and a new one begins.
    Restart = 2,
}

/// How an end is tied to the frame of its begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frame {
    /// Not at all: begin and end are in different functions.
    #[default]
    Unrelated,
    /// Begin: remember where the return address stands, as [`ReturnSlot`] tells. End: it must be
    /// the same place, as it is everywhere in one activation.
    Same,
    /// End at a uretprobe: the return address is already popped, so 8 bytes above.
    Popped,
}

/// Where the return address stands when a probe is hit: at `register + 8 * words`.
///
/// That is CFA − 8 of the call frame information. At an entry and at a return instruction it is
/// the stack pointer itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReturnSlot {
    /// Counted from `%rbp`, otherwise from `%rsp`.
    pub from_rbp: bool,
    /// Distance above the register, in words of 8 bytes.
    pub words: u16,
}

impl ReturnSlot {
    /// At the stack pointer: at an entry, or at a return instruction.
    pub const AT_RSP: Self = Self {
        from_rbp: false,
        words: 0,
    };

    /// Its address, from the registers at the probe.
    #[must_use]
    #[inline]
    pub const fn address(self, rsp: u64, rbp: u64) -> u64 {
        let base = if self.from_rbp { rbp } else { rsp };
        base.wrapping_add(8 * self.words as u64)
    }
}

/// A decoded cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Index of the request type.
    pub request_type: u8,
    /// How begins inside a request are taken.
    pub reentry: Reentry,
    /// How the end is tied to its begin.
    pub frame: Frame,
    /// The probe is on a conditional jump out of the function: only when this x86 condition code
    /// (0–15, the low four bits of `Jcc`'s opcode) holds is the function left.
    pub condition: Option<u8>,
    /// Where the frame's return address stands at this probe.
    pub slot: ReturnSlot,
    /// How the label is read at this begin: index of a [`crate::label::LabelPlan`], 0 for none.
    pub label: u16,
    /// Whatever holds of a marker's plans, nothing comes of it where the thread runs no request.
    pub in_request: bool,
}

const REENTRY_SHIFT: u64 = 8;
const FRAME_SHIFT: u64 = 12;
const CONDITION_SHIFT: u64 = 16;
const LABEL_SHIFT: u64 = 32;
const WORDS_SHIFT: u64 = 48;
const CONDITION_FLAG: u64 = 1 << 20;
const RBP_FLAG: u64 = 1 << 21;
const IN_REQUEST_FLAG: u64 = 1 << 22;

impl Cookie {
    /// The 64 bits handed to the kernel at attach.
    #[must_use]
    pub const fn encode(self) -> u64 {
        let condition = match self.condition {
            Some(code) => CONDITION_FLAG | ((code & 15) as u64) << CONDITION_SHIFT,
            None => 0,
        };
        let frame = match self.frame {
            Frame::Unrelated => 0,
            Frame::Same => 1,
            Frame::Popped => 2,
        };
        self.request_type as u64
            | (self.reentry as u64) << REENTRY_SHIFT
            | frame << FRAME_SHIFT
            | condition
            | if self.slot.from_rbp { RBP_FLAG } else { 0 }
            | if self.in_request { IN_REQUEST_FLAG } else { 0 }
            | (self.label as u64) << LABEL_SHIFT
            | (self.slot.words as u64) << WORDS_SHIFT
    }

    /// The reverse of [`Cookie::encode`]; unknown bits are ignored.
    #[must_use]
    #[inline]
    pub const fn decode(bits: u64) -> Self {
        let reentry = match (bits >> REENTRY_SHIFT) & 15 {
            1 => Reentry::Ignore,
            2 => Reentry::Restart,
            _ => Reentry::Nest,
        };
        let frame = match (bits >> FRAME_SHIFT) & 15 {
            1 => Frame::Same,
            2 => Frame::Popped,
            _ => Frame::Unrelated,
        };
        let condition = if bits & CONDITION_FLAG != 0 {
            Some(((bits >> CONDITION_SHIFT) & 15) as u8)
        } else {
            None
        };
        Self {
            request_type: bits as u8,
            reentry,
            frame,
            condition,
            slot: ReturnSlot {
                from_rbp: bits & RBP_FLAG != 0,
                words: (bits >> WORDS_SHIFT) as u16,
            },
            label: (bits >> LABEL_SHIFT) as u16,
            in_request: bits & IN_REQUEST_FLAG != 0,
        }
    }
}

/// Whether an x86 condition code holds for these flags (Intel SDM volume 1, appendix B).
#[must_use]
#[inline]
pub const fn condition_holds(code: u8, flags: u64) -> bool {
    let carry = flags & 1 != 0;
    let parity = flags & (1 << 2) != 0;
    let zero = flags & (1 << 6) != 0;
    let sign = flags & (1 << 7) != 0;
    let overflow = flags & (1 << 11) != 0;
    let holds = match (code >> 1) & 7 {
        0 => overflow,
        1 => carry,
        2 => zero,
        3 => carry || zero,
        4 => sign,
        5 => parity,
        6 => sign != overflow,
        _ => zero || sign != overflow,
    };
    holds != (code & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_survives_the_way_through_the_kernel() {
        for request_type in [0, 7, 15] {
            for reentry in [Reentry::Nest, Reentry::Ignore, Reentry::Restart] {
                for frame in [Frame::Unrelated, Frame::Same, Frame::Popped] {
                    for condition in [None, Some(0), Some(5), Some(15)] {
                        let cookie = Cookie {
                            request_type,
                            reentry,
                            frame,
                            condition,
                            slot: ReturnSlot::AT_RSP,
                            label: 0,
                            in_request: false,
                        };
                        assert_eq!(Cookie::decode(cookie.encode()), cookie);
                        let cookie = Cookie {
                            label: 0xfedc,
                            in_request: true,
                            slot: ReturnSlot {
                                from_rbp: true,
                                words: 0xabcd,
                            },
                            ..cookie
                        };
                        assert_eq!(Cookie::decode(cookie.encode()), cookie);
                    }
                }
            }
        }
    }

    #[test]
    fn the_return_address_is_found_from_either_register() {
        let slot = |from_rbp, words| ReturnSlot { from_rbp, words };
        assert_eq!(ReturnSlot::AT_RSP.address(0x1000, 0x2000), 0x1000);
        assert_eq!(slot(false, 3).address(0x1000, 0x2000), 0x1018);
        assert_eq!(slot(true, 1).address(0x1000, 0x2000), 0x2008);
        assert_eq!(slot(false, u16::MAX).address(0x1000, 0), 0x80ff8);
    }

    #[test]
    fn conditions_follow_the_flags() {
        const ZF: u64 = 1 << 6;
        const SF: u64 = 1 << 7;
        const OF: u64 = 1 << 11;
        assert!(condition_holds(4, ZF)); // je
        assert!(!condition_holds(5, ZF)); // jne
        assert!(condition_holds(5, 0));
        assert!(condition_holds(0xc, SF)); // jl
        assert!(!condition_holds(0xc, SF | OF));
        assert!(condition_holds(0xf, 0)); // jg
        assert!(!condition_holds(0xf, ZF));
        assert!(condition_holds(2, 1)); // jb
        assert!(condition_holds(7, 0)); // ja
    }
}
