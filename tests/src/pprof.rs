//! What `go tool pprof` reads in a file of `--pprof`.
//!
//! In: the file. Out: its samples, with the names of their frames and their labels.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::workspace;

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// How many intervals.
    pub intervals: u64,
    /// Nanoseconds.
    pub ns: u64,
    /// Functions, outermost first.
    pub frames: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// Runs `go tool pprof` and returns what it prints. It reads and writes nothing but the file: it has a
/// home of its own, and no network.
///
/// # Errors
///
/// When Go is not installed, or does not take the file.
pub fn tool(options: &[&str], file: &Path) -> Result<String> {
    let home = workspace::scratch()?;
    let output = Command::new(workspace::program("go")?)
        .args(["tool", "pprof"])
        .args(options)
        .arg(file)
        .env("HOME", home.path())
        .env("PPROF_TMPDIR", home.path())
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .output()
        .context("go could not be started")?;
    ensure!(
        output.status.success(),
        "go tool pprof {options:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads all samples.
///
/// # Errors
///
/// When the tool does not take the file, or prints what is not expected.
pub fn samples(file: &Path) -> Result<Vec<Sample>> {
    parse(&tool(&["-raw"], file)?)
}

/// What `-raw` prints: values and locations of each sample, its labels below it, then the locations.
fn parse(raw: &str) -> Result<Vec<Sample>> {
    let (_, rest) = raw.split_once("\nSamples:\n").context("no samples")?;
    let (samples, rest) = rest.split_once("\nLocations\n").context("no locations")?;
    let (locations, _) = rest.split_once("\nMappings\n").unwrap_or((rest, ""));
    let mut names = BTreeMap::new();
    for line in locations.lines() {
        let (id, name) = location(line).with_context(|| line.to_owned())?;
        names.insert(id, name);
    }
    let mut lines = samples.lines();
    let header = lines.next().context("no types of samples")?;
    ensure!(
        header == "intervals/count time/nanoseconds[dflt]",
        "{header}"
    );
    let mut all: Vec<Sample> = Vec::new();
    for line in lines {
        if line.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            let (values, ids) = line.split_once(':').context("no locations")?;
            let mut values = values.split_whitespace().map(str::parse);
            let mut value = || values.next().context("too few values");
            let (intervals, ns) = (value()??, value()??);
            let ids = ids.split_whitespace().rev();
            let frames: Option<_> = ids.map(|id| names.get(id).cloned()).collect();
            all.push(Sample {
                intervals,
                ns,
                frames: frames.context("a location that is not listed")?,
                labels: BTreeMap::new(),
            });
        } else {
            let sample = all.last_mut().context("labels of no sample")?;
            // `key:[value] key:[value]`, with one value each.
            for label in line.trim().split("] ") {
                let (key, value) = label.split_once(":[").with_context(|| line.to_owned())?;
                let value = value.strip_suffix(']').unwrap_or(value);
                sample.labels.insert(key.to_owned(), value.to_owned());
            }
        }
    }
    Ok(all)
}

/// `ID: ADDRESS [M=MAPPING ]NAME FILE:LINE s=START[(WHOLE NAME)]`.
fn location(line: &str) -> Option<(String, String)> {
    let (id, rest) = line.trim().split_once(": 0x0 ")?;
    let name = match rest.strip_prefix("M=") {
        Some(rest) => rest.split_once(' ')?.1,
        None => rest,
    };
    let (short, whole) = name.split_once(" :0 s=0")?;
    let whole = whole
        .strip_prefix('(')
        .and_then(|name| name.strip_suffix(')'));
    Some((id.to_owned(), whole.unwrap_or(short).to_owned()))
}
