//! `cargo xtask fleet`: recordings of the example services in; what so many machines that replay them give Prometheus and the
//! engines to do, and whether the queries of `deploy/` find what is wrong with them, out.
//!
//! ```text
//! recordings ──► recorded ──► machine (an agent each) ──► its page ──► scraped (Prometheus)
//!                               ▲                   └──► its files of rows ──► engines (ship, ClickHouse, DuckDB)
//!                 seed ──► plan ┴────────────────────────────────────────────► findings ◄──┘
//! ```

mod engines;
mod findings;
mod machine;
mod plan;
mod recorded;
mod recordings;
mod report;
mod scraped;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, ensure};
use reqtrace_agent::{Rows, Share};
use reqtrace_tests::scraped::metrics_of;
use reqtrace_tests::workspace;

use engines::Loaded;
use findings::{Found, Known};
use machine::{Machine, Recordings, SLOW};
use plan::{Plan, SHOP};
use recorded::{Recorded, SECOND_NS};
use scraped::Scraped;

/// How often the shop is recorded, at most.
const ATTEMPTS: u32 = 4;

/// Arguments of `fleet`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Machines
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(4..=1000))]
    pub agents: u32,
    /// Minutes that their rows are of
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub minutes: u32,
    /// Of the requests that are not slow one in so many has a row
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub one_in: u32,
    /// Seconds for which Prometheus scrapes them, 20 at least; 0: it does not
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub scrape: u64,
    /// How often each query is asked; its time is the middle one
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
    /// What is drawn: the outlier, the bad build, the machine whose clock is ahead, files that come twice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds of each recording
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=60))]
    pub seconds: u32,
    /// Read the recordings in this folder; those that are not there are made, and stay
    #[arg(long, value_name = "DIR")]
    pub recordings: Option<PathBuf>,
    /// Ask Spark, too, in a cluster of two executors on this machine: needs 0.5 GB and a JVM
    #[arg(long)]
    pub distributed: bool,
}

/// All that was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By which arguments.
    pub args: Args,
    plan: Plan,
    /// Seconds that are replayed of each recording, and requests a second of each.
    recorded: (u64, Vec<(&'static str, f64)>),
    written: Written,
    /// `None`: no Prometheus was asked for.
    scraped: Option<Scraped>,
    loaded: Loaded,
    found: Found,
}

/// What the agents have written.
#[derive(Clone, Debug, Default)]
struct Written {
    /// Complete requests by service.
    requests: BTreeMap<&'static str, u64>,
    rows: u64,
    files: u64,
    bytes: u64,
    /// Series and bytes of their pages.
    series: Vec<u64>,
    page_bytes: Vec<u64>,
    took: Duration,
    /// CPU time.
    cpu: Duration,
    threads: usize,
}

/// Replays a fleet.
///
/// # Errors
///
/// When something does not run, or the queries do not find what they have to.
pub fn run(args: &Args) -> Result<Measured> {
    raise_descriptors()?;
    let folder = workspace::scratch()?;
    let of_recordings = args.recordings.clone();
    let of_recordings = of_recordings.unwrap_or_else(|| folder.path().join("recordings"));
    let recordings = read(&of_recordings, args.seconds)?;
    let plan = Plan::draw(
        args.seed,
        args.agents as usize,
        60 * u64::from(args.minutes),
    );
    let rows = folder.path().join("rows");
    let written = write(&plan, &recordings, folder.path(), &rows, args.one_in)?;
    eprintln!("fleet: {} rows in {} files", written.rows, written.files);
    let scraped = (args.scrape > 0).then(|| scraped::measure(&plan, &recordings, args.scrape));
    let scraped = scraped.transpose()?;
    eprintln!("fleet: the engines load them");
    let loaded = engines::load(folder.path(), &rows, &plan, args)?;
    let known = Known {
        rows: written.rows,
        requests: written.requests[SHOP],
        one_in: args.one_in,
    };
    let found = findings::check(&plan, known, &loaded.answers)?;
    let each = recordings.all().iter();
    let each = each.map(|one| {
        (
            one.wanted.name,
            one.requests() as f64 / one.seconds.len() as f64,
        )
    });
    Ok(Measured {
        args: args.clone(),
        recorded: (recordings.seconds, each.collect()),
        plan,
        written,
        scraped,
        loaded,
        found,
    })
}

/// The recordings in this folder, which are made if they are not there: those of the shop again where what is wrong with it
/// cannot be seen.
fn read(folder: &Path, seconds: u32) -> Result<Recordings> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let all = recordings::all(folder, seconds)?;
        let recorded = all.iter().map(|one| Recorded::read(one.wanted, &one.path));
        let recordings = Recordings::new(recorded.collect::<Result<_>>()?);
        let Err(error) = recordings.are_clear() else {
            return Ok(recordings);
        };
        let shops = all.iter().filter(|one| one.wanted.service == SHOP);
        let new: Vec<_> = shops.filter(|one| one.is_new).collect();
        let shown = folder.display();
        ensure!(
            attempts < ATTEMPTS && !new.is_empty(),
            "the recordings in {shown} do not show what is wrong: {error}; remove those of the shop, and run this when the machine has \
             less to do"
        );
        eprintln!("fleet: the shop is recorded again: {error}");
        for one in new {
            fs::remove_file(&one.path).with_context(|| one.path.display().to_string())?;
        }
    }
}

impl Measured {
    /// The page of the manual.
    ///
    /// # Errors
    ///
    /// When an answer lacks a number.
    pub fn page(&self) -> Result<String> {
        report::page(self)
    }

    /// Requests that were replayed, and rows that were written of them.
    #[must_use]
    pub fn counts(&self) -> [u64; 2] {
        [self.written.requests.values().sum(), self.written.rows]
    }
}

/// All agents write their rows, as fast as they can; those of a machine come from one thread.
fn write(
    plan: &Plan,
    recordings: &Recordings,
    folder: &Path,
    rows: &Path,
    one_in: u32,
) -> Result<Written> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // All within an hour that is over, whatever the clock of a machine.
    let begin = (now.as_secs() / 3600 - 1) * 3600 + 60;
    let config = |agent: usize| Rows {
        dir: rows.to_owned(),
        spool: folder.join("spool").join(plan.host(agent)),
        keep_slow: Some(SLOW),
        one_in,
        every: Duration::from_secs(300),
        bytes: 64 << 20,
        max: 500 << 20,
        keep_free: Share::of_percent(0.001),
        rollups: None,
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut all = Vec::new();
        loop {
            let agent = next.fetch_add(1, Ordering::Relaxed);
            if agent >= plan.agents {
                return Ok::<_, anyhow::Error>(all);
            }
            let begin_ns = begin * SECOND_NS;
            let mut machine =
                Machine::start(plan, agent, begin_ns, recordings, Some(&config(agent)))?;
            (0..plan.seconds).try_for_each(|second| machine.second(second))?;
            all.push(machine.end(plan.seconds)?);
        }
    };
    let (began, cpu) = (Instant::now(), own_cpu()?);
    let pages = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let done = workers.into_iter().map(|worker| {
            let panicked = |_| Err(anyhow!("a thread that replays panicked"));
            worker.join().unwrap_or_else(panicked)
        });
        done.collect::<Result<Vec<_>>>()
    })?;
    let mut written = Written {
        took: began.elapsed(),
        cpu: own_cpu()?.saturating_sub(cpu),
        threads,
        ..Written::default()
    };
    for (page, requests) in pages.into_iter().flatten() {
        written.add(&page, requests)?;
    }
    ensure!(written.rows > 0, "no row was written");
    Ok(written)
}

impl Written {
    fn add(&mut self, page: &str, requests: BTreeMap<&'static str, u64>) -> Result<()> {
        let metrics = metrics_of(page)?;
        let of = |name: &str| {
            let value = metrics.get(name).copied();
            value.with_context(|| format!("no {name} in\n{page}"))
        };
        for (service, requests) in requests {
            let count = metrics.iter().filter(|(name, _)| {
                name.starts_with(&format!(
                    "reqtrace_request_duration_seconds_count{{service=\"{service}\""
                ))
            });
            let count: f64 = count.map(|(_, value)| value).sum();
            ensure!(
                count == requests as f64,
                "{service}: the metrics have {count} requests of {requests}"
            );
            *self.requests.entry(service).or_default() += requests;
        }
        for cause in ["queue_full", "disk", "oldest"] {
            let dropped = of(&format!("reqtrace_rows_dropped_total{{cause=\"{cause}\"}}"))?;
            ensure!(dropped == 0.0, "{dropped} rows were dropped: {cause}");
        }
        self.rows += of("reqtrace_rows_written_total")? as u64;
        self.files += of("reqtrace_rows_files_total")? as u64;
        self.bytes += of("reqtrace_rows_bytes_total")? as u64;
        self.series.push(metrics.len() as u64);
        self.page_bytes.push(page.len() as u64);
        Ok(())
    }
}

/// CPU time of this process.
fn own_cpu() -> Result<Duration> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it is a valid place.
    let read = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    ensure!(read == 0, "getrusage: {}", std::io::Error::last_os_error());
    // SAFETY: all zeros is a valid value, and the call has set it.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Each agent has a listener and a thread that serves it.
fn raise_descriptors() -> Result<()> {
    let mut limit = std::mem::MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: it is a valid place.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) };
    ensure!(read == 0, "getrlimit: {}", std::io::Error::last_os_error());
    // SAFETY: all zeros is a valid value, and the call has set it.
    let mut limit = unsafe { limit.assume_init() };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: it is a valid limit.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    ensure!(set == 0, "setrlimit: {}", std::io::Error::last_os_error());
    Ok(())
}
