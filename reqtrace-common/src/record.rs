//! Records of the ring buffer: one per finished request, and few others.

use crate::clocks::Clocks;
use crate::keyed::Job;
use crate::limits::{COMM_LEN, MAX_LABEL, MAX_LONGEST, MAX_PATH, MAX_SLOTS};
use crate::marker::{MAX_ATTRIBUTES, MAX_PLACES, MAX_TEXT, MORE_PLACES};
use crate::origin::Sender;

/// What a ring record is; the first `u32` of every record.
pub mod kind {
    /// A [`super::RequestRecord`].
    pub const REQUEST: u32 = 1;
    /// A [`super::ProcessRecord`].
    pub const PROCESS: u32 = 2;
    /// A [`super::FileRecord`].
    pub const FILE: u32 = 3;
    /// A [`super::IntervalRecord`].
    pub const INTERVAL: u32 = 4;
    /// A [`super::HelperRecord`].
    pub const HELPER: u32 = 5;
    /// A [`super::SampleRecord`].
    pub const SAMPLE: u32 = 6;
    /// An [`super::ExtraRecord`].
    pub const EXTRA: u32 = 7;
    /// A [`super::TextRecord`].
    pub const TEXT: u32 = 8;
    /// An [`super::AwayRecord`].
    pub const AWAY: u32 = 9;
    /// An [`super::OriginRecord`].
    pub const ORIGIN: u32 = 10;
    /// A [`crate::cpu::CpuWaitRecord`].
    pub const CPU_WAIT: u32 = 11;
    /// A [`crate::disk::DiskRecord`].
    pub const DISK: u32 = 12;
}

/// Why a request is incomplete; [`COMPLETE`](reason::COMPLETE) when it is not.
pub mod reason {
    /// Begin and end were both seen.
    pub const COMPLETE: u32 = 0;
    /// The end never came: an exception or longjmp left the function, or a probe was lost.
    pub const NO_END: u32 = 1;
    /// The thread died in the request.
    pub const THREAD_DIED: u32 = 2;
    /// The process called exec in the request.
    pub const EXEC: u32 = 3;
    /// The request was running when tracing started; its begin was not seen.
    pub const RUNNING_AT_START: u32 = 4;
    /// The request was running, on a CPU or runnable, when tracing stopped.
    pub const RUNNING_AT_STOP: u32 = 5;
    /// The request was blocked when tracing stopped.
    pub const BLOCKED_AT_STOP: u32 = 6;
    /// No thread ran the request when tracing stopped: it was parked or queued.
    pub const PARKED_AT_STOP: u32 = 7;
    /// The tables of requests with keys were full, and it had been left for longest.
    pub const NO_ROOM: u32 = 8;
}

/// The id of a stack: a hash of its addresses of 63 bits, whose lowest bit is 0, or one of the constants
/// below. In the kernel's table that bit is the window ([`crate::config::Control::window`]).
pub type StackId = u64;

/// The stack was lost (table full, collision, or not readable); its time is still counted.
pub const STACK_LOST: StackId = 0;
/// There is no stack on this side (a kernel thread, or a side that was not asked for).
pub const STACK_NONE: StackId = 1;

/// The id of a file: a hash of its mount and of its name in its folder, or one of the constants
/// below. A file that is renamed gets another id, one that is removed and made again keeps it. All
/// sockets are one file, and so are all pipes without a name.
pub type FileId = u32;

/// The block was not in a system call on a descriptor.
pub const FILE_NONE: FileId = 0;
/// The file could not be found out. Counted as [`crate::loss::Loss::FileUnknown`] or
/// [`crate::loss::Loss::FileCollision`].
pub const FILE_UNKNOWN: FileId = 1;

/// Where a block happened: all that a wait class or a named wait is decided from.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockSite {
    /// Kernel stack at switch-out.
    pub kernel_stack: StackId,
    /// User stack at switch-out.
    pub user_stack: StackId,
    /// System call the thread was in (x86-64 number), −1 outside any (page fault, preemption).
    pub syscall: i32,
    /// The file behind the descriptor of that system call, or [`FILE_NONE`] or [`FILE_UNKNOWN`].
    pub file: FileId,
}

impl BlockSite {
    /// Where a preemption happened whose stacks were not asked for: anywhere.
    pub const PREEMPTED: Self = Self {
        kernel_stack: STACK_NONE,
        user_stack: STACK_NONE,
        syscall: -1,
        file: FILE_NONE,
    };
}

/// Blocked time of one request at one site.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Where.
    pub site: BlockSite,
    /// Nanoseconds blocked, without the run queue part.
    pub blocked_ns: u64,
}

/// One of the longest blocks of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongBlock {
    /// Where.
    pub site: BlockSite,
    /// Switch-out, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Nanoseconds blocked, until the wakeup.
    pub blocked_ns: u64,
    /// Nanoseconds on the run queue, from the wakeup until the thread ran.
    pub run_queue_ns: u64,
    /// Thread that woke this one, 0 when it is not known (an interrupt, or no wakeup seen).
    pub waker_tid: u32,
    /// Process of that thread, 0 when not known.
    pub waker_tgid: u32,
}

/// One request.
///
/// The kernel sends a prefix: up to the last used entry of `longest` or of `slots`, or all of it
/// when there is a label.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// [`kind::REQUEST`].
    pub kind: u32,
    /// Index of the request type in the profile.
    pub request_type: u32,
    /// Process id, in the initial PID namespace.
    pub tgid: u32,
    /// Thread id, in the initial PID namespace.
    pub tid: u32,
    /// How often the process had called exec since tracing began; with `tgid` it names an
    /// address space.
    pub exec_generation: u32,
    /// One of [`reason`].
    pub reason: u32,
    /// Begin, `CLOCK_MONOTONIC` nanoseconds.
    pub begin_ns: u64,
    /// End, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Nanoseconds runnable after a wakeup.
    pub run_queue_ns: u64,
    /// Nanoseconds switched out while runnable.
    pub preempted_ns: u64,
    /// Nanoseconds blocked at the sites in `slots`, exactly their sum.
    pub blocked_ns: u64,
    /// Nanoseconds blocked at sites that found no slot or whose kernel stack was lost.
    pub unattributed_ns: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of preemptions.
    pub preemptions: u32,
    /// Used entries of `slots`.
    pub slots_used: u32,
    /// Used entries of `longest`.
    pub longest_used: u32,
    /// Bytes used of `label`.
    pub label_len: u32,
    /// How deep begins nested at most; 1 when they did not.
    pub max_depth: u32,
    /// How many requests this one stands for: [`crate::config::Control::sample_every`] at its begin,
    /// 1 when all are recorded. 0: it is not recorded, and sent only for whoever it holds up, with nothing but its times.
    pub weight: u32,
    /// Always 0.
    pub pad: u32,
    /// Name of the thread at the end of the request, padded with NUL.
    pub comm: [u8; COMM_LEN],
    /// The longest blocks, in no order.
    pub longest: [LongBlock; MAX_LONGEST],
    /// Blocked time per site.
    pub slots: [Slot; MAX_SLOTS],
    /// The label, when labels are recorded.
    pub label: [u8; MAX_LABEL],
}

impl RequestRecord {
    /// All zero: the template that a new thread's state is made from.
    pub const ZERO: Self = Self {
        kind: 0,
        request_type: 0,
        tgid: 0,
        tid: 0,
        exec_generation: 0,
        reason: 0,
        begin_ns: 0,
        end_ns: 0,
        run_queue_ns: 0,
        preempted_ns: 0,
        blocked_ns: 0,
        unattributed_ns: 0,
        blocks: 0,
        preemptions: 0,
        slots_used: 0,
        longest_used: 0,
        label_len: 0,
        max_depth: 0,
        weight: 0,
        pad: 0,
        comm: [0; COMM_LEN],
        longest: [LongBlock {
            site: BlockSite {
                kernel_stack: 0,
                user_stack: 0,
                syscall: 0,
                file: FILE_NONE,
            },
            start_ns: 0,
            blocked_ns: 0,
            run_queue_ns: 0,
            waker_tid: 0,
            waker_tgid: 0,
        }; MAX_LONGEST],
        slots: [Slot {
            site: BlockSite {
                kernel_stack: 0,
                user_stack: 0,
                syscall: 0,
                file: FILE_NONE,
            },
            blocked_ns: 0,
        }; MAX_SLOTS],
        label: [0; MAX_LABEL],
    };

    /// Nanoseconds from begin to end.
    #[must_use]
    pub const fn latency_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Nanoseconds off the CPU, whatever the reason.
    #[must_use]
    pub const fn off_cpu_ns(&self) -> u64 {
        self.run_queue_ns + self.preempted_ns + self.blocked_ns + self.unattributed_ns
    }

    /// Nanoseconds on a CPU: what closes the ledger.
    #[must_use]
    pub const fn on_cpu_ns(&self) -> u64 {
        self.latency_ns().saturating_sub(self.off_cpu_ns())
    }
}

/// What ran when a thread was woken.
pub mod waker_context {
    /// No wakeup was seen, or it is not known what ran.
    pub const UNKNOWN: u32 = 0;
    /// The thread that is named, in a system call.
    pub const TASK: u32 = 1;
    /// An interrupt that came upon that thread, or the thread itself, in an exception or through a softirq
    /// that it runs: the kernel stack tells.
    pub const UNCLEAR: u32 = 2;
    /// As [`UNCLEAR`]; and the thread has not sent the TCP segment that came last on its CPU: it took that of
    /// another one out of a queue.
    pub const DELIVERS: u32 = 3;
}

/// What the thread was doing that ran when another one was woken.
pub mod waker_is {
    /// It is not known.
    pub const UNKNOWN: u32 = 0;
    /// It served a request.
    pub const IN_REQUEST: u32 = 1;
    /// It has served a request before, and was in none.
    pub const BETWEEN_REQUESTS: u32 = 2;
    /// It has served none, and all its intervals are recorded.
    pub const HELPER: u32 = 3;
    /// It served a request that is not recorded.
    pub const NOT_RECORDED: u32 = 4;
}

/// Who woke a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakerRecord {
    /// The thread that ran, 0 when it is not known.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// One of [`waker_context`].
    pub context: u32,
    /// One of [`waker_is`].
    pub is: u32,
    /// Begin of its request, or since when it is a helper, `CLOCK_MONOTONIC` nanoseconds; otherwise 0.
    pub since_ns: u64,
    /// Where the context is unclear, the kernel stack; where it is the thread itself, its user stack, if its
    /// process is traced.
    pub stack: StackId,
    /// Index of the type of its request.
    pub request_type: u32,
    /// How often its process had called exec since tracing began.
    pub exec_generation: u32,
}

/// An interval that a thread was off the CPU: with blame, of each thread in a request and of helpers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntervalRecord {
    /// [`kind::INTERVAL`].
    pub kind: u32,
    /// Process id, in the initial PID namespace.
    pub tgid: u32,
    /// Thread id, in the initial PID namespace.
    pub tid: u32,
    /// How often the process had called exec since tracing began.
    pub exec_generation: u32,
    /// Counts the intervals of the thread.
    pub sequence: u32,
    /// 1 for a preemption, 0 for a block.
    pub preempted: u32,
    /// Index of the type of its request.
    pub request_type: u32,
    /// Always 0.
    pub pad: u32,
    /// Begin of its request, `CLOCK_MONOTONIC` nanoseconds; 0 when it is in none.
    pub request_begin_ns: u64,
    /// Switch-out, `CLOCK_MONOTONIC` nanoseconds.
    pub out_ns: u64,
    /// Wakeup, never before the switch-out; 0 for a preemption.
    pub wake_ns: u64,
    /// Switch-in.
    pub in_ns: u64,
    /// Where.
    pub site: BlockSite,
    /// First argument of the system call, when that was `futex`; otherwise 0.
    pub futex: u64,
    /// One of [`crate::futex::holder_is`].
    pub holder_is: u32,
    /// The thread that held the lock when the wait began, by its number in its own PID namespace.
    pub holder: u32,
    /// Who woke it.
    pub waker: WakerRecord,
}

/// A thread has become a helper, or a helper has got another name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelperRecord {
    /// [`kind::HELPER`].
    pub kind: u32,
    /// Process id, in the initial PID namespace.
    pub tgid: u32,
    /// Thread id, in the initial PID namespace.
    pub tid: u32,
    /// Always 0.
    pub pad: u32,
    /// Its name, padded with NUL.
    pub comm: [u8; COMM_LEN],
}

/// What a thread in a request did on its CPU when a sample was taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// [`kind::SAMPLE`].
    pub kind: u32,
    /// Process id, in the initial PID namespace.
    pub tgid: u32,
    /// Thread id, in the initial PID namespace.
    pub tid: u32,
    /// How often the process had called exec since tracing began.
    pub exec_generation: u32,
    /// Index of the type of its request.
    pub request_type: u32,
    /// How many requests its request stood for at its begin; its record may stand for more: [`RequestRecord::weight`].
    pub weight: u32,
    /// Begin of its request, `CLOCK_MONOTONIC` nanoseconds.
    pub request_begin_ns: u64,
    /// When the sample was taken, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// User stack.
    pub user_stack: StackId,
    /// Kernel stack, [`STACK_NONE`] when the thread ran in user space.
    pub kernel_stack: StackId,
}

/// Places of [`ExtraRecord::away_ns`].
pub const PLACES: usize = MAX_PLACES + 2 + MORE_PLACES;

/// Stacks at which one request was parked that are distinguished. A power of two.
pub const MAX_PARKS: usize = 8;

/// Parked time of one request at one stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParkSlot {
    /// Where it decided to wait.
    pub stack: StackId,
    /// Nanoseconds.
    pub ns: u64,
    /// Index of the place in [`ExtraRecord::away_ns`].
    pub place: u32,
    /// How often.
    pub count: u32,
}

/// What a request has beside its [`RequestRecord`]: time in which no thread ran it, numbers, and when its data came.
/// Sent before that record, where there is any of these. The kernel sends a prefix: up to the last used entry of `parks`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraRecord {
    /// [`kind::EXTRA`].
    pub kind: u32,
    /// [`RequestRecord::tgid`].
    pub tgid: u32,
    /// [`RequestRecord::tid`].
    pub tid: u32,
    /// How often another thread went on with it than the one before.
    pub moves: u32,
    /// [`RequestRecord::begin_ns`].
    pub begin_ns: u64,
    /// What its [`TextRecord`]s name it by: unique in its process.
    pub stamp_ns: u64,
    /// Nanoseconds queued, of those in `away_ns`.
    pub queued_ns: u64,
    /// Nanoseconds parked or queued, by the number of the place ([`crate::marker::place_number`]); those without a name in
    /// [`crate::keyed::PARKED`] and [`crate::keyed::QUEUED`].
    pub away_ns: [u64; PLACES],
    /// How often it was parked or queued, by place.
    pub aways: [u32; PLACES],
    /// Which entries of `numbers` are set, a bit for each.
    pub numbers_set: u32,
    /// Which attributes have text, a bit for each.
    pub texts_set: u32,
    /// Values of attributes that are numbers.
    pub numbers: [u64; MAX_ATTRIBUTES],
    /// When the data came that it began with, `CLOCK_MONOTONIC` nanoseconds; 0: not known.
    pub arrived_ns: u64,
    /// What took the CPU from it while it ran, with `--interrupts`.
    pub lost: Clocks,
    /// Used entries of `parks`.
    pub parks_used: u32,
    /// Not 0: the request is not sent, and so its texts are of no use.
    pub is_withheld: u32,
    /// Parked time by stack, as far as one is known and found room; the rest of a place has none. Entries that are not used
    /// mean nothing.
    pub parks: [ParkSlot; MAX_PARKS],
}

/// What stands before a text that a request was about: see [`TextRecord`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextHead {
    /// [`kind::TEXT`].
    pub kind: u32,
    /// The process.
    pub tgid: u32,
    /// [`ExtraRecord::stamp_ns`] of its request.
    pub stamp_ns: u64,
    /// Index of the request type.
    pub request_type: u32,
    /// Which attribute of that type.
    pub index: u32,
    /// Bytes used of the text.
    pub len: u32,
    /// 1 when the text goes on, as far as is known.
    pub is_cut: u32,
}

/// A text that a request was about. The kernel sends less room for a short one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRecord {
    /// What it is.
    pub head: TextHead,
    /// The text.
    pub text: [u8; MAX_TEXT],
}

/// A request was parked or queued, and is no more; with blame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwayRecord {
    /// [`kind::AWAY`].
    pub kind: u32,
    /// The process.
    pub tgid: u32,
    /// The thread that ran it before.
    pub from_tid: u32,
    /// The thread that ended this: one that runs it now, or one that has made it ready, or has ended it.
    pub by_tid: u32,
    /// How often the process had called exec since tracing began.
    pub exec_generation: u32,
    /// Index of the request type.
    pub request_type: u32,
    /// Index of the place in [`ExtraRecord::away_ns`].
    pub place: u32,
    /// 1 for queued, 0 for parked.
    pub queued: u32,
    /// [`RequestRecord::begin_ns`].
    pub request_begin_ns: u64,
    /// Since when, `CLOCK_MONOTONIC` nanoseconds.
    pub since_ns: u64,
    /// Until when, `CLOCK_MONOTONIC` nanoseconds.
    pub until_ns: u64,
    /// What the thread that ended it did: [`waker_is::IN_REQUEST`] when it ran a request then; [`waker_is::HELPER`] when its
    /// intervals are recorded otherwise; or 0.
    pub by_is: u32,
    /// Index of the type of that request.
    pub by_request_type: u32,
    /// Begin of that request, or since when its intervals are recorded, `CLOCK_MONOTONIC` nanoseconds; otherwise 0.
    pub by_begin_ns: u64,
    /// 1 when that thread has made it ready.
    pub is_ready: u32,
    /// 1 when that thread goes on with it.
    pub goes_on: u32,
    /// The job whose end made it ready.
    pub job: Job,
    /// User stack of that thread where it made it ready.
    pub by_stack: StackId,
    /// What the thread had run last that goes on with this request, which was queued.
    pub ran: LastRun,
}

/// The request with a key that a thread ran last, and left.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastRun {
    /// [`RequestRecord::begin_ns`]; 0: none is known.
    pub begin_ns: u64,
    /// When the thread left it, `CLOCK_MONOTONIC` nanoseconds.
    pub until_ns: u64,
    /// Index of its type.
    pub request_type: u32,
    /// [`LastRun::DONE`] once its unit is done there; [`LastRun::WAKES`] while the thread wakes who waits for that.
    pub is_done: u32,
}

impl LastRun {
    /// Its unit is done.
    pub const DONE: u32 = 1;
    /// So it is, and that is what the thread wakes others for.
    pub const WAKES: u32 = 2;

    /// None.
    pub const NONE: Self = Self {
        begin_ns: 0,
        until_ns: 0,
        request_type: 0,
        is_done: 0,
    };
}

/// What a request went on with that was parked; with blame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginRecord {
    /// [`kind::ORIGIN`].
    pub kind: u32,
    /// The process.
    pub tgid: u32,
    /// How often the process had called exec since tracing began.
    pub exec_generation: u32,
    /// Index of the request type.
    pub request_type: u32,
    /// [`RequestRecord::begin_ns`].
    pub request_begin_ns: u64,
    /// [`AwayRecord::until_ns`].
    pub until_ns: u64,
    /// When the data came, `CLOCK_MONOTONIC` nanoseconds.
    pub arrived_ns: u64,
    /// One of [`crate::origin::found`].
    pub found: u32,
    /// Always 0.
    pub pad: u32,
    /// Who sent it.
    pub sender: Sender,
}

/// What happened to a traced process.
pub mod process_event {
    /// A traced process forked this one.
    pub const FORK: u32 = 1;
    /// The process called exec: its memory maps are new.
    pub const EXEC: u32 = 2;
    /// The last thread of the process left.
    pub const EXIT: u32 = 3;
    /// A stack went through code that is in no known mapping: it has mapped more.
    pub const MAPPED: u32 = 4;
    /// A process that was not traced begins to run a watched program: it is traced from its first
    /// instruction on.
    pub const PROGRAM: u32 = 5;
}

/// A traced process appeared, changed its program, or left.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRecord {
    /// [`kind::PROCESS`].
    pub kind: u32,
    /// One of [`process_event`].
    pub event: u32,
    /// The process.
    pub tgid: u32,
    /// Its parent for a fork, otherwise 0.
    pub parent: u32,
    /// Exec generation after the event.
    pub exec_generation: u32,
    /// Always 0.
    pub pad: u32,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Name of the current thread: of an exec, that of the new program's file.
    pub comm: [u8; COMM_LEN],
}

/// What kind of name a [`FileRecord`] has.
pub mod file_name {
    /// The names of all folders up to the root of the mount namespace.
    pub const WHOLE: u32 = 0;
    /// The last names of a path that is longer than the record, or that ends where a folder was
    /// moved away meanwhile.
    pub const CUT: u32 = 1;
    /// One name, of a file that is in no folder: a socket, a pipe, an eventfd, a memfd.
    pub const NO_FOLDER: u32 = 2;
}

/// A file was blocked on for the first time. The kernel sends a prefix: up to the last used byte of
/// `names`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// [`kind::FILE`].
    pub kind: u32,
    /// The file.
    pub file: FileId,
    /// One of [`file_name`].
    pub name: u32,
    /// Bytes used of `names`.
    pub len: u32,
    /// `st_mode`.
    pub mode: u32,
    /// Magic number of its file system, as in `statfs`.
    pub magic: u32,
    /// Its file system's device: major number << 20 | minor number.
    pub device: u32,
    /// Always 0.
    pub pad: u32,
    /// Inode number.
    pub inode: u64,
    /// Names of the file and its folders, the file's first, each with a NUL.
    pub names: [u8; MAX_PATH],
}
