//! `reqtrace doctor`: what works on this machine, and what to do where it does not.
//!
//! The surest check comes last: the kernel programs are really loaded and attached to the
//! scheduler, and a probe is set on this program itself and hit.

use log::debug;
use reqtrace_common::filter::{KeepSlow, StackFilter};

use super::library::Library;
use super::profiles::print;
use super::running::Processes;
use super::show::room;
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::attach::estimate::HitCost;
use reqtrace_capture::attach::{
    self, CpuEngine, Engine, KernelTypes, LoadOptions, Loader, SamplingPlan, SelfTest, Whom,
    self_test,
};
use reqtrace_capture::kernel::doctor::examine;
use reqtrace_capture::kernel::finding::{Finding, State};
use reqtrace_capture::kernel::{Feature, Features, Host};
use reqtrace_capture::tracer::CPU_RATE;

/// Arguments of `doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// Print what the kernel's verifier says of a program that it refuses
    #[arg(short, long)]
    pub verbose: bool,
}

/// Runs it.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Unsupported`] when tracing cannot work here; the list is printed anyway.
pub fn run(args: &DoctorArgs) -> Result<()> {
    super::logger::start(u8::from(args.verbose) * 2);
    let mut findings = examine();
    let tried = subjects(&findings, State::Missing).is_empty();
    if tried {
        findings.extend(tried_features());
    }
    let mut text = String::new();
    for finding in &findings {
        text.push_str(&line(finding));
    }
    if !tried {
        text.push_str("\nloading the kernel programs was not tried\n");
    }
    let missing = subjects(&findings, State::Missing);
    let degraded = subjects(&findings, State::Degraded);
    text.push_str(match (missing.is_empty(), degraded.is_empty()) {
        (true, true) => "\nreqtrace can trace here\n",
        (true, false) => "\nreqtrace can trace here, with what is degraded above\n",
        (false, _) => "",
    });
    if missing.is_empty() {
        text.push('\n');
        text.push_str(&next());
    }
    print(&text)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(
        Error::unsupported(format!("cannot trace here: {}", missing.join(", ")))
            .next("do what the lines above say, from the top"),
    )
}

/// What to type next: servers that run here and have a profile.
fn next() -> String {
    let processes = Processes::read();
    let servers = processes.with_profile(&Library::read());
    if servers.is_empty() {
        return "no program runs here that a profile is made for (`reqtrace profiles` lists them); to \
                begin one for yours: reqtrace functions -p PID NAME --count 5\n"
            .to_owned();
    }
    let mut text = "running here, with a profile made for it; this traces 10 s:\n".to_owned();
    for (server, profile) in servers {
        let command = format!("reqtrace --profile {profile} -p {} 10", server.pid);
        let command = format!("  {command:<45} ");
        let room = room(&std::io::stdout(), command.chars().count());
        text.push_str(&format!("{command}{}\n", server.command_line(room)));
    }
    text
}

fn subjects(findings: &[Finding], state: State) -> Vec<&'static str> {
    findings
        .iter()
        .filter(|finding| finding.state == state)
        .map(|finding| finding.subject)
        .collect()
}

fn line(finding: &Finding) -> String {
    let mut text = format!(
        "{:<9} {:<20} {}\n",
        finding.state.word(),
        finding.subject,
        finding.seen
    );
    if let Some(next) = &finding.next {
        text.push_str(&format!("{:<9} {:<20} next: {next}\n", "", ""));
    }
    text
}

/// Loads all programs, attaches those of the scheduler, takes samples, and sets probes.
fn tried_features() -> Vec<Finding> {
    let subject = "kernel programs";
    match load() {
        Ok(Loaded {
            memory,
            samples,
            mut features,
        }) => {
            let maps = format!("loaded and attached; the maps take {} KiB", memory / 1024);
            let (probes, engine) = probes();
            let multi = engine == Some(Engine::UprobeMulti);
            features.tried(Feature::UprobeMulti, multi);
            features.tried(Feature::ProcessFilter, multi && attach::goes_by_process());
            let mut findings = vec![Finding::ok(subject, maps), samples, probes];
            findings.extend(features.findings(&Features::TRIED));
            findings
        }
        Err(error) => {
            // With what the verifier says.
            debug!("{error:?}");
            vec![Finding::missing(subject, &error), probes().0]
        }
    }
}

/// What came of loading.
struct Loaded {
    /// Kernel memory of the maps, bytes.
    memory: u64,
    /// What of samples works.
    samples: Finding,
    features: Features,
}

/// What of samples works.
fn samples(engine: Option<CpuEngine>, warning: Option<&str>) -> Finding {
    let subject = "CPU samples";
    match (engine, warning) {
        (Some(engine), Some(warning)) => {
            // The warning ends with what takes them then.
            let why = warning.rsplit_once(':').map_or(warning, |(why, _)| why);
            Finding::ok(subject, format!("taken by {engine}; {why}"))
        }
        (Some(_), None) => Finding::ok(subject, "taken by cpu-clock or by cycles (--cpu-engine)"),
        (None, warning) => Finding::degraded(
            subject,
            warning.unwrap_or("none are taken"),
            "everything but on-CPU stacks is traced all the same",
        ),
    }
}

/// Loads everything.
fn load() -> Result<Loaded> {
    let host = Host::examine()?;
    let options = LoadOptions {
        kernel_stacks: true,
        user_stacks: true,
        preempted_stacks: true,
        stack_filter: StackFilter::ALL,
        keep_slow: KeepSlow::ALL,
        histogram: false,
        blame: true,
        holders: true,
        before: false,
        interrupts: host.features.has(Feature::Interrupts),
        origins: false,
        sends: false,
        samples: true,
        measure_walks: false,
        messages: false,
        plans: None,
        has_keys: true,
        probes: None,
        more_probes: false,
        sizes: attach::Sizes::default(),
    };
    let types = || KernelTypes::read(&host);
    let loaded = attach::load(&host, Loader::new(), types, options, None)?;
    let nobody = Whom {
        pids: &[],
        programs: &[],
        more_programs: false,
        follow: true,
        service_of: Box::new(|_| None),
    };
    let plan = SamplingPlan {
        rate_hz: CPU_RATE,
        engine: CpuEngine::Cycles,
        is_required: false,
    };
    let (mut session, _) = loaded.attach(&[], nobody, HitCost::default(), 1, Some(plan))?;
    let memory = session.kernel_memory();
    let samples = samples(session.cpu_engine(), session.sampling_warning());
    let mut features = host.features;
    let by_descriptor = attach::maps_go_by_descriptor()?;
    features.tried(Feature::MapsByDescriptor, by_descriptor);
    session.detach();
    Ok(Loaded {
        memory,
        samples,
        features,
    })
}

/// Sets probes on this program and hits them; with what has set them.
fn probes() -> (Finding, Option<Engine>) {
    let subject = "probes";
    match self_test::run() {
        Ok(SelfTest { engine, cost, cpus }) => {
            let together = match cpus {
                1 => String::new(),
                cpus => format!(" when {cpus} CPUs are hit at once"),
            };
            let privileges = match (engine, attach::perf_events_want_admin()) {
                (Engine::UprobeMulti, _) => "CAP_BPF and CAP_PERFMON",
                (Engine::PerfEvents, Some(false)) => "CAP_BPF and CAP_PERFMON",
                (Engine::PerfEvents, Some(true)) => "CAP_SYS_ADMIN",
                (Engine::PerfEvents, None) => "more than this process has",
            };
            let seen = Finding::ok(
                subject,
                format!(
                    "set by {engine}, which needs {privileges}, hit and counted; a hit costs {} ns, {} ns \
                     where it is stepped, {} ns by a uretprobe{together}",
                    cost.emulated.as_nanos(),
                    cost.stepped.as_nanos(),
                    cost.returned.as_nanos()
                ),
            );
            (seen, Some(engine))
        }
        Err(error) => (Finding::missing(subject, &error), None),
    }
}
