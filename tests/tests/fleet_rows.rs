//! Files of rows as agents of several machines write them: what is wanted of them in; the files, by the writer of the agent,
//! and the same rows as numbers out.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::blame::{Blame, Cause, Causes};
use reqtrace_analysis::report::{
    Exporter as _, Ledger, Origin, Places, Report, RequestRow, TraceInfo,
};
use reqtrace_base::plain::Plain;
use reqtrace_output::csv::Limits;
use reqtrace_output::parquet::ParquetExporter;
use reqtrace_recording::Incomplete;

/// 2026-11-24 15:00:00 UTC.
pub(crate) const BEGIN_NS: u64 = 1_795_532_400_000_000_000;

/// A file: of which machine, service and build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    pub(crate) host: &'static str,
    pub(crate) service: &'static str,
    pub(crate) build_id: &'static str,
    /// Wait classes of its profile.
    pub(crate) classes: &'static [&'static str],
    /// Its number among those of the machine.
    pub(crate) number: u64,
}

/// A row of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    pub(crate) start_unix_ns: u64,
    pub(crate) tid: u32,
    pub(crate) on_cpu_ns: u64,
    pub(crate) preempted_ns: u64,
    /// In the order of the classes.
    pub(crate) classes: Vec<u64>,
    /// In the order of [`Cause::ALL`].
    pub(crate) causes: Vec<u64>,
    pub(crate) weight: u32,
    pub(crate) is_slow: bool,
    pub(crate) is_complete: bool,
}

impl Made {
    pub(crate) fn latency_ns(&self) -> u64 {
        self.on_cpu_ns + self.preempted_ns + self.classes.iter().sum::<u64>()
    }
}

impl Of {
    pub(crate) fn name(&self) -> String {
        format!("rows-{}-0123456789ab-{:08}.parquet", self.host, self.number)
    }
}

/// Writes the file into its place below `dir`.
pub(crate) fn write(dir: &Path, of: &Of, rows: &[Made]) -> PathBuf {
    let service = of.service.replace('/', "%2F");
    let folder = dir.join(format!("date=2026-11-24/hour=15/service={service}"));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(of.name());
    let columns = Columns {
        classes: of.classes.iter().map(|class| (*class).to_owned()).collect(),
        ..Columns::default()
    };
    let file = File::create(&path).unwrap();
    let mut exporter =
        ParquetExporter::new(Box::new(file), &of.name(), &columns, Limits::default());
    for (id, row) in (1..).zip(rows) {
        let mut ledger = Ledger::of(of.classes.len(), &Places::default());
        ledger.latency_ns = row.latency_ns();
        ledger.on_cpu_ns = row.on_cpu_ns;
        ledger.preempted_ns = row.preempted_ns;
        ledger.classes.copy_from_slice(&row.classes);
        let mut causes = Causes::default();
        for (cause, ns) in Cause::ALL.into_iter().zip(&row.causes) {
            causes.add(cause, *ns);
        }
        exporter
            .request(&RequestRow {
                id,
                origin: Origin {
                    host: of.host,
                    service: of.service,
                    build_id: Some(of.build_id),
                },
                start_unix_ns: row.start_unix_ns,
                since_start_ns: (row.start_unix_ns - BEGIN_NS) as i64,
                request: "order",
                pid: 7,
                tid: row.tid,
                comm: &Plain::of("worker"),
                label: &Plain::default(),
                attributes: &[],
                ledger: &ledger,
                blocks: 1,
                preemptions: 0,
                incomplete: (!row.is_complete).then_some(Incomplete::NoEnd),
                weight: row.weight,
                slow: Some(row.is_slow),
                waited_before_ns: None,
                lost: None,
                is_keyed: false,
                causes: Some(causes),
                blames: &[],
                kept: None,
            })
            .unwrap();
    }
    let report = Report {
        trace: TraceInfo {
            host: of.host.to_owned(),
            start_unix_ns: BEGIN_NS,
            ..TraceInfo::default()
        },
        blame: Some(Blame::default()),
        ..Report::default()
    };
    exporter.finish(&report).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    path
}

/// In the order of the causes.
pub(crate) const CAUSES: [&str; 9] = [
    "on_cpu",
    "run_queue",
    "preempted",
    "disk",
    "timer",
    "network",
    "other_interrupt",
    "between_requests",
    "unknown",
];

/// The service that is asked about.
pub(crate) const SERVICE: &str = "shop";

/// A row with what its file says of it.
pub(crate) struct Row {
    pub(crate) of: Of,
    pub(crate) id: u64,
    pub(crate) made: Made,
}

impl Row {
    pub(crate) fn w(&self) -> u64 {
        self.made.weight.into()
    }

    pub(crate) fn slow_w(&self) -> u64 {
        if self.made.is_slow { self.w() } else { 0 }
    }

    pub(crate) fn latency(&self) -> u64 {
        self.made.latency_ns()
    }

    pub(crate) fn blocked(&self) -> u64 {
        self.made.classes.iter().sum()
    }

    pub(crate) fn end(&self) -> u64 {
        self.made.start_unix_ns + self.latency()
    }

    /// Its parts above 0 by the names that queries give them.
    pub(crate) fn parts(&self) -> Vec<(String, u64)> {
        let own = [
            ("on_cpu".to_owned(), self.made.on_cpu_ns),
            ("preempted".to_owned(), self.made.preempted_ns),
        ];
        let classes = self.of.classes.iter().map(|class| class.replace(' ', "_"));
        let all = own
            .into_iter()
            .chain(classes.zip(self.made.classes.iter().copied()));
        all.filter(|(_, ns)| *ns > 0).collect()
    }
}

/// Numbers as if by chance (xorshift).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Rows of a fleet: one machine has slow disks, and a build computes longer.
pub(crate) fn fleet(dir: &Path) -> Vec<Row> {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut all = Vec::new();
    for host in ["web-1", "web-2", "web-3"] {
        for (service, classes) in [
            (SERVICE, ["redo log", "disk"].as_slice()),
            ("front/php", ["upstream", "lock", "disk"].as_slice()),
        ] {
            for number in 1..=4 {
                let is_new = number > 2;
                let of = Of {
                    host,
                    service,
                    build_id: if is_new { "bb" } else { "aa" },
                    classes,
                    number: number + if service == SERVICE { 0 } else { 100 },
                };
                let mut rows = Vec::new();
                for row in 0..500 {
                    let slow_disk = if host == "web-2" { 6 } else { 1 };
                    let mut made = Made {
                        start_unix_ns: BEGIN_NS
                            + number * 400_000_000_000
                            + row * 700_000_000
                            + chance.below(1_000_000),
                        tid: 1 + chance.below(6) as u32,
                        on_cpu_ns: 1_000 + chance.below(300_000) * if is_new { 2 } else { 1 },
                        preempted_ns: if chance.below(4) == 0 {
                            chance.below(80_000)
                        } else {
                            0
                        },
                        classes: classes
                            .iter()
                            .map(|_| {
                                if chance.below(3) == 0 {
                                    chance.below(1_500_000) * slow_disk
                                } else {
                                    0
                                }
                            })
                            .collect(),
                        is_complete: chance.below(100) > 0,
                        ..Made::default()
                    };
                    made.causes = (0..CAUSES.len())
                        .map(|cause| {
                            if cause % 3 == 0 {
                                chance.below(50_000)
                            } else {
                                0
                            }
                        })
                        .collect();
                    made.is_slow = made.latency_ns() > 2_000_000;
                    made.weight = if made.is_slow { 1 } else { 100 };
                    rows.push(made);
                }
                write(dir, &of, &rows);
                all.extend((1..).zip(rows).map(|(id, made)| Row { of, id, made }));
            }
        }
    }
    all
}
