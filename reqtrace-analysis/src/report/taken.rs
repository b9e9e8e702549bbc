//! Who had the CPUs that requests waited for.

use reqtrace_base::plain::Plain;
use reqtrace_recording::Runner;

use super::blame::Cause;

/// What one taker had of the CPUs that requests of one type waited for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTaken {
    /// [`Cause::Preempted`], or [`Cause::RunQueue`] after a wakeup.
    pub cause: Cause,
    /// Who.
    pub by: TakerName,
    /// The CPU, or the one with most of the time; `None` of several takers.
    pub cpu: Option<u32>,
    /// Nanoseconds.
    pub ns: u64,
    /// How many requests waited.
    pub requests: u64,
    /// The longest of one wait, ns.
    pub longest_ns: u64,
}

/// Who had a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TakerName {
    /// What it is.
    pub kind: TakerKind,
    /// Process; 0 if it is none.
    pub pid: u32,
    /// Its thread that ran longest; 0 if it is none.
    pub tid: u32,
    /// Name of that thread, or path of a cgroup, empty when it is not known.
    pub comm: Plain,
    /// Its policy, as the kernel numbers it.
    pub policy: u32,
    /// Its priority, as the kernel has it: 100 and more are 120 and the nice value, below is real time.
    pub priority: u32,
}

/// What has a CPU while somebody waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TakerKind {
    /// A process that serves no request of the trace.
    Process,
    /// The service itself: a process that serves requests of the trace.
    Service,
    /// Nobody: the CPU limit of a cgroup lets the thread not run.
    Limit,
    /// Nobody: the CPU was idle, and took a moment to wake up.
    Idle,
    /// Several, of which each has little.
    #[default]
    Others,
}

impl TakerKind {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Process,
        Self::Service,
        Self::Limit,
        Self::Idle,
        Self::Others,
    ];

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Service => "service",
            Self::Limit => "cpu_limit",
            Self::Idle => "idle",
            Self::Others => "others",
        }
    }
}

impl TakerName {
    /// A process, or the idle CPU.
    pub(crate) fn of(kind: TakerKind, runner: &Runner) -> Self {
        Self {
            kind,
            pid: runner.tgid,
            tid: runner.tid,
            comm: match kind {
                TakerKind::Idle => Plain::default(),
                _ => runner.comm.text(),
            },
            policy: runner.policy,
            priority: runner.priority,
        }
    }

    /// A cgroup.
    pub(crate) fn limit(cgroup: &str) -> Self {
        Self {
            kind: TakerKind::Limit,
            comm: Plain::of(cgroup),
            ..Self::default()
        }
    }

    /// Whether it goes before all threads without real time.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        matches!(self.policy, FIFO | ROUND_ROBIN | DEADLINE)
    }

    /// Policy and priority: `SCHED_FIFO 10`, `nice -5`, `SCHED_OTHER`.
    #[must_use]
    pub fn scheduling(&self) -> String {
        let real_time = (FIRST_FAIR - 1).saturating_sub(self.priority);
        let nice = i64::from(self.priority) - 120;
        match self.policy {
            FIFO => format!("SCHED_FIFO {real_time}"),
            ROUND_ROBIN => format!("SCHED_RR {real_time}"),
            DEADLINE => "SCHED_DEADLINE".to_owned(),
            0 if self.priority < FIRST_FAIR => {
                format!("SCHED_OTHER with inherited real-time priority {real_time}")
            }
            0 if nice == 0 => "SCHED_OTHER".to_owned(),
            0 => format!("nice {nice}"),
            3 => "SCHED_BATCH".to_owned(),
            5 => "SCHED_IDLE".to_owned(),
            7 => "SCHED_EXT".to_owned(),
            other => format!("policy {other}"),
        }
    }
}

/// The kernel's numbers of policies that go first.
const FIFO: u32 = 1;
const ROUND_ROBIN: u32 = 2;
const DEADLINE: u32 = 6;
/// The first priority that is not real time.
const FIRST_FAIR: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_named_with_their_own_numbers() {
        let name = |policy, priority| {
            let name = TakerName {
                policy,
                priority,
                ..TakerName::default()
            };
            (name.scheduling(), name.is_real_time())
        };
        assert_eq!(name(1, 89), ("SCHED_FIFO 10".to_owned(), true));
        assert_eq!(name(2, 0), ("SCHED_RR 99".to_owned(), true));
        assert_eq!(name(6, u32::MAX), ("SCHED_DEADLINE".to_owned(), true));
        assert_eq!(name(0, 120), ("SCHED_OTHER".to_owned(), false));
        assert_eq!(name(0, 115), ("nice -5".to_owned(), false));
        assert_eq!(name(5, 139), ("SCHED_IDLE".to_owned(), false));
        assert_eq!(
            name(0, 60).0,
            "SCHED_OTHER with inherited real-time priority 39"
        );
    }
}
