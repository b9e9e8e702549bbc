//! Words that the report, the page and `summary.json` have alike: who had a CPU, and what requests were queued behind, in; words
//! out.

use reqtrace_analysis::report::blame::{Busy, CpuTaken, QueuedBehind};
use reqtrace_analysis::report::{TakerKind, TakerName};
use reqtrace_base::figures::cut;
use reqtrace_base::names::clean;

/// Widest name of a request type or class before it is cut.
pub(crate) const NAME: usize = 24;

/// `"reindexd" (pid 991, SCHED_FIFO 10)`.
pub(crate) fn taker(name: &TakerName) -> String {
    let comm = clean(&name.comm);
    match name.kind {
        TakerKind::Process | TakerKind::Service => {
            format!("\"{comm}\" (pid {}, {})", name.pid, name.scheduling())
        }
        TakerKind::Limit if comm.is_empty() => "CPU limit of a cgroup that is not known".to_owned(),
        TakerKind::Limit => format!("CPU limit of cgroup {comm}"),
        TakerKind::Idle => "idle CPU that had to wake up".to_owned(),
        TakerKind::Others => "others".to_owned(),
    }
}

/// `preempted: by "reindexd" (pid 991, SCHED_FIFO 10), CPU 1`.
pub(crate) fn taken_words(taken: &CpuTaken) -> String {
    let cpu = taken
        .cpu
        .map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
    format!("{}: by {}{cpu}", taken.cause.words(), taker(&taken.by))
}

/// `its thread ran `crunch``.
pub(crate) fn behind_words(behind: &QueuedBehind) -> String {
    match &behind.with {
        Busy::Request(name) => format!("its thread ran `{}`", cut(name, NAME)),
        Busy::NoRequest => "its thread ran what is no request, or the runtime".to_owned(),
        Busy::Asleep => "its thread slept, until it was woken".to_owned(),
        Busy::NoCpu => "its thread waited for a CPU".to_owned(),
        Busy::NotKnown => "not known".to_owned(),
    }
}
