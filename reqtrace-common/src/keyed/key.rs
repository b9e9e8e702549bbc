//! The table of keys: what names a request in, where it is out, in one word that two threads can exchange
//! without a lock.

/// What names a request while it lives.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    /// The process.
    pub tgid: u32,
    /// Index of the request type.
    pub request_type: u32,
    /// The key.
    pub key: u64,
}

/// Where the request of a key is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyEntry {
    /// A [`Where`], encoded.
    pub word: u64,
    /// Tells its request from others of the same key: [`KeyedState::stamp_ns`].
    pub stamp_ns: u64,
    /// 0: the request is not recorded, and lies in no table while it is parked.
    pub weight: u64,
}

/// Where the request of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// No thread runs it.
    Away,
    /// This thread runs it. With a place, it is ready again already: it goes there when it is parked.
    Running(u32, Option<u32>),
    /// A program is moving it just now.
    Busy,
}

const STATE_SHIFT: u64 = 32;
const PENDING_SHIFT: u64 = 40;

impl Where {
    /// As one word.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> u64 {
        match self {
            Self::Away => 0,
            Self::Running(tid, None) => 1 << STATE_SHIFT | tid as u64,
            Self::Running(tid, Some(place)) => {
                (place as u64 + 1) << PENDING_SHIFT | 1 << STATE_SHIFT | tid as u64
            }
            Self::Busy => 2 << STATE_SHIFT,
        }
    }

    /// The reverse of [`Where::encode`].
    #[must_use]
    #[inline]
    pub const fn decode(word: u64) -> Self {
        match (word >> STATE_SHIFT) & 3 {
            0 => Self::Away,
            1 => {
                let pending = (word >> PENDING_SHIFT) as u32;
                Self::Running(
                    word as u32,
                    if pending == 0 {
                        None
                    } else {
                        Some(pending - 1)
                    },
                )
            }
            _ => Self::Busy,
        }
    }
}
