//! Loads the kernel programs: offsets of the running kernel in, verified programs out.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::thread;
use std::time::Instant;

use aya::maps::{Array, HashMap, MapData};
use aya::programs::perf_event::PerfEvent;
use aya::programs::{BtfTracePoint, Iter, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader, Endianness};
use aya_log::EbpfLogger;
use log::debug;
use reqtrace_common::config::{Process, stacks_wanted};
use reqtrace_common::filter::StackFilter;
use reqtrace_common::limits::{
    MAX_KEYS, MAX_LABEL_PLANS, MAX_MARKER_PLANS, MAX_PARKED, MAX_SOCKETS,
};

use reqtrace_common::marker::BriefPlan;

use reqtrace_common::passed::PLACES;

use super::Compiled;
use super::image::Image;
use super::object::{OBJECT, check_abi};
use super::plans::PlanTables;
use super::probes::{Identity, ProbePlan};
use super::sampling::SAMPLER;
use super::sizes::Sizes;
use super::targets::UPROBES;
use super::uprobe::Setter;
use crate::kernel::entries::interrupt_entries;
use crate::kernel::features::{BLOCK, CPU_SWITCH, MIGRATE, PAGE_FAULT, TRACEPOINTS, WATCH_THREADS};
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
    /// Count the lengths of intervals in histograms.
    pub histogram: bool,
    /// Send intervals of threads in requests, and who ended them.
    pub blame: bool,
    /// With that: record all requests of threads that held up a recorded one, though requests are drawn.
    pub holders: bool,
    /// Record how long data had waited at sockets.
    pub before: bool,
    /// Record who sent what parked requests go on with.
    pub origins: bool,
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
    /// Probes of programs that are not known yet may follow: all programs are loaded, and any plans have room.
    pub more_probes: bool,
    /// How many entries the tables have.
    pub sizes: Sizes,
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

/// How many CPUs the kernel may have.
fn cpus() -> u32 {
    aya::util::nr_cpus().unwrap_or(1).max(1) as u32
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
    let mut wanted = 0_u32;
    if options.kernel_stacks {
        wanted |= stacks_wanted::KERNEL;
    }
    if options.user_stacks {
        wanted |= stacks_wanted::USER;
    }
    if options.preempted_stacks {
        wanted |= stacks_wanted::PREEMPTED;
    }
    let level = if options.messages {
        aya_log::Level::Debug
    } else {
        aya_log::Level::Error
    };
    let level = level as u8;
    let plans = options.plans.cloned().unwrap_or_default();
    let filter = options.stack_filter;
    let gaps_by_frame_pointers = u32::from(tables.as_ref().is_some_and(Compiled::frame_pointers));
    let (row_blocks, index_blocks) = tables.as_ref().map_or((1, 1), |tables| {
        (tables.row_blocks(), tables.index_blocks())
    });
    let wants_sockets = options.before || options.origins;
    let mut parts = vec![
        Part::Task,
        Part::Uprobe,
        Part::File,
        Part::Throttled,
        Part::Limit,
        Part::Disk,
    ];
    parts.extend(wants_sockets.then_some(Part::Socket));
    for (global, offset) in parts.into_iter().flat_map(|part| host.layout.globals(part)) {
        loader.override_global(global, offset, true);
    }
    let most = |wanted, most| if wanted { most } else { 1 };
    let sockets = most(wants_sockets, MAX_SOCKETS);
    let readers = most(options.before, options.sizes.threads);
    // Threads that serve requests need the rest.
    let watched = options.sizes.threads / 4;
    let sends = most(options.origins, MAX_SOCKETS);
    let known_stacks = known_stacks();
    // Others read no stacks of interrupts.
    let interrupts = match options.blame {
        true => interrupt_entries(),
        false => [0, 0],
    };
    let (keys, parked) = if options.has_keys {
        (MAX_KEYS, MAX_PARKED)
    } else {
        (1, 1)
    };
    let room = |now: usize, most: usize| if options.more_probes { most } else { now } as u32;
    let labels = room(plans.label_plans().len(), MAX_LABEL_PLANS);
    let markers = room(plans.marker_plans().len(), MAX_MARKER_PLANS);
    let attributes = room(plans.attribute_plans().len(), MAX_MARKER_PLANS);
    let mut ebpf = loader
        .map_max_entries("THREADS", options.sizes.threads)
        .map_max_entries("PROCESSES", options.sizes.processes)
        .map_max_entries("STACKS", options.sizes.stacks)
        .map_max_entries("STACK_SUMS", options.sizes.sums)
        .map_max_entries("RUNS", most(options.blame, cpus()))
        .map_max_entries("KEYS", keys)
        .map_max_entries("PARKED", parked)
        .map_max_entries("UNITS", most(options.has_keys, PLACES))
        .map_max_entries("SOCKETS", sockets)
        .map_max_entries("READS", readers)
        .map_max_entries("SENDS", sends)
        .map_max_entries("KNOWN_USER", known_stacks)
        .map_max_entries("KNOWN_KERNEL", known_stacks)
        .override_global("KNOWN_STACKS", &known_stacks, true)
        .override_global("MOST_WATCHED", &watched, true)
        .map_max_entries("UNWIND_ROWS", row_blocks)
        .map_max_entries("UNWIND_INDEX", index_blocks)
        .map_max_entries(
            "HISTOGRAMS",
            if options.histogram {
                options.sizes.sums
            } else {
                1
            },
        )
        .map_max_entries("LABEL_PLANS", labels)
        .map_max_entries("MARKER_PLANS", markers)
        .map_max_entries("BRIEF_PLANS", markers)
        .map_max_entries("MARKER_COUNTS", markers)
        .map_max_entries("ATTRIBUTE_PLANS", attributes)
        .override_global("STACKS_WANTED", &wanted, true)
        .override_global("LABELS_WANTED", &u32::from(plans.reads_texts()), true)
        .override_global("STACK_MIN_NS", &filter.min_ns, true)
        .override_global("STACK_MAX_NS", &filter.max_ns, true)
        .override_global("STACK_STATE", &filter.state, true)
        .override_global("GAPS_BY_FRAME_POINTERS", &gaps_by_frame_pointers, true)
        .override_global("HISTOGRAM_WANTED", &u32::from(options.histogram), true)
        .override_global("BLAME_WANTED", &u32::from(options.blame), true)
        .override_global("INTERRUPTS_FROM", &interrupts[0], true)
        .override_global("INTERRUPTS_UNTIL", &interrupts[1], true)
        .override_global("HOLDERS_WANTED", &u32::from(options.holders), true)
        .override_global("BEFORE_WANTED", &u32::from(options.before), true)
        .override_global("ORIGIN_WANTED", &u32::from(options.origins), true)
        .override_global("MEASURE_WALKS", &u32::from(options.measure_walks), true)
        .override_global(aya_log::LEVEL, &level, true)
        .load(OBJECT)
        .map_err(|error| explain_load(&error))?;
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

/// Writes plans into their maps.
///
/// # Errors
///
/// When they have no room there.
pub(super) fn fill_plans(ebpf: &mut Ebpf, plans: &PlanTables) -> Result<()> {
    let markers = || plans.marker_plans().iter().map(|(plan, _)| plan);
    let briefs: Vec<BriefPlan> = BriefPlan::all(markers()).collect();
    fill(ebpf, "LABEL_PLANS", plans.label_plans())?;
    fill(ebpf, "MARKER_PLANS", markers())?;
    fill(ebpf, "BRIEF_PLANS", &briefs)?;
    fill(ebpf, "ATTRIBUTE_PLANS", plans.attribute_plans())
}

/// Writes plans into their map.
fn fill<'a, P: aya::Pod>(
    ebpf: &mut Ebpf,
    name: &str,
    plans: impl IntoIterator<Item = &'a P>,
) -> Result<()> {
    let mut map: Array<&mut MapData, P> =
        Array::try_from(map_mut(ebpf, name)?).map_err(map_error)?;
    for (index, plan) in plans.into_iter().enumerate() {
        map.set(index as u32, plan, 0).map_err(map_error)?;
    }
    Ok(())
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
    let sockets = options.before || options.origins;
    let wanted = || {
        let sockets = features.socket_tracepoints().filter(move |_| sockets);
        let disks = disks.then(|| BLOCK.map(|(name, _)| name));
        let others = faults.then_some(PAGE_FAULT).into_iter();
        let others = others.chain(disks.into_iter().flatten());
        let cpus = options
            .blame
            .then_some([CPU_SWITCH, MIGRATE, WATCH_THREADS]);
        let others = others
            .chain(cpus.into_iter().flatten())
            .chain(options.samples.then_some(SAMPLER));
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
            let tracepoint = if name == CPU_SWITCH { SWITCH } else { name };
            program.load(tracepoint, btf)
        })
    };
    loaded.map_err(|error| explain_program(name, error))?;
    debug!("loaded {name} in {:.0?}", started.elapsed());
    Ok(())
}

/// Names the processes to trace; `children` are bits of [`reqtrace_common::config::follow`].
///
/// # Errors
///
/// When the kernel's table cannot take them.
pub(super) fn trace_processes(ebpf: &mut Ebpf, pids: &[u32], children: u32) -> Result<()> {
    let mut processes: HashMap<&mut MapData, u32, Process> =
        HashMap::try_from(map_mut(ebpf, "PROCESSES")?).map_err(map_error)?;
    for &pid in pids {
        let process = Process {
            exec_generation: 0,
            follow: children,
            inherited: 0,
            asked_ns: 0,
            ended_ns: 0,
        };
        processes.insert(pid, process, 0).map_err(|error| {
            Error::failed(format!("process {pid} has no room in the table")).because(error)
        })?;
    }
    Ok(())
}

/// Lets the kernel watch all threads that traced processes have, from now on. Without blame nothing is done.
///
/// # Errors
///
/// When the program cannot be run.
pub(super) fn watch_threads(ebpf: &mut Ebpf) -> Result<()> {
    let program: &mut Iter = program(ebpf, WATCH_THREADS)?;
    if program.fd().is_err() {
        return Ok(());
    }
    let failed = || Error::failed("the threads of the traced processes could not be looked at");
    let link = program.attach().and_then(|link| program.take_link(link));
    let link = link.map_err(|error| failed().because(chain(&error)))?;
    let mut threads = link
        .into_file()
        .map_err(|error| failed().because(chain(&error)))?;
    // It has no output; reading runs it for each thread.
    threads
        .read_to_end(&mut Vec::new())
        .map_err(|error| failed().because(error))?;
    Ok(())
}

/// Lets the kernel trace every process that begins to run one of these files, with these bits of
/// [`reqtrace_common::config::follow`], and no others.
///
/// # Errors
///
/// When the kernel's table cannot take them.
pub(super) fn watch_programs(ebpf: &mut Ebpf, files: &BTreeSet<Identity>, bits: u32) -> Result<()> {
    let number = |file: &Identity| match file {
        Identity::Inode(_, number) => Some(*number),
        Identity::Path(_) => None,
    };
    let numbers: BTreeSet<u64> = files.iter().filter_map(number).collect();
    let mut watched: HashMap<&mut MapData, u64, u32> =
        HashMap::try_from(map_mut(ebpf, "WATCHED")?).map_err(map_error)?;
    let known: Vec<u64> = watched.keys().flatten().collect();
    for gone in known.iter().filter(|known| !numbers.contains(known)) {
        // It was there.
        let _ = watched.remove(gone);
    }
    for number in numbers {
        watched.insert(number, bits, 0).map_err(|error| {
            Error::failed("a program has no room in the table of those that are watched")
                .because(error)
        })?;
    }
    Ok(())
}

/// CPU time of a process's threads that have ended while it was traced, ns; none when it has no entry.
pub(super) fn ended_ns(ebpf: &Ebpf, pid: u32) -> Option<u64> {
    let processes: HashMap<&MapData, u32, Process> =
        HashMap::try_from(ebpf.map("PROCESSES")?).ok()?;
    processes.get(&pid, 0).ok().map(|process| process.ended_ns)
}

/// Gives the room of processes that have left to others.
pub(super) fn forget_processes(ebpf: &mut Ebpf, pids: &BTreeSet<u32>) -> Result<()> {
    let mut processes: HashMap<&mut MapData, u32, Process> =
        HashMap::try_from(map_mut(ebpf, "PROCESSES")?).map_err(map_error)?;
    for pid in pids {
        // A child that could not be stored is not there.
        let _ = processes.remove(pid);
    }
    Ok(())
}

/// A program of the object by its name, for looking at it.
pub(super) fn program_of<'a, P>(ebpf: &'a Ebpf, name: &str) -> Result<&'a P>
where
    &'a P: TryFrom<&'a Program, Error = ProgramError>,
{
    let missing = || Error::failed(format!("the kernel object has no program `{name}`"));
    ebpf.program(name)
        .ok_or_else(missing)?
        .try_into()
        .map_err(|error: ProgramError| missing().because(error))
}

/// A program of the object by its name.
pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let missing = || Error::failed(format!("the kernel object has no program `{name}`"));
    ebpf.program_mut(name)
        .ok_or_else(missing)?
        .try_into()
        .map_err(|error: ProgramError| missing().because(error))
}

/// A map of the object by its name.
pub(super) fn map_mut<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut aya::maps::Map> {
    ebpf.map_mut(name)
        .ok_or_else(|| Error::failed(format!("the kernel object has no map `{name}`")))
}

/// A map of the object by its name, for reading.
pub(super) fn map<'a>(ebpf: &'a Ebpf, name: &str) -> Result<&'a aya::maps::Map> {
    ebpf.map(name)
        .ok_or_else(|| Error::failed(format!("the kernel object has no map `{name}`")))
}

/// The first entry's type of an array map.
pub(super) fn array<'a, V: aya::Pod>(ebpf: &'a Ebpf, name: &str) -> Result<Array<&'a MapData, V>> {
    Array::try_from(map(ebpf, name)?).map_err(map_error)
}

pub(super) fn map_error(error: aya::maps::MapError) -> Error {
    Error::failed("a map of the kernel object could not be used").because(error)
}

/// Messages of the kernel programs go to the log, which `-v` shows.
fn kernel_log(ebpf: &mut Ebpf) -> Option<KernelLog> {
    EbpfLogger::init(ebpf)
        .inspect_err(|error| debug!("the kernel programs have no messages: {error}"))
        .ok()
}

pub(super) fn explain_load(error: &EbpfError) -> Error {
    Error::unsupported("the kernel did not take the maps or the object").because(chain(error))
}

pub(super) fn explain_program(name: &str, error: ProgramError) -> Error {
    if let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = &error
    {
        if io_error.raw_os_error() == Some(libc::EPERM) {
            return Error::unsupported(format!("the kernel refused to load `{name}`"))
                .because(io::Error::from_raw_os_error(libc::EPERM))
                .next("run as root; if it is root, look for lockdown: cat /sys/kernel/security/lockdown");
        }
        return Error::unsupported(format!("the verifier refused `{name}`"))
            .because(format!(
                "{io_error}: {}\n{verifier_log}",
                refusal(&verifier_log.to_string())
            ))
            .next("report this with the output of `uname -a`");
    }
    Error::unsupported(format!("the program `{name}` could not be loaded")).because(chain(&error))
}

/// What the verifier's statistics begin with, which it writes after the reason.
const STATISTICS: [&str; 3] = ["processed ", "stack depth ", "verification time "];

/// Why the verifier refused: the last line of its log that is no statistics.
fn refusal(log: &str) -> &str {
    let is_reason =
        |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|begin| line.starts_with(begin));
    let mut reasons = log.lines().rev().map(str::trim).filter(is_reason);
    reasons.next().unwrap_or("it did not say why")
}

/// An error with all its causes in one line: aya's own messages leave them out.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_stands_before_the_statistics() {
        // The end of a log of 6.1.
        let log = "12: (79) r3 = *(u64 *)(r3 +0)\nR3 unbounded memory access\n\
                   verification time 19004 usec\nstack depth 376+8\nprocessed 900 insns\n\n";
        assert_eq!(refusal(log), "R3 unbounded memory access");
        assert_eq!(refusal("processed 900 insns\n"), "it did not say why");
    }
}
