//! Both engines: a folder of rows in; what the shipper sends of it, loaded more than once, and the answers of all queries out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::process::run;
use reqtrace_tests::{reqtrace, workspace};
use serde_json::Value;

use super::plan::{OTHERS, Plan, SHOP};

/// The share of requests that has to be fast.
pub(super) const TARGET: f64 = 0.999;

/// What came of the rows.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    /// How long the shipper took for all files.
    pub(super) shipped: Duration,
    /// Files that came once more without a token: in DuckDB's folder they are there twice.
    pub(super) twice: u64,
    /// What the script of the engines prints.
    pub(super) answers: Value,
}

/// Sends all files below `rows`, and asks each query `repeats` times.
///
/// # Errors
///
/// When the shipper or an engine fails.
pub(super) fn load(folder: &Path, rows: &Path, plan: &Plan, repeats: u32) -> Result<Loaded> {
    let python = workspace::engines().join("bin/python");
    ensure!(
        python.is_file(),
        "{} is missing: cargo xtask setup --for fleet",
        python.display()
    );
    let engine = Engine::start(|_, _| Reply::Accept)?;
    let config = folder.join("ship.toml");
    let text = format!(
        "[ship]\ndir = \"{}\"\nstate = \"{}\"\nkeep = true\n[metrics]\nlisten = \"127.0.0.1:0\"\n[clickhouse]\nurl = \"{}\"\n",
        rows.display(),
        folder.join("state").display(),
        engine.url()
    );
    fs::write(&config, text)?;
    let begin = Instant::now();
    let config = config.display().to_string();
    let mut ship = reqtrace::command(["ship", "--config", &config, "--once"])?;
    let output = ship.output()?;
    let shipped = begin.elapsed();
    ensure!(
        output.status.success(),
        "reqtrace ship: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    for name in ["files", "twice"] {
        fs::create_dir_all(folder.join(name))?;
    }
    let taken = engine.taken()?;
    let is_drawn = |number: usize| plan.comes_twice(number as u64);
    let drawn: BTreeSet<usize> = (0..taken.len()).filter(|at| is_drawn(*at)).collect();
    // Of few files none may be drawn, and one has to be.
    let drawn = if drawn.is_empty() { [0].into() } else { drawn };
    for (number, (name, content)) in taken.iter().enumerate() {
        fs::write(folder.join("files").join(name), content)?;
        if drawn.contains(&number) {
            fs::write(folder.join("twice").join(name), content)?;
        }
    }
    let sent = engine.sent().into_iter();
    let statements: BTreeMap<String, String> = sent.map(|sent| (sent.token, sent.query)).collect();
    fs::write(
        folder.join("statements.json"),
        serde_json::to_string(&statements)?,
    )?;
    let services: Vec<&str> = [SHOP].into_iter().chain(OTHERS).collect();
    let mut command = Command::new(python);
    command
        .arg(workspace::root().join("tests/fixtures/engines/fleet.py"))
        .arg(folder)
        .arg(workspace::root().join("deploy"))
        .args([services.join(","), TARGET.to_string(), repeats.to_string()]);
    let answers = run(&mut command)?;
    Ok(Loaded {
        shipped,
        twice: drawn.len() as u64,
        answers: serde_json::from_str(&answers).context("the answers of the engines")?,
    })
}
