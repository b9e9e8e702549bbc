//! What this kernel can do: its types, and what was tried, in; what a trace goes without, in words, out.
//!
//! Nothing here is known by the kernel's version, but for the rows of [`BY_VERSION`]: distributions put new BPF
//! into kernels with old numbers.

mod table;

use std::collections::BTreeMap;

use super::btf::{Argument, Types, typedef_of};
use super::cpus::hypervisor;
use super::finding::Finding;
use super::layout::{self, Layout, Part};
use reqtrace_base::error::{Error, Result};
pub use table::Feature;
use table::{Lack, Row, TABLE};

/// Tracepoints that the kernel programs are attached to, in this order: all before the first uprobe, so
/// that no block of a request goes unseen.
pub(crate) const TRACEPOINTS: [&str; 6] = [
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "task_rename",
    "sched_waking",
    "sched_switch",
];

/// The program of switches that is attached before all others; only with blame.
pub(crate) const CPU_SWITCH: &str = "cpu_switch";

/// The program of all threads, run when processes are new; only with blame.
pub(crate) const WATCH_THREADS: &str = "watch_threads";

/// The tracepoint of threads that get another CPU; only with blame.
pub(crate) const MIGRATE: &str = "sched_migrate_task";

/// The tracepoint that says what a thread in a page fault wants; only with blame.
pub(crate) const PAGE_FAULT: &str = "page_fault_user";

/// The program of switches that reads what took the CPU from requests; with `--interrupts`, and attached before the one that
/// closes intervals.
pub(crate) const INTERRUPT_SWITCH: &str = "interrupt_switch";

/// Tracepoints of interrupts and softirqs, only with `--interrupts`. Ends are attached first: whatever is seen to begin is seen to
/// end.
pub(crate) const INTERRUPTS: [&str; 14] = [
    "irq_handler_exit",
    "local_timer_exit",
    "reschedule_exit",
    "call_function_exit",
    "call_function_single_exit",
    "irq_work_exit",
    "softirq_exit",
    "irq_handler_entry",
    "local_timer_entry",
    "reschedule_entry",
    "call_function_entry",
    "call_function_single_entry",
    "irq_work_entry",
    "softirq_entry",
];

/// Tracepoints of TCP sockets, in the order in which they are attached.
const TCP: [&str; 3] = ["inet_sock_set_state", "tcp_probe", "tcp_rcv_space_adjust"];

/// Tracepoints of all sockets, used for Unix sockets.
const UNIX: [&str; 3] = ["sk_data_ready", "sock_recv_length", "sock_send_length"];

/// Helpers that the kernel programs call, from the newest on: older ones come with these.
const HELPERS: [&str; 5] = [
    "loop",
    "find_vma",
    "get_attach_cookie",
    "task_pt_regs",
    "for_each_map_elem",
];

const HELPER_NAMES: &str = "bpf_func_id";

/// Tracepoints of block devices, each with the structure that it is about; only with blame.
pub(crate) const BLOCK: [(&str, &str); 3] = [
    ("block_getrq", "bio"),
    ("block_rq_issue", "request"),
    ("block_rq_complete", "request"),
];

/// Names features that are taken for lacking, with commas between them; for tests and bug reports.
const HIDE: &str = "REQTRACE_HIDE";

/// What cannot be tried, with the first version that has it and its commit.
///
/// * Hits without a lock (e0925f2dc4de, "uprobes: add speculative lockless VMA-to-inode-to-uprobe resolution"):
///   how long CPUs wait for each other shows only with many of them, and only under load.
const BY_VERSION: [(Feature, (u32, u32)); 1] = [(Feature::LocklessHits, (6, 14))];

fn row(feature: Feature) -> &'static Row {
    // The table is in the order of the enumeration, which a test holds it to.
    &TABLE[feature as usize]
}

impl Row {
    fn hidden_by(&self, word: &str) -> bool {
        self.name.replace(' ', "-").eq_ignore_ascii_case(word)
    }
}

/// Features that are taken for lacking because somebody asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hidden(Vec<Feature>);

impl Hidden {
    /// Asks the environment.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Usage`] when it names something else.
    pub fn read() -> Result<Self> {
        let words = std::env::var_os(HIDE).unwrap_or_default();
        Self::of(&words.to_string_lossy())
    }

    fn of(words: &str) -> Result<Self> {
        let words = words.split(',').filter(|word| !word.is_empty());
        let features = words.map(|word| {
            let found = TABLE.iter().find(|row| row.hidden_by(word));
            found.map(|row| row.feature).ok_or_else(|| {
                let names = TABLE.map(|row| row.name.replace(' ', "-"));
                Error::usage(format!(
                    "{HIDE} has `{word}`, which is no feature of a kernel"
                ))
                .next(format!("unset {HIDE}, or choose of {}", names.join(", ")))
            })
        });
        features.collect::<Result<_>>().map(Self)
    }

    /// Whether this one is.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.0.contains(&feature)
    }
}

/// What a trace wants of the kernel that may lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// With `--before`.
    pub before: bool,
    /// With `--blame`.
    pub blame: bool,
    /// With `--interrupts`.
    pub interrupts: bool,
    /// Requests may wait for what comes to sockets.
    pub at_sockets: bool,
}

/// What this kernel can do, as far as that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    hidden: Hidden,
    /// What lacks, and what exactly of it; all others are there, or were not tried yet.
    lacking: BTreeMap<Feature, String>,
}

/// The names in the kernel's types that features and layout are found by.
pub(super) fn wanted_types() -> Vec<String> {
    let tracepoints = TRACEPOINTS.into_iter().chain([MIGRATE, PAGE_FAULT]);
    let tracepoints = tracepoints.chain(BLOCK.map(|(name, _)| name));
    let tracepoints = tracepoints.chain(INTERRUPTS);
    let tracepoints = tracepoints.chain(socket_tracepoints()).map(typedef_of);
    let others = layout::structures().chain([HELPER_NAMES]);
    tracepoints.chain(others.map(str::to_owned)).collect()
}

/// All tracepoints of sockets; a trace may have none of them.
pub(crate) fn socket_tracepoints() -> impl Iterator<Item = &'static str> {
    TCP.into_iter().chain(UNIX)
}

impl Features {
    /// What shows in the kernel's types; parts that are hidden are taken out of the layout.
    pub(super) fn of(
        types: &Types<'_>,
        layout: &mut Layout,
        version: Option<(u32, u32)>,
        hidden: Hidden,
    ) -> Self {
        for (feature, part) in [
            (Feature::TaskMembers, Part::Task),
            (Feature::ProbeMembers, Part::Uprobe),
            (Feature::FileMembers, Part::File),
        ] {
            if hidden.has(feature) {
                layout.lose(part, format!("hidden by {HIDE}"));
            }
        }
        let mut features = Self {
            hidden,
            lacking: BTreeMap::new(),
        };
        let absent = |names: &[&str]| {
            let absent = names.iter().find(|name| types.tracepoint(name).is_none());
            absent.map(|name| format!("tracepoint {name}"))
        };
        let missing = |part| layout.missing(part).map(str::to_owned);
        let helper = |name: &&str| !types.has_value(HELPER_NAMES, &format!("BPF_FUNC_{name}"));
        for (feature, lacks) in [
            (
                Feature::TaskTracepoints,
                absent(&TRACEPOINTS).or_else(|| absent(&[MIGRATE])),
            ),
            (Feature::SwitchStates, switch_state(types)),
            (
                Feature::Helpers,
                HELPERS
                    .iter()
                    .find(|it| helper(it))
                    .map(|it| format!("bpf_{it}")),
            ),
            (Feature::TaskMembers, missing(Part::Task)),
            (Feature::ProbeMembers, missing(Part::Uprobe)),
            (Feature::FileMembers, missing(Part::File)),
            (Feature::PageFaults, absent(&[PAGE_FAULT])),
            (
                Feature::TcpSockets,
                absent(&TCP)
                    .or_else(|| missing(Part::Socket))
                    .or_else(|| missing(Part::File)),
            ),
            (Feature::UnixSockets, absent(&UNIX)),
            (
                Feature::BlockDevices,
                block_devices(types).or_else(|| missing(Part::Disk)),
            ),
            (Feature::Interrupts, absent(&INTERRUPTS)),
            (
                Feature::Steal,
                missing(Part::Steal).or_else(other_hypervisor),
            ),
        ] {
            features.found(feature, lacks);
        }
        for (feature, since) in BY_VERSION {
            features.found(feature, by_version(version, since));
        }
        features
    }

    /// Notes what was found of a feature: what of it lacks.
    fn found(&mut self, feature: Feature, lacks: Option<String>) {
        let lacks = match self.hidden.has(feature) {
            true => Some(format!("hidden by {HIDE}")),
            false => lacks,
        };
        if let Some(lacks) = lacks {
            self.lacking.insert(feature, lacks);
        }
    }

    /// Notes whether a trial found a feature.
    pub fn tried(&mut self, feature: Feature, has: bool) {
        self.found(feature, (!has).then(|| "tried".to_owned()));
    }

    /// Whether it is there, or not known to lack.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        !self.lacking.contains_key(&feature)
    }

    /// What it is that lacks, and what follows; `None` where nothing lacks.
    #[must_use]
    pub fn lack(&self, feature: Feature) -> Option<String> {
        let why = self.lacking.get(&feature)?;
        let Row { what, then, .. } = row(feature);
        Some(format!("this kernel has no {what} ({why}), so {then}"))
    }

    /// Nothing lacks without which ledgers would be wrong.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`], with the first that does.
    pub fn check(&self) -> Result<()> {
        let needed = TABLE.iter().filter(|row| row.lack == Lack::Refuses);
        let mut lacks = needed.filter_map(|row| Some((row, self.lack(row.feature)?)));
        let Some((row, lack)) = lacks.next() else {
            return Ok(());
        };
        Err(Error::unsupported(lack).next(next(row)))
    }

    /// What such a trace goes without, a sentence each.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`], where nothing would be left of an option.
    pub fn lost_to(&self, wanted: Wanted) -> Result<Vec<String>> {
        let Wanted {
            before,
            blame,
            interrupts,
            at_sockets,
        } = wanted;
        if let (true, Some(lack)) = (interrupts, self.lack(Feature::Interrupts)) {
            let error = Error::unsupported(lack).next(next(row(Feature::Interrupts)));
            return Err(error.within("--interrupts"));
        }
        let tcp = self.lack(Feature::TcpSockets);
        if let (true, Some(lack)) = (before, &tcp) {
            let error = Error::unsupported(lack.clone()).next(next(row(Feature::TcpSockets)));
            return Err(error.within("--before"));
        }
        let sockets = before || blame && at_sockets && tcp.is_none();
        let lost = [
            self.lack(Feature::FileMembers),
            self.lack(Feature::PageFaults).filter(|_| blame),
            self.lack(Feature::BlockDevices).filter(|_| blame),
            tcp.filter(|_| blame && at_sockets),
            self.lack(Feature::UnixSockets).filter(|_| sockets),
            self.lack(Feature::Steal).filter(|_| interrupts),
        ];
        Ok(lost.into_iter().flatten().collect())
    }

    /// The tracepoints of sockets that it has.
    pub(crate) fn socket_tracepoints(&self) -> impl Iterator<Item = &'static str> {
        let has = |feature| self.has(feature);
        let (tcp, unix) = (has(Feature::TcpSockets), has(Feature::UnixSockets));
        let tcp_names = TCP.into_iter().filter(move |_| tcp);
        tcp_names.chain(UNIX.into_iter().filter(move |_| tcp && unix))
    }

    /// Of each of these features whether it is there, and what its lack costs.
    #[must_use]
    pub fn findings(&self, of: &[Feature]) -> Vec<Finding> {
        let findings = of.iter().map(|&feature| {
            let row = row(feature);
            match (self.lack(feature), row.lack) {
                (None, _) => Finding::ok(row.name, row.what),
                (Some(lack), Lack::TakesMore) => Finding::ok(row.name, lack),
                (Some(lack), Lack::LeavesOut) => Finding::degraded(row.name, lack, next(row)),
                (Some(lack), Lack::Refuses) => {
                    Finding::missing(row.name, &Error::unsupported(lack).next(next(row)))
                }
            }
        });
        findings.collect()
    }

    /// Those that are found without a trial.
    pub const FOUND: [Feature; 13] = [
        Feature::TaskTracepoints,
        Feature::SwitchStates,
        Feature::Helpers,
        Feature::TaskMembers,
        Feature::ProbeMembers,
        Feature::FileMembers,
        Feature::PageFaults,
        Feature::TcpSockets,
        Feature::UnixSockets,
        Feature::BlockDevices,
        Feature::Interrupts,
        Feature::Steal,
        Feature::LocklessHits,
    ];

    /// Those that are tried.
    pub const TRIED: [Feature; 3] = [
        Feature::UprobeMulti,
        Feature::ProcessFilter,
        Feature::MapsByDescriptor,
    ];
}

/// A hypervisor that does not say by KVM's means what it takes; without any nothing is taken.
fn other_hypervisor() -> Option<String> {
    let hypervisor = hypervisor()?;
    (hypervisor != "KVMKVMKVM").then(|| format!("the hypervisor is `{hypervisor}`"))
}

/// What lacks of a feature that is known by version.
fn by_version(version: Option<(u32, u32)>, since: (u32, u32)) -> Option<String> {
    let is_older = version.is_none_or(|version| version < since);
    is_older.then(|| format!("by its version, before {}.{}", since.0, since.1))
}

/// Whether hits wait for each other on a kernel of this version, or of none that is known.
#[must_use]
pub(super) fn hits_wait(version: Option<(u32, u32)>) -> bool {
    let hidden = Hidden::read().is_ok_and(|hidden| hidden.has(Feature::LocklessHits));
    let mut rows = BY_VERSION.iter();
    let row = rows.find(|(feature, _)| *feature == Feature::LocklessHits);
    hidden || row.is_some_and(|(_, since)| by_version(version, *since).is_some())
}

/// `sched_switch(bool preempt, prev, next, unsigned int prev_state)`; its arguments stood in other orders, and the
/// last one was not there.
fn switch_state(types: &Types<'_>) -> Option<String> {
    let arguments = types.tracepoint("sched_switch")?;
    let task = || Argument::Pointer("task_struct".to_owned());
    let wanted = [Argument::Number(1), task(), task(), Argument::Number(4)];
    let fits = arguments.starts_with(&wanted);
    (!fits).then(|| format!("its arguments are {arguments:?}"))
}

/// Tracepoints of block devices that lack, or that have another argument: once a queue came first.
fn block_devices(types: &Types<'_>) -> Option<String> {
    BLOCK.iter().find_map(|(name, structure)| {
        let Some(arguments) = types.tracepoint(name) else {
            return Some(format!("tracepoint {name}"));
        };
        let first = Argument::Pointer((*structure).to_owned());
        let fits = arguments.first() == Some(&first)
            && (*name != "block_rq_complete" || arguments.get(2) == Some(&Argument::Number(4)));
        (!fits).then(|| format!("the arguments of {name} are {arguments:?}"))
    })
}

fn next(row: &Row) -> String {
    format!(
        "use Linux {} or later, or a distribution's kernel that has it, with CONFIG_DEBUG_INFO_BTF=y",
        row.since
    )
}

#[cfg(test)]
mod tests;
