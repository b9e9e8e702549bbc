//! The start of a trace: what to trace in, everything attached out.
//!
//! Everything that can be wrong is looked at before anything is attached: the processes, the profile in
//! them, the outputs, the kernel. What takes long runs at the same time as the rest.

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use aya::sys::{Stats, enable_stats};
use log::info;
use reqtrace_binary::files::Files;
use reqtrace_recording::Header;

use super::ahead::Ahead;
use super::follow::Keyed;
use super::gate::Gate;
use super::header::header;
use super::latecomers::Latecomers;
use super::processes::first_space;
use super::resolved::{
    Found, resolve_all, resolve_child, say_unlabelled, say_unread, settle_all, unmatched_waits,
};
use super::stopper::Stopper;
use super::trace::{Events, Trace};
use super::{Options, Tracer, Unwind};
use crate::attach::estimate::HitCost;
use crate::attach::{
    self, Compiled, CpuEngine, KernelTypes, LabelTable, LoadOptions, Loaded, Loader, MarkerTable,
    ProbePlan, Session, StackTable, Whom, self_test,
};
use crate::events::{Names, Notices};
use crate::kernel::socket_kinds;
use crate::kernel::{Feature, Host, clock, processes};
use crate::symbolize::LiveSymbolizer;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::symbolize::kernel::KernelSymbols;
use reqtrace_binary::unwind::Registry;
use reqtrace_profile::Profiles;
use reqtrace_resolve::{Objects, Process};

/// Attaches everything.
pub(super) fn start<T>(
    tracer: Tracer,
    accepted: impl FnOnce(&Profiles) -> Result<T>,
) -> Result<(Trace, T)> {
    let Tracer {
        profiles,
        pids,
        mut processes,
        has_begun,
        options,
        notices,
    } = tracer;
    for pid in pids {
        processes.push(Process::open(pid)?);
    }
    // Each file is opened and parsed once, whoever wants it, and whichever of the processes has it.
    let files = Files::default();
    let objects = Objects::with_files(files.clone());
    for process in &mut processes {
        process.use_objects(&objects);
    }
    drop(objects);
    let profiles = settle_all(profiles, &processes, &notices)?;
    let host = Ahead::begin("the machine", Host::examine);
    let loader = Ahead::begin("the loader", Loader::new);
    let cost = Ahead::begin("what a hit costs", self_test::run);
    let mut pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let children = match options.follow {
        true => processes::descendants(&pids),
        false => Vec::new(),
    };
    pids.extend(&children);
    let tables = compile_tables(
        (&pids, &processes, has_begun),
        options.unwind,
        &files,
        &notices,
    );
    let resolved = resolve_all(&profiles, &processes, options.follow, &notices);
    // A kernel that cannot be traced on is said first: it may be why nothing was resolved.
    let host = host.wait().flatten()?;
    let types = Ahead::begin("the kernel's types", {
        let host = host.clone();
        move || KernelTypes::read(&host)
    });
    let has_keys = profiles.have_keys();
    let lacks = host
        .features
        .lost_to(options.before, options.blame, has_keys)?;
    for lack in &lacks {
        notices.warn(lack);
    }
    let mut found = resolved?;
    if options.labels {
        say_unlabelled(&profiles, &found.resolved, &notices)?;
    }
    say_unread(&found.resolved, options.labels, &notices);
    for child in children {
        resolve_child(&profiles, child, &mut processes, &mut found, &notices);
    }
    let resolved = &found.resolved;
    let monotonic_to_unix_ns = clock::monotonic_to_unix_ns();
    let mut symbols = LiveSymbolizer::new(files.clone());
    for process in &processes {
        symbols.remember(first_space(process.pid));
    }
    let mut labels = options.labels.then(LabelTable::default);
    let mut markers = MarkerTable::default();
    let plans = ProbePlan::of(resolved, labels.as_mut(), &mut markers)?;
    // Counting the programs' time costs some 40 ns a run, so it is done only when it is shown.
    let stats = options
        .measure_programs
        .then(|| enable_stats(Stats::RunTime).ok())
        .flatten();
    // The verifier takes as long as the gate does: both at once. Nothing is attached by either.
    let gate = Gate {
        max_probe_rate: options.max_probe_rate,
        accept_risk: options.accept_risk,
        notices: &notices,
        resolved,
        plans: &plans,
        pids: &pids,
        has_begun,
    };
    // Both are for the report only, and are there when something is traced: what they take is not
    // taken from the traced processes.
    let for_the_report = || {
        let (profiles, processes) = (profiles.clone(), processes.clone());
        (
            thread::spawn(KernelSymbols::read),
            Ahead::begin("names of waits", move || {
                unmatched_waits(&profiles, &processes)
            }),
        )
    };
    let (gate, loaded) = thread::scope(|scope| {
        let gate = scope.spawn(move || gate.pass(cost, for_the_report));
        let load = Load {
            host: &host,
            loader,
            types,
            tables,
            more_probes: found.has_masters,
        };
        let tables = (labels.as_ref(), &markers);
        let loaded = load.run(&options, &profiles, tables, &plans);
        let panicked = |_| Error::failed("the measurement of the load panicked");
        (gate.join().map_err(panicked).flatten(), loaded)
    });
    let (cost, untraced, (kernel, unmatched)) = gate?;
    symbols.take_kernel(kernel);
    let loaded = loaded?;
    // A trace that is refused opens nothing, and a bad path leaves nothing attached.
    let opened = accepted(&profiles)?;
    let known = pids.len();
    let programs = processes.iter().map(|process| &process.executable.open);
    let programs: Vec<PathBuf> = programs.cloned().collect();
    let (session, stacks) = attach(
        loaded,
        &plans,
        (&mut pids, &programs),
        (cost, &found, &profiles),
        &options,
    )?;
    if let Some(warning) = session.sampling_warning() {
        notices.warn(warning);
    }
    for &pid in &pids[known..] {
        symbols.remember(first_space(pid));
    }
    let header = Header {
        start_ns: session.start_ns(),
        unmatched_waits: unmatched.wait()?,
        blame: options.blame,
        before: options.before,
        sockets: socket_kinds_of(options.before, &pids),
        cpu_rate: session
            .cpu_engine()
            .and(options.samples)
            .map_or(0, |plan| plan.rate_hz),
        cpu_engine: session.cpu_engine().map_or("", CpuEngine::name).to_owned(),
        options: options.recorded(&profiles),
        lacks,
        ..header(&host, &profiles, resolved, monotonic_to_unix_ns)
    };
    drop(processes);
    files.forget();
    give_memory_back();
    let events = Events {
        header,
        names: Names::new(stacks, symbols, files),
        request_types: profiles.requests().count(),
        keyed: Keyed {
            has_keys: profiles.have_keys(),
            ends: profiles.text_ends(),
        },
        pids,
        latecomers: Latecomers {
            known: found.programs(),
            unprobed: found.unprobed,
            _kept: found.kept,
            profiles,
            labels,
            markers,
            accept_risk: options.accept_risk,
            notices: notices.clone(),
            waiting: Vec::new(),
        },
        untraced,
        cold_percent: cost.cold_percent,
    };
    let stopper = Stopper::new()?;
    let trace = Trace::new(session, events, stats, options, notices, stopper);
    Ok((trace, opened))
}

/// Compiling tables and reading types takes tens of MiB in several threads, which their allocators keep.
fn give_memory_back() {
    // SAFETY: no precondition.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What is said of requests of which nobody knows how long their data had waited goes by it.
fn socket_kinds_of(before: bool, pids: &[u32]) -> Vec<String> {
    let pids = if before { pids } else { &[] };
    let kinds = socket_kinds::of(pids).into_iter();
    kinds.map(str::to_owned).collect()
}

/// What the kernel programs are loaded from.
struct Load<'a> {
    host: &'a Host,
    loader: Ahead<Loader>,
    types: Ahead<Result<KernelTypes>>,
    tables: Option<Ahead<Compiled>>,
    more_probes: bool,
}

impl Load<'_> {
    fn run(
        self,
        options: &Options,
        profiles: &Profiles,
        (labels, markers): (Option<&LabelTable>, &MarkerTable),
        plans: &[ProbePlan],
    ) -> Result<Loaded> {
        let tables = self.tables.map(Ahead::wait).transpose()?;
        let load_started = Instant::now();
        let loaded = attach::load(
            self.host,
            self.loader.wait()?,
            || self.types.wait().flatten(),
            LoadOptions {
                kernel_stacks: true,
                user_stacks: options.needs_user_stacks(profiles),
                preempted_stacks: options.preempted_stacks,
                stack_filter: options.stack_filter,
                histogram: options.histogram,
                blame: options.blame,
                before: options.before,
                origins: options.blame
                    && profiles.have_keys()
                    && self.host.features.has(Feature::TcpSockets),
                samples: options.samples.is_some(),
                measure_walks: options.measure_programs,
                messages: options.measure_programs,
                labels,
                has_keys: profiles.have_keys(),
                markers: Some(markers),
                probes: Some(plans),
                more_probes: self.more_probes,
            },
            tables,
        );
        info!("kernel programs loaded in {:.0?}", load_started.elapsed());
        loaded
    }
}

/// Attaches what was loaded, and finds the children that were started meanwhile.
fn attach(
    loaded: Loaded,
    plans: &[ProbePlan],
    (pids, programs): (&mut Vec<u32>, &[PathBuf]),
    (cost, found, profiles): (HitCost, &Found, &Profiles),
    options: &Options,
) -> Result<(Session, StackTable)> {
    let attach_started = Instant::now();
    let (mut session, stacks) = loaded.attach(
        plans,
        Whom {
            pids,
            programs,
            more_programs: found.has_masters,
            follow: options.follow,
            service_of: found.service_of(profiles),
        },
        cost,
        options.sample_every,
        options.samples,
    )?;
    if options.follow {
        // Those that were started before the kernel programs saw forks.
        let late: Vec<u32> = processes::descendants(pids)
            .into_iter()
            .filter(|pid| !pids.contains(pid))
            .collect();
        session.trace_children(&late)?;
        pids.extend(late);
    }
    info!(
        "{} probes attached in {:.0?}; kernel memory {} KiB",
        plans.len(),
        attach_started.elapsed(),
        session.kernel_memory() / 1024
    );
    Ok((session, stacks))
}

/// Unwind tables, if stacks are walked by them. A program that has not begun has mapped nothing yet:
/// then its files are given.
fn compile_tables(
    (pids, processes, has_begun): (&[u32], &[Process], bool),
    unwind: Unwind,
    open: &Files,
    notices: &Notices,
) -> Option<Ahead<Compiled>> {
    if unwind == Unwind::Fp {
        return None;
    }
    let notices = notices.clone();
    let mut registry = Registry::new()
        .with_files(open.clone())
        .with_progress(move |now| notices.compiling(now));
    if unwind == Unwind::Auto {
        registry = registry.with_frame_pointers();
    }
    let files = processes.iter().flat_map(|process| &process.objects);
    let files: Vec<PathBuf> = files.map(|file| file.open.clone()).collect();
    let spaces: Vec<_> = pids.iter().map(|&pid| first_space(pid)).collect();
    Some(Ahead::begin("the unwind tables", move || {
        if has_begun {
            Compiled::of(registry, &spaces)
        } else {
            Compiled::ahead_of(registry, &files)
        }
    }))
}
