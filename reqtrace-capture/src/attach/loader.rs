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
use reqtrace_common::filter::{KeepSlow, StackFilter};
use reqtrace_common::limits::{KNOWN_AT_MARKERS, MAX_KEYS, MAX_PARKED, MAX_SOCKETS};
use reqtrace_common::marker::{BriefPlan, hits_at};
use reqtrace_common::passed::PLACES;

use super::Compiled;
use super::batch::cpus;
use super::image::Image;
use super::named::fill;
use super::object::{OBJECT, check_abi};
use super::plans::PlanTables;
use super::probes::ProbePlan;
use super::refused::{explain_load, explain_program};
use super::sampling::SAMPLER;
use super::sizes::Sizes;
use super::targets::UPROBES;
use super::uprobe::Setter;
use crate::kernel::entries::KernelCode;
use crate::kernel::features::{
    BLOCK, CPU_SWITCH, INTERRUPT_SWITCH, INTERRUPTS, MIGRATE, PAGE_FAULT, TRACEPOINTS,
    WATCH_THREADS,
};
use crate::kernel::{Feature, Features, Host, Part};
use reqtrace_base::error::{Error, Result};

/// The tracepoint of switches.
const SWITCH: &str = "sched_switch";

/// What to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// Record kernel stacks.
    pub kernel_stacks: bool,
    /// Record user stacks.
    pub user_stacks: bool,
    /// Record the stacks of preemptions too, as far as the above say.
    pub preempted_stacks: bool,
    /// Which intervals go into the stacks.
    pub stack_filter: StackFilter,
    /// Which complete requests are sent.
    pub keep_slow: KeepSlow,
    /// Count the lengths of intervals in histograms.
    pub histogram: bool,
    /// Send intervals of threads in requests, and who ended them.
    pub blame: bool,
    /// With that: record all requests of threads that held up a recorded one, though requests are drawn.
    pub holders: bool,
    /// Record how long data had waited at sockets.
    pub before: bool,
    /// Record what takes the CPU from requests without a switch.
    pub interrupts: bool,
    /// Record who sent what parked requests go on with.
    pub origins: bool,
    /// The kernel says who sends on sockets.
    pub sends: bool,
    /// Load the program that takes samples.
    pub samples: bool,
    /// Count what walking user stacks takes.
    pub measure_walks: bool,
    /// Let the kernel programs send messages to the log.
    pub messages: bool,
    /// Requests of some type are known by a key.
    pub has_keys: bool,
    /// How labels and attributes are read, and what markers do under conditions and with keys; `None`: nothing.
    pub plans: Option<&'a PlanTables>,
    /// Probes that will be set: only their programs are loaded. `None`: all programs are.
    pub probes: Option<&'a [ProbePlan]>,
    /// Probes of programs that are not known yet may follow: all programs are loaded, and there is room for their plans.
    pub more_probes: bool,
    /// How many entries the tables have.
    pub sizes: Sizes,
}

impl LoadOptions<'_> {
    /// Whether the programs for sockets are loaded.
    fn wants_sockets(&self) -> bool {
        self.before || self.origins
    }
}

/// Programs that the kernel has verified; nothing is attached.
pub struct Loaded {
    pub(super) ebpf: Ebpf,
    pub(super) setter: Setter,
    pub(super) tables: Option<Compiled>,
    pub(super) log: Option<KernelLog>,
    pub(super) plans: PlanTables,
    pub(super) sizes: Sizes,
}

/// Messages of the kernel programs.
pub(super) type KernelLog = EbpfLogger<&'static dyn log::Log>;

/// What loads the kernel programs.
pub struct Loader(EbpfLoader<'static>);

impl Loader {
    /// Makes it, which takes some 30 ms: aya reads the kernel's type information each time.
    #[must_use]
    pub fn new() -> Self {
        Self(EbpfLoader::new())
    }
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}

/// The running kernel's type information, as programs for its tracepoints need it.
pub struct KernelTypes(Btf);

impl KernelTypes {
    /// Reads it, which takes some 30 ms.
    ///
    /// # Errors
    ///
    /// When the file is not BTF.
    pub fn read(host: &Host) -> Result<Self> {
        let path = &host.btf_path;
        let btf = Btf::parse_file(path, Endianness::default()).map_err(|error| {
            Error::unsupported(format!("{} is not BTF", path.display())).because(error)
        })?;
        Ok(Self(btf))
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
    Loader(mut loader): Loader,
    types: impl FnOnce() -> Result<KernelTypes>,
    options: LoadOptions<'_>,
    tables: Option<Compiled>,
) -> Result<Loaded> {
    check_abi(OBJECT)?;
    aya::util::nr_cpus().map_err(|(path, error)| {
        Error::unsupported(format!("{path} cannot be read")).because(error)
    })?;
    let mut plans = options.plans.cloned().unwrap_or_default();
    plans.settle(options.more_probes);
    set_layout(&mut loader, host, options);
    set_sizes(&mut loader, options, &plans, tables.as_ref());
    let globals = what_is_recorded(options, &plans, tables.as_ref());
    for (global, number) in &globals.numbers {
        loader.override_global(global, number, true);
    }
    for (global, word) in &globals.words {
        loader.override_global(global, word, true);
    }
    let level = match options.messages {
        true => aya_log::Level::Debug,
        false => aya_log::Level::Error,
    };
    let level = level as u8;
    loader.override_global(aya_log::LEVEL, &level, true);
    let mut ebpf = loader.load(OBJECT).map_err(|error| explain_load(&error))?;
    fill_plans(&mut ebpf, &plans)?;
    let KernelTypes(btf) = types()?;
    let image = Image::of(OBJECT, &ebpf)?;
    let log = kernel_log(&mut ebpf);
    let wanted = |name: &&str| match options.probes {
        Some(plans) if !options.more_probes => plans.iter().any(|plan| plan.program == *name),
        _ => true,
    };
    let uprobes: Vec<&str> = UPROBES.into_iter().filter(wanted).collect();
    let setter = thread::scope(|scope| {
        let tracepoints = scope.spawn(|| load_programs(&mut ebpf, &btf, options, &host.features));
        let setter = Setter::new(image, &uprobes);
        let panicked = |_| Error::failed("a thread that loads programs panicked");
        tracepoints.join().map_err(panicked).flatten()?;
        setter
    })?;
    Ok(Loaded {
        ebpf,
        setter,
        tables,
        log,
        plans,
        sizes: options.sizes,
    })
}

/// Where members of the running kernel's types are.
fn set_layout<'a>(loader: &mut EbpfLoader<'a>, host: &'a Host, options: LoadOptions<'_>) {
    let mut parts = vec![
        Part::Task,
        Part::Uprobe,
        Part::File,
        Part::Throttled,
        Part::Limit,
        Part::Disk,
    ];
    parts.extend(options.wants_sockets().then_some(Part::Socket));
    let reads_steal = options.interrupts && host.features.has(Feature::Steal);
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
fn what_is_recorded(
    options: LoadOptions<'_>,
    plans: &PlanTables,
    tables: Option<&Compiled>,
) -> Globals {
    let stacks = [
        (options.kernel_stacks, stacks_wanted::KERNEL),
        (options.user_stacks, stacks_wanted::USER),
        (options.preempted_stacks, stacks_wanted::PREEMPTED),
    ];
    let stacks = stacks.into_iter().filter(|(is_wanted, _)| *is_wanted);
    let gaps = tables.is_some_and(Compiled::frame_pointers);
    let numbers = vec![
        ("STACKS_WANTED", stacks.fold(0, |all, (_, bit)| all | bit)),
        ("LABELS_WANTED", plans.reads_texts().into()),
        ("GAPS_BY_FRAME_POINTERS", gaps.into()),
        ("HISTOGRAM_WANTED", options.histogram.into()),
        ("BLAME_WANTED", options.blame.into()),
        ("HOLDERS_WANTED", options.holders.into()),
        ("BEFORE_WANTED", options.before.into()),
        ("INTERRUPT_CLOCKS_WANTED", options.interrupts.into()),
        ("ORIGIN_WANTED", options.origins.into()),
        ("SENDS_SEEN", options.sends.into()),
        ("KEEP_ONE_IN", options.keep_slow.one_in),
        ("MEASURE_WALKS", options.measure_walks.into()),
        ("KNOWN_STACKS", known_stacks()),
        // Threads that serve requests need the rest.
        ("MOST_WATCHED", options.sizes.threads / 4),
        ("CPUS", cpus()),
    ];
    let filter = options.stack_filter;
    // Others read no stacks of interrupts.
    let code = match options.blame {
        true => KernelCode::read(options.origins),
        false => KernelCode::default(),
    };
    let words = vec![
        ("STACK_MIN_NS", filter.min_ns),
        ("STACK_MAX_NS", filter.max_ns),
        ("STACK_STATE", filter.state),
        ("KEEP_SLOW_NS", options.keep_slow.slow_ns),
        ("INTERRUPTS_FROM", code.interrupts[0]),
        ("INTERRUPTS_UNTIL", code.interrupts[1]),
        ("SEGMENTS_FROM", code.segments[0]),
        ("SEGMENTS_UNTIL", code.segments[1]),
    ];
    Globals { numbers, words }
}

/// How many entries the tables have: one where a table is not used.
fn set_sizes(
    loader: &mut EbpfLoader<'_>,
    options: LoadOptions<'_>,
    plans: &PlanTables,
    tables: Option<&Compiled>,
) {
    let sizes = options.sizes;
    let most = |wanted, most| if wanted { most } else { 1 };
    let [labels, markers, attributes] = plans.rooms();
    for (map, entries) in [
        ("THREADS", sizes.threads),
        ("PROCESSES", sizes.processes),
        ("STACKS", sizes.stacks),
        ("STACK_SUMS", sizes.sums),
        ("HISTOGRAMS", most(options.histogram, sizes.sums)),
        ("RUNS", most(options.blame, cpus())),
        ("KEYS", most(options.has_keys, MAX_KEYS)),
        ("PARKED", most(options.has_keys, MAX_PARKED)),
        ("UNITS", most(options.has_keys, PLACES)),
        ("SOCKETS", most(options.wants_sockets(), MAX_SOCKETS)),
        ("READS", most(options.before, sizes.threads)),
        ("SENDS", most(options.origins, MAX_SOCKETS)),
        ("KNOWN_USER", known_stacks()),
        ("KNOWN_USER_TAGS", known_stacks()),
        ("KNOWN_KERNEL", known_stacks()),
        ("KNOWN_AT_MARKERS", most(options.has_keys, KNOWN_AT_MARKERS)),
        ("UNWIND_ROWS", tables.map_or(1, Compiled::row_blocks)),
        ("UNWIND_INDEX", tables.map_or(1, Compiled::index_blocks)),
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
pub(super) fn fill_plans(ebpf: &mut Ebpf, plans: &PlanTables) -> Result<()> {
    let markers = || plans.marker_plans().iter().map(|(plan, _)| plan);
    let mut briefs = vec![BriefPlan::WHOLE; markers().count()];
    BriefPlan::all(markers(), &mut briefs);
    fill(ebpf, "LABEL_PLANS", plans.label_plans())?;
    fill(ebpf, "MARKER_PLANS", markers())?;
    fill(ebpf, "BRIEF_PLANS", &briefs)?;
    fill(ebpf, "ATTRIBUTE_PLANS", plans.attribute_plans())
}

/// Loads the programs of the scheduler, and the one that takes samples if it is wanted, at the same time: the
/// verifier takes half a second for the largest.
///
/// With blame page faults are looked at too, where the kernel has their tracepoint.
fn load_programs(
    ebpf: &mut Ebpf,
    btf: &Btf,
    options: LoadOptions<'_>,
    features: &Features,
) -> Result<()> {
    let faults = options.blame && features.has(Feature::PageFaults);
    let disks = options.blame && features.has(Feature::BlockDevices);
    let wanted = || {
        let sockets = features
            .socket_tracepoints()
            .filter(move |_| options.wants_sockets());
        let disks = disks.then(|| BLOCK.map(|(name, _)| name));
        let others = faults.then_some(PAGE_FAULT).into_iter();
        let others = others.chain(disks.into_iter().flatten());
        let cpus = options
            .blame
            .then_some([CPU_SWITCH, MIGRATE, WATCH_THREADS]);
        let others = others
            .chain(cpus.into_iter().flatten())
            .chain(options.samples.then_some(SAMPLER));
        let interrupts = options
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
