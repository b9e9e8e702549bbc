//! Every way in which something that was seen can be lost, each with its counter.

/// A cause of loss; the discriminant is the index of its counter in the kernel's array.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Loss {
    /// A request's record did not fit into the ring buffer. Totals and stacks have it.
    RingFull = 0,
    /// A begin found no room in the thread table: the request was not traced.
    ThreadTableFull = 1,
    /// A begin could not insert for another reason (EBUSY): the request was not traced.
    ThreadInsert = 2,
    /// A thread marked as in a request had no state: its switch was not counted.
    ThreadMissing = 3,
    /// A kernel stack could not be read.
    KernelStackUnreadable = 4,
    /// A user stack could not be read.
    UserStackUnreadable = 5,
    /// The stack table was full.
    StackTableFull = 6,
    /// Two different stacks had one id.
    StackCollision = 7,
    /// The table of sums per stack pair was full or busy: the time is in no folded stack.
    StackSumFull = 8,
    /// Blocked time found no slot in its request and went to `unattributed`.
    SlotsFull = 9,
    /// A switch during the end of a request could not be distinguished from the request; at most
    /// some microseconds went to on-CPU time.
    EndRaced = 10,
    /// The name of a file did not fit into the ring buffer; it is sent again at the next block.
    FileNotice = 11,
    /// A process notice did not fit into the ring buffer.
    ProcessNotice = 12,
    /// A process found no room in the process table and is not traced.
    ProcessTableFull = 13,
    /// A request's latency would have been less than its off-CPU time; never expected.
    LedgerNegative = 14,
    /// A label could not be read: memory that is not mapped or not resident.
    LabelUnreadable = 15,
    /// A thread was on a CPU again without a `sched_switch`. Its time since it left
    /// counts as on CPU.
    SwitchInUnseen = 16,
    /// The table of histograms was full or busy: a block is in no histogram.
    HistogramFull = 17,
    /// A thread blocked on a descriptor behind which no file could be read.
    FileUnknown = 18,
    /// A thread blocked on a file whose id another file has.
    FileCollision = 19,
    /// A stack that was remembered was walked again, to check it, and was another one; never expected.
    /// Only `-v` checks.
    KnownStackWrong = 20,
    /// The ring had no room for an interval: blame does not know of it.
    IntervalRingFull = 21,
    /// The ring had no room for a sample of a thread on its CPU.
    SampleRingFull = 22,
    /// The table of requests with keys was full: the request was not traced.
    KeyTableFull = 23,
    /// The table of parked requests was full: the request was closed there.
    ParkedTableFull = 24,
    /// A text of a request did not fit into the ring buffer.
    TextRingFull = 25,
    /// A key could not be read: memory that is not mapped or not resident. The marker was passed over.
    KeyUnreadable = 26,
    /// The ring had no room for a wait for a CPU: who had that CPU is not known.
    CpuWaitRingFull = 27,
    /// The ring had no room for an I/O of a watched thread, or for sums of another process.
    DiskRingFull = 28,
}

impl Loss {
    /// All causes, in the order of their counters.
    pub const ALL: [Self; 29] = [
        Self::RingFull,
        Self::ThreadTableFull,
        Self::ThreadInsert,
        Self::ThreadMissing,
        Self::KernelStackUnreadable,
        Self::UserStackUnreadable,
        Self::StackTableFull,
        Self::StackCollision,
        Self::StackSumFull,
        Self::SlotsFull,
        Self::EndRaced,
        Self::FileNotice,
        Self::ProcessNotice,
        Self::ProcessTableFull,
        Self::LedgerNegative,
        Self::LabelUnreadable,
        Self::SwitchInUnseen,
        Self::HistogramFull,
        Self::FileUnknown,
        Self::FileCollision,
        Self::KnownStackWrong,
        Self::IntervalRingFull,
        Self::SampleRingFull,
        Self::KeyTableFull,
        Self::ParkedTableFull,
        Self::TextRingFull,
        Self::KeyUnreadable,
        Self::CpuWaitRingFull,
        Self::DiskRingFull,
    ];

    /// Name in `summary.json`: stable, lower case with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::ThreadTableFull => "thread_table_full",
            Self::ThreadInsert => "thread_insert",
            Self::ThreadMissing => "thread_missing",
            Self::KernelStackUnreadable => "kernel_stack_unreadable",
            Self::UserStackUnreadable => "user_stack_unreadable",
            Self::StackTableFull => "stack_table_full",
            Self::StackCollision => "stack_collision",
            Self::StackSumFull => "stack_sum_full",
            Self::SlotsFull => "slots_full",
            Self::EndRaced => "end_raced",
            Self::FileNotice => "file_notice",
            Self::ProcessNotice => "process_notice",
            Self::ProcessTableFull => "process_table_full",
            Self::LedgerNegative => "ledger_negative",
            Self::LabelUnreadable => "label_unreadable",
            Self::SwitchInUnseen => "switch_in_unseen",
            Self::HistogramFull => "histogram_full",
            Self::FileUnknown => "file_unknown",
            Self::FileCollision => "file_collision",
            Self::KnownStackWrong => "known_stack_wrong",
            Self::IntervalRingFull => "intervals_lost",
            Self::SampleRingFull => "samples_lost",
            Self::KeyTableFull => "key_table_full",
            Self::ParkedTableFull => "parked_table_full",
            Self::TextRingFull => "texts_lost",
            Self::KeyUnreadable => "key_unreadable",
            Self::CpuWaitRingFull => "cpu_waits_lost",
            Self::DiskRingFull => "disk_io_lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Loss;

    #[test]
    fn discriminants_are_the_indices() {
        for (index, loss) in Loss::ALL.into_iter().enumerate() {
            assert_eq!(loss as usize, index);
        }
    }
}
