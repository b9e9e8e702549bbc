//! A start that is prepared: a plan and what the kernel has in; programs that the kernel has taken, and a gate that has
//! been passed, out.

use std::thread;
use std::time::Instant;

use aya::sys::{Stats, enable_stats};
use log::info;

use super::ready::{Probes, Ready};
use super::{Plan, Wanted};
use crate::attach::{
    self, Compiled, KernelTypes, LoadOptions, Loaded, Loader, PlanTables, SelfTest, plan_probes,
};
use crate::kernel::{Feature, Host, clock, features};
use crate::symbolize::LiveSymbolizer;
use crate::tracer::ahead::Ahead;
use crate::tracer::gate::Gate;
use crate::tracer::resolved::{Found, resolve_child, say_unlabelled, say_unread, unmatched_waits};
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::symbolize::kernel::KernelSymbols;

/// Markers that are found, and the probes for them; the machine can trace.
pub(super) struct Prepared {
    wanted: Wanted,
    found: Found,
    probes: Probes,
    host: Host,
    /// What this kernel cannot say, in words.
    lacks: Vec<String>,
    symbols: LiveSymbolizer,
    monotonic_to_unix_ns: i64,
    cost: Ahead<Result<SelfTest>>,
    work: Work,
}

/// What loading waits for.
struct Work {
    loader: Ahead<Loader>,
    types: Ahead<Result<KernelTypes>>,
    tables: Option<Ahead<Compiled>>,
}

impl Plan {
    /// Looks what the machine can do, and plans the probes.
    pub(super) fn prepare(self) -> Result<Prepared> {
        let Self {
            mut wanted,
            children,
            mapped,
            found,
            host,
            loader,
            cost,
            tables,
        } = self;
        // A kernel that cannot be traced on is reported first: it may be why nothing was resolved.
        let host = host.wait().flatten()?;
        let types = Ahead::begin("the kernel's types", {
            let host = host.clone();
            move || KernelTypes::read(&host)
        });
        let lacks = host.features.lost_to(features::Wanted {
            before: wanted.options.before,
            blame: wanted.options.blame,
            interrupts: wanted.options.interrupts,
            at_sockets: wanted.profiles.wait_at_sockets(),
        })?;
        for lack in &lacks {
            wanted.notices.warn(lack);
        }
        let mut found = found?;
        let (profiles, notices) = (&wanted.profiles, &wanted.notices);
        if wanted.options.labels {
            say_unlabelled(profiles, &found.resolved, notices)?;
        }
        say_unread(&found.resolved, wanted.options.labels, notices);
        for child in children {
            resolve_child(profiles, child, &mut wanted.processes, &mut found, notices);
        }
        let monotonic_to_unix_ns = clock::monotonic_to_unix_ns();
        let mut symbols = LiveSymbolizer::new(wanted.files.clone());
        if let Some(bytes) = wanted.options.file_memory {
            symbols = symbols.within(bytes / 2);
        }
        for (space, mapped) in &mapped {
            symbols.map(*space, mapped);
        }
        let mut plan_tables = PlanTables::new(wanted.options.labels);
        let plans = plan_probes(&found.resolved, &mut plan_tables)?;
        Ok(Prepared {
            wanted,
            found,
            probes: Probes {
                plans,
                tables: plan_tables,
            },
            host,
            lacks,
            symbols,
            monotonic_to_unix_ns,
            cost,
            work: Work {
                loader,
                types,
                tables,
            },
        })
    }
}

impl Prepared {
    /// Asks whether it is safe and what it costs, and lets the kernel verify the programs, which takes as long: both at
    /// once. Nothing is attached by either.
    pub(super) fn load(self) -> Result<Ready> {
        let Self {
            wanted,
            found,
            probes,
            host,
            lacks,
            mut symbols,
            monotonic_to_unix_ns,
            cost,
            work,
        } = self;
        // Counting the programs' time costs some 40 ns a run, so it is done only when it is shown.
        let stats = wanted
            .options
            .measure_programs
            .then(|| enable_stats(Stats::RunTime).ok())
            .flatten();
        let gate = Gate {
            max_probe_rate: wanted.options.max_probe_rate,
            accept_risk: wanted.options.accept_risk,
            notices: &wanted.notices,
            resolved: &found.resolved,
            profiles: &wanted.profiles,
            plans: &probes.plans,
            pids: &wanted.pids,
            has_begun: wanted.has_begun,
        };
        // Both are for the report only, and are there when something is traced: what they take is not
        // taken from the traced processes.
        let for_the_report = || {
            let (profiles, processes) = (wanted.profiles.clone(), wanted.processes.clone());
            (
                thread::spawn(KernelSymbols::read),
                Ahead::begin("names of waits", move || {
                    unmatched_waits(&profiles, &processes)
                }),
            )
        };
        let more_probes = found.has_masters || !wanted.programs.is_empty();
        let (gate, loaded) = thread::scope(|scope| {
            let gate = scope.spawn(move || gate.pass(cost, for_the_report));
            let loaded = work.load(&wanted, &probes, &host, more_probes);
            let panicked = |_| Error::failed("the measurement of the load panicked");
            (gate.join().map_err(panicked).flatten(), loaded)
        });
        let (cost, untraced, (kernel, unmatched)) = gate?;
        symbols.take_kernel(kernel);
        Ok(Ready {
            loaded: loaded?,
            wanted,
            found,
            probes,
            host,
            lacks,
            symbols,
            monotonic_to_unix_ns,
            stats,
            cost,
            untraced,
            unmatched,
        })
    }
}

impl Work {
    fn load(
        self,
        wanted: &Wanted,
        probes: &Probes,
        host: &Host,
        more_probes: bool,
    ) -> Result<Loaded> {
        let (options, profiles) = (&wanted.options, &wanted.profiles);
        let tables = self.tables.map(Ahead::wait).transpose()?;
        let load_started = Instant::now();
        let loaded = attach::load(
            host,
            self.loader.wait()?,
            || self.types.wait().flatten(),
            LoadOptions {
                kernel_stacks: true,
                user_stacks: options.needs_user_stacks(profiles),
                preempted_stacks: options.preempted_stacks,
                stack_filter: options.stack_filter,
                keep_slow: options.keep_slow,
                histogram: options.histogram,
                blame: options.blame,
                holders: options.records_holders(),
                before: options.before,
                interrupts: options.interrupts,
                origins: options.blame
                    && profiles.wait_at_sockets()
                    && host.features.has(Feature::TcpSockets),
                sends: host.features.has(Feature::UnixSockets),
                samples: options.samples.is_some(),
                measure_walks: options.measure_programs,
                messages: options.measure_programs,
                has_keys: profiles.have_keys(),
                plans: Some(&probes.tables),
                probes: Some(&probes.plans),
                more_probes,
                sizes: wanted.sizes,
            },
            tables,
        );
        info!("kernel programs loaded in {:.0?}", load_started.elapsed());
        loaded
    }
}
