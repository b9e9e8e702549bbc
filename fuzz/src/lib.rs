//! Fuzzing on stable Rust: the name of a reader in, inputs that it cannot stand out.
//!
//! Every reader of bytes that a traced process, a file or the kernel's ring has written is a [`Target`].
//! Inputs are made of its corpus by mutation; nothing tells which code they reach, so a long run is
//! worth more than a short one. With the feature `guided` libFuzzer makes them (`fuzz_targets`), and knows
//! what they reach. What is found becomes a file of the corpus, and so a test.

mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use mutate::Mutator;
pub use targets::{Target, all, by_name};

/// An input that takes more CPU time than this is a find: what a target writes must not keep the tracer.
pub const SLOW: Duration = Duration::from_secs(2);
/// The largest input.
const MAX_BYTES: usize = 1 << 20;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Run {
    /// Inputs that were read.
    pub inputs: u64,
    /// The most CPU time that one took.
    pub longest: Duration,
    /// The first input that made the reader panic, or took longer than [`SLOW`]; and which it was.
    pub found: Option<(Vec<u8>, &'static str)>,
}

/// The seeds of a target: its files in `fuzz/corpus`, and those that are elsewhere.
///
/// # Errors
///
/// When there is none.
pub fn corpus(target: &Target) -> Result<Vec<Vec<u8>>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = own.join("corpus").join(target.name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    paths.extend(target.elsewhere.iter().map(|path| own.join(path)));
    paths.sort();
    let mut seeds = Vec::new();
    for path in paths {
        let shown = path.display().to_string();
        seeds.push(std::fs::read(path).context(shown)?);
    }
    seeds.extend((target.made)());
    ensure!(!seeds.is_empty(), "{} has no corpus", target.name);
    Ok(seeds)
}

/// Writes the seeds of a target into a folder, for libFuzzer.
///
/// # Errors
///
/// When there is none, or one cannot be written.
pub fn write_seeds(target: &Target, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (number, seed) in corpus(target)?.into_iter().enumerate() {
        std::fs::write(folder.join(number.to_string()), seed)?;
    }
    Ok(())
}

/// Reads one input of libFuzzer's.
///
/// # Panics
///
/// When the reader does, when it takes more CPU time than [`SLOW`], or when there is no target of that name.
pub fn guided(name: &str, bytes: &[u8]) {
    // After libFuzzer's hook, which ends the program at any panic: one that a trace outlives is no find.
    static HOOK: Once = Once::new();
    HOOK.call_once(reqtrace_binary::log_contained_panics);
    let target = by_name(name);
    let since = cpu_time();
    target.map_or_else(|| panic!("no target {name}"), |target| (target.read)(bytes));
    let took = cpu_time().saturating_sub(since);
    assert!(took <= SLOW, "it took {took:?}");
}

/// CPU time of this thread: what else the machine does is no matter.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Reads all seeds, and then mutated ones until the time is over or something is found.
///
/// # Errors
///
/// When there is no corpus.
pub fn run(target: &Target, time: Duration, seed: u64) -> Result<Run> {
    let seeds = corpus(target)?;
    let mut mutator = Mutator::new(seed, target.words);
    let mut run = Run {
        inputs: 0,
        longest: Duration::ZERO,
        found: None,
    };
    let begun = Instant::now();
    let mut next = seeds.iter().cloned();
    loop {
        let input = match next.next() {
            Some(seed) => seed,
            // On a busy machine the corpus alone may take that long.
            None if begun.elapsed() >= time && run.inputs > seeds.len() as u64 => return Ok(run),
            None => mutator.mutate(&seeds, MAX_BYTES),
        };
        let since = cpu_time();
        let panicked = catch_unwind(AssertUnwindSafe(|| (target.read)(&input))).is_err();
        let took = cpu_time().saturating_sub(since);
        run.inputs += 1;
        run.longest = run.longest.max(took);
        if panicked || took > SLOW {
            run.found = Some((input, if panicked { "panics" } else { "is slow" }));
            return Ok(run);
        }
    }
}
