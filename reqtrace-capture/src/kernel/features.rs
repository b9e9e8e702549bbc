//! What this kernel can do: its types, and what was tried, in; what a trace goes without, in words, out.
//!
//! Nothing here is known by the kernel's version, but for the rows of [`BY_VERSION`]: distributions put new BPF
//! into kernels with old numbers.

use std::collections::BTreeMap;

use super::btf::{Argument, Types, typedef_of};
use super::doctor::Finding;
use super::layout::{self, Layout, Part};
use reqtrace_base::error::{Error, Result};

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

/// The tracepoint that says what a thread in a page fault wants; only with blame.
pub(crate) const PAGE_FAULT: &str = "page_fault_user";

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

/// Names features that are taken for lacking, with commas between them; for tests and bug reports.
const HIDE: &str = "REQTRACE_HIDE";

/// What a kernel may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Tracepoints of threads.
    TaskTracepoints,
    /// `sched_switch` has the state in which a thread leaves its CPU.
    SwitchStates,
    /// Functions for programs to call.
    Helpers,
    /// What is read of threads is where it is known to be.
    TaskMembers,
    /// The same of what uprobes keep.
    ProbeMembers,
    /// The same of files.
    FileMembers,
    /// Page faults have a tracepoint.
    PageFaults,
    /// TCP sockets have tracepoints, and members that are known.
    TcpSockets,
    /// So have Unix sockets.
    UnixSockets,
    /// One link for many probes.
    UprobeMulti,
    /// Such a link hits all threads of its process, and its process only.
    ProcessFilter,
    /// A map can be used by whoever has its descriptor.
    MapsByDescriptor,
    /// CPUs that hit probes at the same time do not wait for each other.
    LocklessHits,
}

/// What the lack of a feature does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// Ledgers would be wrong: no trace.
    Refuses,
    /// Something is left out of the trace.
    LeavesOut,
    /// The trace has all; it takes more.
    TakesMore,
}

/// One feature.
struct Row {
    feature: Feature,
    /// In the doctor's list, and, with hyphens, to hide it.
    name: &'static str,
    /// What it is.
    what: &'static str,
    /// What follows where it lacks.
    then: &'static str,
    lack: Lack,
    /// The first Linux that has it.
    since: &'static str,
}

const TABLE: [Row; 13] = [
    Row {
        feature: Feature::TaskTracepoints,
        name: "tracepoints",
        what: "tracepoints of threads",
        then: "threads cannot be followed",
        lack: Lack::Refuses,
        since: "5.8",
    },
    Row {
        feature: Feature::SwitchStates,
        name: "switch states",
        what: "state of the leaving thread in sched_switch",
        then: "blocked threads cannot be told from preempted ones",
        lack: Lack::Refuses,
        since: "5.18",
    },
    Row {
        feature: Feature::Helpers,
        name: "helpers",
        what: "functions that the kernel programs call",
        then: "they cannot be loaded",
        lack: Lack::Refuses,
        since: "5.17",
    },
    Row {
        feature: Feature::TaskMembers,
        name: "task members",
        what: "members of threads that are read",
        then: "threads cannot be known and their CPU time not be read",
        lack: Lack::Refuses,
        since: "4.18",
    },
    Row {
        feature: Feature::ProbeMembers,
        name: "probe members",
        what: "members of uprobes that are read",
        then: "requests behind a uretprobe would be taken for left by an exception",
        lack: Lack::Refuses,
        since: "4.18",
    },
    Row {
        feature: Feature::FileMembers,
        name: "file members",
        what: "members of files that are read",
        then: "the files that threads wait for are missing: waits are classed by system call and stack",
        lack: Lack::LeavesOut,
        since: "4.18",
    },
    Row {
        feature: Feature::PageFaults,
        name: "page faults",
        what: "tracepoint of page faults",
        then: "the files of page faults are missing, with --blame",
        lack: Lack::LeavesOut,
        since: "3.13",
    },
    Row {
        feature: Feature::TcpSockets,
        name: "TCP sockets",
        what: "tracepoints and members of TCP sockets",
        then: "--before is missing, and with --blame who sent what parked requests went on with",
        lack: Lack::LeavesOut,
        since: "4.16",
    },
    Row {
        feature: Feature::UnixSockets,
        name: "Unix sockets",
        what: "tracepoints of what comes to sockets and is read",
        then: "with --before only TCP connections have a time before the begin, and with --blame no \
               sender is known by a Unix socket",
        lack: Lack::LeavesOut,
        since: "6.3",
    },
    Row {
        feature: Feature::UprobeMulti,
        name: "uprobe_multi",
        what: "links of many probes",
        then: "each probe is a perf event of its own: they are taken out more slowly, and some kernels want \
               CAP_SYS_ADMIN for them",
        lack: Lack::TakesMore,
        since: "6.6",
    },
    Row {
        feature: Feature::ProcessFilter,
        name: "process filter",
        what: "uprobe_multi that goes by process",
        then: "each probe in a shared library is a perf event of its own",
        lack: Lack::TakesMore,
        since: "6.12",
    },
    Row {
        feature: Feature::MapsByDescriptor,
        name: "maps by descriptor",
        what: "use of a map by whoever has its descriptor",
        then: "CAP_BPF is kept while a trace runs",
        lack: Lack::TakesMore,
        since: "5.19",
    },
    Row {
        feature: Feature::LocklessHits,
        name: "lockless hits",
        what: "hits of probes without a lock",
        then: "CPUs that hit probes at once wait for each other, and what a hit costs is measured on all of them",
        lack: Lack::TakesMore,
        since: "6.14",
    },
];

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

/// What this kernel can do, as far as that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    hidden: Hidden,
    /// What lacks, and what exactly of it; all others are there, or were not tried yet.
    lacking: BTreeMap<Feature, String>,
}

/// The names in the kernel's types that features and layout are found by.
pub(super) fn wanted_types() -> Vec<String> {
    let tracepoints = TRACEPOINTS.into_iter().chain([PAGE_FAULT]);
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
            (Feature::TaskTracepoints, absent(&TRACEPOINTS)),
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

    /// What a trace with these options goes without, a sentence each.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`], where nothing would be left of an option.
    pub fn lost_to(&self, before: bool, blame: bool, has_keys: bool) -> Result<Vec<String>> {
        let tcp = self.lack(Feature::TcpSockets);
        if let (true, Some(lack)) = (before, &tcp) {
            let error = Error::unsupported(lack.clone()).next(next(row(Feature::TcpSockets)));
            return Err(error.within("--before"));
        }
        let sockets = before || blame && has_keys && tcp.is_none();
        let lost = [
            self.lack(Feature::FileMembers),
            self.lack(Feature::PageFaults).filter(|_| blame),
            tcp.filter(|_| blame && has_keys),
            self.lack(Feature::UnixSockets).filter(|_| sockets),
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
    pub const FOUND: [Feature; 10] = [
        Feature::TaskTracepoints,
        Feature::SwitchStates,
        Feature::Helpers,
        Feature::TaskMembers,
        Feature::ProbeMembers,
        Feature::FileMembers,
        Feature::PageFaults,
        Feature::TcpSockets,
        Feature::UnixSockets,
        Feature::LocklessHits,
    ];

    /// Those that are tried.
    pub const TRIED: [Feature; 3] = [
        Feature::UprobeMulti,
        Feature::ProcessFilter,
        Feature::MapsByDescriptor,
    ];
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

fn next(row: &Row) -> String {
    format!(
        "use Linux {} or later, or a distribution's kernel that has it, with CONFIG_DEBUG_INFO_BTF=y",
        row.since
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_base::error::Kind;

    const ALL: [Feature; 13] = {
        let mut all = [Feature::TaskTracepoints; 13];
        let mut index = 0;
        while index < TABLE.len() {
            all[index] = TABLE[index].feature;
            index += 1;
        }
        all
    };

    fn of_this_kernel(hidden: Hidden) -> Features {
        let data = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let wanted = wanted_types();
        let types = Types::parse(&data, |name| {
            wanted.iter().any(|wanted| wanted.as_bytes() == name)
        });
        let types = types.unwrap();
        let mut layout = Layout::of(&types);
        Features::of(&types, &mut layout, Some((99, 0)), hidden)
    }

    #[test]
    fn the_table_has_each_feature_in_its_place() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.feature as usize, index);
            assert!(row.name.len() <= 20, "{}", row.name);
        }
        let mut listed: Vec<_> = Features::FOUND.into_iter().chain(Features::TRIED).collect();
        listed.sort_unstable();
        assert_eq!(listed, ALL);
    }

    #[test]
    fn this_kernel_lacks_nothing() {
        let features = of_this_kernel(Hidden::default());
        assert_eq!(features.lacking, BTreeMap::new());
        features.check().unwrap();
        assert_eq!(features.lost_to(true, true, true).unwrap().len(), 0);
        assert_eq!(features.socket_tracepoints().count(), 6);
    }

    #[test]
    fn each_feature_can_be_hidden_and_its_lack_is_said() {
        for row in &TABLE {
            let word = row.name.replace(' ', "-");
            let mut features = of_this_kernel(Hidden::of(&word).unwrap());
            for feature in Features::TRIED {
                features.tried(feature, true);
            }
            let lack = features.lack(row.feature).unwrap();
            assert!(lack.contains(row.then), "{lack}");
            assert_eq!(features.check().is_err(), row.lack == Lack::Refuses);
            let degraded = features.findings(&ALL).into_iter();
            let degraded = degraded.filter(|finding| finding.next.is_some());
            assert_eq!(
                degraded.count(),
                match row.feature {
                    // Sockets are found through files.
                    Feature::FileMembers => 2,
                    _ => usize::from(row.lack != Lack::TakesMore),
                },
                "{word}"
            );
        }
    }

    #[test]
    fn what_lacks_is_left_out_and_refused_only_where_nothing_is_left() {
        let without = |words: &str| of_this_kernel(Hidden::of(words).unwrap());
        let faults = without("page-faults");
        assert_eq!(faults.lost_to(true, false, true).unwrap().len(), 0);
        assert_eq!(faults.lost_to(false, true, false).unwrap().len(), 1);
        let unix = without("Unix-sockets");
        assert_eq!(unix.lost_to(true, false, false).unwrap().len(), 1);
        assert_eq!(unix.lost_to(false, true, false).unwrap().len(), 0);
        assert_eq!(unix.socket_tracepoints().count(), 3);
        let tcp = without("tcp-sockets,unix-sockets");
        let error = tcp.lost_to(true, false, false).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(
            error
                .to_string()
                .starts_with("--before: this kernel has no")
        );
        assert_eq!(tcp.lost_to(false, true, true).unwrap().len(), 1);
        assert_eq!(tcp.socket_tracepoints().count(), 0);
    }

    #[test]
    fn a_word_that_is_no_feature_is_an_error() {
        let error = Hidden::of("page-faults,air").unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains("`air`"));
        assert!(error.advice().unwrap().contains("switch-states"));
        assert_eq!(Hidden::of("").unwrap(), Hidden::default());
    }

    #[test]
    fn an_older_kernel_lacks_what_is_known_by_version() {
        assert_eq!(by_version(Some((6, 14)), (6, 14)), None);
        assert!(by_version(Some((5, 14)), (6, 14)).is_some());
        assert!(by_version(None, (6, 14)).is_some());
        assert!(!hits_wait(Some((6, 18))));
    }
}
