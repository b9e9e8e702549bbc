//! Records that are in no file: why, in; the label by which they are counted out.

/// Why records were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dropped {
    /// The writer was behind.
    Queue,
    /// A file could not be written, or there was no room for one.
    Disk,
    /// They were handed over, and removed to make room.
    Oldest,
}

impl Dropped {
    pub(crate) const ALL: [Self; 3] = [Self::Queue, Self::Disk, Self::Oldest];

    /// The label `cause`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue_full",
            Self::Disk => "disk",
            Self::Oldest => "oldest",
        }
    }
}
