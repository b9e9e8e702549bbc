//! The page of a fleet: what was measured in, text out.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::plan::GROUPS;
use super::scraped::EVERY;
use super::{Args, Measured};
use xtask::kernel;

/// MiB.
fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

pub(super) fn page(measured: &Measured) -> Result<String> {
    let Measured { args, written, .. } = measured;
    let mut text = String::new();
    let (seconds, recordings) = &measured.recorded;
    let each: Vec<String> = recordings
        .iter()
        .map(|(name, rate)| format!("{name} {rate:.0}"))
        .collect();
    let Args {
        agents,
        minutes,
        one_in,
        seed,
        ..
    } = args;
    writeln!(
        text,
        "# A simulated fleet\n\nWritten by `cargo xtask fleet --agents {agents} --minutes {minutes} --one-in {one_in} --seed {seed}{} --write`, on {} \
         CPUs, kernel {}.\n\nTen recordings of the example services, {seconds} s of each, are replayed as {agents} machines. Each machine has a \
         name, a boot and a time of its own, and\ntwo services: the shop, and one of four others. The code of an agent makes its page of metrics \
         and its files of rows. Requests a second:\n{}.\n",
        if args.distributed {
            " --distributed"
        } else {
            ""
        },
        written.threads,
        kernel::release(),
        each.join(", "),
    )?;
    what_is_wrong(&mut text, measured)?;
    rows(&mut text, measured)?;
    scraped(&mut text, measured)?;
    queries(&mut text, measured)?;
    Ok(text)
}

fn what_is_wrong(text: &mut String, measured: &Measured) -> Result<()> {
    let Measured {
        plan, found, args, ..
    } = measured;
    writeln!(
        text,
        "## What is wrong with it, and what finds it\n\n| drawn by the seed | found by | |\n| --- | --- | --- |\n\
         | {} has half of the CPU time that it needs | `hosts.sql`, first of {} | p99 {:.1} × that of the next machine, {:.1} × the fleet's |\n\
         | build {} of three, deployed to {GROUPS} groups of machines, has slower payments | `deploy.sql` | median {:.1} × that of the other builds |\n\
         | the clock of {} is 90 s ahead | | all answers hold |\n\
         | all files come twice, {} of {} once more without a token | | all answers hold |\n\n\
         Of the four services without an outlier no machine's p99 is more than {:.2} × the next one's. The rows of the shop stand for {:.4} × as many \
         requests as\nits metrics have.\n",
        found.host,
        args.agents,
        found.of_next,
        found.of_fleet,
        plan.bad + 1,
        found.bad,
        plan.host(plan.ahead),
        measured.loaded.twice,
        measured.written.files,
        found.of_others,
        found.weights,
    )?;
    Ok(())
}

fn rows(text: &mut String, measured: &Measured) -> Result<()> {
    let written = &measured.written;
    let [requests, rows] = measured.counts().map(|count| count as f64);
    let took = written.took.as_secs_f64();
    let shipped = measured.loaded.shipped.as_secs_f64();
    let of = &measured.loaded.answers["clickhouse"];
    let number = |name: &str| of[name].as_f64().with_context(|| format!("no {name}"));
    let loading = number("loading")?;
    let files = written.files as f64;
    let lines = [
        ("requests", format!("{requests:.0}")),
        ("rows", format!("{rows:.0}")),
        ("files", format!("{files:.0}")),
        ("rows a file", format!("{:.0}", rows / files)),
        (
            "bytes a row in a file",
            format!("{:.1}", written.bytes as f64 / rows),
        ),
        (
            "requests a second, all agents",
            format!("{:.0}", requests / took),
        ),
        ("rows a second", format!("{:.0}", rows / took)),
        (
            "CPU time a request, all of an agent but the analysis, µs",
            format!("{:.2}", written.cpu.as_secs_f64() * 1e6 / requests),
        ),
        (
            "`reqtrace ship`, files a second",
            format!("{:.0}", files / shipped),
        ),
        (
            "ClickHouse: inserts a second",
            format!("{:.1}", files / loading),
        ),
        (
            "ClickHouse: rows a second",
            format!("{:.0}", rows / loading),
        ),
        (
            "ClickHouse: bytes a row on disk",
            format!("{:.1}", number("bytes")? / rows),
        ),
    ];
    writeln!(text, "## Rows\n\n| | |\n| --- | ---: |")?;
    for (what, value) in lines {
        writeln!(text, "| {what} | {value} |")?;
    }
    writeln!(
        text,
        "\nA machine repeats its recordings, so the same times come again, and bytes a row are fewer than those of a real machine. Each recording is \
         analysed\nonce, for all machines.\n"
    )?;
    Ok(())
}

fn scraped(text: &mut String, measured: &Measured) -> Result<()> {
    let (written, agents) = (&measured.written, measured.args.agents);
    let series: u64 = written.series.iter().sum();
    let bytes: u64 = written.page_bytes.iter().sum();
    let each = f64::from(agents);
    let mut lines = vec![
        (
            "series of an agent of two services",
            format!("{:.0}", series as f64 / each),
        ),
        ("bytes of its page", format!("{:.0}", bytes as f64 / each)),
    ];
    if let Some(scraped) = &measured.scraped {
        let all = scraped.series[0];
        lines.extend([
            ("series of all agents in Prometheus", format!("{all:.0}")),
            (
                "all series in Prometheus, with its rules'",
                format!("{:.0}", scraped.series[1]),
            ),
            (
                "samples of a scrape of all",
                format!("{:.0}", scraped.samples),
            ),
            (
                "duration of a scrape, mean, ms",
                format!("{:.1}", scraped.scrape[0] * 1e3),
            ),
            ("the longest, ms", format!("{:.1}", scraped.scrape[1] * 1e3)),
            (
                "memory of Prometheus, MiB",
                format!("{:.0}", mib(scraped.memory[0] as f64)),
            ),
            (
                "at most, MiB",
                format!("{:.0}", mib(scraped.memory[1] as f64)),
            ),
            (
                "its memory a series, KiB",
                format!("{:.1}", scraped.memory[0] as f64 / 1024.0 / all),
            ),
            (
                "its CPU time, % of a CPU",
                format!("{:.1}", scraped.cpu / scraped.seconds as f64 * 100.0),
            ),
            (
                "p99 of the outlier's histogram over that of the next machine",
                format!("{:.1}", scraped.outlier),
            ),
            (
                "parts and durations differ by",
                format!("{:.0e}", scraped.error),
            ),
        ]);
        writeln!(
            text,
            "## Prometheus\n\nDebian's, with the rules of `deploy/prometheus`, scrapes all machines every {EVERY} s for {} s while they are fed in \
             real time.\nThe machines have no rows here, so no exemplars.\n",
            scraped.seconds
        )?;
    } else {
        writeln!(text, "## Pages\n")?;
    }
    writeln!(text, "| | |\n| --- | ---: |")?;
    for (what, value) in lines {
        writeln!(text, "| {what} | {value} |")?;
    }
    writeln!(text)?;
    Ok(())
}

fn queries(text: &mut String, measured: &Measured) -> Result<()> {
    let answers = &measured.loaded.answers;
    let mut engines = vec![("clickhouse", "ClickHouse"), ("duckdb", "DuckDB")];
    let spark = answers.get("spark");
    let mut alike = "Both".to_owned();
    if spark.is_some() {
        engines.push(("spark", "Spark"));
        "All three".clone_into(&mut alike);
    }
    writeln!(
        text,
        "## Queries\n\nThe middle of {} runs of each query over all rows, s. {alike} engines gave the same {} answers. DuckDB reads {} files, \
         ClickHouse\nits table.\n",
        measured.args.repeats,
        measured.found.compared,
        measured.written.files + measured.loaded.twice,
    )?;
    let titles: Vec<&str> = engines.iter().map(|(_, title)| *title).collect();
    writeln!(
        text,
        "| query | {} |\n| --- |{}",
        titles.join(" | "),
        " ---: |".repeat(engines.len())
    )?;
    let queries = answers["clickhouse"]["seconds"].as_object();
    for query in queries.context("no times")?.keys() {
        write!(text, "| `{query}` |")?;
        for (engine, _) in &engines {
            let seconds = answers[*engine]["seconds"][query].as_f64();
            write!(text, " {:.2} |", seconds.context("no time")?)?;
        }
        writeln!(text)?;
    }
    spark.map_or(Ok(()), |spark| cluster(text, spark))
}

/// What Spark had, and what its statements are.
fn cluster(text: &mut String, spark: &Value) -> Result<()> {
    let version = spark["version"].as_str().context("no version")?;
    let rules = spark["rules"].as_object().context("no rules")?;
    writeln!(
        text,
        "\nSpark {version} is a cluster on this machine: a master, two workers, and an executor of each with the rows of {} and {} hosts. Its \
         statements are\nDuckDB's, rewritten by these rules of `tests/fixtures/engines/spark.py`:\n\n| query | rules |\n| --- | --- |",
        spark["hosts"][0], spark["hosts"][1],
    )?;
    for (query, used) in rules {
        let used = used.as_array().context("no rules")?.iter();
        let used: Vec<&str> = used.filter_map(Value::as_str).collect();
        let used = match used.as_slice() {
            [] => "none".to_owned(),
            used => used.join(", "),
        };
        writeln!(text, "| `{query}` | {used} |")?;
    }
    Ok(())
}
