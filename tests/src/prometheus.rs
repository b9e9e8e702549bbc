//! A Prometheus of our own: what it scrapes and by which rules in; its answers to queries out.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::http::{free_port, listens};
use crate::process::{Child, until};
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(60);

/// A running server.
#[derive(Debug)]
pub struct Prometheus {
    process: Child,
    port: u16,
}

/// A series of an answer.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its labels, an object.
    pub labels: Value,
    /// Its value, also infinite or none.
    pub value: f64,
}

impl Prometheus {
    /// Starts one that scrapes this address each second, with exemplars, and evaluates the rules in this file.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn start(folder: &Path, target: &str, rules: &Path) -> Result<Self> {
        Self::of_all(folder, &[target.to_owned()], 1, rules)
    }

    /// The same, and it asks for native histograms.
    ///
    /// # Errors
    ///
    /// As [`Prometheus::start`].
    pub fn start_native(folder: &Path, target: &str, rules: &Path) -> Result<Self> {
        let features = "exemplar-storage,native-histograms";
        Self::with(folder, &[target.to_owned()], 1, rules, features)
    }

    /// The same of several addresses, each `every` seconds.
    ///
    /// # Errors
    ///
    /// As [`Prometheus::start`].
    pub fn of_all(folder: &Path, targets: &[String], every: u32, rules: &Path) -> Result<Self> {
        Self::with(folder, targets, every, rules, "exemplar-storage")
    }

    fn with(
        folder: &Path,
        targets: &[String],
        every: u32,
        rules: &Path,
        features: &str,
    ) -> Result<Self> {
        let config = folder.join("prometheus.yml");
        let all: Vec<String> = targets.iter().map(|one| format!("\"{one}\"")).collect();
        let text = format!(
            "global: {{ scrape_interval: {every}s, evaluation_interval: {every}s }}\nrule_files: [\"{}\"]\n\
             scrape_configs:\n  - job_name: reqtrace\n    static_configs: [{{ targets: [{}] }}]\n",
            rules.display(),
            all.join(", ")
        );
        std::fs::write(&config, text)?;
        let port = free_port()?;
        let mut command = Command::new(workspace::program("prometheus")?);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg(format!("--enable-feature={features}"));
        let process = Child::start(command, folder, "prometheus")?;
        listens(port, LIMIT)?;
        let server = Self { process, port };
        until(LIMIT, "the first scrape of each", || {
            // It listens before it is ready.
            let up = server.query("up == 1").unwrap_or_default();
            Ok((up.len() == targets.len()).then_some(()))
        })?;
        Ok(server)
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What a path of its API answers, `data` of it.
    ///
    /// # Errors
    ///
    /// When it answers with an error, which is in the message.
    pub fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let mut query = String::new();
        for (key, value) in parameters {
            let start = if query.is_empty() { '?' } else { '&' };
            write!(query, "{start}{key}={}", escaped(value))?;
        }
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        // Not of a later version, whose answer would be in pieces.
        write!(stream, "GET /api/v1/{path}{query} HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (_, body) = text.split_once("\r\n\r\n").context("no body")?;
        let mut answer: Value = serde_json::from_str(body).with_context(|| text.clone())?;
        ensure!(
            answer["status"] == "success",
            "{path} {parameters:?}: {}",
            answer["error"]
        );
        Ok(answer["data"].take())
    }

    /// The value of each series of an expression, now.
    ///
    /// # Errors
    ///
    /// When it is wrong.
    pub fn query(&self, expression: &str) -> Result<Vec<Series>> {
        let answer = self.ask("query", &[("query", expression)])?;
        let result = answer["result"].as_array().context("no vector")?;
        let series = result.iter().map(|series| {
            let value = series["value"][1].as_str().context("no value")?;
            Ok(Series {
                labels: series["metric"].clone(),
                value: value.parse()?,
            })
        });
        series.collect()
    }
}

/// As part of a URL.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
