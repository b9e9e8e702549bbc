//! A snapshot in, the text of OpenMetrics out.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use reqtrace_analysis::report::blame::Cause;
use reqtrace_binary::status::Status;
use reqtrace_capture::attach::guard::Shed;
use serde::{Deserialize, Serialize};

use super::durations;
use super::encoder::{Encoder, Label, behind};
use super::groups::{Groups, Sums};
use super::latencies::seconds;
use super::of_rows;
use super::of_type::OfType;
use super::protobuf;
use super::{Metrics, OfWorker, Process, Service, State, Target};
use crate::listen::Page;
use crate::memory::Held;

impl Page for Metrics {
    fn text(&self) -> Result<String, fmt::Error> {
        text(self.snapshot())
    }

    fn protobuf(&self) -> Option<Result<Vec<u8>, fmt::Error>> {
        Some(in_protobuf(self.snapshot()))
    }

    fn turned_away(&self) {
        Self::turned_away(self);
    }
}

impl Metrics {
    /// The text of all metrics, with what the worker has counted.
    ///
    /// # Errors
    ///
    /// Never: text takes everything.
    pub(crate) fn bytes_with(
        &self,
        of: &OfWorker,
        own: Vec<Process>,
        format: Format,
    ) -> Result<Vec<u8>, fmt::Error> {
        let snapshot = self.snapshot_with(of, own);
        match format {
            Format::Text => text(snapshot).map(String::into_bytes),
            Format::Protobuf => in_protobuf(snapshot),
        }
    }
}

/// What a reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Format {
    /// OpenMetrics.
    Text,
    /// Prometheus's older form, with native histograms.
    Protobuf,
}

fn text(snapshot: State) -> Result<String, fmt::Error> {
    let mut durations = String::new();
    durations::write(&mut durations, snapshot.types())?;
    behind(durations, snapshot)
}

fn in_protobuf(snapshot: State) -> Result<Vec<u8>, fmt::Error> {
    let native = protobuf::native(
        snapshot
            .types()
            .map(|(labels, of_type)| (labels, of_type.native.message(of_type.duration_ns))),
    );
    Ok(protobuf::encode(&text(snapshot)?, native))
}

impl Collector for State {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Encoder(encoder);
        let all = || self.all();
        let types = || self.types();
        let parts = types().flat_map(|(labels, of_type)| {
            let parts = of_type.parts.iter();
            parts.map(move |(part, ns)| (with(labels, ("part", part)), seconds(*ns)))
        });
        to.counter(
            "request_part_seconds",
            "Time of complete requests by what they did; all parts add up to the durations",
            parts,
        )?;
        let causes = types().flat_map(|(labels, of_type)| {
            let causes = of_type.causes.iter().flatten().zip(Cause::ALL);
            causes.map(move |(ns, cause)| (with(labels, ("cause", cause.name())), seconds(*ns)))
        });
        to.counter(
            "root_cause_seconds",
            "Time that complete requests were held up, by root cause; of rules with blame",
            causes,
        )?;
        let count = |count: fn(&OfType) -> u64| {
            types().map(move |(labels, of_type)| (labels, count(of_type) as f64))
        };
        to.counter(
            "slow_requests",
            "Complete requests that took longer than the slo of their rule",
            count(|of_type| of_type.slow),
        )?;
        to.counter(
            "recorded_requests",
            "Complete requests that were recorded; where they are fewer than all, all figures are estimated from them",
            count(|of_type| of_type.recorded),
        )?;
        to.counter(
            "incomplete_requests",
            "Requests whose end was not seen, or that were not ended; they are in no duration",
            count(|of_type| of_type.incomplete),
        )?;
        let groups = |value: fn(Sums) -> f64| {
            types().flat_map(move |(labels, of_type)| {
                let groups = of_type.groups.iter().flat_map(Groups::all);
                groups.map(move |(group, sums)| (with(labels, ("group", group)), value(sums)))
            })
        };
        to.counter(
            "group_requests",
            "Complete requests by group; of rules with group-by, and they add up to all of the type",
            groups(|sums| sums.count as f64),
        )?;
        to.counter(
            "group_duration_seconds",
            "Durations of complete requests by group, added up",
            groups(|sums| seconds(sums.duration_ns)),
        )?;
        to.counter(
            "group_slow_requests",
            "Complete requests by group that took longer than the slo of their rule",
            groups(|sums| sums.slow as f64),
        )?;
        let lost = all().flat_map(|(service, of)| {
            let lost = of.lost.iter();
            lost.map(move |(cause, count)| {
                (
                    [("service", service), ("cause", cause.as_str())],
                    *count as f64,
                )
            })
        });
        to.counter("lost", "What could not be kept, by cause", lost)?;
        let failures = all().map(|(service, of)| ([("service", service)], of.failures as f64));
        to.counter(
            "session_failures",
            "Sessions that could not begin, or ended by an error; they are tried again",
            failures,
        )?;
        self.gauges(&mut to)
    }
}

impl State {
    fn all(&self) -> impl Iterator<Item = (&str, &Service)> {
        let all = self.services.iter().map(|(name, of)| (name.as_str(), of));
        all.filter(|(_, of)| of.is_wanted || of.is_shown())
    }

    fn types(&self) -> impl Iterator<Item = ([Label<'_>; 2], &OfType)> {
        let shown = self.all().filter(|(_, of)| of.is_shown());
        shown.flat_map(|(service, of)| {
            let types = of.types.iter();
            types.map(move |(name, of_type)| {
                ([("service", service), ("type", name.as_str())], of_type)
            })
        })
    }

    fn gauges(&self, to: &mut Encoder<'_>) -> fmt::Result {
        let all = || {
            let wanted = self.services.iter().filter(|(_, of)| of.is_wanted);
            wanted.map(|(name, of)| ([("service", name.as_str())], of))
        };
        let shown = |value: fn(&Service) -> Option<f64>| {
            let shown = all().filter(|(_, of)| of.is_shown());
            shown.filter_map(move |(labels, of)| Some((labels, value(of)?)))
        };
        to.gauge(
            "traced",
            "Processes that are traced",
            all().map(|(labels, of)| (labels, of.traced as f64)),
        )?;
        to.gauge(
            "slo_seconds",
            "The slo of the service's rule",
            all().filter_map(|(labels, of)| Some((labels, seconds(of.slo_ns?.into())))),
        )?;
        to.gauge(
            "requests_open",
            "Requests that have begun and not ended",
            shown(|of| Some(of.open as f64)),
        )?;
        to.gauge(
            "oldest_open_seconds",
            "How long the request that began first has been open; 0 when none is",
            shown(|of| Some(seconds(of.oldest_ns.into()))),
        )?;
        to.gauge(
            "cost_ratio",
            "Share of the service's CPU time that tracing took in the last second, at most",
            shown(|of| of.cost),
        )?;
        to.gauge(
            "ladder",
            "How far tracing is thinned to keep its cost: 0 not, 1 stacks, 2 to 5 one request in 4, 16, 64, 256, 6 to 9 one \
             window in 2, 4, 8, 16, 10 given up",
            all().map(|(labels, of)| (labels, rung(of.shed))),
        )?;
        to.gauge(
            "window_end_timestamp_seconds",
            "Requests that ended before this are in the counters",
            shown(|of| (of.until_unix_ns > 0).then(|| seconds(of.until_unix_ns.into()))),
        )?;
        let targets = Target::ALL.map(|target| {
            let count = self.targets.get(&target).copied().unwrap_or(0);
            ([("state", target.name())], count as f64)
        });
        to.gauge(
            "targets",
            "Processes that a rule is about, by state",
            targets,
        )?;
        let none: [Label<'_>; 0] = [];
        let memory = match self.processes.as_slice() {
            [] => Status::of("self")
                .ok()
                .and_then(|status| status.resident_bytes()),
            processes => {
                let bytes = processes.iter().map(|process| process.resident_bytes);
                Some(bytes.fold(0, u64::saturating_add))
            }
        };
        to.gauge(
            "agent_resident_memory_bytes",
            "Memory of the agent itself, of its processes together",
            memory.map(|bytes| (none, bytes as f64)),
        )?;
        let kinds = |(held, _): (Held, u64)| [("own", held.own), ("tables", held.tables)];
        let kinds = self.held.map(kinds).into_iter().flatten();
        to.gauge(
            "agent_memory_bytes",
            "What memory bounds: of the processes, without pages of files, and of the kernel's tables",
            kinds.map(|(kind, bytes)| ([("kind", kind)], bytes as f64)),
        )?;
        to.gauge(
            "agent_memory_limit_bytes",
            "memory of the configuration",
            self.held.map(|(_, bound)| (none, bound as f64)),
        )?;
        let accepted = f64::from(u8::from(!self.reload_failed));
        to.gauge(
            "config_last_reload_successful",
            "Whether the configuration that stands is the one that was read last",
            [(none, accepted)],
        )?;
        let reloads = [("accepted", self.reloads[0]), ("refused", self.reloads[1])];
        to.counter(
            "config_reloads",
            "Reloads of the configuration by SIGHUP",
            reloads.map(|(result, count)| ([("result", result)], count as f64)),
        )?;
        to.counter(
            "connections_turned_away",
            "Connections to the metrics that were closed because there were too many",
            [(none, self.turned_away as f64)],
        )?;
        if let Some(rows) = &self.rows {
            rows.encode(to)?;
        }
        if let Some(rollups) = &self.rollups {
            of_rows::encode_rollups(rollups, to)?;
        }
        if let Some(spans) = &self.spans {
            spans.encode(to)?;
        }
        if let Some(profiles) = &self.profiles {
            profiles.encode(to)?;
        }
        self.processes(to)?;
        let mut info =
            to.0.encode_descriptor("build", "This program", None, MetricType::Info)?;
        info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

impl State {
    fn processes(&self, to: &mut Encoder<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            return Ok(());
        }
        let texts: Vec<_> = self
            .processes
            .iter()
            .map(|process| {
                let capabilities = process.capabilities.join(",");
                (process, process.user.to_string(), capabilities)
            })
            .collect();
        let all = texts.iter().map(|(process, user, capabilities)| {
            let labels = [
                ("process", process.name.as_str()),
                ("user_id", user),
                ("capabilities", capabilities),
                ("no_new_privileges", yes_or_no(process.no_new_privileges)),
            ];
            (labels, 1.0)
        });
        to.gauge(
            "agent_process",
            "1 for each process of the agent, with its user and the capabilities that it has",
            all,
        )
    }
}

const fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn rung(shed: Shed) -> f64 {
    match shed {
        Shed::Nothing => 0.0,
        Shed::Stacks => 1.0,
        Shed::Sample(every) => 1.0 + f64::from(every).log2() / 2.0,
        Shed::Windows(of) => 5.0 + f64::from(of).log2(),
        Shed::All => 10.0,
    }
}

fn with<'a>([service, of_type]: [Label<'a>; 2], more: Label<'a>) -> [Label<'a>; 3] {
    [service, of_type, more]
}
