//! `cargo xtask fuzz NAME [SECONDS]`: a target in; how many inputs it has read, or the file with the one
//! that it could not stand, out. `seeds NAME FOLDER` writes its seeds.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use reqtrace_fuzz::{all, by_name, run, write_seeds};

/// Memory that one run may take: more is a find.
const MAX_MEMORY: u64 = 4 << 30;

fn main() -> Result<ExitCode> {
    let mut words = std::env::args().skip(1).peekable();
    let only_seeds = words.next_if(|word| word == "seeds").is_some();
    let names: Vec<&str> = all().iter().map(|target| target.name).collect();
    let name = words
        .next()
        .with_context(|| format!("which one: {}", names.join(", ")))?;
    let Some(target) = by_name(&name) else {
        bail!("`{name}` is none of {}", names.join(", "));
    };
    if only_seeds {
        let folder = words.next().context("a folder is missing")?;
        write_seeds(&target, Path::new(&folder))?;
        return Ok(ExitCode::SUCCESS);
    }
    let seconds = words.next().map_or(Ok(600), |word| word.parse())?;
    let seed = match words.next() {
        Some(word) => word.parse()?,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
    };
    let limit = libc::rlimit {
        rlim_cur: MAX_MEMORY,
        rlim_max: MAX_MEMORY,
    };
    // SAFETY: `limit` is a valid one.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    reqtrace_binary::log_contained_panics();
    println!("{name}: {seconds} s, seed {seed}");
    let run = run(&target, Duration::from_secs(seconds), seed)?;
    println!("{} inputs, the longest {:.1?}", run.inputs, run.longest);
    let Some((input, what)) = run.found else {
        println!("nothing found");
        return Ok(ExitCode::SUCCESS);
    };
    let path = format!("fuzz/corpus/{name}/found-{seed}");
    std::fs::write(&path, input).with_context(|| path.clone())?;
    println!("{path} {what}");
    Ok(ExitCode::FAILURE)
}
