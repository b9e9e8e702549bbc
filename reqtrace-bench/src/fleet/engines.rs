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

use super::Args;
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

/// Sends all files below `rows`, and asks each query of each engine.
///
/// # Errors
///
/// When the shipper or an engine fails.
pub(super) fn load(folder: &Path, rows: &Path, plan: &Plan, args: &Args) -> Result<Loaded> {
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
    let mut answers = ask("fleet", folder, args.repeats)?;
    if args.distributed {
        answers["spark"] = ask("spark", folder, args.repeats)?;
    }
    Ok(Loaded {
        shipped,
        twice: drawn.len() as u64,
        answers,
    })
}

/// What a script of `tests/fixtures/engines` prints about the files in this folder. It runs in the environment that set-up makes.
fn ask(script: &str, folder: &Path, repeats: u32) -> Result<Value> {
    let environment = match script {
        "spark" => workspace::spark(),
        _ => workspace::engines(),
    };
    let python = environment.join("bin/python");
    ensure!(
        python.is_file(),
        "{} is missing: cargo xtask setup --for {script}",
        python.display()
    );
    let services: Vec<&str> = [SHOP].into_iter().chain(OTHERS).collect();
    let file = format!("tests/fixtures/engines/{script}.py");
    let mut command = Command::new(python);
    command
        .arg(workspace::root().join(file))
        .arg(folder)
        .arg(workspace::root().join("deploy"))
        .args([services.join(","), TARGET.to_string(), repeats.to_string()]);
    let answers = run(&mut command)?;
    serde_json::from_str(&answers).with_context(|| format!("the answers of {script}.py"))
}
