//! Loads the kernel programs: offsets of the running kernel in, verified programs out.

use std::thread;
use std::time::Instant;

use aya::programs::perf_event::PerfEvent;
use aya::programs::{BtfTracePoint, Iter, Program};
use aya::{Btf, Ebpf, EbpfLoader, Endianness};
use aya_log::EbpfLogger;
use log::debug;
use reqtrace_common::config::stacks_wanted;
use reqtrace_common::cost::program;
use reqtrace_common::limits::{KNOWN_AT_MARKERS, MAX_KEYS, MAX_PARKED, MAX_SOCKETS};
use reqtrace_common::marker::{BriefPlan, hits_at};
use reqtrace_common::passed::PLACES;

use super::Compiled;
use super::batch::cpus;
use super::elsewhere::elsewhere;
use super::grace::GracePeriod;
use super::image::Image;
use super::maps::Maps;
use super::object::{OBJECT, check_abi};
use super::plans::PlanTables;
use super::programs::{Own, Programs, SAMPLER, UPROBES};
use super::refused::{explain_load, explain_program};
use super::sizes::Sizes;
use super::uprobe::Setter;
use super::wanted::{LoadOptions, LoadPlan, UnwindRoom};
use crate::kernel::entries::KernelCode;
use crate::kernel::features::{
    BLOCK, CPU_SWITCH, INTERRUPT_SWITCH, INTERRUPTS, MIGRATE, PAGE_FAULT, TRACEPOINTS,
    WATCH_THREADS,
};
use crate::kernel::{Feature, Features, Host, Part};
use reqtrace_base::error::{Error, Result};

/// The tracepoint of switches.
const SWITCH: &str = "sched_switch";

/// Programs that the kernel has verified; nothing is attached.
pub struct Loaded {
    pub(super) programs: Box<dyn Programs>,
    pub(super) maps: Maps,
    pub(super) grace: GracePeriod,
    pub(super) tables: Option<Compiled>,
    pub(super) log: Option<KernelLog>,
    pub(super) plans: PlanTables,
    pub(super) sizes: Sizes,
}

/// Messages of the kernel programs.
pub(super) type KernelLog = EbpfLogger<&'static dyn log::Log>;

/// What a kernel object becomes when it is loaded.
pub(crate) struct Taken {
    pub(crate) programs: Own,
    pub(crate) maps: Maps,
    pub(crate) grace: GracePeriod,
    pub(super) log: Option<KernelLog>,
}

/// What loads the kernel programs; nothing where another process does.
pub struct Loader(Option<EbpfLoader<'static>>);

impl Loader {
    /// Makes it, which takes some 30 ms: aya reads the kernel's type information each time.
    #[must_use]
    pub fn new() -> Self {
        Self(elsewhere().is_none().then(EbpfLoader::new))
    }
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}

/// The running kernel's type information, as programs for its tracepoints need it; nothing where another process loads.
pub struct KernelTypes(Option<Btf>);

impl KernelTypes {
    /// Reads it, which takes some 30 ms.
    ///
    /// # Errors
    ///
    /// When the file is not BTF.
    pub fn read(host: &Host) -> Result<Self> {
        if elsewhere().is_some() {
            return Ok(Self(None));
        }
        let path = &host.btf_path;
        let btf = Btf::parse_file(path, Endianness::default()).map_err(|error| {
            Error::unsupported(format!("{} is not BTF", path.display())).because(error)
        })?;
        Ok(Self(Some(btf)))
    }
}

/// How many stacks of each kind the programs remember per CPU, at 3 KB for both: a power of two. Some
/// hundred are what a database blocks in; machines with many CPUs get less, so that it is 64 MB at most.
fn known_stacks() -> u32 {
    const MOST: usize = 512;
    const LEAST: usize = 64;
    const BYTES: usize = 64 << 20;
    let room = BYTES / (3 << 10) / cpus() as usize;
    // At most MOST.
    room.clamp(LEAST, MOST).next_power_of_two().min(MOST) as u32
}

/// Loads all programs. `tables` are the unwind tables of the processes to be traced; without them
/// user stacks are walked by frame pointers. `types` is asked when the maps are there.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Unsupported`] when the kernel refuses.
pub fn load(
    host: &Host,
    loader: Loader,
    types: impl FnOnce() -> Result<KernelTypes>,
    options: LoadOptions<'_>,
    tables: Option<Compiled>,
) -> Result<Loaded> {
    let mut plans = options.plans.cloned().unwrap_or_default();
    plans.settle(options.more_probes);
    let plan = LoadPlan::of(options, &plans, tables.as_ref());
    let (programs, mut maps, grace, log): (Box<dyn Programs>, _, _, _) = match elsewhere() {
        Some(attacher) => {
            let (programs, maps, grace) = attacher.load(&plan)?;
            (programs, maps, grace, None)
        }
        None => {
            let taken = load_here(host, loader, types, &plan)?;
            (Box::new(taken.programs), taken.maps, taken.grace, taken.log)
        }
    };
    fill_plans(&mut maps, &plans)?;
    Ok(Loaded {
        programs,
        maps,
        grace,
        tables,
        log,
        plans,
        sizes: options.sizes,
    })
}

/// Loads what a plan says, with this process's own privileges.
///
/// # Errors
///
/// As [`load`].
pub(crate) fn load_here(
    host: &Host,
    Loader(loader): Loader,
    types: impl FnOnce() -> Result<KernelTypes>,
    plan: &LoadPlan,
) -> Result<Taken> {
    plan.check()?;
    check_abi(OBJECT)?;
    aya::util::nr_cpus().map_err(|(path, error)| {
        Error::unsupported(format!("{path} cannot be read")).because(error)
    })?;
    let mut loader = loader.unwrap_or_default();
    set_layout(&mut loader, host, plan);
    set_sizes(&mut loader, plan);
    let globals = what_is_recorded(plan);
    for (global, number) in &globals.numbers {
        loader.override_global(global, number, true);
    }
    for (global, word) in &globals.words {
        loader.override_global(global, word, true);
    }
    let level = match plan.messages {
        true => aya_log::Level::Debug,
        false => aya_log::Level::Error,
    };
    let level = level as u8;
    loader.override_global(aya_log::LEVEL, &level, true);
    let mut ebpf = loader.load(OBJECT).map_err(|error| explain_load(&error))?;
    let btf = types()?.0;
    let btf = btf.ok_or_else(|| Error::failed("the kernel's type information was not read"))?;
    let image = Image::of(OBJECT, &ebpf)?;
    let log = kernel_log(&mut ebpf);
    let maps = Maps::of(&mut ebpf);
    let is_wanted = |name: &&str| plan.uprobes.iter().any(|wanted| wanted == name);
    let uprobes: Vec<&str> = UPROBES.into_iter().filter(is_wanted).collect();
    let setter = thread::scope(|scope| {
        let tracepoints = scope.spawn(|| load_programs(&mut ebpf, &btf, plan, &host.features));
        let setter = Setter::new(image, &uprobes);
        let panicked = |_| Error::failed("a thread that loads programs panicked");
        tracepoints.join().map_err(panicked).flatten()?;
        setter
    })?;
    Ok(Taken {
        programs: Own::new(ebpf, setter),
        maps,
        grace: GracePeriod::new()?,
        log,
    })
}

/// Where members of the running kernel's types are.
fn set_layout<'a>(loader: &mut EbpfLoader<'a>, host: &'a Host, plan: &LoadPlan) {
    let mut parts = vec![
        Part::Task,
        Part::Uprobe,
        Part::File,
        Part::Throttled,
        Part::Limit,
        Part::Disk,
    ];
    parts.extend(plan.wants_sockets().then_some(Part::Socket));
    let reads_steal = plan.interrupts && host.features.has(Feature::Steal);
    parts.extend(reads_steal.then_some(Part::Steal));
    for (global, offset) in parts.into_iter().flat_map(|part| host.layout.globals(part)) {
        loader.override_global(global, offset, true);
    }
}

/// Values of the object's globals by their names, of 32 and of 64 bits.
struct Globals {
    numbers: Vec<(&'static str, u32)>,
    words: Vec<(&'static str, u64)>,
}

/// What is recorded, and what fits.
fn what_is_recorded(plan: &LoadPlan) -> Globals {
    let stacks = [
        (plan.kernel_stacks, stacks_wanted::KERNEL),
        (plan.user_stacks, stacks_wanted::USER),
        (plan.preempted_stacks, stacks_wanted::PREEMPTED),
    ];
    let stacks = stacks.into_iter().filter(|(is_wanted, _)| *is_wanted);
    let gaps = plan.unwind.is_some_and(|unwind| unwind.by_frame_pointers);
    let numbers = vec![
        ("STACKS_WANTED", stacks.fold(0, |all, (_, bit)| all | bit)),
        ("LABELS_WANTED", plan.reads_texts.into()),
        ("GAPS_BY_FRAME_POINTERS", gaps.into()),
        ("HISTOGRAM_WANTED", plan.histogram.into()),
        ("BLAME_WANTED", plan.blame.into()),
        ("HOLDERS_WANTED", plan.holders.into()),
        ("BEFORE_WANTED", plan.before.into()),
        ("INTERRUPT_CLOCKS_WANTED", plan.interrupts.into()),
        ("ORIGIN_WANTED", plan.origins.into()),
        ("SENDS_SEEN", plan.sends.into()),
        ("KEEP_ONE_IN", plan.keep_slow.1),
        ("MEASURE_WALKS", plan.measure_walks.into()),
        ("KNOWN_STACKS", known_stacks()),
        // Threads that serve requests need the rest.
        ("MOST_WATCHED", plan.sizes.threads / 4),
        ("CPUS", cpus()),
    ];
    let [min_ns, max_ns, state] = plan.stack_filter;
    // Others read no stacks of interrupts.
    let code = match plan.blame {
        true => KernelCode::read(plan.origins),
        false => KernelCode::default(),
    };
    let words = vec![
        ("STACK_MIN_NS", min_ns),
        ("STACK_MAX_NS", max_ns),
        ("STACK_STATE", state),
        ("KEEP_SLOW_NS", plan.keep_slow.0),
        ("INTERRUPTS_FROM", code.interrupts[0]),
        ("INTERRUPTS_UNTIL", code.interrupts[1]),
        ("SEGMENTS_FROM", code.segments[0]),
        ("SEGMENTS_UNTIL", code.segments[1]),
    ];
    Globals { numbers, words }
}

/// How many entries the tables have: one where a table is not used.
fn set_sizes(loader: &mut EbpfLoader<'_>, plan: &LoadPlan) {
    let sizes = plan.sizes;
    let most = |wanted, most| if wanted { most } else { 1 };
    let [labels, markers, attributes] = plan.rooms;
    let unwind = |room: fn(UnwindRoom) -> u32| plan.unwind.map_or(1, room);
    for (map, entries) in [
        ("THREADS", sizes.threads),
        ("PROCESSES", sizes.processes),
        ("STACKS", sizes.stacks),
        ("STACK_SUMS", sizes.sums),
        ("HISTOGRAMS", most(plan.histogram, sizes.sums)),
        ("RUNS", most(plan.blame, cpus())),
        ("KEYS", most(plan.has_keys, MAX_KEYS)),
        ("PARKED", most(plan.has_keys, MAX_PARKED)),
        ("UNITS", most(plan.has_keys, PLACES)),
        ("SOCKETS", most(plan.wants_sockets(), MAX_SOCKETS)),
        ("READS", most(plan.before, sizes.threads)),
        ("SENDS", most(plan.origins, MAX_SOCKETS)),
        ("KNOWN_USER", known_stacks()),
        ("KNOWN_USER_TAGS", known_stacks()),
        ("KNOWN_KERNEL", known_stacks()),
        ("KNOWN_AT_MARKERS", most(plan.has_keys, KNOWN_AT_MARKERS)),
        ("UNWIND_ROWS", unwind(|room| room.rows)),
        ("UNWIND_INDEX", unwind(|room| room.index)),
        ("LABEL_PLANS", labels),
        ("MARKER_PLANS", markers),
        ("BRIEF_PLANS", markers),
        ("MARKER_COUNTS", markers * cpus()),
        ("MARKER_HITS", (hits_at(markers - 1).0 + 1) * cpus()),
        ("COSTS", program::COUNT * cpus()),
        ("ATTRIBUTE_PLANS", attributes),
    ] {
        loader.map_max_entries(map, entries);
    }
}

/// Writes plans into their maps.
///
/// # Errors
///
/// When they have no room there.
pub(super) fn fill_plans(maps: &mut Maps, plans: &PlanTables) -> Result<()> {
    let markers = || plans.marker_plans().iter().map(|(plan, _)| plan);
    let mut briefs = vec![BriefPlan::WHOLE; markers().count()];
    BriefPlan::all(markers(), &mut briefs);
    maps.fill("LABEL_PLANS", plans.label_plans())?;
    maps.fill("MARKER_PLANS", markers())?;
    maps.fill("BRIEF_PLANS", &briefs)?;
    maps.fill("ATTRIBUTE_PLANS", plans.attribute_plans())
}

/// Loads the programs of the scheduler, and the one that takes samples if it is wanted, at the same time: the
/// verifier takes half a second for the largest.
///
/// With blame page faults are looked at too, where the kernel has their tracepoint.
fn load_programs(ebpf: &mut Ebpf, btf: &Btf, plan: &LoadPlan, features: &Features) -> Result<()> {
    let faults = plan.blame && features.has(Feature::PageFaults);
    let disks = plan.blame && features.has(Feature::BlockDevices);
    let wanted = || {
        let sockets = features
            .socket_tracepoints()
            .filter(move |_| plan.wants_sockets());
        let disks = disks.then(|| BLOCK.map(|(name, _)| name));
        let others = faults.then_some(PAGE_FAULT).into_iter();
        let others = others.chain(disks.into_iter().flatten());
        let cpus = plan.blame.then_some([CPU_SWITCH, MIGRATE, WATCH_THREADS]);
        let others = others
            .chain(cpus.into_iter().flatten())
            .chain(plan.samples.then_some(SAMPLER));
        let interrupts = plan
            .interrupts
            .then(|| [INTERRUPT_SWITCH].into_iter().chain(INTERRUPTS));
        let others = others.chain(interrupts.into_iter().flatten());
        TRACEPOINTS.into_iter().chain(sockets).chain(others)
    };
    let programs = ebpf.programs_mut();
    let programs: Vec<_> = programs
        .filter_map(|(name, program)| Some((wanted().find(|known| *known == name)?, program)))
        .collect();
    if programs.len() != wanted().count() {
        return Err(Error::failed(
            "the kernel object has not all programs of the scheduler and of samples",
        ));
    }
    thread::scope(|scope| {
        let workers: Vec<_> = programs
            .into_iter()
            .map(|(name, program)| scope.spawn(move || load_program(name, program, btf)))
            .collect();
        let panicked = |_| Error::failed("a thread that loads programs panicked");
        let mut workers = workers.into_iter();
        workers.try_for_each(|worker| worker.join().map_err(panicked).flatten())
    })
}

fn load_program(name: &str, program: &mut Program, btf: &Btf) -> Result<()> {
    let started = Instant::now();
    let loaded = if name == SAMPLER {
        <&mut PerfEvent>::try_from(program).and_then(PerfEvent::load)
    } else if name == WATCH_THREADS {
        <&mut Iter>::try_from(program).and_then(|program| program.load("task", btf))
    } else {
        <&mut BtfTracePoint>::try_from(program).and_then(|program| {
            let is_switch = [CPU_SWITCH, INTERRUPT_SWITCH].contains(&name);
            let tracepoint = if is_switch { SWITCH } else { name };
            program.load(tracepoint, btf)
        })
    };
    loaded.map_err(|error| explain_program(name, error))?;
    debug!("loaded {name} in {:.0?}", started.elapsed());
    Ok(())
}

/// Messages of the kernel programs go to the log, which `-v` shows.
fn kernel_log(ebpf: &mut Ebpf) -> Option<KernelLog> {
    EbpfLogger::init(ebpf)
        .inspect_err(|error| debug!("the kernel programs have no messages: {error}"))
        .ok()
}
