//! Losses: counters in, lines with advice out.

use std::collections::BTreeMap;

use reqtrace_common::loss::Loss;
use reqtrace_recording::losses::{
    FILES_LEFT_OUT, MALFORMED, NAMES_LATE, PERF_MAPS_CUT, PROCESSES_UNPROBED, SYMBOLS_GIVEN_UP,
    SYMBOLS_LEFT_OUT, UNWIND_TABLES_LEFT_OUT,
};
use reqtrace_recording::{Ending, ProgramCost};

use super::counted::{Counted, Seconds};
use crate::report::LossLine;

/// What the tracer itself says to be lost while tracing, and what that means.
const OWN_WORDS: [(&str, &str); 7] = [
    (
        PROCESSES_UNPROBED,
        "processes that a profile is made for and that got no probes in their own program or in a library, \
         because they had left before or their markers were not found: none of their requests is counted. A \
         warning says which; of those that leave at once -v does",
    ),
    (
        NAMES_LATE,
        "addresses without a name, because finding names took longer than the 10 s that a report may \
         take: they are shown as object and offset. `reqtrace report` of a recording has no names for \
         them either; trace for a shorter time, or with -K",
    ),
    (
        PERF_MAPS_CUT,
        "perf maps of which only a part was read, because all of them have more than 256 MiB or a \
         million functions: some generated code has no names",
    ),
    (
        FILES_LEFT_OUT,
        "mapped files without names, because more than 1,024 would have been kept open, or deleted ones \
         of more than 64 MiB: their functions are shown as file and offset",
    ),
    (
        SYMBOLS_LEFT_OUT,
        "files whose symbols or debug information were not all read, because those of all files have \
         more than 1 GiB, or than the agent's `memory` has room for: some functions are shown as file and \
         offset, or without what was inlined",
    ),
    (
        UNWIND_TABLES_LEFT_OUT,
        "files without unwind tables, because those of all files have more than 4 million rows, or than the \
         agent's `memory` has room for: stacks through them are walked by frame pointers, or stop there. -v \
         says which",
    ),
    (
        SYMBOLS_GIVEN_UP,
        "files whose debug information or symbols are malformed, or made their reader panic: from then on \
         functions of them are shown as file and offset, or without what was inlined. -v says which and why; \
         if another tool can read them, please report this as a bug",
    ),
];

/// One in so many is few.
const FEW: u64 = 1000;
/// In nearly every trace of some machines.
const SWITCH_IN_UNSEEN_FEW: &str = "switches hidden by the kernel, below 0.1 %: no matter";

/// All counters of what could not be kept.
#[derive(Debug)]
pub(super) struct Counts<'a> {
    /// What was lost while tracing, by name.
    pub(super) recorded: &'a BTreeMap<String, u64>,
    pub(super) programs: &'a [ProgramCost],
    pub(super) malformed: u64,
    pub(super) refused: u64,
    /// Of a trace that has ended.
    pub(super) counted: Option<Counted>,
    /// Seconds where what was sent is not what has come, of a trace or a part of it that is whole.
    pub(super) seconds: Option<&'a Seconds>,
    pub(super) clock_steps: u64,
    pub(super) rows_late: u64,
    pub(super) unknown_stacks: u64,
    pub(super) merged_stacks: u64,
    pub(super) samples_forgotten: u64,
    pub(super) unlisted_processes: u64,
    pub(super) merged_blame: u64,
    pub(super) merged_chains: u64,
    pub(super) forgotten_io_sums: u64,
    pub(super) left_out_disk_waits: u64,
    /// Blocks and preemptions that the stacks have.
    pub(super) switches: u64,
    /// What is missing in the recording.
    pub(super) ending: &'a Ending,
}

/// Whether so many of all blocks and preemptions are no matter.
pub(super) fn is_few(lost: u64, switches: u64) -> bool {
    lost.saturating_mul(FEW) < switches
}

/// The lines, kernel's causes first; a cause that never happened has none.
pub(super) fn lines(counts: &Counts<'_>) -> Vec<LossLine> {
    let count = |name: &str| counts.recorded.get(name).copied().unwrap_or(0);
    let kernel = Loss::ALL.into_iter().map(|loss| {
        let lost = count(loss.name());
        let few = is_few(lost, counts.switches);
        let advice = match loss {
            Loss::SwitchInUnseen if few => SWITCH_IN_UNSEEN_FEW,
            _ => advice(loss),
        };
        (loss.name(), lost, advice)
    });
    let of_later = counts
        .recorded
        .iter()
        .filter(|(name, _)| {
            *name != MALFORMED
                && Loss::ALL.iter().all(|loss| loss.name() != **name)
                && OWN_WORDS.iter().all(|(other, _)| other != *name)
        })
        .map(|(name, count)| {
            let what =
                "this version of reqtrace does not know what that is: report with a newer one";
            (name.as_str(), *count, what)
        });
    let missed: u64 = counts
        .programs
        .iter()
        .map(|program| program.recursion_misses)
        .sum();
    let ending = counts.ending;
    let malformed = counts.malformed + count(MALFORMED);
    let lost = count(Loss::RingFull.name()) + malformed + counts.refused;
    let counted = counts.counted.unwrap_or_default();
    let (unaccounted, unaccounted_ns) = counted.unaccounted(lost);
    let own = [
        (
            "recursion_misses",
            missed,
            "events that the kernel skipped because a program was already running on that CPU; \
             times of the requests they belong to may be wrong",
        ),
        (
            "malformed",
            malformed,
            "records that could not be decoded: please report this as a bug, with -v",
        ),
        (
            "impossible_events",
            counts.refused,
            "events that no trace has, such as times of more than 36 years, stacks of thousands of frames, or \
             texts of many kB, which are left out: the recording is damaged, or forged",
        ),
        (
            "requests_unaccounted",
            unaccounted,
            "complete requests that the kernel has counted, and whose records neither came nor were counted as lost: \
             please report this as a bug, with -v",
        ),
        (
            "latency_unaccounted_ns",
            unaccounted_ns,
            "nanoseconds that the latencies of all records differ in from what the kernel has added up: please report \
             this as a bug, with -v",
        ),
        (
            "seconds_unaccounted",
            counts
                .seconds
                .map_or(0, |seconds| seconds.unaccounted(lost)),
            "seconds of which other requests came than the kernel has sent: please report this as a bug, with -v",
        ),
        (
            "clock_steps",
            counts.clock_steps,
            "times that the wall clock was set, or the machine was suspended: start times are by the clock as it \
             was when the request began, and may come twice or have a gap; latencies are right",
        ),
        (
            "rows_late",
            counts.rows_late,
            "CSV rows written after rows that ended later: all are there, sort by start + latency \
             where the order matters; reqtrace itself got too little CPU",
        ),
        (
            "stacks_unknown",
            counts.unknown_stacks,
            "look-ups of stacks that were not in the table: their blocked time is `unattributed`",
        ),
        (
            "stacks_merged",
            counts.merged_stacks,
            "times that a stack of little time lost its frames, because there were too many different \
             ones: its time is all there, under `[other stacks]`",
        ),
        (
            "samples_forgotten",
            counts.samples_forgotten,
            "samples of requests on their CPUs that were left out, because requests that had not ended had \
             65,536 different stacks: how on-CPU time is split among functions is less sure, its sum is exact",
        ),
        (
            "processes_unlisted",
            counts.unlisted_processes,
            "traced processes that are not in the list of processes, which has the first 10,000: their \
             requests and times are all there",
        ),
        (
            "blame_merged",
            counts.merged_blame,
            "rows of blame.csv of little time that lost their names, because there were too many: \
             their time is all there, in rows of culprit `others`",
        ),
        (
            "chains_merged",
            counts.merged_chains,
            "chains of little time in chains.folded that lost their frames, because there were too many: \
             their time is all there, in `[other chains]`",
        ),
        (
            "io_sums_forgotten",
            counts.forgotten_io_sums,
            "sums of what other processes did with disks that were left out, the oldest ones: who else used \
             a disk is known of the last part of the trace only; look at a shorter one",
        ),
        (
            "disk_waits_left_out",
            counts.left_out_disk_waits,
            "waits for disks that are in no count of stalls, because more than 8,192 ended within 20 ms, of which the \
             longest count: more requests than are shown may have stood for the same time",
        ),
        (
            "recording_unended",
            u64::from(!ending.ended),
            "the recording has no end: reqtrace was killed, or could not write. What is in it is \
             shown; requests that were open, and the counters and stacks of the last seconds, are \
             missing",
        ),
        (
            "recording_cut_bytes",
            ending.cut_bytes,
            "bytes at the end of the recording that are no whole block: what was in them is missing",
        ),
        (
            "recording_damaged_bytes",
            ending.damaged_bytes,
            "bytes of the recording that are damaged: the requests and names in them are missing. \
             Copy the file again",
        ),
        (
            "recording_damaged_blocks",
            ending.damaged_blocks,
            "blocks of the recording that are damaged or missing: requests, names and counters in \
             them are missing",
        ),
        (
            "recording_missing_files",
            ending.missing_files,
            "files of the recording, between those that were read, that are not there or cannot be read: requests \
             and counters in them are missing",
        ),
        (
            "recording_unwritten_blocks",
            ending.unwritten_blocks,
            "blocks of the recording that could not be written while tracing, because the disk was full or failed: \
             requests and counters in them are missing",
        ),
        (
            "recording_unknown_events",
            ending.unknown_events,
            "events of the recording that this version of reqtrace does not know: report with a \
             newer one",
        ),
    ];
    let others = OWN_WORDS.map(|(name, advice)| (name, count(name), advice));
    kernel
        .chain(of_later)
        .chain(others)
        .chain(own)
        .filter(|(_, count, _)| *count > 0)
        .map(|(name, count, advice)| LossLine {
            name: name.to_owned(),
            count,
            advice: advice.to_owned(),
        })
        .collect()
}

/// What a loss means for the report, and what to do.
fn advice(loss: Loss) -> &'static str {
    match loss {
        Loss::RingFull => {
            "requests without a CSV row; counts, sums and stacks have them, percentiles are from \
             the kernel's histogram (6 % wide). reqtrace got too little CPU: trace fewer \
             processes, or a longer request"
        }
        Loss::ThreadTableFull => {
            "requests not traced because more threads were alive than the table holds; give --memory \
             more, or trace fewer processes"
        }
        Loss::ThreadInsert => "requests not traced because the thread table was busy",
        Loss::ThreadMissing => {
            "switches of threads in a request whose state was gone; their time counts as on CPU"
        }
        Loss::KernelStackUnreadable => {
            "blocks whose kernel stack could not be read; their time is `unattributed`"
        }
        Loss::UserStackUnreadable => {
            "blocks whose user stack could not be read; the class is known, the stack is \
             `[stack lost]`"
        }
        Loss::StackTableFull => {
            "blocks and samples whose stack found no room in the table, which was full or busy; the stack is \
             `[stack lost]`. reqtrace got too little CPU to empty it in time: trace fewer processes"
        }
        Loss::StackCollision => {
            "blocks whose stack had the id of another one; the stack is `[stack lost]`"
        }
        Loss::StackSumFull => {
            "blocks whose time is in no folded stack because the table was full or busy; the \
             ledger has it"
        }
        Loss::SlotsFull => {
            "blocks of requests that blocked in more than 32 places; their time is `unattributed` \
             in the ledger, and in its stack in the folded stacks"
        }
        Loss::EndRaced => {
            "requests that were switched out while they ended; some microseconds count as on CPU"
        }
        Loss::FileNotice => {
            "names of files that found no room on their way to reqtrace: until the name was sent \
             again, named waits by `files` may have missed blocks on that file"
        }
        Loss::FileUnknown => {
            "blocks on a descriptor whose file could not be read, for another thread had closed it: \
             named waits by `files` miss them"
        }
        Loss::IntervalRingFull => {
            "times off the CPU that found no room on their way to reqtrace: blame does not know what \
             happened then; trace a less busy process, or with less load beside it"
        }
        Loss::CpuWaitRingFull => {
            "waits for a CPU that found no room on their way to reqtrace: who had that CPU is not known; trace a \
             less busy process, or with less load beside it"
        }
        Loss::DiskRingFull => {
            "I/O that found no room on its way to reqtrace: what disks did for these requests is not known; trace a less \
             busy process"
        }
        Loss::SampleRingFull => {
            "samples of requests on their CPUs that found no room on their way to reqtrace: how on-CPU time is \
             split among functions is less sure, its sum is exact. reqtrace got too little CPU: trace \
             fewer processes, or with a lower --cpu-rate"
        }
        Loss::FileCollision => {
            "blocks on files that have no name, because another file's name has the same hash: named \
             waits by `files` miss them"
        }
        Loss::ProcessNotice => {
            "forks, execs or exits that reqtrace did not hear of: stacks of these processes may \
             have no names"
        }
        Loss::ProcessTableFull => {
            "processes that are not traced because the table was full; give --memory more, or trace \
             fewer processes"
        }
        Loss::LabelUnreadable => {
            "labels that are empty because they point to memory that is not mapped or not resident; \
             if it is all of them, the profile's offsets are of another version of the program"
        }
        Loss::KeyTableFull => {
            "requests not traced because more requests with keys were alive than the table holds: where \
             requests of a type never end, `end` or its key is wrong"
        }
        Loss::ParkedTableFull => {
            "requests that were closed where they were parked, because more were parked than the table \
             holds: where requests of a type never end, `end` or its key is wrong"
        }
        Loss::TextRingFull => {
            "texts of requests that found no room on their way to reqtrace: trace fewer processes, or \
             with a smaller `max-length`"
        }
        Loss::KeyUnreadable => {
            "markers that were passed over because their key points to memory that is not mapped or not \
             resident; if it is all of them, the profile's offsets are of another version of the program"
        }
        Loss::HistogramFull => {
            "intervals that are in no histogram because its table was full or busy; the ledger has \
             them"
        }
        Loss::LedgerNegative => {
            "requests with more time off CPU than in all: please report this as a bug, with -v"
        }
        Loss::KnownStackWrong => {
            "blocks whose stack was taken for one that was remembered, and was not: please report this as a \
             bug"
        }
        Loss::SwitchInUnseen => {
            "times a thread was back on a CPU without an event of the kernel; its time since it left \
             counts as on CPU. Some kernels hide the switches of protected processes, and so who \
             comes after them"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_each_cause() {
        let manual = include_str!("../../../docs/outputs.md");
        let kernel = Loss::ALL.into_iter().map(Loss::name);
        let own = OWN_WORDS.into_iter().map(|(name, _)| name);
        for name in kernel.chain(own) {
            assert!(manual.contains(&format!("`{name}`")), "{name}");
        }
    }
}
